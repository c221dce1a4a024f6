package bootloader

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageclient/operator/agent/host"
)

const grubbyScript = "/usr/sbin/grubby"

// newEdited returns a host on which grubby would change details: runs of blanks, a special file mode, and a missing
// /etc/kernel/cmdline. In addition, /etc/default/grub has a line that grubby confuses with another one.
func newEdited(t *testing.T) *machine {
	t.Helper()
	m := newRocky(t)
	m.remove(kernelCmdline)
	m.replace(rescueEntry, " ro ", "  ro   ")
	m.write(defaultFile, "GRUB_TIMEOUT=1\nGRUB_CMDLINE_LINUX=\"crashkernel=1G\"\nGRUB_CMDLINE_LINUX_DEFAULT=\"quiet  splash\"\n")
	if err := os.Chmod(filepath.Join(m.dir, rescueEntry), 0o600); err != nil {
		t.Fatal(err)
	}
	return m
}

// installOldGrubby replaces grubby with a version that always edits /etc/default/grub, like 8.40-41 and 8.40-42.
func (m *machine) installOldGrubby() { m.write(grubbyScript, "getopt ...\n") }

func (m *machine) modes() map[string]os.FileMode {
	m.t.Helper()
	modes := map[string]os.FileMode{}
	for name := range m.bootFiles() {
		info, err := os.Lstat(filepath.Join(m.dir, name))
		if err != nil {
			m.t.Fatal(err)
		}
		modes[name] = info.Mode()
	}
	return modes
}

func (m *machine) expectAsBefore(files map[string]string, modes map[string]os.FileMode) {
	m.t.Helper()
	if diff := cmp.Diff(files, m.bootFiles()); diff != "" {
		m.t.Errorf("files (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(modes, m.modes()); diff != "" {
		m.t.Errorf("modes (-before +after):\n%s", diff)
	}
	if m.fs.Exists(entryCopies) {
		m.t.Errorf("%s remains", entryCopies)
	}
	if saved := m.facts.KeptFiles(); len(saved) > 0 {
		m.t.Errorf("got %d saved files, want none", len(saved))
	}
}

func TestFilesThatGrubbyEditsAreRestoredExactly(t *testing.T) {
	for name, prepare := range map[string]func(*machine){
		"grubby can leave /etc/default/grub alone": func(*machine) {},
		"grubby edits it":                          (*machine).installOldGrubby,
	} {
		t.Run(name, func(t *testing.T) {
			m := newEdited(t)
			prepare(m)
			files, modes := m.bootFiles(), m.modes()
			for _, value := range []string{"1048576", "2097152"} {
				m.apply(settings(ihash, value))
				expect(t, m.observe(ihash, value), host.Pending)
				if diff := cmp.Diff(files[defaultFile], m.read(defaultFile)); diff != "" {
					t.Errorf("%s (-before +staged):\n%s", defaultFile, diff)
				}
				if m.fs.Exists(kernelCmdline) {
					t.Errorf("grubby has made %s: %q", kernelCmdline, m.read(kernelCmdline))
				}
			}
			m.restart()
			m.apply(nil)
			m.expectAsBefore(files, modes)
		})
	}
}

// The agent is killed after grubby has changed a file that it created. The journal does not contain the new content of that file yet.
func TestGrubbyTempFileIsRemovedAfterAnInterruptedChange(t *testing.T) {
	m := newEdited(t)
	files, modes := m.bootFiles(), m.modes()
	m.apply(settings(ihash, "1048576"))
	func() {
		defer func() { _ = recover() }()
		m.commands.AfterGrubby = func() { panic("killed") }
		m.apply(settings(ihash, "2097152"))
	}()
	m.commands.AfterGrubby = nil
	if !strings.Contains(m.read(kernelCmdline), ihash+"=2097152") {
		t.Fatalf("unexpected result of grubby: %q", m.read(kernelCmdline))
	}
	m.restart()
	m.apply(nil)
	m.expectAsBefore(files, modes)
}

// The power fails after the agent has changed only one of two entries. The machine boots the changed one.
func TestEntriesOfAnInterruptedChangeAreManaged(t *testing.T) {
	m := newRocky(t)
	m.apply(settings(ihash, "1048576"))
	func() {
		defer func() { _ = recover() }()
		m.commands.AfterGrubby = func() {
			m.replace(rockyEntry, ihash+"=1048576", ihash+"=2097152")
			panic("the power fails")
		}
		m.apply(settings(ihash, "2097152"))
	}()
	m.commands.AfterGrubby = nil
	m.bootWith("BOOT_IMAGE=/vmlinuz root=/dev/mapper/rl-root ro "+ihash+"=2097152", 2097152)
	m.apply(nil)
	expect(t, m.restore(ihash, host.Original{}), host.Pending, "effective until the next reboot")
	m.apply(settings(ihash, "4194304"))
	expect(t, m.observe(ihash, "4194304"), host.Pending, "staged")
}

func TestLinksAmongGrubbysFilesStay(t *testing.T) {
	m := newEdited(t)
	m.write("/boot/efi/EFI/rocky/grubenv", "# GRUB Environment Block\nkernelopts=root=/dev/sda1  ro\n####")
	m.write("/etc/real-cmdline", "root=/dev/sda1   ro\n")
	for name, target := range map[string]string{kernelCmdline: "../real-cmdline", "/boot/grub2/grubenv": "../efi/EFI/rocky/grubenv"} {
		file := filepath.Join(m.dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, file); err != nil {
			t.Fatal(err)
		}
	}
	files := m.bootFiles()
	// Like "sed -i", it replaces the link with a file.
	m.commands.AfterGrubby = func() {
		data := m.read(kernelCmdline)
		m.remove(kernelCmdline)
		m.write(kernelCmdline, data)
	}
	m.apply(settings(ihash, seed))
	m.commands.AfterGrubby = nil
	m.apply(nil)
	if target, err := os.Readlink(filepath.Join(m.dir, kernelCmdline)); err != nil || target != "../real-cmdline" {
		t.Errorf("%s leads to %q, %v", kernelCmdline, target, err)
	}
	if diff := cmp.Diff(files, m.bootFiles()); diff != "" {
		t.Errorf("files (-before +after):\n%s", diff)
	}
}

func TestOnlyTheAgentsArgumentsAreRemovedFromChangedEntries(t *testing.T) {
	m := newEdited(t)
	m.write(kernelCmdline, "root=/dev/mapper/rl-root ro rd.lvm.lv=rl/root\n")
	before := m.bootFiles()
	m.apply(settings(ihash, seed))
	m.replace(rescueEntry, "rd.lvm.lv=rl/root", "rd.lvm.lv=rl/root  quiet")
	m.replace(kernelCmdline, "rd.lvm.lv=rl/root", "rd.lvm.lv=rl/root quiet")
	m.apply(nil)
	expect(t, m.restore(ihash, host.Original{}), host.InSync)
	for _, file := range []string{rescueEntry, kernelCmdline} {
		if got := m.read(file); !strings.Contains(got, "quiet") || strings.Contains(got, ihash) {
			t.Errorf("%s is\n%s", file, got)
		}
	}
	for _, file := range []string{rockyEntry, defaultFile} {
		if diff := cmp.Diff(before[file], m.read(file)); diff != "" {
			t.Errorf("%s (-before +after):\n%s", file, diff)
		}
	}
}

func TestFilesThatAreNotRestoredExactlyAreReported(t *testing.T) {
	m := newEdited(t)
	m.apply(settings(ihash, seed))
	m.bootEntry(16777216)
	m.replace(rescueEntry, "rd.lvm.lv=rl/root", "rd.lvm.lv=rl/root quiet")
	m.apply(nil)
	expect(t, m.restore(ihash, host.Original{}), host.Pending, rescueEntry+" changed in the meantime: removed only the agent's arguments")
}

func TestAnArgumentThatAnEntryHadBeforeStaysThere(t *testing.T) {
	m := newEdited(t)
	m.replace(rockyEntry, " ro ", " ro  audit=0 ")
	files, modes := m.bootFiles(), m.modes()
	m.apply(settings("audit", "0"))
	m.apply(nil)
	m.expectAsBefore(files, modes)
	expect(t, m.restore("audit", host.Original{}), host.InSync)
	m.restart()
	m.apply(nil)
	m.expectAsBefore(files, modes)
}

func TestFileThatIsTooLargeToSaveIsUnchanged(t *testing.T) {
	m := newEdited(t)
	m.write(kernelCmdline, strings.Repeat("#", 64<<10+1))
	before := m.bootFiles()
	err := m.subject.Apply(t.Context(), settings(ihash, seed))
	if err == nil || !strings.Contains(err.Error(), kernelCmdline+" is too large to save: more than 64 KiB") {
		t.Errorf("error: got %v", err)
	}
	if diff := cmp.Diff(before, m.bootFiles()); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

// An earlier release staged without saving the original bytes: only the agent's arguments are removed.
func TestArgumentsOfAnEarlierReleaseAreRemoved(t *testing.T) {
	m := newEdited(t)
	m.apply(settings(ihash, seed))
	delete(m.facts, keptFiles)
	m.restart()
	m.apply(nil)
	for name, data := range m.bootFiles() {
		if strings.Contains(data, ihash) {
			t.Errorf("%s still has the argument", name)
		}
	}
	expect(t, m.restore(ihash, host.Original{}), host.InSync)
}

func TestNewEntryWithTheAgentsArgumentsHasNoOriginal(t *testing.T) {
	m := newEdited(t)
	m.apply(settings(ihash, seed))
	later := strings.Replace(rockyEntry, "5.14.0-427", "5.14.0-503", 1)
	m.write(later, m.read(rockyEntry))
	m.apply(settings(ihash, "1048576"))
	if _, ok := m.facts.KeptFiles()[later]; ok {
		t.Errorf("%s with the agent's argument is saved as an original", later)
	}
	m.remove(rockyEntry)
	m.apply(nil)
	if got := m.read(later); got == "" || strings.Contains(got, ihash) {
		t.Errorf("%s: got %q", later, got)
	}
	if got := m.read(rockyEntry); got != "" {
		t.Errorf("the entry of a removed kernel was restored: %q", got)
	}
}

func TestFilesThatGrubbyWritesAreSynced(t *testing.T) {
	m := newEdited(t)
	m.write(kernelCmdline, "root=/dev/mapper/rl-root ro\n")
	var synced []string
	m.subject.fs = m.fs.WithHook(func(op host.Op, name string) error {
		if op == host.OpSync || op == host.OpSyncDir {
			synced = append(synced, name)
		}
		return nil
	})
	m.commands.AfterGrubby = func() { synced = nil }
	m.apply(settings(ihash, seed))
	for _, name := range []string{entriesDir, kernelCmdline, filepath.Dir(kernelCmdline)} {
		if !slices.Contains(synced, name) {
			t.Errorf("%s is not synced: %v", name, synced)
		}
	}
}

// A power cut can empty each file that no program has synced.
func TestEntriesAreDurableWhileGrubbyRuns(t *testing.T) {
	m := newEdited(t)
	var durable []os.FileInfo
	sync := func(name string) {
		// An open file keeps its inode number.
		file, err := os.Open(filepath.Join(m.dir, name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = file.Close() })
		info, err := file.Stat()
		if err != nil {
			t.Fatal(err)
		}
		durable = append(durable, info)
	}
	sync(rockyEntry)
	sync(rescueEntry)
	checks, syncing := 0, ""
	check := func() {
		if checks++; syncing != "" {
			sync(syncing)
			syncing = ""
		}
		for _, name := range []string{rockyEntry, rescueEntry} {
			info, err := os.Stat(filepath.Join(m.dir, name))
			if err != nil || !slices.ContainsFunc(durable, func(other os.FileInfo) bool { return os.SameFile(info, other) }) {
				t.Errorf("moment %d: a power cut can empty %s: %v", checks, name, err)
			}
		}
	}
	m.subject = m.on(m.fs.WithHook(func(op host.Op, name string) error {
		if check(); op == host.OpSync {
			syncing = name
		}
		return nil
	}))
	m.commands.BeforeWrite, m.commands.AfterGrubby = func() error { check(); return nil }, check
	m.apply(settings(ihash, seed))
	m.apply(settings(ihash, "1048576"))
	m.apply(nil)
	if checks < 50 {
		t.Errorf("got only %d checks", checks)
	}
}

func TestEditedFilesAreRestoredAfterACrashAtEveryChange(t *testing.T) {
	for _, begin := range []string{"staging", "taking back"} {
		t.Run(begin, func(t *testing.T) {
			for at := 1; ; at++ {
				m := newEdited(t)
				m.installOldGrubby()
				files, modes := m.bootFiles(), m.modes()
				desired := settings(ihash, seed)
				if begin == "taking back" {
					m.apply(desired)
					desired = nil
				}
				subject, c := m.crashing(at)
				err := subject.Apply(t.Context(), desired)
				m.restart()
				if err == nil && c.count < at {
					if at < 6 {
						t.Errorf("got only %d changes", at)
					}
					return
				}
				m.apply(desired)
				m.apply(nil)
				if m.expectAsBefore(files, modes); t.Failed() {
					t.Fatalf("after a crash at change %d", at)
				}
			}
		})
	}
}

// The power fails between the write by grubby and the sync by the agent. The name of an entry is durable then, but its content is not.
func TestEntryThatAPowerCutEmptiedIsRestored(t *testing.T) {
	for name, lost := range map[string]string{"no bytes": "", "blocks that were never written": strings.Repeat("\x00", 300)} {
		t.Run(name, func(t *testing.T) {
			m := newEdited(t)
			m.write(kernelCmdline, "root=/dev/mapper/rl-root ro\n")
			files, modes := m.bootFiles(), m.modes()
			power := true
			m.subject = m.on(m.fs.WithHook(func(op host.Op, name string) error {
				if power = power && !(op == host.OpSync && name == kernelCmdline); !power {
					return errCrash
				}
				return nil
			}))
			if err := m.subject.Apply(t.Context(), settings(ihash, seed)); err == nil {
				t.Fatal("Apply: got no error of the sync")
			}
			m.write(rescueEntry, lost)
			m.restart()
			m.apply(settings(ihash, seed))
			expect(t, m.observe(ihash, seed), host.Pending)
			if got := m.read(rescueEntry); !strings.Contains(got, "title") || !strings.Contains(got, ihash) {
				t.Errorf("entry: got %q", got)
			}
			m.apply(nil)
			m.expectAsBefore(files, modes)
		})
	}
}

// grubby empties /etc/kernel/cmdline before it writes it. After an interruption there, the next run would leave later kernels without a
// root device.
func TestEmptiedCommandLineOfLaterKernelsIsRestored(t *testing.T) {
	for name, before := range map[string]string{"it was there": "root=/dev/mapper/rl-root   ro\n", "grubby has made it": ""} {
		t.Run(name, func(t *testing.T) {
			m := newEdited(t)
			if before != "" {
				m.write(kernelCmdline, before)
			}
			files, modes := m.bootFiles(), m.modes()
			func() {
				defer func() { _ = recover() }()
				m.commands.AfterGrubby = func() { m.write(kernelCmdline, ""); panic("killed") }
				m.apply(settings(ihash, seed))
			}()
			m.commands.AfterGrubby = nil
			// grubby was killed before it changed the entries.
			for _, entry := range []string{rockyEntry, rescueEntry} {
				m.write(entry, files[entry])
			}
			m.restart()
			m.apply(settings(ihash, seed))
			if before == "" {
				if m.fs.Exists(kernelCmdline) {
					t.Errorf("grubby has made %s: %q", kernelCmdline, m.read(kernelCmdline))
				}
			} else if got, want := m.read(kernelCmdline), strings.TrimSpace(before)+" "+ihashSeed+"\n"; got != want {
				t.Errorf("arguments of a later kernel: got %q, want %q", got, want)
			}
			m.apply(nil)
			m.expectAsBefore(files, modes)
		})
	}
}

// laterKernel returns the arguments that kernel-install gives to the next kernel.
func (m *machine) laterKernel() string {
	m.t.Helper()
	for _, file := range laterFiles {
		if m.fs.Exists(file) {
			return strings.Join(strings.Fields(m.read(file)), " ")
		}
	}
	_, args, _ := strings.Cut(strings.TrimSpace(m.read(commandLine)), " ")
	return args
}

// grubby makes /etc/kernel/cmdline from the last entry, or leaves one line of it (recorded in hosttest/testdata/grubby.json). The agent is not killed,
// or killed at each write of the first promotion, or of the later changes.
func TestLaterKernelsGetTheirArgumentsAndTheAgents(t *testing.T) {
	const vendor = "/usr/lib/kernel/cmdline"
	tests := map[string]struct {
		files map[string]string
		// user is the content that a user writes between two changes of the agent. Empty for none.
		user string
	}{
		"no file":                    {},
		"no file, and a user's":      {user: "root=/dev/mapper/rl-root ro\nuser=1\n"},
		"the vendor's file":          {files: map[string]string{vendor: "vendor=1  ro\n"}},
		"the vendor's, and a user's": {files: map[string]string{vendor: "vendor=1  ro\n"}, user: "user=1\nro\n"},
		"two lines":                  {files: map[string]string{kernelCmdline: "root=/dev/mapper/rl-root  ro\nconsole=ttyS0\n"}},
		"two lines, and a user's":    {files: map[string]string{kernelCmdline: "root=/dev/mapper/rl-root  ro\nconsole=ttyS0\n"}, user: "root=/dev/mapper/rl-root\nuser=1\nro\n"},
		"no newline":                 {files: map[string]string{kernelCmdline: "root=/dev/mapper/rl-root  ro", vendor: "vendor=1\n"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			for first, second := 0, 0; ; {
				m := newTryingRocky(t)
				m.journalled = true
				m.remove(kernelCmdline)
				m.write("/etc/kernel/install.conf", "")
				m.replace(rescueEntry, "options root=/dev/mapper/rl-root", "options root=/dev/old")
				for file, data := range test.files {
					m.write(file, data)
				}
				m.restart()
				before := m.bootFiles()
				later := m.laterKernel()
				isKilled := false
				apply := func(desired []host.Setting, at int) {
					if subject, c := m.crashing(at); at > 0 {
						_ = subject.Apply(t.Context(), desired)
						isKilled = isKilled || c.count >= at
						m.restart()
					}
					m.apply(desired)
				}
				check := func(want string) {
					t.Helper()
					if got := m.laterKernel(); !slices.Equal(slices.Sorted(slices.Values(strings.Fields(got))), slices.Sorted(slices.Values(strings.Fields(want)))) {
						t.Errorf("kills at %d and %d: a later kernel gets %q, want %q", first, second, got, want)
					}
				}
				m.apply(settings("audit", "0"))
				check(later)
				m.startEntry()
				apply(settings("audit", "0"), first)
				check(later + " audit=0")
				if test.user != "" {
					m.write(kernelCmdline, test.user)
					before[kernelCmdline], later = test.user, strings.Join(strings.Fields(test.user), " ")
					check(later)
				}
				m.apply(settings("audit", "0", ihash, seed))
				m.startEntry()
				apply(settings("audit", "0", ihash, seed), second)
				check(later + " audit=0 " + ihashSeed)
				apply(nil, second)
				if diff := cmp.Diff(withoutNext(before), withoutNext(m.bootFiles())); diff != "" {
					t.Fatalf("kills at %d and %d: after restore (-before +after):\n%s", first, second, diff)
				}
				if t.Failed() {
					t.FailNow()
				}
				switch {
				case first == 0 && second == 0:
					first = 1
				case first > 0 && isKilled:
					first++
				case first > 0:
					first, second = 0, 1
				case isKilled:
					second++
				default:
					return
				}
			}
		})
	}
}

// A user has removed the list of managed arguments. The entries still contain these arguments, and must not be saved as originals.
func TestEntriesWithTheAgentsArgumentsAreNeverOriginals(t *testing.T) {
	m := newEdited(t)
	m.apply(settings(ihash, seed))
	m.remove(blsForm.file)
	m.restart()
	m.apply(settings(ihash, "1048576"))
	m.apply(nil)
	for name, data := range m.bootFiles() {
		if strings.Contains(data, ihash) {
			t.Errorf("%s still has the argument", name)
		}
	}
}

func TestAnArgumentThatAnEntryHadBeforeStaysThereAfterAFailure(t *testing.T) {
	m := newEdited(t)
	m.replace(rockyEntry, " ro ", " ro  audit=0 ")
	files, modes := m.bootFiles(), m.modes()
	m.commands.AfterGrubby = func() { m.replace(copyOf(rescueEntry), " audit=0", "") }
	if err := m.subject.Apply(t.Context(), settings("audit", "0")); err == nil {
		t.Fatal("Apply: got no error")
	}
	m.commands.AfterGrubby = nil
	m.restart()
	m.apply(settings("audit", "0"))
	m.apply(nil)
	m.expectAsBefore(files, modes)
}
