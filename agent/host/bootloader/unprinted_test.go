package bootloader

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/hosttest"
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

// expectUntouched checks that the host is unchanged, and that the reported reason contains the parts.
func (m *machine) expectUntouched(before map[string]string, parts ...string) {
	m.t.Helper()
	expect(m.t, m.observe(ihash, seed), host.Unsupported, append(parts, grubCfg+" line ", "run update-grub")...)
	if found := m.subject.Detect(); found.Type != Unsupported || found.MayReboot() || !strings.Contains(found.Message, parts[0]) {
		m.t.Errorf("unexpected boot loader: %+v", found)
	}
	if diff := cmp.Diff(before, m.bootFiles()); diff != "" {
		m.t.Errorf("files (-before +after):\n%s", diff)
	}
	if kept := m.facts.KeptFiles(); len(kept) > 0 {
		m.t.Errorf("got %d saved files", len(kept))
	}
}

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
			m := newMachine(t, debian)
			m.write(grubCfg, test.menu(m.read(grubCfg)))
			before := m.bootFiles()
			m.apply(settings(ihash, seed))
			m.expectUntouched(before, test.parts...)
			m.restart()
			m.apply(nil)
			m.expectUntouched(before, test.parts...)
			if m.menusMade() > 0 {
				t.Errorf("got %d new menus", m.menusMade())
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
			m := newMachine(t, debian)
			made := m.read(grubCfg)
			m.write(grubCfg, test.menu(made))
			if m.read(grubCfg) == made {
				t.Fatal("the menu has not changed")
			}
			before := m.bootFiles()
			m.apply(settings(ihash, seed))
			m.expectUntouched(before, test.parts...)
			// No new menu is made until the file changes.
			m.apply(settings(ihash, seed))
			if m.menusMade() != 1 {
				t.Errorf("got %d new menus", m.menusMade())
			}
			m.write(grubCfg, made)
			m.apply(settings(ihash, seed))
			expect(t, m.observe(ihash, seed), host.Pending)
			m.apply(nil)
			if diff := cmp.Diff(made, m.read(grubCfg)); diff != "" {
				t.Errorf("restored menu (-before +after):\n%s", diff)
			}
		})
	}
}

// The menu of an ordinary host differs from a new one as well.
func TestAMenuThatItsGeneratorPrintedElsewhereOrBeforeIsReplaced(t *testing.T) {
	german := strings.NewReplacer("set lang=C\n", "set lang=de_DE\n", "Advanced options for Debian", "Erweiterte Optionen für Debian", ", with Linux", ", mit Linux",
		"(recovery mode)", "(Wiederherstellungsmodus)", "'Loading Linux 6.1.0-25-amd64 ...'", "'Linux 6.1.0-25-amd64 wird geladen …'")
	tests := map[string]func(*machine, string) string{
		"in another language":            func(_ *machine, menu string) string { return german.Replace(menu) },
		"in no language":                 func(_ *machine, menu string) string { return strings.Replace(menu, "  set lang=C\n", "", 1) },
		"with its disk in another place": func(_ *machine, menu string) string { return strings.ReplaceAll(menu, "hd0,", "hd3,") },
		"in an image's build, which knows no disks": func(_ *machine, menu string) string {
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
		"before a kernel was installed": func(m *machine, menu string) string {
			for _, kind := range []string{"vmlinuz", "initrd.img"} {
				m.write("/boot/"+kind+"-6.1.0-30-amd64", "")
			}
			return menu
		},
		"before the newest kernel was removed": func(m *machine, menu string) string { m.remove("/boot/vmlinuz-6.1.0-25-amd64"); return menu },
		"with entries of the user's own": func(m *machine, menu string) string {
			entry := "menuentry 'Rescue' {\n\tlinux /rescue ro\n}\n"
			m.write("/etc/grub.d/40_custom", "#!/bin/sh\nexec tail -n +3 $0\n"+entry)
			if err := os.Chmod(filepath.Join(m.dir, "/etc/grub.d/40_custom"), 0o755); err != nil {
				m.t.Fatal(err)
			}
			begin, _, _ := strings.Cut(menu, "# This file provides")
			return begin + entry + endOfCustom + menu[strings.Index(menu, endOfCustom)+len(endOfCustom):]
		},
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, debian)
			m.write(grubCfg, change(m, m.read(grubCfg)))
			before := m.read(grubCfg)
			m.apply(settings(ihash, seed))
			expect(t, m.observe(ihash, seed), host.Pending)
			if !m.subject.Detect().MayReboot() {
				t.Errorf("unexpected boot loader: %+v", m.subject.Detect())
			}
			m.apply(nil)
			if diff := cmp.Diff(before, m.read(grubCfg)); diff != "" {
				t.Errorf("restored menu (-before +after):\n%s", diff)
			}
		})
	}
}

// The part of a menu that grub-mkconfig has copied so far contains no foreign line.
func TestStartOfAMenuBelongsToItsGenerator(t *testing.T) {
	for _, fixture := range []string{debian, ubuntu} {
		menu := newMachine(t, fixture).read(grubCfg)
		end := 0
		for line := range strings.SplitAfterSeq(menu, "\n") {
			for _, copied := range []int{0, 1, len(line) / 2, len(line)} {
				if problem := findUnprinted(debianNames, menu[:end+min(copied, len(line))]); problem != "" {
					t.Fatalf("%s: the first %d bytes: %s", fixture, end, problem)
				}
			}
			end += len(line)
		}
	}
}

// A kernel is added to the current menu while the new one is made. The agent makes the new menu again, and reports no foreign line.
func TestAMenuThatChangesWhileAnotherIsMadeIsComparedAgain(t *testing.T) {
	m := newMachine(t, debian)
	m.commands.AfterMenu = func(string) {
		m.commands.AfterMenu = nil
		for _, kind := range []string{"vmlinuz", "initrd.img"} {
			m.write("/boot/"+kind+"-6.1.0-30-amd64", "")
		}
		if _, err := m.commands.Run(t.Context(), "grub-mkconfig", "-o", grubCfg); err != nil {
			t.Fatal(err)
		}
	}
	err := m.subject.Apply(t.Context(), settings(ihash, seed))
	if err == nil || !strings.Contains(err.Error(), "changed in the meantime") {
		t.Fatalf("error: got %v", err)
	}
	expect(t, m.observe(ihash, seed), host.Failed)
	m.apply(settings(ihash, seed))
	expect(t, m.observe(ihash, seed), host.Pending)
}

// The lines were added after the argument was staged. Only the argument is removed from the menu; every other byte stays.
func TestOnlyTheAgentsArgumentsAreRemovedFromAChangedMenu(t *testing.T) {
	changes := map[string]func(string) string{"an entry at the end": func(menu string) string { return menu + "menuentry 'Rescue' {\n}\n" }}
	for name, test := range linesByHand {
		changes[name] = test.menu
	}
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			m := newTryingMachine(t, debian)
			m.write(grubCfg, m.read(grubCfg))
			m.apply(settings(ihash, seed))
			if !strings.Contains(m.read(grubCfg), Generator) {
				t.Fatal("the menu has no trial entry")
			}
			m.write(grubCfg, change(m.read(grubCfg)))
			m.restart()
			changed := m.bootFiles()
			// Another value is not staged, and the current one stays.
			m.apply(settings(ihash, "1048576"))
			expect(t, m.observe(ihash, "1048576"), host.Unsupported, "not staged: "+grubCfg+" line ")
			if diff := cmp.Diff(changed, m.bootFiles()); diff != "" {
				t.Errorf("files (-before +after):\n%s", diff)
			}
			if parseMenu(m.read(grubCfg)).holdsArgument(host.NewArgument(ihash + "=" + seed)) {
				expect(t, m.observe(ihash, seed), host.Pending)
			}
			m.apply(nil)
			if got := m.read(grubCfg); strings.Contains(got, ihash) || strings.Contains(got, Generator) || len(m.agentFiles()) > 0 {
				t.Errorf("leftover files: %v in\n%s", m.agentFiles(), got)
			}
			want, err := withoutSection(strings.ReplaceAll(changed[grubCfg], " "+ihash+"="+seed, ""))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, m.read(grubCfg)); diff != "" {
				t.Errorf("the menu (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRemovedArgumentIsGoneAfterABoot(t *testing.T) {
	for name, change := range map[string]func(string) string{
		"an entry at the end": func(menu string) string { return menu + "menuentry 'Rescue' {\n}\n" },
		"another timeout":     linesByHand["another timeout"].menu,
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, debian)
			m.apply(settings(ihash, seed))
			m.boot(16777216)
			m.apply(settings(ihash, seed))
			expect(t, m.observe(ihash, seed), host.InSync)
			m.write(grubCfg, change(m.read(grubCfg)))
			expect(t, m.observe(ihash, seed), host.InSync)
			m.apply(nil)
			expect(t, m.restore(ihash, host.Original{}), host.Pending, "effective until the next reboot", grubCfg+" changed in the meantime: removed only the agent's arguments")
			m.boot(262144)
			expect(t, m.restore(ihash, host.Original{}), host.InSync)
			if kept := m.facts.KeptFiles(); len(kept) > 0 {
				t.Errorf("got %d saved files", len(kept))
			}
		})
	}
}

func TestAnArgumentThatCannotBeRemovedAlongsideAnotherNamesTheLine(t *testing.T) {
	m := newMachine(t, debian)
	m.apply(settings(ihash, seed, "audit", "0"))
	m.write(grubCfg, linesByHand["another timeout"].menu(m.read(grubCfg)))
	m.apply(settings(ihash, seed))
	expect(t, m.observe(ihash, seed), host.Pending)
	expect(t, m.restore("audit", host.Original{}), host.Failed, "still in the boot menu: "+grubCfg+" line ", "(set timeout=1)")
	m.apply(nil)
	expect(t, m.restore("audit", host.Original{}), host.InSync)
}

func TestAzureLinuxKeepsForeignLines(t *testing.T) {
	m := newAzure(t)
	m.write(grub2Cfg, m.read(grub2Cfg)+"menuentry 'Rescue' {\n}\n")
	before := hosttest.ReadTree(t, m.dir, "/boot", "/etc")
	m.apply(settings(ihash, seed))
	expect(t, m.observe(ihash, seed), host.Unsupported, grub2Cfg+" line ", "(menuentry 'Rescue' {)", "run grub2-mkconfig -o "+grub2Cfg)
	if diff := cmp.Diff(before, hosttest.ReadTree(t, m.dir, "/boot", "/etc")); diff != "" {
		t.Errorf("files (-before +after):\n%s", diff)
	}
}
