package grubcfg_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/bootloader/argument"
	"github.com/storageclient/operator/agent/host/bootloader/grubcfg"
	"github.com/storageclient/operator/agent/host/bootloader/loader"
	"github.com/storageclient/operator/agent/host/hosttest/rig"
	"github.com/storageclient/operator/test/check"
)

func TestTheMenuOfDebian12(t *testing.T) {
	m := rig.New(t, rig.Debian)
	parsed := grubcfg.Parse(m.Read(grubcfg.Debian))
	if !parsed.Whole {
		t.Error("the menu is not complete")
	}
	var got []string
	for _, line := range parsed.Lines {
		entry := line.ID + " " + line.Kernel + " " + argument.Join(line.Args)
		if line.Recovery {
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
	check.Equal(t, "menu", want, got)
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
	got := grubcfg.Parse(text)
	want := loader.Menu{Whole: true, Lines: []loader.Line{
		{ID: "a", Title: "A", Kernel: "/vmlinuz-1", Args: []host.Argument{
			{Name: "ro"}, {Name: "dyndbg", Value: "file x ihash_entries=5 +p", HasValue: true}, {Name: "$vt_handoff"},
		}, Number: 3},
		{ID: "a", Nth: 1, Title: "A", Kernel: "/vmlinuz-2", Args: []host.Argument{{Name: "ro"}}, Number: 4},
	}}
	check.Equal(t, "menu", want, got, cmpopts.IgnoreFields(loader.Menu{}, "Root"))
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
			if grubcfg.Parse(text).Whole {
				t.Error("an incomplete menu is accepted as complete")
			}
		})
	}
}
