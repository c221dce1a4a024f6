package modprobe

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/hosttest"
	"github.com/storageclient/operator/agent/host/mounts"
	"github.com/storageclient/operator/test/check"
)

type facts map[string]string

func (f facts) BootFact(bootID, name string) (string, bool) {
	value, ok := f[bootID+" "+name]
	return value, ok
}

func (f facts) SetBootFact(bootID, name, value string) error {
	f[bootID+" "+name] = value
	return nil
}

// sessionValues contains a value for each parameter that a session gets when it is created, and then keeps.
var sessionValues = map[string]string{sessionSlots: "180", callbackSlots: "32"}

const callbackFile = "/sys/module/nfs/parameters/max_session_cb_slots"

// sessionHost is a host whose kernel has NFS sessions.
type sessionHost struct {
	t     *testing.T
	dir   string
	fs    host.FS
	facts facts
	list  []mounts.Session
}

func newSessionHost(t *testing.T) *sessionHost {
	t.Helper()
	dir, fs := loaded(t)
	hosttest.WriteFile(t, dir, callbackFile, "16\n")
	h := &sessionHost{t: t, dir: dir, fs: fs, facts: facts{}}
	h.boot("boot-1", 1000)
	return h
}

func (h *sessionHost) boot(id string, uptime int) {
	hosttest.WriteFile(h.t, h.dir, bootIDFile, id+"\n")
	h.setUptime(uptime)
}

func (h *sessionHost) setUptime(uptime int) {
	hosttest.WriteFile(h.t, h.dir, "/proc/uptime", strconv.Itoa(uptime)+".52 4021.00\n")
}

// agent returns the subject of an agent that has just started.
func (h *sessionHost) agent() *Subject {
	return New(h.fs, nil, func() ([]mounts.Session, error) { return h.list, nil }, h.facts)
}

func (h *sessionHost) apply() *Subject {
	h.t.Helper()
	s := h.agent()
	hosttest.Apply(h.t, s, hosttest.Settings(sessionSlots, "180"))
	return s
}

func (h *sessionHost) expect(state host.State, parts ...string) {
	h.t.Helper()
	got := hosttest.Observe(h.t, h.agent(), sessionSlots, "180")
	hosttest.ExpectState(h.t, got, state, parts...)
	if got.Effect != host.NewTransport {
		h.t.Errorf("effect: got %s", got.Effect)
	}
}

func session(age int, ports ...int) mounts.Session {
	return mounts.Session{Server: "filer1", Client: "10.0.0.1:2049 4.1 tcp ", Age: age, Ports: ports}
}

func TestASessionFromBeforeTheValueWasSetKeepsItsSlots(t *testing.T) {
	h := newSessionHost(t)
	h.list = []mounts.Session{session(500, 700)}
	h.apply()
	h.expect(host.Pending, "sessions with filer1 are older")

	h.setUptime(2000)
	h.list = []mounts.Session{session(900, 700)}
	h.expect(host.Pending, "filer1")
	if old, err := h.agent().OldSessions(); err != nil || len(old) != 1 || old[0].Client != session(0).Client {
		t.Errorf("got old sessions %v, %v", old, err)
	}

	h.list = []mounts.Session{session(900, 811)}
	h.expect(host.InSync)
	h.list = nil
	h.expect(host.InSync)
}

func TestASessionOutlivesItsOldestMount(t *testing.T) {
	h := newSessionHost(t)
	h.list = []mounts.Session{session(math.MaxInt, 700, 701)}
	h.apply()
	h.expect(host.Pending, "filer1")
	h.setUptime(3000)
	h.list = []mounts.Session{session(60, 701, 702)} // by other mounts of the same client
	h.expect(host.Pending, "filer1")
	h.list = []mounts.Session{session(30, 702, 703)}
	h.expect(host.Pending, "filer1")
	h.list = []mounts.Session{session(30, 900)}
	h.expect(host.InSync)
	h.list = []mounts.Session{session(40, 703)} // a port that was reused
	h.expect(host.InSync)
}

func TestAModuleThatWasLoadedWithTheValueHasNoOldSession(t *testing.T) {
	h := newSessionHost(t)
	h.list = []mounts.Session{session(500, 700)}
	h.apply()
	h.boot("boot-2", 60)
	h.list = []mounts.Session{session(20, 700)} // mounted at boot, before the agent started
	h.apply()
	h.expect(host.InSync)
	h.setUptime(600)
	h.apply()
	h.expect(host.InSync)
	check.Equal(t, "fact", `{"setAt":0}`, h.facts["boot-2 "+factSessions])
}

func TestAValueThatAnEarlierAgentSetInThisBoot(t *testing.T) {
	for name, test := range map[string]struct {
		writtenAt int64
		state     host.State
	}{
		"before the boot":          {-100, host.InSync},
		"after the oldest mount":   {700, host.Pending},
		"before the oldest mount":  {300, host.InSync},
		"in the very same second":  {500, host.Pending},
		"one second later at most": {499, host.Pending},
	} {
		t.Run(name, func(t *testing.T) {
			h := newSessionHost(t)
			const booted = 1700000000
			hosttest.WriteFile(t, h.dir, statFile, "cpu  1 2 3\nbtime "+strconv.Itoa(booted)+"\n")
			hosttest.WriteFile(t, h.dir, "/sys/module/nfs/parameters/max_session_slots", "180\n")
			hosttest.WriteFile(t, h.dir, DropIn, header1+"options nfs max_session_slots=180\n")
			at := time.Unix(booted+test.writtenAt, 0)
			check.NoError(t, os.Chtimes(filepath.Join(h.dir, DropIn), at, at))
			h.list = []mounts.Session{session(500, 700)}
			h.apply()
			h.expect(test.state)
		})
	}
}

// The clock is set back by a day after an earlier agent has written its file. Without a limit, every new session would count as old for a day.
func TestAValueIsNotSetInTheFuture(t *testing.T) {
	h := newSessionHost(t)
	const booted, day = 1700000000, 86400
	hosttest.WriteFile(t, h.dir, statFile, "btime "+strconv.Itoa(booted)+"\n")
	hosttest.WriteFile(t, h.dir, "/sys/module/nfs/parameters/max_session_slots", "180\n")
	hosttest.WriteFile(t, h.dir, DropIn, header1+"options nfs max_session_slots=180\n")
	at := time.Unix(booted+day+700, 0)
	check.NoError(t, os.Chtimes(filepath.Join(h.dir, DropIn), at, at))
	h.list = []mounts.Session{session(500, 700)}
	h.apply()
	h.expect(host.Pending, "filer1")
	h.setUptime(3000)
	h.list = []mounts.Session{session(60, 900)}
	h.expect(host.InSync)
}

func TestRestoredSlotsWaitForTheSessionToo(t *testing.T) {
	h := newSessionHost(t)
	s := h.apply()
	h.setUptime(2000)
	h.list = []mounts.Session{session(500, 700)}
	hosttest.Apply(t, s, nil)
	originals := map[string]host.Original{sessionSlots: {Present: true, Value: "64"}}
	hosttest.ExpectState(t, s.Restore(t.Context(), originals)[0], host.Pending, "filer1")
	h.list = nil
	hosttest.ExpectState(t, s.Restore(t.Context(), originals)[0], host.InSync)
}

// failingFacts are facts whose writes may fail.
type failingFacts struct {
	facts

	write func() error
}

func (f failingFacts) SetBootFact(bootID, name, value string) error {
	if err := f.write(); err != nil {
		return err
	}
	return f.facts.SetBootFact(bootID, name, value)
}

// failingAgent returns the subject of an agent that calls a function before each change of the host and of the journal.
func (h *sessionHost) failingAgent(change, record func() error) *Subject {
	return New(h.fs.WithHook(func(host.Op, string) error { return change() }), nil,
		func() ([]mounts.Session, error) { return h.list, nil }, failingFacts{h.facts, record})
}

// An agent may end between any two changes. Sessions from before the value was set keep their slots.
func TestACrashAtEveryChangeMakesNoSessionNew(t *testing.T) {
	for name, value := range sessionValues {
		for _, earlier := range []string{"", "100"} {
			for n := 1; ; n++ {
				h := newSessionHost(t)
				if earlier != "" {
					hosttest.Apply(t, h.agent(), hosttest.Settings(name, earlier))
				}
				h.setUptime(2000)
				h.list = []mounts.Session{session(500, 700)}
				changes := 0
				step := func() error {
					if changes++; changes >= n {
						return errCrash
					}
					return nil
				}
				_ = h.failingAgent(step, step).Apply(t.Context(), hosttest.Settings(name, value))
				h.setUptime(3000)
				h.list = []mounts.Session{session(1500, 700)}
				s := h.agent()
				hosttest.Apply(t, s, hosttest.Settings(name, value))
				if got := hosttest.Observe(t, s, name, value); got.State != host.Pending {
					t.Errorf("%s after %q, crash at change %d: got %s (%s), want Pending", name, earlier, n, got.State, got.Message)
				}
				if changes < n {
					if n < 6 {
						t.Errorf("got only %d changes", n-1)
					}
					break
				}
			}
		}
	}
}

// The disk may be full.
func TestAValueIsNotSetIfItsTimeCannotBeRecorded(t *testing.T) {
	for name, value := range sessionValues {
		h := newSessionHost(t)
		before := hosttest.ReadTree(t, h.dir, "/sys/module/nfs")
		s := h.failingAgent(func() error { return nil }, func() error { return errors.New("no space left on device") })
		hosttest.Apply(t, s, hosttest.Settings(name, value))
		hosttest.ExpectState(t, hosttest.Observe(t, s, name, value), host.Failed, "no space left on device")
		check.Equal(t, "parameters", before, hosttest.ReadTree(t, h.dir, "/sys/module/nfs"))
	}
}

func TestEachParameterOfASessionHasItsOwnTime(t *testing.T) {
	h := newSessionHost(t)
	h.apply()
	h.setUptime(2000)
	h.list = []mounts.Session{session(500, 700)}
	s, desired := h.agent(), hosttest.Settings(sessionSlots, "180", callbackSlots, "32")
	hosttest.Apply(t, s, desired)
	got := s.Observe(t.Context(), desired)
	hosttest.ExpectState(t, got[0], host.InSync)
	hosttest.ExpectState(t, got[1], host.Pending, "filer1")
	check.Equal(t, "effect", host.NewTransport, got[1].Effect)
	if old, err := s.OldSessions(); err != nil || len(old) != 0 {
		t.Errorf("got old sessions %v, %v", old, err)
	}
	// The module was not loaded before the first change.
	hosttest.Apply(t, s, hosttest.Settings(sessionSlots, "180"))
	back := s.Restore(t.Context(), map[string]host.Original{callbackSlots: {}})[0]
	hosttest.ExpectState(t, back, host.Pending, "filer1")
	if live := hosttest.ReadFile(t, h.dir, callbackFile); live != "16\n" || back.Effect != host.NewTransport {
		t.Errorf("got live value %q, %+v", live, back)
	}
	h.list = nil
	hosttest.ExpectState(t, s.Restore(t.Context(), map[string]host.Original{callbackSlots: {}})[0], host.InSync)
}
