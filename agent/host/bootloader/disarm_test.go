package bootloader

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageclient/operator/agent/host"
)

const (
	rockyKernel = "/boot/vmlinuz-5.14.0-427.13.1.el9_4.x86_64"
	rockyInitrd = "/boot/initramfs-5.14.0-427.13.1.el9_4.x86_64.img"
	hugepage    = "transparent_hugepage"
)

// failTrial boots the entry that is booted once with a permit. It does not come up, and the machine starts again.
func (m *machine) failTrial() {
	m.t.Helper()
	m.prepareReboot()
	if name, _ := m.powerEntry(); name != onceID {
		m.t.Errorf("booted %s instead of the trial", name)
	}
	m.startEntry()
}

// expectDisarmed checks that the next boot is not a trial, and that the block has every other byte.
func (m *machine) expectDisarmed(block string) {
	m.t.Helper()
	if got := m.read(blsEnv); environment(got).value(nextEntry) == onceID && len(got) == envSize {
		m.t.Error("the trial is selected")
	} else if got != block && len(got) == envSize {
		want := environment(block).with(nextEntry, "")
		if diff := cmp.Diff(string(want), string(environment(got).with(nextEntry, ""))); diff != "" {
			m.t.Errorf("environment block (-want +got):\n%s", diff)
		}
	}
	if name := m.startEntry(); name == onceID {
		m.t.Error("the machine booted the trial")
	}
}

func TestATrialThatTheAgentWillNotBootIsDisarmed(t *testing.T) {
	apply := func(m *machine, desired []host.Setting) { _ = m.subject.Apply(m.t.Context(), desired) }
	again := func(prepare func(*machine)) func(*machine) {
		return func(m *machine) { prepare(m); apply(m, settings(ihash, seed)); apply(m, settings(ihash, seed)) }
	}
	permitted := func(file string) func(*machine) {
		return func(m *machine) {
			m.remove(file)
			if err := m.rearm(true); !errors.Is(err, errNoKernel) {
				m.t.Errorf("permit: got error %v", err)
			}
		}
	}
	full := func(m *machine) {
		m.subject.space = func(string) (host.Space, error) { return host.Space{}, nil }
	}
	tests := map[string]func(*machine){
		"its kernel is missing at the permit":        permitted(rockyKernel),
		"its initrd is missing at the permit":        permitted(rockyInitrd),
		"its kernel is missing":                      again(func(m *machine) { m.remove(rockyKernel) }),
		"its initrd is missing":                      again(func(m *machine) { m.remove(rockyInitrd) }),
		"another tool removes its entry and kernel":  again(func(m *machine) { m.remove(onceEntry); m.remove(rockyKernel) }),
		"another tool changes the trial's arguments": again(func(m *machine) { m.replace(onceEntry, ihash, "other"); m.remove(rockyInitrd) }),
		"another tool changes the default arguments": again(func(m *machine) { m.replace(rockyEntry, " rd.lvm.lv=rl/root", "") }),
		"another tool removes grubby":                again(func(m *machine) { m.remove(grubbyScript) }),
		"another tool makes a menu of a newer form":  again(func(m *machine) { m.replace(grub2Cfg, "load_env", "true"); m.remove(rockyKernel) }),
		"the environment block has another size": again(func(m *machine) {
			m.write(blsEnv, m.read(blsEnv)+"\n")
			m.remove(rockyKernel)
		}),
		"the profile is deleted": func(m *machine) { apply(m, nil) },
		"the profile is deleted, and the file system is full": func(m *machine) {
			full(m)
			apply(m, nil)
		},
		"the arguments change, and the file system is full": func(m *machine) {
			full(m)
			apply(m, settings(ihash, "1048576"))
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := newTryingRocky(t)
			before := m.bootFiles()
			m.apply(settings(ihash, seed))
			test(m)
			m.expectDisarmed(before[blsEnv])
			m.expectInDefaults(ihashSeed, false)
			if strings.Contains(name, "another") {
				return
			}
			m.write(rockyKernel, "kernel")
			m.write(rockyInitrd, "initrd")
			m.apply(nil)
			if diff := cmp.Diff(before, m.bootFiles()); diff != "" {
				t.Errorf("after restore (-before +after):\n%s", diff)
			}
		})
	}
}

func TestATrialIsDisarmedIfGrubbyFails(t *testing.T) {
	m, _ := newTuned(t, "audit", "0")
	both := settings("audit", "0", ihash, seed)
	block := m.read(blsEnv)
	m.apply(both)
	// The entry of a new kernel lacks the argument that has booted.
	m.write(m.addKernel(newKernel, true), strings.ReplaceAll(strings.ReplaceAll(m.read(rockyEntry), "427.13.1.el9_4.x86_64", "503.1.1.el9_4.x86_64"), " audit=0", ""))
	m.subject.runner = failingUpdate{m.commands}
	if err := m.subject.Apply(t.Context(), both); err == nil {
		t.Error("got no error of grubby")
	}
	m.expectDisarmed(block)
	m.apply(both)
	expect(t, m.observe(ihash, seed), host.Pending, "trial boot")
}

func TestADisarmedTrialIsArmedAgain(t *testing.T) {
	m := newTryingRocky(t)
	m.apply(settings(ihash, seed))
	m.remove(rockyKernel)
	if err := m.rearm(true); err == nil {
		t.Error("got no error without a kernel")
	}
	m.write(rockyKernel, "kernel")
	m.restart()
	m.apply(settings(ihash, seed))
	expect(t, m.observe(ihash, seed), host.Pending, "trial boot")
	m.prepareReboot()
	if name := m.startEntry(); name != onceID {
		t.Errorf("booted %s", name)
	}
}

// A boot by hand after the permit was withdrawn is no proof of a failure.
func TestATrialWithoutItsPermitIsNoLongerPermitted(t *testing.T) {
	m := newTryingRocky(t)
	m.apply(settings(ihash, seed))
	block := m.read(blsEnv)
	m.prepareReboot()
	if err := m.rearm(false); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(block, m.read(blsEnv)); diff != "" {
		t.Errorf("environment block (-want +got):\n%s", diff)
	}
	if name, _ := m.powerEntry(); name != onceID {
		t.Errorf("booted %s", name)
	}
	m.startEntry()
	m.apply(settings(ihash, seed))
	expect(t, m.observe(ihash, seed), host.Pending, "only with a permit")
}

// withoutNext returns files without the variable that GRUB leaves empty.
func withoutNext(files map[string]string) map[string]string {
	if block, ok := files[blsEnv]; ok {
		files[blsEnv] = string(environment(block).with(nextEntry, ""))
	}
	return files
}

// newTuned is a host that has booted with an argument, which is in all entries.
func newTuned(t *testing.T, pairs ...string) (m *machine, before map[string]string) {
	t.Helper()
	m = newTryingRocky(t)
	before = m.bootFiles()
	m.apply(settings(pairs...))
	m.startEntry()
	m.apply(settings(pairs...))
	return m, before
}

func TestDefaultEntriesKeepTheOldValueUntilTheNewOneHasBooted(t *testing.T) {
	tests := map[string]struct {
		boot func(*machine)
		// value is the value in the default entries after boot.
		value string
		state host.State
	}{
		"it waits for its boot":           {func(*machine) {}, "never", host.Pending},
		"it boots":                        {func(m *machine) { m.prepareReboot(); m.startEntry() }, "madvise", host.InSync},
		"it fails":                        {(*machine).failTrial, "never", host.Failed},
		"a boot without a permit fails":   {func(m *machine) { m.powerEntry(); m.startEntry() }, "never", host.Pending},
		"a user boots the default entry":  {func(m *machine) { m.remove(onceEntry); m.startEntry() }, "never", host.Pending},
		"another value was staged before": {func(m *machine) { m.apply(settings(hugepage, "always")); m.apply(settings(hugepage, "madvise")) }, "never", host.Pending},
		"it was staged and withdrawn":     {func(m *machine) { m.apply(settings(hugepage, "never")); m.apply(settings(hugepage, "madvise")) }, "never", host.Pending},
	}
	for name, test := range tests {
		for end, last := range map[string][]host.Setting{"the profile is deleted": nil, "the old value returns": settings(hugepage, "never")} {
			t.Run(name+", "+end, func(t *testing.T) {
				m, before := newTuned(t, hugepage, "never")
				tuned := m.bootFiles()
				m.apply(settings(hugepage, "madvise"))
				m.expectInDefaults(hugepage+"=never", true)
				m.expectInDefaults(hugepage+"=madvise", false)
				if once := strings.Fields(m.read(onceEntry)); slices.Contains(once, hugepage+"=never") || !slices.Contains(once, hugepage+"=madvise") {
					t.Errorf("the trial is\n%s", m.read(onceEntry))
				}
				test.boot(m)
				for range 2 {
					m.restart()
					m.apply(settings(hugepage, "madvise"))
					expect(t, m.observe(hugepage, "madvise"), test.state)
					m.expectInDefaults(hugepage+"=never", test.value == "never")
					m.expectInDefaults(hugepage+"=madvise", test.value == "madvise")
				}
				m.apply(last)
				want := before
				if last != nil && test.value == "never" {
					expect(t, m.observe(hugepage, "never"), host.InSync)
					want = tuned
				}
				if last == nil || test.value == "never" {
					if diff := cmp.Diff(withoutNext(want), withoutNext(m.bootFiles())); diff != "" {
						t.Errorf("after the end (-want +got):\n%s", diff)
					}
				}
			})
		}
	}
}

func TestAnArgumentIsRemovedAfterTheTrialOfAnother(t *testing.T) {
	tests := map[string]struct {
		boot func(*machine)
		kept bool
	}{
		"the trial waits":  {func(*machine) {}, true},
		"the trial boots":  {func(m *machine) { m.prepareReboot(); m.startEntry() }, false},
		"the trial fails":  {(*machine).failTrial, false},
		"it must be tried": {func(m *machine) { m.powerEntry(); m.startEntry() }, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m, before := newTuned(t, hugepage, "never", "audit", "0")
			m.apply(settings(hugepage, "madvise"))
			m.expectInDefaults("audit=0", true)
			if strings.Contains(m.read(onceEntry), "audit=0") {
				t.Errorf("the trial is\n%s", m.read(onceEntry))
			}
			test.boot(m)
			for range 2 {
				m.restart()
				m.apply(settings(hugepage, "madvise"))
				m.expectInDefaults("audit=0", test.kept)
			}
			got := m.restore("audit", host.Original{})
			if got.Kept != test.kept {
				t.Errorf("restore: got %+v", got)
			}
			if test.kept {
				expect(t, got, host.Pending, "until the trial boot of "+hugepage+"=madvise")
			} else if got.State == host.Failed {
				t.Errorf("restore: got %+v", got)
			}
			m.apply(nil)
			if diff := cmp.Diff(before, m.bootFiles()); diff != "" {
				t.Errorf("after restore (-before +after):\n%s", diff)
			}
		})
	}
}

func TestAFailedArgumentIsNotTriedWithAnother(t *testing.T) {
	hosts := map[string]struct {
		make func(*testing.T) *machine
		fail func(*machine)
		boot func(*machine)
	}{
		rocky: {newTryingRocky, (*machine).failTrial, func(m *machine) { m.prepareReboot(); m.startEntry() }},
		debian: {func(t *testing.T) *machine { return newTryingMachine(t, debian) }, func(m *machine) {
			m.prepareReboot()
			m.power()
			m.start(262144)
		}, func(m *machine) { m.prepareReboot(); m.start(16777216) }},
	}
	for name, h := range hosts {
		t.Run(name, func(t *testing.T) {
			m := h.make(t)
			before := m.bootFiles()
			m.apply(settings(hugepage, "never"))
			h.fail(m)
			m.apply(settings(hugepage, "never"))
			expect(t, m.observe(hugepage, "never"), host.Failed, "trial boot failed")
			both := settings(hugepage, "never", ihash, seed)
			check := func(state host.State) {
				t.Helper()
				for range 2 {
					m.restart()
					m.apply(both)
					got := m.subject.Observe(t.Context(), both)
					expect(t, got[0], host.Failed, "trial boot failed")
					expect(t, got[1], state)
				}
				for file, text := range m.bootFiles() {
					for line := range strings.Lines(text) {
						if strings.Contains(line, hugepage) && !strings.HasPrefix(line, "#") {
							t.Errorf("%s still has the failed argument", file)
						}
					}
				}
			}
			check(host.Pending)
			h.boot(m)
			check(host.InSync)
			h.boot(m)
			check(host.InSync)
			// It is tried again after it was removed from the profile.
			m.apply(settings(ihash, seed))
			m.apply(both)
			expect(t, m.subject.Observe(t.Context(), both)[0], host.Pending, "trial boot")
			m.apply(nil)
			if diff := cmp.Diff(before, m.bootFiles()); diff != "" {
				t.Errorf("after restore (-before +after):\n%s", diff)
			}
		})
	}
}

func TestTheOldValueOfAFailedArgumentStaysDuringTheTrialOfAnother(t *testing.T) {
	hosts := map[string]struct {
		make       func(*testing.T) *machine
		fail, boot func(*machine)
	}{
		rocky: {newTryingRocky, (*machine).failTrial, func(m *machine) { m.startEntry() }},
		debian: {func(t *testing.T) *machine { return newTryingMachine(t, debian) }, func(m *machine) {
			m.prepareReboot()
			m.power()
			m.start(262144)
		}, func(m *machine) { m.start(16777216) }},
	}
	for name, h := range hosts {
		t.Run(name, func(t *testing.T) {
			m := h.make(t)
			before := m.bootFiles()
			m.apply(settings(hugepage, "never"))
			h.boot(m)
			m.apply(settings(hugepage, "never"))
			m.apply(settings(hugepage, "madvise"))
			h.fail(m)
			both := settings(hugepage, "madvise", ihash, seed)
			for _, state := range []host.State{host.Pending, host.InSync} {
				m.apply(both)
				got := m.subject.Observe(t.Context(), both)
				expect(t, got[0], host.Failed, "trial boot failed")
				expect(t, got[1], state)
				m.prepareReboot()
				h.boot(m)
				if !strings.Contains(m.read(commandLine), hugepage+"=never") {
					t.Errorf("the machine booted %s", m.read(commandLine))
				}
			}
			if name == rocky {
				m.expectInDefaults(hugepage+"=never", true)
			}
			m.apply(nil)
			if diff := cmp.Diff(before, m.bootFiles()); diff != "" {
				t.Errorf("after restore (-before +after):\n%s", diff)
			}
		})
	}
}

func TestAKillKeepsADisarmedTrialOutOfTheDefaultEntries(t *testing.T) {
	for n := 1; ; n++ {
		m := newTryingRocky(t)
		m.apply(settings(ihash, seed))
		m.remove(rockyKernel)
		if err := m.rearm(true); err == nil {
			t.Error("got no error without a kernel")
		}
		m.write(rockyKernel, "kernel")
		subject, c := m.crashing(n)
		_ = subject.Apply(t.Context(), settings(ihash, seed))
		m.replace(grub2Cfg, "load_env", "true")
		m.restart()
		_ = m.subject.Apply(t.Context(), settings(ihash, seed))
		m.expectInDefaults(ihashSeed, false)
		if c.count < n {
			return
		}
	}
}
