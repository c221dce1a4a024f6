package cluster

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/storageclient/operator/test/patience"
)

// recipe creates the base disk: debian.sh the packages, disk.sh the disk, root the files on it.
//
//go:embed all:base
var recipe embed.FS

// base is the unchanged disk under every machine's overlay, with the kernel from its first start.
type base struct{ dir string }

func (b base) disk() string   { return filepath.Join(b.dir, "disk.raw") }
func (b base) kernel() string { return filepath.Join(b.dir, "vmlinuz") }
func (b base) initrd() string { return filepath.Join(b.dir, "initrd") }

// baseDisk returns the base disk that matches this recipe and these binaries.
func baseDisk(dirs Dirs) (base, error) {
	stamp, err := stampOf(dirs, "base")
	return base{filepath.Join(dirs.base(), "disk-"+stamp)}, err
}

// Prepare creates the files that are kept between runs, if they are missing: the base disk and the workload's image. It needs the Debian
// mirror, and the Go module with its requirements.
func Prepare(ctx context.Context, dirs Dirs, progress func(format string, args ...any)) error {
	if err := os.MkdirAll(dirs.base(), 0o755); err != nil {
		return err
	}
	if err := buildWorkload(ctx, dirs); err != nil {
		return fmt.Errorf("build the workload: %w", err)
	}
	disk, err := baseDisk(dirs)
	if err != nil {
		return err
	}
	if _, err := os.Stat(disk.disk()); err == nil {
		progress("base disk: %s, as before", disk.dir)
		return nil
	}
	if err := removeUnfinished(dirs); err != nil {
		return err
	}
	work := filepath.Join(dirs.base(), fmt.Sprintf("work-%d", os.Getpid()))
	if err := os.Mkdir(work, 0o700); err != nil {
		return err
	}
	begin := time.Now()
	err = buildBase(ctx, dirs, work)
	if err == nil {
		err = keepOnly(dirs, disk, filepath.Join(work, "out"))
	}
	if err := errors.Join(err, os.RemoveAll(work)); err != nil {
		return fmt.Errorf("make the base disk: %w", err)
	}
	progress("base disk: %s, made in %.0f s", disk.dir, time.Since(begin).Seconds())
	return nil
}

// removeUnfinished removes the files of a process that was killed while it created a disk.
func removeUnfinished(dirs Dirs) error {
	left, err := filepath.Glob(filepath.Join(dirs.base(), "work-*"))
	if err != nil {
		return err
	}
	for _, path := range left {
		owner := strings.TrimPrefix(filepath.Base(path), "work-")
		if _, err := os.Stat(filepath.Join("/proc", owner)); err == nil && owner != strconv.Itoa(os.Getpid()) {
			continue
		}
		if err := os.RemoveAll(path); err != nil {
			return err
		}
	}
	return nil
}

// buildBase creates the disk in work/out.
func buildBase(ctx context.Context, dirs Dirs, work string) error {
	if err := os.CopyFS(work, recipe); err != nil {
		return err
	}
	scripts, binaries, out := filepath.Join(work, "base"), filepath.Join(work, "binaries"), base{filepath.Join(work, "out")}
	debian, err := debianArchive(ctx, dirs, scripts)
	if err != nil {
		return err
	}
	for _, dir := range []string{binaries, out.dir} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	for _, file := range dirs.nodeBinaries() {
		if err := os.Symlink(file, filepath.Join(binaries, filepath.Base(file))); err != nil {
			return err
		}
	}
	argv := append(asRoot(), "sh", filepath.Join(scripts, "disk.sh"), debian, filepath.Join(scripts, "root"), binaries, out.dir)
	if err := command(ctx, argv...); err != nil {
		return err
	}
	return installGRUB(ctx, out)
}

// debianArchive creates the packages' archive, unless debian.sh is unchanged since the last one.
func debianArchive(ctx context.Context, dirs Dirs, scripts string) (string, error) {
	stamp, err := stampOf(dirs, "base/debian.sh")
	if err != nil {
		return "", err
	}
	archive := filepath.Join(dirs.base(), "debian-"+stamp+".tar")
	if _, err := os.Stat(archive); err == nil {
		return archive, nil
	}
	unfinished := filepath.Join(filepath.Dir(scripts), "debian.tar")
	if err := command(ctx, "sh", filepath.Join(scripts, "debian.sh"), unfinished); err != nil {
		return "", err
	}
	return archive, os.Rename(unfinished, archive)
}

// installGRUB starts the new disk once, with GRUB's installation as its init.
func installGRUB(ctx context.Context, disk base) error {
	ctx, cancel := context.WithTimeout(ctx, patience.Of(5*time.Minute))
	defer cancel()
	console := filepath.Join(disk.dir, "console")
	err := command(ctx, append(software.qemu(1024), "-no-reboot", "-nic", "none", "-serial", "file:"+console,
		"-drive", "file="+disk.disk()+",format=raw,if=virtio,cache=unsafe", "-kernel", disk.kernel(), "-initrd", disk.initrd(),
		"-append", "root=/dev/vda1 ro console=ttyS0 init=/usr/local/sbin/install-grub")...)
	printed, readErr := os.ReadFile(console)
	if err := errors.Join(err, readErr); err != nil {
		return fmt.Errorf("install GRUB: %w: %s", err, tail(printed))
	}
	if !strings.Contains(string(printed), "BASE-DISK-DONE") {
		return fmt.Errorf("install GRUB: %s", tail(printed))
	}
	return os.Chmod(disk.disk(), 0o444)
}

// keepOnly moves the new disk to its place, and removes older disks with their archives.
func keepOnly(dirs Dirs, disk base, from string) error {
	stamp, err := stampOf(dirs, "base/debian.sh")
	if err != nil {
		return err
	}
	old, err := filepath.Glob(filepath.Join(dirs.base(), "d*-*"))
	if err != nil {
		return err
	}
	for _, path := range old {
		if filepath.Base(path) == "debian-"+stamp+".tar" {
			continue
		}
		if err := os.RemoveAll(path); err != nil {
			return err
		}
	}
	return os.Rename(from, disk.dir)
}

// stampOf returns a hash of the files of the recipe under a path. For the whole recipe, it includes the binaries on the disk.
func stampOf(dirs Dirs, path string) (string, error) {
	sum := sha256.New()
	err := fs.WalkDir(recipe, path, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := recipe.ReadFile(path)
		fmt.Fprintf(sum, "%s %d\n%s", path, len(data), data)
		return err
	})
	if err != nil || path != "base" {
		return hex.EncodeToString(sum.Sum(nil))[:16], err
	}
	for _, name := range dirs.nodeBinaries() {
		file, err := os.Open(name)
		if err != nil {
			return "", err
		}
		fmt.Fprintln(sum, filepath.Base(name))
		_, err = io.Copy(sum, file)
		if err := errors.Join(err, file.Close()); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(sum.Sum(nil))[:16], nil
}
