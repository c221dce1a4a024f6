package bootloader

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/hosttest"
)

func TestWordsAreSplitAsByAShell(t *testing.T) {
	tests := map[string]struct {
		text string
		want []string
	}{
		"blanks and tabs":                     {"linux\t/vmlinuz  ro", []string{"linux", "/vmlinuz", "ro"}},
		"single quotes":                       {`'a b' 'It'\''s'`, []string{"a b", "It's"}},
		"double quotes":                       {`"a b" c"d"e`, []string{"a b", "cde"}},
		"a backslash inside double quotes":    {`"\"a\" \n \$x"`, []string{`"a" \n $x`}},
		"a backslash inside single quotes":    {`'a\'`, []string{`a\`}},
		"a backslash outside":                 {`a\ b \"c`, []string{"a b", `"c`}},
		"an empty word":                       {`a "" b`, []string{"a", "", "b"}},
		"a comment with an apostrophe":        {"a # don't\nb", []string{"a", "b"}},
		"a hash inside a word":                {"a#b", []string{"a#b"}},
		"a continued line":                    {"a\\\nb", []string{"ab"}},
		"a line end inside quotes is a blank": {"\"a\nb\"", []string{"a\nb"}},
		"variables stay":                      {`"$A ${B} c"`, []string{"$A ${B} c"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, splitWords(test.text)); diff != "" {
				t.Errorf("%q (-want +got):\n%s", test.text, diff)
			}
		})
	}
}

func TestTheMenuOfDebian12(t *testing.T) {
	m := newMachine(t, debian)
	parsed := parseMenu(m.read(grubCfg))
	if !parsed.whole {
		t.Error("the menu is not complete")
	}
	var got []string
	for _, line := range parsed.lines {
		entry := line.id + " " + line.kernel + " " + joinArguments(line.args)
		if line.recovery {
			entry += " (recovery)"
		}
		got = append(got, strings.ReplaceAll(entry, "6f4ac8a5-7c1f-4d0e-9a5b-3d1a2f0f7c11", "U"))
	}
	want := []string{
		"gnulinux-simple-U /boot/vmlinuz-6.1.0-25-amd64 root=UUID=U ro quiet",
		"gnulinux-6.1.0-25-amd64-advanced-U /boot/vmlinuz-6.1.0-25-amd64 root=UUID=U ro quiet",
		"gnulinux-6.1.0-25-amd64-recovery-U /boot/vmlinuz-6.1.0-25-amd64 root=UUID=U ro single (recovery)",
		"gnulinux-6.1.0-18-amd64-advanced-U /boot/vmlinuz-6.1.0-18-amd64 root=UUID=U ro quiet",
		"gnulinux-6.1.0-18-amd64-recovery-U /boot/vmlinuz-6.1.0-18-amd64 root=UUID=U ro single (recovery)",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("menu (-want +got):\n%s", diff)
	}
}

func TestOnlyEntriesOf10LinuxCount(t *testing.T) {
	const text = `### BEGIN /etc/grub.d/10_linux ###
menuentry 'A' --id 'a' {
	linux	/vmlinuz-1 ro dyndbg="file x ihash_entries=5 +p" $vt_handoff -- ihash_entries=6
	linux16 /vmlinuz-2 ro
}
### END /etc/grub.d/10_linux ###
### BEGIN /etc/grub.d/20_memtest86+ ###
menuentry "Memory test" {
	linux	/boot/memtest86+x64.bin
}
### END /etc/grub.d/20_memtest86+ ###
### BEGIN /etc/grub.d/40_custom ###
menuentry 'Mine' {
	linux /vmlinuz-1 rescue
}
### END /etc/grub.d/40_custom ###
`
	got := parseMenu(text)
	want := menu{whole: true, lines: []bootLine{
		{id: "a", title: "A", kernel: "/vmlinuz-1", args: []host.Argument{
			{Name: "ro"}, {Name: "dyndbg", Value: "file x ihash_entries=5 +p", HasValue: true}, {Name: "$vt_handoff"},
		}, number: 3},
		{id: "a", nth: 1, title: "A", kernel: "/vmlinuz-2", args: []host.Argument{{Name: "ro"}}, number: 4},
	}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(menu{}, bootLine{}), cmpopts.IgnoreFields(menu{}, "root")); diff != "" {
		t.Errorf("menu (-want +got):\n%s", diff)
	}
}

func TestIncompleteMenu(t *testing.T) {
	for name, text := range map[string]string{
		"empty":                     "",
		"ends inside a section":     "### BEGIN /etc/grub.d/10_linux ###\n",
		"ends inside an entry":      "### BEGIN /etc/grub.d/10_linux ###\nmenuentry 'A' {\n### END /etc/grub.d/10_linux ###\n",
		"without any section":       "menuentry 'A' {\nlinux /vmlinuz ro\n}\n",
		"a brace that has no start": "### BEGIN /etc/grub.d/10_linux ###\n}\n",
	} {
		t.Run(name, func(t *testing.T) {
			if parseMenu(text).whole {
				t.Error("an incomplete menu is accepted as complete")
			}
		})
	}
}

func TestDropInDescribesItsContent(t *testing.T) {
	args := []host.Argument{host.NewArgument("a=1"), host.NewArgument("b")}
	forms := map[string]form{"the drop-in of GRUB": grubForm, "the record next to boot entries": blsForm}
	for name, d := range map[string]dropIn{
		"settled":               {present: true, args: args},
		"with a trial":          {present: true, args: args, hasTrial: true, replaces: args[:1]},
		"unfinished":            {present: true, args: args, unfinished: true, replaces: args[:1]},
		"unfinished, the first": {present: true, args: args, unfinished: true},
		"unfinished, the last":  {present: true, unfinished: true, replaces: args},
	} {
		t.Run(name, func(t *testing.T) {
			for formName, form := range forms {
				if diff := cmp.Diff(d, parseDropIn(d.renderFile(form), form), cmp.AllowUnexported(dropIn{})); diff != "" {
					t.Errorf("%s, read back (-want +got):\n%s", formName, diff)
				}
			}
		})
	}
}

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
		"Debian":        {fixture: debian, want: GrubDebian, proven: true},
		"Ubuntu":        {fixture: ubuntu, want: GrubDebian, proven: true},
		"Rocky":         {fixture: "rocky-9", want: GrubBLS, message: "grubby"},
		"Fedora CoreOS": {fixture: "fedora-coreos", want: RPMOSTree, message: "rpm-ostree kargs"},
		"Flatcar":       {fixture: debian, files: osRelease("flatcar"), want: Unsupported, message: "/oem/grub.cfg"},
		"Talos":         {fixture: debian, files: osRelease(`"talos"`), want: Unsupported, message: "extraKernelArgs"},
		"Bottlerocket":  {fixture: debian, files: osRelease("bottlerocket"), want: Unsupported, message: "settings.boot.kernel-parameters"},
		"Google's COS":  {fixture: debian, files: osRelease("cos"), want: Unsupported, message: "cannot be configured"},
		"SUSE":          {fixture: debian, remove: "/usr/sbin/grub-mkconfig", files: map[string]string{"/usr/sbin/update-bootloader": ""}, want: Unsupported, message: "update-bootloader"},
		"SUSE, with a link for /sbin": {fixture: debian, remove: "/usr/sbin/grub-mkconfig", files: map[string]string{"/sbin/update-bootloader": "",
			"/boot/grub2/grub.cfg": azureMenu, "/usr/sbin/grub2-mkconfig": upstreamScript}, want: Unsupported, message: "update-bootloader"},
		"Amazon Linux 2": {fixture: debian, remove: "/boot/grub", files: map[string]string{"/etc/os-release": "ID=\"amzn\"\nPRETTY_NAME=\"Amazon Linux 2\"\n",
			"/boot/grub2/grub.cfg": azureMenu, "/usr/sbin/grub2-mkconfig": upstreamScript}, want: Unsupported,
			message: "Amazon Linux 2: its grub2-mkconfig does not read /etc/default/grub.d: add the argument to GRUB_CMDLINE_LINUX_DEFAULT in /etc/default/grub"},
		"CBL-Mariner 2, as installed": {fixture: debian, remove: "/boot/grub", files: map[string]string{"/etc/os-release": "ID=mariner\nPRETTY_NAME=\"CBL-Mariner/Linux\"\n",
			"/boot/grub2/grub.cfg": "menuentry \"x\" {\n\tlinux $bootprefix/$mariner_linux $kernelopts\n}\n"}, want: Unsupported,
			message: "CBL-Mariner/Linux: its menu was not made by grub2-mkconfig and uses kernelopts of GRUB's environment: use grub2-editenv /boot/grub2/grubenv set"},
		"a menu by hand": {fixture: debian, remove: "/boot/grub", files: map[string]string{"/boot/grub2/grub.cfg": "menuentry 'x' {\n\tlinux /vmlinuz ro\n}\n"},
			want: Unsupported, message: "add the argument to the kernel command line in /boot/grub2/grub.cfg"},
		"boot entries without grubby": {fixture: debian, remove: "/boot/grub", files: map[string]string{"/boot/grub2/grub.cfg": "insmod blscfg\nblscfg\n"},
			want: Unsupported, message: "install grubby"},
		"Azure Linux 3": {fixture: debian, remove: "/boot/grub", files: azureFiles, want: Grub2Mkconfig, proven: true},
		"grub2-mkconfig that sources drop-ins itself": {fixture: debian, remove: "/boot/grub", files: map[string]string{"/boot/grub2/grub.cfg": azureMenu,
			"/sbin/grub2-mkconfig": "for x in ${sysconfdir}/default/grub.d/*.cfg ; do\n"}, want: Grub2Mkconfig, proven: true},
		"drop-ins that only a comment names": {fixture: debian, remove: "/boot/grub", files: map[string]string{"/boot/grub2/grub.cfg": azureMenu,
			"/usr/sbin/grub2-mkconfig": upstreamScript, defaultFile: "# see /etc/default/grub.d/*.cfg\n"}, want: Unsupported, message: "does not read"},
		"extlinux": {fixture: debian, remove: "/boot/grub", files: map[string]string{"/boot/extlinux/extlinux.conf": ""}, want: Unsupported, message: "u-boot-update"},
		"zipl":     {fixture: "rocky-9", files: map[string]string{"/etc/zipl.conf": ""}, want: Unsupported, message: "run zipl"},
		"systemd-boot that has set no variable": {fixture: debian, remove: "/boot/grub", files: map[string]string{"/boot/loader/loader.conf": ""},
			want: Unsupported, message: "kernel-install"},
		"nothing known": {fixture: debian, remove: "/boot/grub", want: Unsupported, message: "found no known boot loader"},
		"upstream's GRUB": {fixture: debian, files: map[string]string{"/usr/sbin/grub-mkconfig": ". /etc/default/grub\n"}, want: Unsupported,
			message: "its grub-mkconfig does not read /etc/default/grub.d: add the argument to GRUB_CMDLINE_LINUX_DEFAULT in /etc/default/grub and run grub-mkconfig -o /boot/grub/grub.cfg"},
		"GRUB on the EFI partition": {fixture: "rocky-9", remove: "/boot/loader", files: map[string]string{"/sys/firmware/efi/fw_platform_size": "64\n", commandLine: "BOOT_IMAGE=(hd0,gpt2)/boot/vmlinuz-6.6.51.1-5.azl3 root=UUID=1 ro lockdown=integrity loglevel=3\n", "/boot/efi/EFI/openEuler/grub.cfg": azureMenu},
			want:    Unsupported,
			message: "GRUB in /boot/efi/EFI/openEuler: add the argument to GRUB_CMDLINE_LINUX in /etc/default/grub and run grub2-mkconfig -o /boot/efi/EFI/openEuler/grub.cfg, or use grubby"},
		"GRUB on the EFI partition, without grubby": {fixture: debian, remove: "/boot/grub", files: map[string]string{"/sys/firmware/efi/fw_platform_size": "64\n", commandLine: "BOOT_IMAGE=(hd0,gpt2)/boot/vmlinuz-6.6.51.1-5.azl3 root=UUID=1 ro lockdown=integrity loglevel=3\n", "/efi/EFI/x/grub.cfg": azureMenu}, want: Unsupported,
			message: "GRUB in /efi/EFI/x: add the argument"},
		"entries that the menu on the EFI partition does not read": {fixture: "rocky-9", files: map[string]string{"/sys/firmware/efi/fw_platform_size": "64\n", commandLine: "BOOT_IMAGE=(hd0,gpt2)/boot/vmlinuz-6.6.51.1-5.azl3 root=UUID=1 ro lockdown=integrity loglevel=3\n", "/boot/efi/EFI/x/grub.cfg": azureMenu}, want: Unsupported,
			message: "/boot/efi/EFI/x/grub.cfg"},
		"entries, and a menu of a former installation on the EFI partition": {fixture: "rocky-9", files: map[string]string{
			"/sys/firmware/efi/fw_platform_size": "64\n", "/boot/efi/EFI/centos/grub.cfg": azureMenu}, want: GrubBLS, message: "grubby"},
		"entries that the menu does not read": {fixture: "rocky-9", files: map[string]string{"/boot/grub2/grub.cfg": azureMenu}, want: Unsupported, message: "does not read"},
		"entries, and a file on the EFI partition that only loads the menu": {fixture: "rocky-9", files: map[string]string{"/boot/grub2/grub.cfg": "insmod blscfg\nblscfg\n",
			"/boot/efi/EFI/rocky/grub.cfg": "search --no-floppy --set=dev\nconfigfile $prefix/grub.cfg\n"}, want: GrubBLS, proven: true},
		"a Raspberry Pi":          {fixture: debian, remove: "/boot/grub", files: map[string]string{"/boot/firmware/cmdline.txt": "ro\n"}, want: Unsupported, message: "/boot/firmware/cmdline.txt"},
		"a Raspberry Pi, earlier": {fixture: debian, remove: "/boot/grub", files: map[string]string{"/boot/cmdline.txt": "ro\n"}, want: Unsupported, message: "/boot/cmdline.txt"},
		"Armbian":                 {fixture: debian, remove: "/boot/grub", files: map[string]string{"/boot/armbianEnv.txt": "\n"}, want: Unsupported, message: "extraargs"},
		"Alpine":                  {fixture: debian, remove: "/boot/grub", files: map[string]string{"/etc/update-extlinux.conf": "\n"}, want: Unsupported, message: "update-extlinux"},
		"NixOS":                   {fixture: debian, files: osRelease("nixos"), want: Unsupported, message: "boot.kernelParams"},
		"Ubuntu Core":             {fixture: debian, files: osRelease("ubuntu-core"), want: Unsupported, message: "snap set system"},
		"GRUB Legacy":             {fixture: debian, remove: "/boot/grub/grub.cfg", files: map[string]string{"/boot/grub/menu.lst": "\n"}, want: Unsupported, message: "menu.lst"},
		"a unified kernel image": {fixture: ubuntu, files: map[string]string{efiVars + "StubInfo" + loaderGUID: utf16("systemd-stub 255.4")},
			want: Unsupported, message: "unified kernel image"},
		"systemd-boot": {fixture: ubuntu, files: map[string]string{efiVars + "LoaderInfo" + loaderGUID: utf16("systemd-boot 255.4")},
			want: Unsupported, message: "systemd-boot"},
		"a GRUB that reports its name": {fixture: ubuntu, files: map[string]string{efiVars + "LoaderInfo" + loaderGUID: utf16("GRUB 2.12")},
			want: GrubDebian, proven: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, test.fixture)
			for file, data := range test.files {
				hosttest.WriteFile(t, m.dir, file, data)
			}
			if test.remove != "" {
				m.remove(test.remove)
			}
			got := Detect(m.fs, Kinds)
			if got.Type != test.want || got.Proven != test.proven || !strings.Contains(got.Message, test.message) {
				t.Errorf("got %+v, want %s, proven %v, %q", got, test.want, test.proven, test.message)
			}
			if (got.Message == "") != got.Proven {
				t.Errorf("message: got %q", got.Message)
			}
		})
	}
}

func TestSizesOfHashTablesInKernelLogs(t *testing.T) {
	tests := map[string]struct {
		log  string
		want map[string]uint64
	}{
		"5.10": {"Inode-cache hash table entries: 131072 (order: 8, 1048576 bytes, linear)\n", map[string]uint64{ihash: 131072}},
		"6.1 with two NUMA nodes": {"Dentry cache hash table entries: 2097152 (order: 12, 16777216 bytes, vmalloc hugepage)\n",
			map[string]uint64{"dhash_entries": 2097152}},
		"before the word at the end": {"[    0.000000] Inode-cache hash table entries: 131072 (order: 8, 1048576 bytes)\n", map[string]uint64{ihash: 131072}},
		"a negative order":           {"Inode-cache hash table entries: 16 (order: -5, 128 bytes, linear)\n", map[string]uint64{ihash: 16}},
		"other tables":               {"Mount-cache hash table entries: 4096 (order: 3, 32768 bytes, linear)\n", map[string]uint64{}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			sizes := map[string]uint64{}
			readSizes(test.log, sizes)
			if diff := cmp.Diff(test.want, sizes); diff != "" {
				t.Errorf("sizes (-want +got):\n%s", diff)
			}
		})
	}
}
