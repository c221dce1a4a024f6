package grubentries_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/bootloader/bls"
	"github.com/storageclient/operator/agent/host/bootloader/loader"
	"github.com/storageclient/operator/agent/host/hosttest/rig"
	"github.com/storageclient/operator/test/check"
)

// newEdited returns a host on which grubby would change details: runs of blanks, a special file mode, and a missing
// /etc/kernel/cmdline. In addition, /etc/default/grub has a line that grubby confuses with another one.
func newEdited(t *testing.T) *rig.Machine {
	t.Helper()
	m := rig.NewRocky(t)
	m.Remove(bls.LaterFile)
	m.Replace(rig.RescueEntry, " ro ", "  ro   ")
	m.Write(loader.DefaultFile, "GRUB_TIMEOUT=1\nGRUB_CMDLINE_LINUX=\"crashkernel=1G\"\nGRUB_CMDLINE_LINUX_DEFAULT=\"quiet  splash\"\n")
	check.NoError(t, os.Chmod(filepath.Join(m.Dir, rig.RescueEntry), 0o600))
	return m
}

func TestFilesThatGrubbyEditsAreRestoredExactly(t *testing.T) {
	for name, prepare := range map[string]func(*rig.Machine){
		"grubby can leave /etc/default/grub alone": func(*rig.Machine) {},
		"grubby edits it":                          (*rig.Machine).InstallOldGrubby,
	} {
		t.Run(name, func(t *testing.T) {
			m := newEdited(t)
			prepare(m)
			files, modes := m.BootFiles(), m.Modes()
			for _, value := range []string{"1048576", "2097152"} {
				m.Apply(rig.Settings(rig.Ihash, value))
				rig.Expect(t, m.Observe(rig.Ihash, value), host.Pending)
				if diff := cmp.Diff(files[loader.DefaultFile], m.Read(loader.DefaultFile)); diff != "" {
					t.Errorf("%s (-before +staged):\n%s", loader.DefaultFile, diff)
				}
				if m.FS.Exists(bls.LaterFile) {
					t.Errorf("grubby has made %s: %q", bls.LaterFile, m.Read(bls.LaterFile))
				}
			}
			m.Restart()
			m.Apply(nil)
			m.ExpectAsBefore(files, modes)
		})
	}
}

// The agent is killed after grubby has changed a file that it created. The journal does not contain the new content of that file yet.
func TestGrubbyTempFileIsRemovedAfterAnInterruptedChange(t *testing.T) {
	m := newEdited(t)
	files, modes := m.BootFiles(), m.Modes()
	m.Apply(rig.Settings(rig.Ihash, "1048576"))
	func() {
		defer func() { _ = recover() }()
		m.Commands.AfterGrubby = func() { panic("killed") }
		m.Apply(rig.Settings(rig.Ihash, "2097152"))
	}()
	m.Commands.AfterGrubby = nil
	if !strings.Contains(m.Read(bls.LaterFile), rig.Ihash+"=2097152") {
		t.Fatalf("unexpected result of grubby: %q", m.Read(bls.LaterFile))
	}
	m.Restart()
	m.Apply(nil)
	m.ExpectAsBefore(files, modes)
}

// The power fails after the agent has changed only one of two entries. The machine boots the changed one.
func TestEntriesOfAnInterruptedChangeAreManaged(t *testing.T) {
	m := rig.NewRocky(t)
	m.Apply(rig.Settings(rig.Ihash, "1048576"))
	func() {
		defer func() { _ = recover() }()
		m.Commands.AfterGrubby = func() {
			m.Replace(rig.RockyEntry, rig.Ihash+"=1048576", rig.Ihash+"=2097152")
			panic("the power fails")
		}
		m.Apply(rig.Settings(rig.Ihash, "2097152"))
	}()
	m.Commands.AfterGrubby = nil
	m.BootWith("BOOT_IMAGE=/vmlinuz root=/dev/mapper/rl-root ro "+rig.Ihash+"=2097152", 2097152)
	m.Apply(nil)
	rig.Expect(t, m.Restore(rig.Ihash, host.Original{}), host.Pending, "effective until the next reboot")
	m.Apply(rig.Settings(rig.Ihash, "4194304"))
	rig.Expect(t, m.Observe(rig.Ihash, "4194304"), host.Pending, "staged")
}

func TestLinksAmongGrubbysFilesStay(t *testing.T) {
	m := newEdited(t)
	m.Write("/boot/efi/EFI/rocky/grubenv", "# GRUB Environment Block\nkernelopts=root=/dev/sda1  ro\n####")
	m.Write("/etc/real-cmdline", "root=/dev/sda1   ro\n")
	for name, target := range map[string]string{bls.LaterFile: "../real-cmdline", "/boot/grub2/grubenv": "../efi/EFI/rocky/grubenv"} {
		file := filepath.Join(m.Dir, name)
		check.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		check.NoError(t, os.Symlink(target, file))
	}
	files := m.BootFiles()
	// Like "sed -i", it replaces the link with a file.
	m.Commands.AfterGrubby = func() {
		data := m.Read(bls.LaterFile)
		m.Remove(bls.LaterFile)
		m.Write(bls.LaterFile, data)
	}
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	m.Commands.AfterGrubby = nil
	m.Apply(nil)
	if target, err := os.Readlink(filepath.Join(m.Dir, bls.LaterFile)); err != nil || target != "../real-cmdline" {
		t.Errorf("%s leads to %q, %v", bls.LaterFile, target, err)
	}
	check.Equal(t, "files", files, m.BootFiles())
}

func TestOnlyTheAgentsArgumentsAreRemovedFromChangedEntries(t *testing.T) {
	m := newEdited(t)
	m.Write(bls.LaterFile, "root=/dev/mapper/rl-root ro rd.lvm.lv=rl/root\n")
	before := m.BootFiles()
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	m.Replace(rig.RescueEntry, "rd.lvm.lv=rl/root", "rd.lvm.lv=rl/root  quiet")
	m.Replace(bls.LaterFile, "rd.lvm.lv=rl/root", "rd.lvm.lv=rl/root quiet")
	m.Apply(nil)
	rig.Expect(t, m.Restore(rig.Ihash, host.Original{}), host.InSync)
	for _, file := range []string{rig.RescueEntry, bls.LaterFile} {
		if got := m.Read(file); !strings.Contains(got, "quiet") || strings.Contains(got, rig.Ihash) {
			t.Errorf("%s is\n%s", file, got)
		}
	}
	for _, file := range []string{rig.RockyEntry, loader.DefaultFile} {
		check.Equal(t, file, before[file], m.Read(file))
	}
}

func TestFilesThatAreNotRestoredExactlyAreReported(t *testing.T) {
	m := newEdited(t)
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	m.BootEntry(16777216)
	m.Replace(rig.RescueEntry, "rd.lvm.lv=rl/root", "rd.lvm.lv=rl/root quiet")
	m.Apply(nil)
	rig.Expect(t, m.Restore(rig.Ihash, host.Original{}), host.Pending, rig.RescueEntry+" changed in the meantime: removed only the agent's arguments")
}

func TestAnArgumentThatAnEntryHadBeforeStaysThere(t *testing.T) {
	m := newEdited(t)
	m.Replace(rig.RockyEntry, " ro ", " ro  audit=0 ")
	files, modes := m.BootFiles(), m.Modes()
	m.Apply(rig.Settings("audit", "0"))
	m.Apply(nil)
	m.ExpectAsBefore(files, modes)
	rig.Expect(t, m.Restore("audit", host.Original{}), host.InSync)
	m.Restart()
	m.Apply(nil)
	m.ExpectAsBefore(files, modes)
}

func TestFileThatIsTooLargeToSaveIsUnchanged(t *testing.T) {
	m := newEdited(t)
	m.Write(bls.LaterFile, strings.Repeat("#", 64<<10+1))
	before := m.BootFiles()
	err := m.Subject.Apply(t.Context(), rig.Settings(rig.Ihash, rig.Seed))
	if err == nil || !strings.Contains(err.Error(), bls.LaterFile+" is too large to save: more than 64 KiB") {
		t.Errorf("error: got %v", err)
	}
	check.Equal(t, "files", before, m.BootFiles())
}

// An earlier release staged without saving the original bytes: only the agent's arguments are removed.
func TestArgumentsOfAnEarlierReleaseAreRemoved(t *testing.T) {
	m := newEdited(t)
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	delete(m.Facts, rig.KeptFiles)
	m.Restart()
	m.Apply(nil)
	for name, data := range m.BootFiles() {
		if strings.Contains(data, rig.Ihash) {
			t.Errorf("%s still has the argument", name)
		}
	}
	rig.Expect(t, m.Restore(rig.Ihash, host.Original{}), host.InSync)
}

func TestNewEntryWithTheAgentsArgumentsHasNoOriginal(t *testing.T) {
	m := newEdited(t)
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	later := strings.Replace(rig.RockyEntry, "5.14.0-427", "5.14.0-503", 1)
	m.Write(later, m.Read(rig.RockyEntry))
	m.Apply(rig.Settings(rig.Ihash, "1048576"))
	if _, ok := m.Facts.KeptFiles()[later]; ok {
		t.Errorf("%s with the agent's argument is saved as an original", later)
	}
	m.Remove(rig.RockyEntry)
	m.Apply(nil)
	if got := m.Read(later); got == "" || strings.Contains(got, rig.Ihash) {
		t.Errorf("%s: got %q", later, got)
	}
	if got := m.Read(rig.RockyEntry); got != "" {
		t.Errorf("the entry of a removed kernel was restored: %q", got)
	}
}

func TestFilesThatGrubbyWritesAreSynced(t *testing.T) {
	m := newEdited(t)
	m.Write(bls.LaterFile, "root=/dev/mapper/rl-root ro\n")
	var synced []string
	m.Subject.FS = m.FS.WithHook(func(op host.Op, name string) error {
		if op == host.OpSync || op == host.OpSyncDir {
			synced = append(synced, name)
		}
		return nil
	})
	m.Commands.AfterGrubby = func() { synced = nil }
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	for _, name := range []string{bls.EntriesDir, bls.LaterFile, filepath.Dir(bls.LaterFile)} {
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
		file, err := os.Open(filepath.Join(m.Dir, name))
		check.NoError(t, err)
		t.Cleanup(func() { _ = file.Close() })
		info, err := file.Stat()
		check.NoError(t, err)
		durable = append(durable, info)
	}
	sync(rig.RockyEntry)
	sync(rig.RescueEntry)
	checks, syncing := 0, ""
	check := func() {
		if checks++; syncing != "" {
			sync(syncing)
			syncing = ""
		}
		for _, name := range []string{rig.RockyEntry, rig.RescueEntry} {
			info, err := os.Stat(filepath.Join(m.Dir, name))
			if err != nil || !slices.ContainsFunc(durable, func(other os.FileInfo) bool { return os.SameFile(info, other) }) {
				t.Errorf("moment %d: a power cut can empty %s: %v", checks, name, err)
			}
		}
	}
	m.Subject = m.On(m.FS.WithHook(func(op host.Op, name string) error {
		if check(); op == host.OpSync {
			syncing = name
		}
		return nil
	}))
	m.Commands.BeforeWrite, m.Commands.AfterGrubby = func() error { check(); return nil }, check
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	m.Apply(rig.Settings(rig.Ihash, "1048576"))
	m.Apply(nil)
	if checks < 50 {
		t.Errorf("got only %d checks", checks)
	}
}

func TestEditedFilesAreRestoredAfterACrashAtEveryChange(t *testing.T) {
	for _, begin := range []string{"staging", "taking back"} {
		t.Run(begin, func(t *testing.T) {
			for at := 1; ; at++ {
				m := newEdited(t)
				m.InstallOldGrubby()
				files, modes := m.BootFiles(), m.Modes()
				desired := rig.Settings(rig.Ihash, rig.Seed)
				if begin == "taking back" {
					m.Apply(desired)
					desired = nil
				}
				subject, c := m.Crashing(at)
				err := subject.Apply(t.Context(), desired)
				m.Restart()
				if err == nil && c.Count < at {
					if at < 6 {
						t.Errorf("got only %d changes", at)
					}
					return
				}
				m.Apply(desired)
				m.Apply(nil)
				if m.ExpectAsBefore(files, modes); t.Failed() {
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
			m.Write(bls.LaterFile, "root=/dev/mapper/rl-root ro\n")
			files, modes := m.BootFiles(), m.Modes()
			power := true
			m.Subject = m.On(m.FS.WithHook(func(op host.Op, name string) error {
				if power = power && !(op == host.OpSync && name == bls.LaterFile); !power {
					return rig.ErrCrash
				}
				return nil
			}))
			if err := m.Subject.Apply(t.Context(), rig.Settings(rig.Ihash, rig.Seed)); err == nil {
				t.Fatal("Apply: got no error of the sync")
			}
			m.Write(rig.RescueEntry, lost)
			m.Restart()
			m.Apply(rig.Settings(rig.Ihash, rig.Seed))
			rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.Pending)
			if got := m.Read(rig.RescueEntry); !strings.Contains(got, "title") || !strings.Contains(got, rig.Ihash) {
				t.Errorf("entry: got %q", got)
			}
			m.Apply(nil)
			m.ExpectAsBefore(files, modes)
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
				m.Write(bls.LaterFile, before)
			}
			files, modes := m.BootFiles(), m.Modes()
			func() {
				defer func() { _ = recover() }()
				m.Commands.AfterGrubby = func() { m.Write(bls.LaterFile, ""); panic("killed") }
				m.Apply(rig.Settings(rig.Ihash, rig.Seed))
			}()
			m.Commands.AfterGrubby = nil
			// grubby was killed before it changed the entries.
			for _, entry := range []string{rig.RockyEntry, rig.RescueEntry} {
				m.Write(entry, files[entry])
			}
			m.Restart()
			m.Apply(rig.Settings(rig.Ihash, rig.Seed))
			if before == "" {
				if m.FS.Exists(bls.LaterFile) {
					t.Errorf("grubby has made %s: %q", bls.LaterFile, m.Read(bls.LaterFile))
				}
			} else if got, want := m.Read(bls.LaterFile), strings.TrimSpace(before)+" "+rig.IhashSeed+"\n"; got != want {
				t.Errorf("arguments of a later kernel: got %q, want %q", got, want)
			}
			m.Apply(nil)
			m.ExpectAsBefore(files, modes)
		})
	}
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
		"two lines":                  {files: map[string]string{bls.LaterFile: "root=/dev/mapper/rl-root  ro\nconsole=ttyS0\n"}},
		"two lines, and a user's":    {files: map[string]string{bls.LaterFile: "root=/dev/mapper/rl-root  ro\nconsole=ttyS0\n"}, user: "root=/dev/mapper/rl-root\nuser=1\nro\n"},
		"no newline":                 {files: map[string]string{bls.LaterFile: "root=/dev/mapper/rl-root  ro", vendor: "vendor=1\n"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			for first, second := 0, 0; ; {
				m := rig.NewTryingRocky(t)
				m.Journalled = true
				m.Remove(bls.LaterFile)
				m.Write("/etc/kernel/install.conf", "")
				m.Replace(rig.RescueEntry, "options root=/dev/mapper/rl-root", "options root=/dev/old")
				for file, data := range test.files {
					m.Write(file, data)
				}
				m.Restart()
				before := m.BootFiles()
				later := m.LaterKernel()
				isKilled := false
				apply := func(desired []host.Setting, at int) {
					if subject, c := m.Crashing(at); at > 0 {
						_ = subject.Apply(t.Context(), desired)
						isKilled = isKilled || c.Count >= at
						m.Restart()
					}
					m.Apply(desired)
				}
				check := func(want string) {
					t.Helper()
					if got := m.LaterKernel(); !slices.Equal(slices.Sorted(slices.Values(strings.Fields(got))), slices.Sorted(slices.Values(strings.Fields(want)))) {
						t.Errorf("kills at %d and %d: a later kernel gets %q, want %q", first, second, got, want)
					}
				}
				m.Apply(rig.Settings("audit", "0"))
				check(later)
				m.StartEntry()
				apply(rig.Settings("audit", "0"), first)
				check(later + " audit=0")
				if test.user != "" {
					m.Write(bls.LaterFile, test.user)
					before[bls.LaterFile], later = test.user, strings.Join(strings.Fields(test.user), " ")
					check(later)
				}
				m.Apply(rig.Settings("audit", "0", rig.Ihash, rig.Seed))
				m.StartEntry()
				apply(rig.Settings("audit", "0", rig.Ihash, rig.Seed), second)
				check(later + " audit=0 " + rig.IhashSeed)
				apply(nil, second)
				if diff := cmp.Diff(withoutNext(before), withoutNext(m.BootFiles())); diff != "" {
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
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	m.Remove(loader.RecordForm.File)
	m.Restart()
	m.Apply(rig.Settings(rig.Ihash, "1048576"))
	m.Apply(nil)
	for name, data := range m.BootFiles() {
		if strings.Contains(data, rig.Ihash) {
			t.Errorf("%s still has the argument", name)
		}
	}
}

func TestAnArgumentThatAnEntryHadBeforeStaysThereAfterAFailure(t *testing.T) {
	m := newEdited(t)
	m.Replace(rig.RockyEntry, " ro ", " ro  audit=0 ")
	files, modes := m.BootFiles(), m.Modes()
	m.Commands.AfterGrubby = func() { m.Replace(bls.CopyOf(rig.RescueEntry), " audit=0", "") }
	if err := m.Subject.Apply(t.Context(), rig.Settings("audit", "0")); err == nil {
		t.Fatal("Apply: got no error")
	}
	m.Commands.AfterGrubby = nil
	m.Restart()
	m.Apply(rig.Settings("audit", "0"))
	m.Apply(nil)
	m.ExpectAsBefore(files, modes)
}

// The second value replaces the first, and the third comes after a kill. The copy of the arguments for later kernels still has the first value.
func TestAKilledChangeLeavesNoEarlierValueForLaterKernels(t *testing.T) {
	const second, third = "2097152", "1048576"
	writes := 0
	for first, more := 1, true; more; first++ {
		for _, later := range []int{11, 41} {
			m := rig.NewTryingRocky(t)
			original := m.Read(bls.LaterFile)
			m.Apply(rig.Settings(rig.Ihash, rig.Seed))
			m.StartEntry()
			m.Apply(rig.Settings(rig.Ihash, rig.Seed))
			m.Apply(rig.Settings(rig.Ihash, second))
			m.StartEntry()
			promoting, c := m.Crashing(first)
			_ = promoting.Apply(t.Context(), rig.Settings(rig.Ihash, second))
			more = c.Count >= first
			m.StartEntry()
			staging, _ := m.Crashing(later)
			_ = staging.Apply(t.Context(), rig.Settings(rig.Ihash, third))
			m.StartEntry()
			m.Apply(rig.Settings(rig.Ihash, third))
			m.Apply(nil)
			if diff := cmp.Diff(original, m.Read(bls.LaterFile)); diff != "" {
				t.Fatalf("after restore, kills at writes %d and %d (-want +got):\n%s", first, later, diff)
			}
			writes++
		}
	}
	if writes < 80 {
		t.Errorf("got only %d pairs of kills, want 80", writes)
	}
}
