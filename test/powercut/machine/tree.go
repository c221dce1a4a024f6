package machine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/storageclient/operator/agent/host/hosttest"
	hostgrub "github.com/storageclient/operator/agent/host/hosttest/grub"
)

// entries is the directory of the boot loader entries.
const entries = "boot/loader/entries"

// LayTree copies the tree of a host, and saves its content from before the first change: /proc becomes /pristine, and copies of /boot and
// /etc go to /pristine-host. A tree with boot loader entries gets the files in which grubby leaves traces. Any other tree gets a menu from
// the grub-mkconfig that the agent will run.
func LayTree(tree, host string) error {
	kind := filepath.Base(tree)
	switch kind {
	case GrubEntries:
		tree = filepath.Join(filepath.Dir(tree), "rocky-9")
	case SystemdBoot, KernelImages:
		tree = filepath.Join(filepath.Dir(tree), "debian-12")
	}
	if err := os.CopyFS(host, os.DirFS(tree)); err != nil {
		return err
	}
	lay, kept := makeMenu, []string{"boot", "etc"}
	switch _, err := os.Stat(filepath.Join(host, entries)); {
	case kind == GrubEntries:
		lay = layGrubEntries
	case kind == SystemdBoot:
		lay, kept = laySystemdBoot, append(kept, EFIPartition)
	case kind == KernelImages:
		lay, kept = layKernelImages, append(kept, EFIPartition)
	case err == nil:
		lay = layTraces
	}
	if err := lay(host); err != nil {
		return err
	}
	for _, name := range kept {
		if err := os.CopyFS(filepath.Join(host, "pristine-host", name), os.DirFS(filepath.Join(host, name))); err != nil {
			return err
		}
	}
	if err := os.Rename(filepath.Join(host, "proc"), filepath.Join(host, "pristine")); err != nil {
		return err
	}
	return os.Mkdir(filepath.Join(host, "proc"), 0o755)
}

func makeMenu(host string) error {
	_, err := (&hosttest.Commands{Dir: host}).Run(context.Background(), "grub-mkconfig", "-o", grubCfg)
	return err
}

// layTraces adds the files in which grubby leaves traces: a second entry with runs of blanks, and an /etc/default/grub with a line that
// grubby mistakes for another. This grubby has no option to skip that file.
func layTraces(host string) error {
	found, err := filepath.Glob(filepath.Join(host, entries, "*.conf"))
	if err != nil || len(found) != 1 {
		return errors.Join(err, fmt.Errorf("%d boot entries in the tree, want one", len(found)))
	}
	data, err := os.ReadFile(found[0])
	if err != nil {
		return err
	}
	second := strings.ReplaceAll(string(data), " ro ", "  ro   ")
	if err := os.WriteFile(strings.TrimSuffix(found[0], ".conf")+"-second.conf", []byte(second), 0o644); err != nil {
		return err
	}
	for _, dir := range []string{"etc/default", "etc/kernel"} {
		if err := os.MkdirAll(filepath.Join(host, dir), 0o755); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(host, "usr/sbin/grubby"), []byte("stands in for a command\n"), 0o755); err != nil {
		return err
	}
	defaults := "GRUB_CMDLINE_LINUX=\"quiet\"\nGRUB_CMDLINE_LINUX_DEFAULT=\"loglevel=3  splash\"\n"
	return os.WriteFile(filepath.Join(host, "etc/default/grub"), []byte(defaults), 0o644)
}

// layGrubEntries adds a second kernel, the files of both, and what GRUB needs to boot an entry once.
func layGrubEntries(host string) error {
	if err := layTraces(host); err != nil {
		return err
	}
	const version = "5.14.0-427.13.1.el9_4.x86_64"
	return writeFiles(host, map[string]string{
		environment:                           hostgrub.PadBlock(hostgrub.EmptyBlock + nextEntry + "\nboot_success=1\nkernelopts=ro\n"),
		"/boot/grub2/grub.cfg":                grubMenu,
		"/boot/vmlinuz-" + version:            "kernel",
		"/boot/initramfs-" + version + ".img": "initrd",
		kernelCmdline:                         "root=/dev/mapper/rl-root ro crashkernel=1G-4G:192M,4G-64G:256M,64G-:512M rd.lvm.lv=rl/root\n",
	})
}

// grubMenu boots the selected entry once, or else the last one.
const grubMenu = `set timeout=5
load_env
if [ "${next_entry}" ] ; then
   set default="${next_entry}"
   set next_entry=
   save_env next_entry
   set boot_once=true
else
   set default="${saved_entry}"
fi
insmod blscfg
blscfg
`

// laySystemdBoot replaces GRUB by systemd-boot with two kernels, in the form of kernel-install 257.
func laySystemdBoot(host string) error {
	const (
		token  = "8d2e0c0f5a7b4b1c9a37d1c3b0a5e6f7"
		device = "1b2c3d4e-0000-4000-8000-000000000001"
		args   = "root=UUID=6f4ac8a5-7c1f-4d0e-9a5b-3d1a2f0f7c11 ro console=ttyS0"
	)
	for _, name := range []string{"boot/grub", "usr/sbin/grub-mkconfig"} {
		if err := os.RemoveAll(filepath.Join(host, name)); err != nil {
			return err
		}
	}
	files := map[string]string{
		kernelCmdline:                                           args + "\n",
		EFIPartition + "/loader/loader.conf":                    "timeout 0\n",
		pristineVariables + "/LoaderInfo-" + loaderID:           hosttest.EncodeVariable("systemd-boot 257.9-1~deb13u1"),
		pristineVariables + "/LoaderFeatures-" + loaderID:       "\x06\x00\x00\x00\xff\x3f\x00\x00\x00\x00\x00\x00",
		pristineVariables + "/LoaderDevicePartUUID-" + loaderID: hosttest.EncodeVariable(strings.ToUpper(device)),
		efiVariables + "/README":                                "The variables of the firmware are mounted here.\n",
		"/sys/class/block/sdx1/dev":                             "8:15\n",
		"/dev/disk/by-partuuid/" + device:                       "",
		"/proc/1/mountinfo":                                     "25 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n91 25 8:15 / /efi rw,relatime shared:41 - vfat /dev/sda15 rw\n",
	}
	for _, version := range []string{"6.12.8-amd64", "6.12.9-amd64"} {
		dir := "/" + token + "/" + version
		files[EFIPartition+dir+"/linux"], files[EFIPartition+dir+"/initrd.img-"+version] = "kernel", "initrd"
		files[EFIPartition+"/loader/entries/"+token+"-"+version+".conf"] = "# Boot Loader Specification type#1 entry\n" +
			"# File created by /usr/lib/kernel/install.d/90-loaderentry.install (systemd 257.9-1~deb13u1)\n" +
			"title      Debian GNU/Linux 13 (trixie)\nversion    " + version + "\nmachine-id " + token + "\nsort-key   debian\n" +
			"options    " + args + " systemd.machine_id=" + token + "\nlinux      " + dir + "/linux\ninitrd     " + dir + "/initrd.img-" + version + "\n"
	}
	if err := writeFiles(host, files); err != nil {
		return err
	}
	link := filepath.Join(host, "dev/disk/by-partuuid", device)
	return errors.Join(os.Remove(link), os.Symlink("../../sdx1", link), writeFiles(host, map[string]string{"/dev/sdx1": ""}))
}

// layKernelImages replaces the kernels of systemd-boot by unified kernel images with the same arguments, in the form of ukify 257.
func layKernelImages(host string) error {
	if err := laySystemdBoot(host); err != nil {
		return err
	}
	entries, err := filepath.Glob(host + EFIPartition + "/loader/entries/*.conf")
	if err != nil {
		return err
	}
	files := map[string]string{
		pristineVariables + "/StubInfo-" + loaderID:                            hosttest.EncodeVariable("systemd-stub 257.9-1~deb13u1"),
		pristineVariables + "/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c": "\x06\x00\x00\x00\x00",
	}
	for _, name := range entries {
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		entry := "\n" + string(data)
		version := between(entry, "\nversion ")
		files[kernelImages+"/"+strings.TrimSuffix(filepath.Base(name), ".conf")+".efi"] = hosttest.EncodeImage(
			[2]string{".sdmagic", "#### LoaderInfo: systemd-stub 257.9-1~deb13u1 ####"}, [2]string{".osrel", "ID=debian\nVERSION=\"13 (trixie)\"\n"},
			[2]string{".cmdline", between(entry, "\noptions ")}, [2]string{".uname", version}, [2]string{".linux", "kernel " + version})
		for _, replaced := range []string{name, filepath.Join(host, EFIPartition, between(entry, "\nmachine-id "))} {
			if err := os.RemoveAll(replaced); err != nil {
				return err
			}
		}
	}
	return writeFiles(host, files)
}

func writeFiles(host string, files map[string]string) error {
	for name, data := range files {
		if err := os.MkdirAll(filepath.Join(host, filepath.Dir(name)), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(host, name), []byte(data), 0o644); err != nil {
			return err
		}
	}
	return nil
}
