package grub_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/bootloader/grub"
	"github.com/storageclient/operator/agent/host/bootloader/grubcfg"
	"github.com/storageclient/operator/agent/host/hosttest"
	"github.com/storageclient/operator/agent/host/hosttest/rig"
	"github.com/storageclient/operator/test/check"
)

// byHand is a menu that a user wrote without grub-mkconfig.
const byHand = `set timeout=0
set default=0

menuentry 'Debian' --id gnulinux-simple-1 {
	search --set=root --fs-uuid 6f4ac8a5-7c1f-4d0e-9a5b-3d1a2f0f7c11
	linux /boot/vmlinuz-6.1.0-25-amd64 root=UUID=6f4ac8a5-7c1f-4d0e-9a5b-3d1a2f0f7c11 ro console=tty0 console=ttyS1,115200n8 intel_iommu=on iommu=pt rootflags=subvol=@
	initrd /boot/initrd.img-6.1.0-25-amd64
}
`

const (
	endOfCustom  = "### END /etc/grub.d/40_custom ###\n"
	beginOfLinux = "### BEGIN /etc/grub.d/10_linux ###\n"
	firstInitrd  = "\tinitrd\t/boot/initrd.img-6.1.0-25-amd64\n}\nsubmenu"
)

// The text alone shows these lines, so grub-mkconfig does not run.
func TestAMenuWithLinesOutsideItsSectionsIsNeverReplaced(t *testing.T) {
	entry := "menuentry 'Rescue' {\n\tlinux /rescue ro\n}\n"
	tests := map[string]struct {
		menu  func(string) string
		parts []string
	}{
		"it was written by hand": {func(string) string { return byHand },
			[]string{"grub.cfg line 1 (set timeout=0): grub-mkconfig did not generate this file: add the argument there manually"}},
		"an entry behind the last section":  {func(menu string) string { return menu + entry }, []string{"(menuentry 'Rescue' {)", "40_custom"}},
		"an entry between sections":         {insertBefore(beginOfLinux, entry), []string{"(menuentry 'Rescue' {)"}},
		"a command before the first":        {func(menu string) string { return "set superusers=root\n" + menu }, []string{"line 1 (set superusers=root)"}},
		"a comment behind the last section": {func(menu string) string { return menu + "# changed by Joe\n" }, []string{"(# changed by Joe)"}},
		"a password": {func(menu string) string { return menu + "password_pbkdf2 root grub.pbkdf2.sha512.10000.AB\n" },
			[]string{"(password_pbkdf2 ...)"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := rig.New(t, rig.Debian)
			m.Write(grubcfg.Debian, test.menu(m.Read(grubcfg.Debian)))
			before := m.BootFiles()
			m.Apply(rig.Settings(rig.Ihash, rig.Seed))
			m.ExpectUntouched(before, test.parts...)
			m.Restart()
			m.Apply(nil)
			m.ExpectUntouched(before, test.parts...)
			if m.MenusMade() > 0 {
				t.Errorf("got %d new menus", m.MenusMade())
			}
		})
	}
}

func insertBefore(mark, text string) func(string) string {
	return func(menu string) string { return strings.Replace(menu, mark, text+mark, 1) }
}

func exchange(from, to string) func(string) string {
	return func(menu string) string { return strings.Replace(menu, from, to, 1) }
}

// linesByHand are changes of a menu that only a new menu shows.
var linesByHand = map[string]struct {
	menu  func(string) string
	parts []string
}{
	"an entry in the section for such entries": {insertBefore(endOfCustom, "menuentry 'Rescue' {\n\tlinux /rescue ro\n}\n"), []string{"(menuentry 'Rescue' {)"}},
	"an entry of another disk among the kernels": {insertBefore("submenu ", "menuentry 'Old' --id 'old' {\n\tlinux /boot/vmlinuz-5.10 ro\n}\n"),
		[]string{"(menuentry 'Old' --id 'old' {)"}},
	"an entry of another disk under a kernel's id": {insertBefore("submenu ",
		"menuentry 'Old' $menuentry_id_option 'gnulinux-5.10-advanced-x' {\n\tlinux /old/vmlinuz-5.10 ro\n}\n"), []string{"(menuentry 'Old'"}},
	"a separate section":              {insertBefore(beginOfLinux, "### BEGIN /etc/grub.d/09_x ###\nset x=1\n### END /etc/grub.d/09_x ###\n"), []string{"(set x=1)"}},
	"users and a password":            {insertBefore("### END /etc/grub.d/00_header", "set superusers=root\npassword root x\n"), []string{"(set superusers=root)"}},
	"a password":                      {insertBefore("### END /etc/grub.d/00_header", "password root secret\n"), []string{"(password ...)"}},
	"another timeout":                 {exchange("    set timeout=5\n", "    set timeout=1\n"), []string{"(set timeout=1)"}},
	"a timeout of a branch":           {exchange("    set timeout=5\n", "    set timeout=30\n"), []string{"(set timeout=30)"}},
	"another default":                 {exchange(`set default="0"`, `set default="2"`), []string{`(set default="2")`}},
	"another title":                   {exchange("menuentry 'Debian GNU/Linux'", "menuentry 'Mine'"), []string{"(menuentry 'Mine'"}},
	"one more initrd":                 {exchange(firstInitrd, strings.Replace(firstInitrd, "\n}", " /boot/more.img\n}", 1)), []string{"/boot/more.img)"}},
	"a line in an entry":              {exchange(firstInitrd, "\tdevicetree /boot/x.dtb\n"+firstInitrd), []string{"(devicetree /boot/x.dtb)"}},
	"another kernel":                  {exchange("linux\t/boot/vmlinuz-6.1.0-25-amd64", "linux\t/boot/vmlinuz-mine"), []string{"/boot/vmlinuz-mine"}},
	"another disk to search":          {exchange("--set=root 6f4ac8a5-7c1f-4d0e-9a5b-3d1a2f0f7c11\n\tfi\n\techo", "--set=root 7f4ac8a5\n\tfi\n\techo"), []string{"7f4ac8a5)"}},
	"a disk to search first":          {insertBefore("submenu ", "set root='hd1,gpt1' # mine\n"), []string{"# mine)"}},
	"a message":                       {exchange("echo\t'Loading Linux", "echo\t'Loading my Linux"), []string{"(echo 'Loading my Linux"}},
	"a comment in a section":          {insertBefore(endOfCustom, "# changed by Joe\n"), []string{"(# changed by Joe)"}},
	"a comment at the top":            {func(menu string) string { return "# changed by Joe\n" + menu }, []string{"line 1 (# changed by Joe)"}},
	"an argument":                     {exchange("ro  quiet", "ro quiet mitigations=off"), []string{"would lose mitigations=off"}},
	"a second equal argument":         {exchange("ro  quiet", "ro quiet quiet"), []string{"would lose quiet"}},
	"an argument of a recovery entry": {exchange("ro single", "ro single nomodeset"), []string{"would lose nomodeset"}},
}

func TestAMenuWithLinesThatItsGeneratorDoesNotPrintIsNeverReplaced(t *testing.T) {
	for name, test := range linesByHand {
		t.Run(name, func(t *testing.T) {
			m := rig.New(t, rig.Debian)
			made := m.Read(grubcfg.Debian)
			m.Write(grubcfg.Debian, test.menu(made))
			if m.Read(grubcfg.Debian) == made {
				t.Fatal("the menu has not changed")
			}
			before := m.BootFiles()
			m.Apply(rig.Settings(rig.Ihash, rig.Seed))
			m.ExpectUntouched(before, test.parts...)
			// No new menu is made until the file changes.
			m.Apply(rig.Settings(rig.Ihash, rig.Seed))
			check.Equal(t, "new menus", 1, m.MenusMade())
			m.Write(grubcfg.Debian, made)
			m.Apply(rig.Settings(rig.Ihash, rig.Seed))
			rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.Pending)
			m.Apply(nil)
			check.Equal(t, "restored menu", made, m.Read(grubcfg.Debian))
		})
	}
}

// The menu of an ordinary host differs from a new one as well.
func TestAMenuThatItsGeneratorPrintedElsewhereOrBeforeIsReplaced(t *testing.T) {
	german := strings.NewReplacer("set lang=C\n", "set lang=de_DE\n", "Advanced options for Debian", "Erweiterte Optionen für Debian", ", with Linux", ", mit Linux",
		"(recovery mode)", "(Wiederherstellungsmodus)", "'Loading Linux 6.1.0-25-amd64 ...'", "'Linux 6.1.0-25-amd64 wird geladen …'")
	tests := map[string]func(*rig.Machine, string) string{
		"in another language":            func(_ *rig.Machine, menu string) string { return german.Replace(menu) },
		"in no language":                 func(_ *rig.Machine, menu string) string { return strings.Replace(menu, "  set lang=C\n", "", 1) },
		"with its disk in another place": func(_ *rig.Machine, menu string) string { return strings.ReplaceAll(menu, "hd0,", "hd3,") },
		"in an image's build, which knows no disks": func(_ *rig.Machine, menu string) string {
			lines := strings.SplitAfter(menu, "\n")
			var kept []string
			for i, line := range lines {
				text := strings.TrimSpace(line)
				if strings.HasPrefix(text, "set root='hd0") || strings.Contains(text, "feature_platform_search_hint") || strings.Contains(text, "--hint-") {
					continue
				}
				if (text == "else" || text == "fi") && strings.Contains(strings.Join(lines[max(0, i-2):i], ""), "search ") {
					continue
				}
				kept = append(kept, line)
			}
			return strings.Join(kept, "")
		},
		"before a kernel was installed": func(m *rig.Machine, menu string) string {
			for _, kind := range []string{"vmlinuz", "initrd.img"} {
				m.Write("/boot/"+kind+"-6.1.0-30-amd64", "")
			}
			return menu
		},
		"before the newest kernel was removed": func(m *rig.Machine, menu string) string { m.Remove("/boot/vmlinuz-6.1.0-25-amd64"); return menu },
		"with entries of the user's own": func(m *rig.Machine, menu string) string {
			entry := "menuentry 'Rescue' {\n\tlinux /rescue ro\n}\n"
			m.Write("/etc/grub.d/40_custom", "#!/bin/sh\nexec tail -n +3 $0\n"+entry)
			if err := os.Chmod(filepath.Join(m.Dir, "/etc/grub.d/40_custom"), 0o755); err != nil {
				m.T.Fatal(err)
			}
			begin, _, _ := strings.Cut(menu, "# This file provides")
			return begin + entry + endOfCustom + menu[strings.Index(menu, endOfCustom)+len(endOfCustom):]
		},
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			m := rig.New(t, rig.Debian)
			m.Write(grubcfg.Debian, change(m, m.Read(grubcfg.Debian)))
			before := m.Read(grubcfg.Debian)
			m.Apply(rig.Settings(rig.Ihash, rig.Seed))
			rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.Pending)
			if !m.Subject.Detect().MayReboot() {
				t.Errorf("unexpected boot loader: %+v", m.Subject.Detect())
			}
			m.Apply(nil)
			check.Equal(t, "restored menu", before, m.Read(grubcfg.Debian))
		})
	}
}

// The part of a menu that grub-mkconfig has copied so far contains no foreign line.
func TestStartOfAMenuBelongsToItsGenerator(t *testing.T) {
	for _, fixture := range []string{rig.Debian, rig.Ubuntu} {
		menu := rig.New(t, fixture).Read(grubcfg.Debian)
		end := 0
		for line := range strings.SplitAfterSeq(menu, "\n") {
			for _, copied := range []int{0, 1, len(line) / 2, len(line)} {
				if problem := grub.FindUnprinted(grub.DebianPlace, menu[:end+min(copied, len(line))]); problem != "" {
					t.Fatalf("%s: the first %d bytes: %s", fixture, end, problem)
				}
			}
			end += len(line)
		}
	}
}

// A kernel is added to the current menu while the new one is made. The agent makes the new menu again, and reports no foreign line.
func TestAMenuThatChangesWhileAnotherIsMadeIsComparedAgain(t *testing.T) {
	m := rig.New(t, rig.Debian)
	m.Commands.AfterMenu = func(string) {
		m.Commands.AfterMenu = nil
		for _, kind := range []string{"vmlinuz", "initrd.img"} {
			m.Write("/boot/"+kind+"-6.1.0-30-amd64", "")
		}
		if _, err := m.Commands.Run(t.Context(), "grub-mkconfig", "-o", grubcfg.Debian); err != nil {
			t.Fatal(err)
		}
	}
	err := m.Subject.Apply(t.Context(), rig.Settings(rig.Ihash, rig.Seed))
	if err == nil || !strings.Contains(err.Error(), "changed in the meantime") {
		t.Fatalf("error: got %v", err)
	}
	rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.Failed)
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.Pending)
}

// The lines were added after the argument was staged. Only the argument is removed from the menu; every other byte stays.
func TestOnlyTheAgentsArgumentsAreRemovedFromAChangedMenu(t *testing.T) {
	changes := map[string]func(string) string{"an entry at the end": func(menu string) string { return menu + "menuentry 'Rescue' {\n}\n" }}
	for name, test := range linesByHand {
		changes[name] = test.menu
	}
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			m := rig.NewTryingMachine(t, rig.Debian)
			m.Write(grubcfg.Debian, m.Read(grubcfg.Debian))
			m.Apply(rig.Settings(rig.Ihash, rig.Seed))
			if !strings.Contains(m.Read(grubcfg.Debian), grubcfg.Generator) {
				t.Fatal("the menu has no trial entry")
			}
			m.Write(grubcfg.Debian, change(m.Read(grubcfg.Debian)))
			m.Restart()
			changed := m.BootFiles()
			// Another value is not staged, and the current one stays.
			m.Apply(rig.Settings(rig.Ihash, "1048576"))
			rig.Expect(t, m.Observe(rig.Ihash, "1048576"), host.Unsupported, "not staged: "+grubcfg.Debian+" line ")
			check.Equal(t, "files", changed, m.BootFiles())
			if grubcfg.Parse(m.Read(grubcfg.Debian)).HoldsArgument(host.NewArgument(rig.Ihash + "=" + rig.Seed)) {
				rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.Pending)
			}
			m.Apply(nil)
			if got := m.Read(grubcfg.Debian); strings.Contains(got, rig.Ihash) || strings.Contains(got, grubcfg.Generator) || len(m.AgentFiles()) > 0 {
				t.Errorf("leftover files: %v in\n%s", m.AgentFiles(), got)
			}
			want, err := grub.WithoutSection(strings.ReplaceAll(changed[grubcfg.Debian], " "+rig.Ihash+"="+rig.Seed, ""))
			check.NoError(t, err)
			check.Equal(t, "the menu", want, m.Read(grubcfg.Debian))
		})
	}
}

func TestRemovedArgumentIsGoneAfterABoot(t *testing.T) {
	for name, change := range map[string]func(string) string{
		"an entry at the end": func(menu string) string { return menu + "menuentry 'Rescue' {\n}\n" },
		"another timeout":     linesByHand["another timeout"].menu,
	} {
		t.Run(name, func(t *testing.T) {
			m := rig.New(t, rig.Debian)
			m.Apply(rig.Settings(rig.Ihash, rig.Seed))
			m.Boot(16777216)
			m.Apply(rig.Settings(rig.Ihash, rig.Seed))
			rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.InSync)
			m.Write(grubcfg.Debian, change(m.Read(grubcfg.Debian)))
			rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.InSync)
			m.Apply(nil)
			rig.Expect(t, m.Restore(rig.Ihash, host.Original{}), host.Pending, "effective until the next reboot", grubcfg.Debian+" changed in the meantime: removed only the agent's arguments")
			m.Boot(262144)
			rig.Expect(t, m.Restore(rig.Ihash, host.Original{}), host.InSync)
			if kept := m.Facts.KeptFiles(); len(kept) > 0 {
				t.Errorf("got %d saved files", len(kept))
			}
		})
	}
}

func TestAnArgumentThatCannotBeRemovedAlongsideAnotherNamesTheLine(t *testing.T) {
	m := rig.New(t, rig.Debian)
	m.Apply(rig.Settings(rig.Ihash, rig.Seed, "audit", "0"))
	m.Write(grubcfg.Debian, linesByHand["another timeout"].menu(m.Read(grubcfg.Debian)))
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.Pending)
	rig.Expect(t, m.Restore("audit", host.Original{}), host.Failed, "still in the boot menu: "+grubcfg.Debian+" line ", "(set timeout=1)")
	m.Apply(nil)
	rig.Expect(t, m.Restore("audit", host.Original{}), host.InSync)
}

func TestAzureLinuxKeepsForeignLines(t *testing.T) {
	m := rig.NewAzure(t)
	m.Write(grubcfg.Grub2, m.Read(grubcfg.Grub2)+"menuentry 'Rescue' {\n}\n")
	before := hosttest.ReadTree(t, m.Dir, "/boot", "/etc")
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.Unsupported, grubcfg.Grub2+" line ", "(menuentry 'Rescue' {)", "run grub2-mkconfig -o "+grubcfg.Grub2)
	check.Equal(t, "files", before, hosttest.ReadTree(t, m.Dir, "/boot", "/etc"))
}
