// Command powercut repeatedly cuts the power of a virtual machine at random moments, while the agent in it changes settings. The file
// system is ext4 or XFS, with Debian's GRUB, with boot loader entries, or with entries that are tried in a boot first, for GRUB or for
// systemd-boot on a VFAT partition. With systemd-boot, the kernels can be unified kernel images. After each cut the machine boots. It checks
// that every file is the old or the new one, that finished changes are present, that no untried argument is in a default entry or an addon,
// and that the journal can restore everything.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"

	"github.com/storageclient/operator/test/reaper"
)

// drivers are the kernel modules for the disk and for XFS, in load order. Newer kernels lack some.
var drivers = []string{
	"virtio_ring.ko", "virtio.ko", "virtio_pci_legacy_dev.ko", "virtio_pci_modern_dev.ko", "virtio_pci.ko", "virtio_blk.ko",
	"libcrc32c.ko", "xfs.ko", "nls_cp437.ko", "nls_ascii.ko", "fat.ko", "vfat.ko",
}

type options struct {
	cuts                         int
	seed                         uint64
	kernel, modules, guest, tree string
	fileSystem                   string
}

func main() {
	var o options
	flag.IntVar(&o.cuts, "cuts", 50, "number of power cuts")
	flag.Uint64Var(&o.seed, "seed", rand.Uint64(), "seed of the random numbers")
	flag.StringVar(&o.kernel, "kernel", "", "kernel image with ext4 built in")
	flag.StringVar(&o.modules, "modules", "", "directory of the kernel's modules")
	flag.StringVar(&o.guest, "guest", "", "init of the guest, a static binary")
	flag.StringVar(&o.tree, "tree", "test/fixtures/hosts/debian-12", "file tree of the host")
	flag.StringVar(&o.fileSystem, "filesystem", "ext4", "file system of the disk, ext4 or xfs")
	flag.Parse()
	if err := run(context.Background(), o); err != nil {
		fmt.Fprintln(os.Stderr, "powercut:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	if err := reaper.Start(); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "powercut-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	image, err := makeImage(ctx, o.fileSystem, o.tree, dir)
	if err != nil {
		return fmt.Errorf("make the disk: %w", err)
	}
	initrd := filepath.Join(dir, "initrd")
	if err := writeInitrd(initrd, o); err != nil {
		return fmt.Errorf("make the initial RAM file system: %w", err)
	}
	m := &vm{dir: dir, kernel: o.kernel, initrd: initrd, fileSystem: o.fileSystem, disk: newDisk(image), chance: rand.New(rand.NewPCG(o.seed, 0))}
	if m.listener, err = (&net.ListenConfig{}).Listen(ctx, "unix", m.socket()); err != nil {
		return err
	}
	defer m.listener.Close()
	go m.serve()
	if err := m.freeze(ctx); err != nil {
		return fmt.Errorf("boot the machine: %w\nlast output:\n%s", err, m.tail())
	}
	fmt.Printf("%s of %s, seed %d. A cut loses random blocks that the guest has written and not flushed.\n\n", o.fileSystem, filepath.Base(o.tree), o.seed)
	fmt.Printf("%4s  %8s  %7s  %-24s  %12s  %s\n", "CUT", "CHECKED", "CHANGES", "CUT WHILE", "BLOCKS LOST", "FOUND AFTER THE CUT BEFORE")
	for n := 1; n <= o.cuts; n++ {
		c, err := m.cycle(ctx)
		if err != nil {
			return fmt.Errorf("cut %d: %w\nlast output:\n%s", n, err, m.tail())
		}
		fmt.Printf("%4d  %7.1fs  %7d  %-24s  %5d of %3d  %s\n", n, c.boot.Seconds(), c.changes, c.while, c.lost, c.cached, c.found)
	}
	last, err := m.lastBoot(ctx)
	if err != nil {
		return fmt.Errorf("boot after the last cut: %w\nlast output:\n%s", err, m.tail())
	}
	fmt.Printf("%4s  %7.1fs  %7s  %-24s  %12s  %s\n", "-", last.boot.Seconds(), "", "", "", last.found)
	fmt.Printf("\n%d cuts survived: %d changes and %d restores done, %d interrupted; %d flushes.\n",
		o.cuts, m.total.changes, m.total.restores, m.total.short, m.disk.flushes)
	return nil
}

func writeInitrd(name string, o options) error {
	init, err := os.ReadFile(o.guest)
	if err != nil {
		return err
	}
	files := []file{{name: "init", mode: 0o755, data: init}}
	for _, dir := range []string{"dev", "proc", "host", "modules"} {
		files = append(files, file{name: dir, mode: os.ModeDir | 0o755})
	}
	err = filepath.WalkDir(o.modules, func(path string, _ os.DirEntry, err error) error {
		if i := slices.Index(drivers, filepath.Base(path)); err == nil && i >= 0 {
			var data []byte
			data, err = os.ReadFile(path)
			files = append(files, file{name: fmt.Sprintf("modules/%02d-%s", i, drivers[i]), mode: 0o644, data: data})
		}
		return err
	})
	if err != nil {
		return err
	}
	return os.WriteFile(name, initramfs(files), 0o600)
}
