package grubentries_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/bootloader/bls"
	"github.com/storageclient/operator/agent/host/bootloader/grubcfg"
	"github.com/storageclient/operator/agent/host/bootloader/loader"
	"github.com/storageclient/operator/agent/host/hosttest/rig"
	"github.com/storageclient/operator/test/check"
)

func TestATrialThatTheAgentWillNotBootIsDisarmed(t *testing.T) {
	apply := func(m *rig.Machine, desired []host.Setting) { _ = m.Subject.Apply(m.T.Context(), desired) }
	again := func(prepare func(*rig.Machine)) func(*rig.Machine) {
		return func(m *rig.Machine) {
			prepare(m)
			apply(m, rig.Settings(rig.Ihash, rig.Seed))
			apply(m, rig.Settings(rig.Ihash, rig.Seed))
		}
	}
	permitted := func(file string) func(*rig.Machine) {
		return func(m *rig.Machine) {
			m.Remove(file)
			if err := m.Rearm(true); !errors.Is(err, bls.ErrNoKernel) {
				m.T.Errorf("permit: got error %v", err)
			}
		}
	}
	full := func(m *rig.Machine) {
		m.Subject.Space = func(string) (host.Space, error) { return host.Space{}, nil }
	}
	tests := map[string]func(*rig.Machine){
		"its kernel is missing at the permit":        permitted(rig.RockyKernel),
		"its initrd is missing at the permit":        permitted(rig.RockyInitrd),
		"its kernel is missing":                      again(func(m *rig.Machine) { m.Remove(rig.RockyKernel) }),
		"its initrd is missing":                      again(func(m *rig.Machine) { m.Remove(rig.RockyInitrd) }),
		"another tool removes its entry and kernel":  again(func(m *rig.Machine) { m.Remove(bls.OnceEntry); m.Remove(rig.RockyKernel) }),
		"another tool changes the trial's arguments": again(func(m *rig.Machine) { m.Replace(bls.OnceEntry, rig.Ihash, "other"); m.Remove(rig.RockyInitrd) }),
		"another tool changes the default arguments": again(func(m *rig.Machine) { m.Replace(rig.RockyEntry, " rd.lvm.lv=rl/root", "") }),
		"another tool removes grubby":                again(func(m *rig.Machine) { m.Remove(rig.GrubbyScript) }),
		"another tool makes a menu of a newer form":  again(func(m *rig.Machine) { m.Replace(grubcfg.Grub2, "load_env", "true"); m.Remove(rig.RockyKernel) }),
		"the environment block has another size": again(func(m *rig.Machine) {
			m.Write(rig.BlsEnv, m.Read(rig.BlsEnv)+"\n")
			m.Remove(rig.RockyKernel)
		}),
		"the profile is deleted": func(m *rig.Machine) { apply(m, nil) },
		"the profile is deleted, and the file system is full": func(m *rig.Machine) {
			full(m)
			apply(m, nil)
		},
		"the arguments change, and the file system is full": func(m *rig.Machine) {
			full(m)
			apply(m, rig.Settings(rig.Ihash, "1048576"))
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := rig.NewTryingRocky(t)
			before := m.BootFiles()
			m.Apply(rig.Settings(rig.Ihash, rig.Seed))
			test(m)
			m.ExpectDisarmed(before[rig.BlsEnv])
			m.ExpectInDefaults(rig.IhashSeed, false)
			if strings.Contains(name, "another") {
				return
			}
			m.Write(rig.RockyKernel, "kernel")
			m.Write(rig.RockyInitrd, "initrd")
			m.Apply(nil)
			check.Equal(t, "after restore", before, m.BootFiles())
		})
	}
}

func TestATrialIsDisarmedIfGrubbyFails(t *testing.T) {
	m, _ := newTuned(t, "audit", "0")
	both := rig.Settings("audit", "0", rig.Ihash, rig.Seed)
	block := m.Read(rig.BlsEnv)
	m.Apply(both)
	// The entry of a new kernel lacks the argument that has booted.
	m.Write(m.AddKernel(newKernel, true), strings.ReplaceAll(strings.ReplaceAll(m.Read(rig.RockyEntry), "427.13.1.el9_4.x86_64", "503.1.1.el9_4.x86_64"), " audit=0", ""))
	m.Subject.Runner = failingUpdate{m.Commands}
	if err := m.Subject.Apply(t.Context(), both); err == nil {
		t.Error("got no error of grubby")
	}
	m.ExpectDisarmed(block)
	m.Apply(both)
	rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.Pending, "trial boot")
}

func TestADisarmedTrialIsArmedAgain(t *testing.T) {
	m := rig.NewTryingRocky(t)
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	m.Remove(rig.RockyKernel)
	if err := m.Rearm(true); err == nil {
		t.Error("got no error without a kernel")
	}
	m.Write(rig.RockyKernel, "kernel")
	m.Restart()
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.Pending, "trial boot")
	m.PrepareReboot()
	check.Equal(t, "booted entry", bls.OnceID, m.StartEntry())
}

// A boot by hand after the permit was withdrawn is no proof of a failure.
func TestATrialWithoutItsPermitIsNoLongerPermitted(t *testing.T) {
	m := rig.NewTryingRocky(t)
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	block := m.Read(rig.BlsEnv)
	m.PrepareReboot()
	check.NoError(t, m.Rearm(false))
	check.Equal(t, "environment block", block, m.Read(rig.BlsEnv))
	if name, _ := m.PowerEntry(); name != bls.OnceID {
		t.Errorf("booted %s", name)
	}
	m.StartEntry()
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.Pending, "only with a permit")
}

// withoutNext returns files without the variable that GRUB leaves empty.
func withoutNext(files map[string]string) map[string]string {
	if block, ok := files[rig.BlsEnv]; ok {
		files[rig.BlsEnv] = string(grubcfg.Environment(block).With(grubcfg.NextEntry, ""))
	}
	return files
}

// newTuned is a host that has booted with an argument, which is in all entries.
func newTuned(t *testing.T, pairs ...string) (m *rig.Machine, before map[string]string) {
	t.Helper()
	m = rig.NewTryingRocky(t)
	before = m.BootFiles()
	m.Apply(rig.Settings(pairs...))
	m.StartEntry()
	m.Apply(rig.Settings(pairs...))
	return m, before
}

func TestDefaultEntriesKeepTheOldValueUntilTheNewOneHasBooted(t *testing.T) {
	tests := map[string]struct {
		boot func(*rig.Machine)
		// value is the value in the default entries after boot.
		value string
		state host.State
	}{
		"it waits for its boot":          {func(*rig.Machine) {}, "never", host.Pending},
		"it boots":                       {func(m *rig.Machine) { m.PrepareReboot(); m.StartEntry() }, "madvise", host.InSync},
		"it fails":                       {(*rig.Machine).FailTrial, "never", host.Failed},
		"a boot without a permit fails":  {func(m *rig.Machine) { m.PowerEntry(); m.StartEntry() }, "never", host.Pending},
		"a user boots the default entry": {func(m *rig.Machine) { m.Remove(bls.OnceEntry); m.StartEntry() }, "never", host.Pending},
		"another value was staged before": {func(m *rig.Machine) {
			m.Apply(rig.Settings(rig.Hugepage, "always"))
			m.Apply(rig.Settings(rig.Hugepage, "madvise"))
		}, "never", host.Pending},
		"it was staged and withdrawn": {func(m *rig.Machine) {
			m.Apply(rig.Settings(rig.Hugepage, "never"))
			m.Apply(rig.Settings(rig.Hugepage, "madvise"))
		}, "never", host.Pending},
	}
	for name, test := range tests {
		for end, last := range map[string][]host.Setting{"the profile is deleted": nil, "the old value returns": rig.Settings(rig.Hugepage, "never")} {
			t.Run(name+", "+end, func(t *testing.T) {
				m, before := newTuned(t, rig.Hugepage, "never")
				tuned := m.BootFiles()
				m.Apply(rig.Settings(rig.Hugepage, "madvise"))
				m.ExpectInDefaults(rig.Hugepage+"=never", true)
				m.ExpectInDefaults(rig.Hugepage+"=madvise", false)
				if once := strings.Fields(m.Read(bls.OnceEntry)); slices.Contains(once, rig.Hugepage+"=never") || !slices.Contains(once, rig.Hugepage+"=madvise") {
					t.Errorf("the trial is\n%s", m.Read(bls.OnceEntry))
				}
				test.boot(m)
				for range 2 {
					m.Restart()
					m.Apply(rig.Settings(rig.Hugepage, "madvise"))
					rig.Expect(t, m.Observe(rig.Hugepage, "madvise"), test.state)
					m.ExpectInDefaults(rig.Hugepage+"=never", test.value == "never")
					m.ExpectInDefaults(rig.Hugepage+"=madvise", test.value == "madvise")
				}
				m.Apply(last)
				want := before
				if last != nil && test.value == "never" {
					rig.Expect(t, m.Observe(rig.Hugepage, "never"), host.InSync)
					want = tuned
				}
				if last == nil || test.value == "never" {
					check.Equal(t, "after the end", withoutNext(want), withoutNext(m.BootFiles()))
				}
			})
		}
	}
}

func TestAnArgumentIsRemovedAfterTheTrialOfAnother(t *testing.T) {
	tests := map[string]struct {
		boot func(*rig.Machine)
		kept bool
	}{
		"the trial waits":  {func(*rig.Machine) {}, true},
		"the trial boots":  {func(m *rig.Machine) { m.PrepareReboot(); m.StartEntry() }, false},
		"the trial fails":  {(*rig.Machine).FailTrial, false},
		"it must be tried": {func(m *rig.Machine) { m.PowerEntry(); m.StartEntry() }, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m, before := newTuned(t, rig.Hugepage, "never", "audit", "0")
			m.Apply(rig.Settings(rig.Hugepage, "madvise"))
			m.ExpectInDefaults("audit=0", true)
			if strings.Contains(m.Read(bls.OnceEntry), "audit=0") {
				t.Errorf("the trial is\n%s", m.Read(bls.OnceEntry))
			}
			test.boot(m)
			for range 2 {
				m.Restart()
				m.Apply(rig.Settings(rig.Hugepage, "madvise"))
				m.ExpectInDefaults("audit=0", test.kept)
			}
			got := m.Restore("audit", host.Original{})
			if got.Kept != test.kept {
				t.Errorf("restore: got %+v", got)
			}
			if test.kept {
				rig.Expect(t, got, host.Pending, "until the trial boot of "+rig.Hugepage+"=madvise")
			} else if got.State == host.Failed {
				t.Errorf("restore: got %+v", got)
			}
			m.Apply(nil)
			check.Equal(t, "after restore", before, m.BootFiles())
		})
	}
}

func TestAFailedArgumentIsNotTriedWithAnother(t *testing.T) {
	hosts := map[string]struct {
		make func(*testing.T) *rig.Machine
		fail func(*rig.Machine)
		boot func(*rig.Machine)
	}{
		rig.Rocky: {rig.NewTryingRocky, (*rig.Machine).FailTrial, func(m *rig.Machine) { m.PrepareReboot(); m.StartEntry() }},
		rig.Debian: {func(t *testing.T) *rig.Machine { return rig.NewTryingMachine(t, rig.Debian) }, func(m *rig.Machine) {
			m.PrepareReboot()
			m.Power()
			m.Start(262144)
		}, func(m *rig.Machine) { m.PrepareReboot(); m.Start(16777216) }},
	}
	for name, h := range hosts {
		t.Run(name, func(t *testing.T) {
			m := h.make(t)
			before := m.BootFiles()
			m.Apply(rig.Settings(rig.Hugepage, "never"))
			h.fail(m)
			m.Apply(rig.Settings(rig.Hugepage, "never"))
			rig.Expect(t, m.Observe(rig.Hugepage, "never"), host.Failed, "trial boot failed")
			both := rig.Settings(rig.Hugepage, "never", rig.Ihash, rig.Seed)
			expectFailed := func(state host.State) {
				t.Helper()
				for range 2 {
					m.Restart()
					m.Apply(both)
					got := m.Subject.Observe(t.Context(), both)
					rig.Expect(t, got[0], host.Failed, "trial boot failed")
					rig.Expect(t, got[1], state)
				}
				for file, text := range m.BootFiles() {
					for line := range strings.Lines(text) {
						if strings.Contains(line, rig.Hugepage) && !strings.HasPrefix(line, "#") {
							t.Errorf("%s still has the failed argument", file)
						}
					}
				}
			}
			expectFailed(host.Pending)
			h.boot(m)
			expectFailed(host.InSync)
			h.boot(m)
			expectFailed(host.InSync)
			// It is tried again after it was removed from the profile.
			m.Apply(rig.Settings(rig.Ihash, rig.Seed))
			m.Apply(both)
			rig.Expect(t, m.Subject.Observe(t.Context(), both)[0], host.Pending, "trial boot")
			m.Apply(nil)
			check.Equal(t, "after restore", before, m.BootFiles())
		})
	}
}

func TestTheOldValueOfAFailedArgumentStaysDuringTheTrialOfAnother(t *testing.T) {
	hosts := map[string]struct {
		make       func(*testing.T) *rig.Machine
		fail, boot func(*rig.Machine)
	}{
		rig.Rocky: {rig.NewTryingRocky, (*rig.Machine).FailTrial, func(m *rig.Machine) { m.StartEntry() }},
		rig.Debian: {func(t *testing.T) *rig.Machine { return rig.NewTryingMachine(t, rig.Debian) }, func(m *rig.Machine) {
			m.PrepareReboot()
			m.Power()
			m.Start(262144)
		}, func(m *rig.Machine) { m.Start(16777216) }},
	}
	for name, h := range hosts {
		t.Run(name, func(t *testing.T) {
			m := h.make(t)
			before := m.BootFiles()
			m.Apply(rig.Settings(rig.Hugepage, "never"))
			h.boot(m)
			m.Apply(rig.Settings(rig.Hugepage, "never"))
			m.Apply(rig.Settings(rig.Hugepage, "madvise"))
			h.fail(m)
			both := rig.Settings(rig.Hugepage, "madvise", rig.Ihash, rig.Seed)
			for _, state := range []host.State{host.Pending, host.InSync} {
				m.Apply(both)
				got := m.Subject.Observe(t.Context(), both)
				rig.Expect(t, got[0], host.Failed, "trial boot failed")
				rig.Expect(t, got[1], state)
				m.PrepareReboot()
				h.boot(m)
				if !strings.Contains(m.Read(loader.CommandLine), rig.Hugepage+"=never") {
					t.Errorf("the machine booted %s", m.Read(loader.CommandLine))
				}
			}
			if name == rig.Rocky {
				m.ExpectInDefaults(rig.Hugepage+"=never", true)
			}
			m.Apply(nil)
			check.Equal(t, "after restore", before, m.BootFiles())
		})
	}
}

func TestAKillKeepsADisarmedTrialOutOfTheDefaultEntries(t *testing.T) {
	for n := 1; ; n++ {
		m := rig.NewTryingRocky(t)
		m.Apply(rig.Settings(rig.Ihash, rig.Seed))
		m.Remove(rig.RockyKernel)
		if err := m.Rearm(true); err == nil {
			t.Error("got no error without a kernel")
		}
		m.Write(rig.RockyKernel, "kernel")
		subject, c := m.Crashing(n)
		_ = subject.Apply(t.Context(), rig.Settings(rig.Ihash, rig.Seed))
		m.Replace(grubcfg.Grub2, "load_env", "true")
		m.Restart()
		_ = m.Subject.Apply(t.Context(), rig.Settings(rig.Ihash, rig.Seed))
		m.ExpectInDefaults(rig.IhashSeed, false)
		if c.Count < n {
			return
		}
	}
}
