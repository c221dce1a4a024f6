package life_test

import (
	"strings"
	"testing"

	"github.com/storageclient/operator/agent/host/bootloader"
	"github.com/storageclient/operator/agent/host/bootloader/efi"
	"github.com/storageclient/operator/agent/host/bootloader/life"
	"github.com/storageclient/operator/agent/host/bootloader/loader"
	"github.com/storageclient/operator/agent/host/hosttest"
	"github.com/storageclient/operator/agent/host/hosttest/rig"
)

func TestDetect(t *testing.T) {
	// "systemd-boot 255.4" in UTF-16 behind four bytes of attributes.
	utf16 := func(text string) string {
		return "\x06\x00\x00\x00" + strings.Join(strings.Split(text, ""), "\x00") + "\x00\x00\x00"
	}
	osRelease := func(id string) map[string]string {
		return map[string]string{"/etc/os-release": "NAME=x\nID=" + id + "\n"}
	}
	tests := map[string]struct {
		fixture string
		files   map[string]string
		remove  string
		want    string
		proven  bool
		message string
	}{
		"Debian":        {fixture: rig.Debian, want: loader.GrubDebian, proven: true},
		"Ubuntu":        {fixture: rig.Ubuntu, want: loader.GrubDebian, proven: true},
		"Rocky":         {fixture: "rocky-9", want: loader.GrubBLS, message: "grubby"},
		"Fedora CoreOS": {fixture: "fedora-coreos", want: loader.RPMOSTree, message: "rpm-ostree kargs"},
		"Flatcar":       {fixture: rig.Debian, files: osRelease("flatcar"), want: loader.Unsupported, message: "/oem/grub.cfg"},
		"Talos":         {fixture: rig.Debian, files: osRelease(`"talos"`), want: loader.Unsupported, message: "extraKernelArgs"},
		"Bottlerocket":  {fixture: rig.Debian, files: osRelease("bottlerocket"), want: loader.Unsupported, message: "settings.boot.kernel-parameters"},
		"Google's COS":  {fixture: rig.Debian, files: osRelease("cos"), want: loader.Unsupported, message: "cannot be configured"},
		"SUSE":          {fixture: rig.Debian, remove: "/usr/sbin/grub-mkconfig", files: map[string]string{"/usr/sbin/update-bootloader": ""}, want: loader.Unsupported, message: "update-bootloader"},
		"SUSE, with a link for /sbin": {fixture: rig.Debian, remove: "/usr/sbin/grub-mkconfig", files: map[string]string{"/sbin/update-bootloader": "",
			"/boot/grub2/grub.cfg": rig.AzureMenu, "/usr/sbin/grub2-mkconfig": rig.UpstreamScript}, want: loader.Unsupported, message: "update-bootloader"},
		"Amazon Linux 2": {fixture: rig.Debian, remove: "/boot/grub", files: map[string]string{"/etc/os-release": "ID=\"amzn\"\nPRETTY_NAME=\"Amazon Linux 2\"\n",
			"/boot/grub2/grub.cfg": rig.AzureMenu, "/usr/sbin/grub2-mkconfig": rig.UpstreamScript}, want: loader.Unsupported,
			message: "Amazon Linux 2: its grub2-mkconfig does not read /etc/default/grub.d: add the argument to GRUB_CMDLINE_LINUX_DEFAULT in /etc/default/grub"},
		"CBL-Mariner 2, as installed": {fixture: rig.Debian, remove: "/boot/grub", files: map[string]string{"/etc/os-release": "ID=mariner\nPRETTY_NAME=\"CBL-Mariner/Linux\"\n",
			"/boot/grub2/grub.cfg": "menuentry \"x\" {\n\tlinux $bootprefix/$mariner_linux $kernelopts\n}\n"}, want: loader.Unsupported,
			message: "CBL-Mariner/Linux: its menu was not made by grub2-mkconfig and uses kernelopts of GRUB's environment: use grub2-editenv /boot/grub2/grubenv set"},
		"a menu by hand": {fixture: rig.Debian, remove: "/boot/grub", files: map[string]string{"/boot/grub2/grub.cfg": "menuentry 'x' {\n\tlinux /vmlinuz ro\n}\n"},
			want: loader.Unsupported, message: "add the argument to the kernel command line in /boot/grub2/grub.cfg"},
		"boot entries without grubby": {fixture: rig.Debian, remove: "/boot/grub", files: map[string]string{"/boot/grub2/grub.cfg": "insmod blscfg\nblscfg\n"},
			want: loader.Unsupported, message: "install grubby"},
		"Azure Linux 3": {fixture: rig.Debian, remove: "/boot/grub", files: rig.AzureFiles, want: loader.Grub2Mkconfig, proven: true},
		"grub2-mkconfig that sources drop-ins itself": {fixture: rig.Debian, remove: "/boot/grub", files: map[string]string{"/boot/grub2/grub.cfg": rig.AzureMenu,
			"/sbin/grub2-mkconfig": "for x in ${sysconfdir}/default/grub.d/*.cfg ; do\n"}, want: loader.Grub2Mkconfig, proven: true},
		"drop-ins that only a comment names": {fixture: rig.Debian, remove: "/boot/grub", files: map[string]string{"/boot/grub2/grub.cfg": rig.AzureMenu,
			"/usr/sbin/grub2-mkconfig": rig.UpstreamScript, loader.DefaultFile: "# see /etc/default/grub.d/*.cfg\n"}, want: loader.Unsupported, message: "does not read"},
		"extlinux": {fixture: rig.Debian, remove: "/boot/grub", files: map[string]string{"/boot/extlinux/extlinux.conf": ""}, want: loader.Unsupported, message: "u-boot-update"},
		"zipl":     {fixture: "rocky-9", files: map[string]string{"/etc/zipl.conf": ""}, want: loader.Unsupported, message: "run zipl"},
		"systemd-boot that has set no variable": {fixture: rig.Debian, remove: "/boot/grub", files: map[string]string{"/boot/loader/loader.conf": ""},
			want: loader.Unsupported, message: "kernel-install"},
		"nothing known": {fixture: rig.Debian, remove: "/boot/grub", want: loader.Unsupported, message: "found no known boot loader"},
		"upstream's GRUB": {fixture: rig.Debian, files: map[string]string{"/usr/sbin/grub-mkconfig": ". /etc/default/grub\n"}, want: loader.Unsupported,
			message: "its grub-mkconfig does not read /etc/default/grub.d: add the argument to GRUB_CMDLINE_LINUX_DEFAULT in /etc/default/grub and run grub-mkconfig -o /boot/grub/grub.cfg"},
		"GRUB on the EFI partition": {fixture: "rocky-9", remove: "/boot/loader", files: map[string]string{"/sys/firmware/efi/fw_platform_size": "64\n", loader.CommandLine: "BOOT_IMAGE=(hd0,gpt2)/boot/vmlinuz-6.6.51.1-5.azl3 root=UUID=1 ro lockdown=integrity loglevel=3\n", "/boot/efi/EFI/openEuler/grub.cfg": rig.AzureMenu},
			want:    loader.Unsupported,
			message: "GRUB in /boot/efi/EFI/openEuler: add the argument to GRUB_CMDLINE_LINUX in /etc/default/grub and run grub2-mkconfig -o /boot/efi/EFI/openEuler/grub.cfg, or use grubby"},
		"GRUB on the EFI partition, without grubby": {fixture: rig.Debian, remove: "/boot/grub", files: map[string]string{"/sys/firmware/efi/fw_platform_size": "64\n", loader.CommandLine: "BOOT_IMAGE=(hd0,gpt2)/boot/vmlinuz-6.6.51.1-5.azl3 root=UUID=1 ro lockdown=integrity loglevel=3\n", "/efi/EFI/x/grub.cfg": rig.AzureMenu}, want: loader.Unsupported,
			message: "GRUB in /efi/EFI/x: add the argument"},
		"entries that the menu on the EFI partition does not read": {fixture: "rocky-9", files: map[string]string{"/sys/firmware/efi/fw_platform_size": "64\n", loader.CommandLine: "BOOT_IMAGE=(hd0,gpt2)/boot/vmlinuz-6.6.51.1-5.azl3 root=UUID=1 ro lockdown=integrity loglevel=3\n", "/boot/efi/EFI/x/grub.cfg": rig.AzureMenu}, want: loader.Unsupported,
			message: "/boot/efi/EFI/x/grub.cfg"},
		"entries, and a menu of a former installation on the EFI partition": {fixture: "rocky-9", files: map[string]string{
			"/sys/firmware/efi/fw_platform_size": "64\n", "/boot/efi/EFI/centos/grub.cfg": rig.AzureMenu}, want: loader.GrubBLS, message: "grubby"},
		"entries that the menu does not read": {fixture: "rocky-9", files: map[string]string{"/boot/grub2/grub.cfg": rig.AzureMenu}, want: loader.Unsupported, message: "does not read"},
		"entries, and a file on the EFI partition that only loads the menu": {fixture: "rocky-9", files: map[string]string{"/boot/grub2/grub.cfg": "insmod blscfg\nblscfg\n",
			"/boot/efi/EFI/rocky/grub.cfg": "search --no-floppy --set=dev\nconfigfile $prefix/grub.cfg\n"}, want: loader.GrubBLS, proven: true},
		"a Raspberry Pi":          {fixture: rig.Debian, remove: "/boot/grub", files: map[string]string{"/boot/firmware/cmdline.txt": "ro\n"}, want: loader.Unsupported, message: "/boot/firmware/cmdline.txt"},
		"a Raspberry Pi, earlier": {fixture: rig.Debian, remove: "/boot/grub", files: map[string]string{"/boot/cmdline.txt": "ro\n"}, want: loader.Unsupported, message: "/boot/cmdline.txt"},
		"Armbian":                 {fixture: rig.Debian, remove: "/boot/grub", files: map[string]string{"/boot/armbianEnv.txt": "\n"}, want: loader.Unsupported, message: "extraargs"},
		"Alpine":                  {fixture: rig.Debian, remove: "/boot/grub", files: map[string]string{"/etc/update-extlinux.conf": "\n"}, want: loader.Unsupported, message: "update-extlinux"},
		"NixOS":                   {fixture: rig.Debian, files: osRelease("nixos"), want: loader.Unsupported, message: "boot.kernelParams"},
		"Ubuntu Core":             {fixture: rig.Debian, files: osRelease("ubuntu-core"), want: loader.Unsupported, message: "snap set system"},
		"GRUB Legacy":             {fixture: rig.Debian, remove: "/boot/grub/grub.cfg", files: map[string]string{"/boot/grub/menu.lst": "\n"}, want: loader.Unsupported, message: "menu.lst"},
		"a unified kernel image": {fixture: rig.Ubuntu, files: map[string]string{efi.Vars + "StubInfo" + efi.LoaderGUID: utf16("systemd-stub 255.4")},
			want: loader.Unsupported, message: "unified kernel image"},
		"systemd-boot": {fixture: rig.Ubuntu, files: map[string]string{efi.Vars + "LoaderInfo" + efi.LoaderGUID: utf16("systemd-boot 255.4")},
			want: loader.Unsupported, message: "systemd-boot"},
		"a GRUB that reports its name": {fixture: rig.Ubuntu, files: map[string]string{efi.Vars + "LoaderInfo" + efi.LoaderGUID: utf16("GRUB 2.12")},
			want: loader.GrubDebian, proven: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := rig.New(t, test.fixture)
			for file, data := range test.files {
				hosttest.WriteFile(t, m.Dir, file, data)
			}
			if test.remove != "" {
				m.Remove(test.remove)
			}
			got := life.Detect(m.FS, bootloader.Kinds)
			if got.Type != test.want || got.Proven != test.proven || !strings.Contains(got.Message, test.message) {
				t.Errorf("got %+v, want %s, proven %v, %q", got, test.want, test.proven, test.message)
			}
			if (got.Message == "") != got.Proven {
				t.Errorf("message: got %q", got.Message)
			}
		})
	}
}
