package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/bootloader/loader"
	"github.com/storageclient/operator/agent/host/connect"
	"github.com/storageclient/operator/agent/host/journal"
	"github.com/storageclient/operator/agent/host/kernellog"
	"github.com/storageclient/operator/agent/host/mounts"
	"github.com/storageclient/operator/agent/host/sockets"
	"github.com/storageclient/operator/agent/orders"
	"github.com/storageclient/operator/agent/servers"
	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/tuning/recommend"
)

const (
	rmem  = "sysctl/net.core.rmem_max"
	wmem  = "sysctl/net.core.wmem_max"
	ihash = "kernelArgument/ihash_entries"
	trace = "/etc/sysctl.d/zz-storage-client.conf"
)

// errCrash stops an agent at any point, by a panic.
var errCrash = errors.New("crash")

// machineClock is the clock of a simulated machine. As with time.Now, its times have a monotonic reading, and the wall clock may jump.
type machineClock struct {
	*clocktesting.FakeClock
	// booted is the boot time.
	booted time.Time
	// err is the error of reading the boot clock.
	err error
}

func newMachineClock() *machineClock {
	now := atWall(time.Now(), time.Unix(1700000000, 0))
	return &machineClock{FakeClock: clocktesting.NewFakeClock(now), booted: now.Add(-time.Hour)}
}

// SinceBoot implements host.BootClock.
func (c *machineClock) SinceBoot() (time.Duration, error) { return c.Since(c.booted), c.err }

// jump sets the wall clock forward, or back. No time passes.
func (c *machineClock) jump(d time.Duration) { c.SetTime(atWall(c.Now(), c.Now().Round(0).Add(d))) }

// atWall returns a time with the monotonic reading of one time and the wall clock of another: package time has no function for it. In time.Time, the top
// bit shows the monotonic reading, and the seconds since 1885 and the nanoseconds follow.
func atWall(monotonic, wall time.Time) time.Time {
	fields := (*struct {
		wall uint64
		ext  int64
		loc  *time.Location
	})(unsafe.Pointer(&monotonic))
	from1885 := wall.Unix() - time.Date(1885, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	fields.wall = 1<<63 | uint64(from1885)<<30 | uint64(wall.Nanosecond())
	return monotonic
}

// world is one machine and the API server. Every change by an agent to either is a step, and the agent may
// crash before it.
type world struct {
	t     *testing.T
	dir   string
	fs    host.FS
	clock *machineClock

	// live are the values of the kernel, defaults its default values, files the values in the agent's drop-in, and menu
	// the kernel arguments of the next boot.
	live, defaults, files, menu map[string]string
	oldTransports               map[string]bool
	cannot                      map[string]host.State
	// keptArgument is true if Restore cannot remove kernel arguments yet.
	keptArgument          bool
	applyErr, originalErr error
	// restoreErr makes the restore of live values fail.
	restoreErr error
	journalErr error

	bootloader loader.Detection

	boots     int
	reboots   []string
	rebootErr error
	// holders is the work that a reboot must not interrupt. holderReads is the number of its reads.
	holders     []string
	holdersErr  error
	holderReads int
	busy        []mounts.Busy
	malformed   int
	mountErr    error
	mounts      []mounts.Mount

	clientNode *v1alpha1.StorageClientNode
	writes     int
	gets       int
	applies    int
	getErr     error
	// date is the API server's time in its responses. Zero if they do not contain it.
	date     time.Time
	writeErr func(v1alpha1.StorageClientNodeStatus) error

	// servers are the mounted servers. tryServer returns the result of a new connection to one, proved to the API server. They work if nil.
	servers  []connect.Server
	rejected map[string]error
	// setting is the time to set the values under test.
	setting time.Duration
	// outage is true while new connections fail. isMissing is true while the StorageClientNode is missing.
	outage, isMissing bool
	tryServer         func(connect.Server) error
	proved            func(size int64) error
	sizes             []int64

	steps, dieAt int
	log          []string
	// jumpAt is the step before which the wall clock jumps by jumpBy.
	jumpAt int
	jumpBy time.Duration
	// events are the changes with the time since the boot, except for writes of the status and of the journal.
	events []string

	// real returns a host to use instead of the simulated one. The simulated one is used if it is nil.
	real func() Host
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{
		t: t, dir: t.TempDir(), clock: newMachineClock(),
		defaults: map[string]string{rmem: "212992", wmem: "212992"},
		files:    map[string]string{}, menu: map[string]string{}, boots: 1,
		bootloader: loader.Detection{Type: loader.GrubDebian, Proven: true},
		cannot:     map[string]host.State{}, oldTransports: map[string]bool{},
	}
	w.live = maps.Clone(w.defaults)
	w.write("/proc/sys/kernel/osrelease", "6.1.0-test\n")
	w.writeBootID()
	fs, err := host.OpenFS(w.dir)
	check.NoError(t, err)
	t.Cleanup(func() { _ = fs.Close() })
	w.fs = fs.WithHook(func(op host.Op, name string) error {
		w.step(string(op) + " " + name)
		return w.journalErr
	})
	return w
}

func (w *world) write(name, data string) {
	w.t.Helper()
	file := filepath.Join(w.dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(data), 0o644); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) bootID() string { return fmt.Sprintf("boot-%d", w.boots) }

func (w *world) writeBootID() { w.write("/proc/sys/kernel/random/boot_id", w.bootID()+"\n") }

// step runs before every change.
func (w *world) step(change string) {
	w.steps++
	w.log = append(w.log, change)
	if w.steps == w.jumpAt {
		w.clock.jump(w.jumpBy)
	}
	if change != "status" && !strings.Contains(change, journal.Dir) {
		w.events = append(w.events, fmt.Sprint(w.clock.Since(w.clock.booted), " ", change))
	}
	if w.steps == w.dieAt {
		panic(errCrash)
	}
}

// boot simulates a reboot of the machine.
func (w *world) boot() {
	w.boots++
	w.clock.booted = w.clock.Now()
	w.writeBootID()
	w.live = maps.Clone(w.defaults)
	maps.Copy(w.live, w.files)
	maps.Copy(w.live, w.menu)
}

func (w *world) host() Host {
	return Host{
		Machine: Machine{
			FS:         w.fs,
			BootClock:  w.clock,
			Subjects:   []host.Subject{&fakeSubject{w: w, name: "sysctl"}, &fakeSubject{w: w, name: "kernelArgument"}},
			Journal:    journal.New(w.fs, trace),
			Bootloader: func() loader.Detection { return w.bootloader },
			Servers:    func() ([]connect.Server, error) { return w.servers, nil },
			AskServer:  w.askServer,
		},
		Mounts:   w,
		Modules:  &fakeModules{},
		Rebooter: w,
		Health: servers.Reader{
			Counters:   func() ([]mounts.ServerCounters, error) { return nil, nil },
			Log:        func() ([]kernellog.Line, error) { return nil, nil },
			Sockets:    func() ([]sockets.Socket, error) { return nil, nil },
			ClientName: func() string { return "" },
		},
		Probe:  orders.NoRunner,
		Sample: func(context.Context, time.Duration) ([]recommend.Sample, error) { return nil, nil },
	}
}

// fakeModules reports the values for new connections, and records the UID of the Node.
type fakeModules struct {
	slotLimit int
	sessions  []mounts.Session
	uid       string
}

func (m *fakeModules) SlotLimit() (int, error)                { return m.slotLimit, nil }
func (m *fakeModules) OldSessions() ([]mounts.Session, error) { return m.sessions, nil }
func (m *fakeModules) SetNodeUID(uid string)                  { m.uid = uid }

func (w *world) agent() *Agent {
	w.t.Helper()
	build := w.host
	if w.real != nil {
		build = w.real
	}
	machine := build()
	machine.BootClock = w.clock
	a, err := New(Config{Host: machine, API: w, Clock: w.clock})
	if err != nil {
		w.t.Fatal(err)
	}
	a.settings.proof.jitter = func(time.Duration) time.Duration { return 0 }
	atOnce := func(f func()) { f() }
	a.servers.Start, a.trial.Start, a.sample.Start = atOnce, atOnce, atOnce
	return a
}

// runPass gives the agent the object and runs one pass. It reports whether the agent has crashed or rebooted the
// machine.
func (w *world) runPass(a *Agent) (died bool) {
	w.t.Helper()
	before := len(w.reboots)
	defer func() {
		if r := recover(); r != nil {
			if r != any(errCrash) {
				panic(r)
			}
			died = true
		}
		if len(w.reboots) > before {
			w.boot()
			died = true
		}
	}()
	if clientNode := w.clientNode.DeepCopy(); !w.isMissing {
		a.takeClientNode(clientNode)
	} else {
		a.takeClientNode(nil)
	}
	a.runPass(w.t.Context())
	return false
}

// runUntilIdle runs passes until no work is left. A new agent starts after each crash and each reboot.
func (w *world) runUntilIdle(a *Agent) *Agent {
	w.t.Helper()
	for range 12 {
		if w.runPass(a) {
			a = w.agent()
		}
		w.clock.Step(15 * time.Second)
	}
	return a
}

func setting(key, value string) v1alpha1.NodeSetting {
	return v1alpha1.NodeSetting{Key: key, Value: value, Profile: "p", OnRemoval: v1alpha1.DeletionRestore}
}

func (w *world) declare(settings ...v1alpha1.NodeSetting) {
	w.change(func(spec *v1alpha1.StorageClientNodeSpec) {
		spec.Settings = settings
		spec.Hash = fmt.Sprintf("hash-%v", settings)
		spec.BootHash = "boot-hash"
	})
}

func (w *world) change(change func(*v1alpha1.StorageClientNodeSpec)) {
	if w.clientNode == nil {
		w.clientNode = &v1alpha1.StorageClientNode{}
		w.clientNode.Name, w.clientNode.UID = "n1", types.UID("u1")
	}
	change(&w.clientNode.Spec)
	w.clientNode.Generation++
	w.bump()
}

func (w *world) bump() { w.clientNode.ResourceVersion += "x" }

func (w *world) permit(id string) {
	w.change(func(spec *v1alpha1.StorageClientNodeSpec) {
		spec.RebootPermit = &v1alpha1.RebootPermit{ID: id, BootHash: spec.BootHash, BootID: w.bootID()}
	})
}

// permitUntil gives a permit with an end, unless that is zero.
func (w *world) permitUntil(id string, end time.Time) {
	w.permit(id)
	if !end.IsZero() {
		w.clientNode.Spec.RebootPermit.NotAfter = &metav1.Time{Time: end}
	}
}

func (w *world) state(key string) v1alpha1.SettingState {
	for _, s := range w.clientNode.Status.Settings {
		if s.Key == key {
			return s.State
		}
	}
	return ""
}

func (w *world) message(key string) string {
	for _, s := range w.clientNode.Status.Settings {
		if s.Key == key {
			return s.Message
		}
	}
	return ""
}

func (w *world) journal() map[string]journal.Entry {
	w.t.Helper()
	data, err := os.ReadFile(filepath.Join(w.dir, journal.File))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		w.t.Fatal(err)
	}
	var doc struct{ Entries map[string]journal.Entry }
	if err := json.Unmarshal(data, &doc); err != nil {
		w.t.Fatal(err)
	}
	return doc.Entries
}

// unconfirmed returns the unconfirmed settings in the journal. Nil if there are none.
func (w *world) unconfirmed() *journal.Unconfirmed {
	w.t.Helper()
	data, err := os.ReadFile(filepath.Join(w.dir, journal.File))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		w.t.Fatal(err)
	}
	var doc struct{ Unconfirmed *journal.Unconfirmed }
	if err := json.Unmarshal(data, &doc); err != nil {
		w.t.Fatal(err)
	}
	return doc.Unconfirmed
}

// API.

func (w *world) Get(context.Context) (*v1alpha1.StorageClientNode, time.Time, error) {
	w.gets++
	if w.getErr != nil {
		return nil, time.Time{}, w.getErr
	}
	return w.clientNode.DeepCopy(), w.date, nil
}

func (w *world) Follow(ctx context.Context, changed func(*v1alpha1.StorageClientNode)) {
	changed(w.clientNode.DeepCopy())
	<-ctx.Done()
}

func (w *world) Prove(ctx context.Context, size int64, status v1alpha1.StorageClientNodeStatus) error {
	w.sizes = append(w.sizes, size)
	if w.proved != nil {
		if err := w.proved(size); err != nil {
			return err
		}
	}
	return w.ApplyStatus(ctx, status, "")
}

func (w *world) askServer(_ context.Context, server connect.Server) error {
	if w.tryServer == nil {
		return nil
	}
	return w.tryServer(server)
}

func (w *world) ApplyStatus(_ context.Context, status v1alpha1.StorageClientNodeStatus, resourceVersion string) error {
	w.step("status")
	if w.writeErr != nil {
		if err := w.writeErr(status); err != nil {
			return err
		}
	}
	if resourceVersion != "" && resourceVersion != w.clientNode.ResourceVersion {
		return apierrors.NewConflict(schema.GroupResource{Resource: "storageclientnodes"}, "n1", errors.New("changed"))
	}
	w.clientNode.Status = *status.DeepCopy()
	w.writes++
	w.bump()
	return nil
}

// Host.

func (w *world) FindHolders(context.Context) ([]string, error) {
	w.holderReads++
	return w.holders, w.holdersErr
}

func (w *world) Reboot(context.Context) error {
	w.step("reboot")
	if w.rebootErr != nil {
		return w.rebootErr
	}
	w.reboots = append(w.reboots, w.clientNode.Spec.RebootPermit.ID)
	if r := w.clientNode.Status.Reboot; r == nil || r.Phase != v1alpha1.RebootStarted {
		w.t.Errorf("rebooted, but the reported status is %+v", r)
	}
	return nil
}

func (w *world) Read() (mounts.Table, error) {
	return mounts.Table{Mounts: w.mounts, Busy: w.busy, Malformed: w.malformed}, w.mountErr
}

func (w *world) Orphans() []mounts.Orphan { return nil }

func (w *world) Busy() ([]mounts.Busy, int, error) { return w.busy, w.malformed, w.mountErr }

// fakeSubject simulates sysctls, which are live, or kernel arguments, which require a boot.
type fakeSubject struct {
	host.Inert

	w    *world
	name string
}

func (s *fakeSubject) Name() string { return s.name }

// Set implements host.Subject.
func (s *fakeSubject) Set(_ context.Context, settings []host.Setting) map[string]error {
	rejected := map[string]error{}
	s.w.clock.Step(s.w.setting)
	for _, d := range settings {
		key := s.key(d.Name)
		if u := s.w.unconfirmed(); u == nil || hostSetting(d.Name, u.Settings[key].Entry) != d {
			s.w.t.Errorf("%s is set and not in the journal", key)
		}
		s.w.step("try " + key)
		s.w.live[key] = d.Value
		if err := s.w.rejected[key]; err != nil {
			rejected[d.Name] = err
		}
	}
	return rejected
}

// OutlivesBoot implements host.Subject.
func (s *fakeSubject) OutlivesBoot() bool { return false }

func (s *fakeSubject) boots() bool { return s.name == "kernelArgument" }

func (s *fakeSubject) key(name string) string { return s.name + "/" + name }

func (s *fakeSubject) persistentValues() map[string]string {
	if s.boots() {
		return s.w.menu
	}
	return s.w.files
}

func (s *fakeSubject) Original(_ context.Context, name string) (host.Original, error) {
	value, ok := s.w.live[s.key(name)]
	return host.Original{Present: ok, Value: value}, s.w.originalErr
}

func (s *fakeSubject) Apply(_ context.Context, desired []host.Setting) error {
	s.w.applies++
	if s.w.applyErr != nil {
		return s.w.applyErr
	}
	values := map[string]string{}
	for _, d := range desired {
		key := s.key(d.Name)
		values[key] = d.Value
		if _, journalled := s.w.journal()[key]; !journalled {
			s.w.t.Errorf("%s is applied and not in the journal", key)
		}
		if s.persistentValues()[key] != d.Value {
			s.w.step("keep " + key)
			s.persistentValues()[key] = d.Value
		}
		if !s.boots() && s.w.live[key] != d.Value {
			s.w.step("set " + key)
			s.w.live[key] = d.Value
		}
	}
	for _, key := range slices.Sorted(maps.Keys(s.persistentValues())) {
		if _, ok := values[key]; !ok {
			s.w.step("drop " + key)
			delete(s.persistentValues(), key)
		}
	}
	return nil
}

func (s *fakeSubject) Observe(_ context.Context, desired []host.Setting) []host.Observation {
	var seen []host.Observation
	for _, d := range desired {
		key := s.key(d.Name)
		o := host.Observation{Name: d.Name, Desired: d.Value, Observed: s.w.live[key], Effect: host.Live, State: host.InSync}
		if s.boots() {
			o.Effect = host.Reboot
		}
		staged := s.persistentValues()[key] == d.Value
		switch {
		case s.w.cannot[key] != "":
			o.State = s.w.cannot[key]
		case !staged, !s.boots() && o.Observed != d.Value:
			o.State = host.Drifted
		case o.Observed != d.Value:
			o.State = host.Pending
		}
		seen = append(seen, o)
	}
	return seen
}

func (s *fakeSubject) Restore(_ context.Context, originals map[string]host.Original) []host.Observation {
	var back []host.Observation
	for _, name := range slices.Sorted(maps.Keys(originals)) {
		key, original := s.key(name), originals[name]
		o := host.Observation{Name: name, Effect: host.Live, State: host.InSync, Observed: s.w.live[key]}
		value, ok := s.w.live[key]
		current := host.Original{Present: ok, Value: value}
		switch {
		case s.boots() && current != original:
			o.Effect, o.State, o.Kept = host.Reboot, host.Pending, s.w.keptArgument
		case current != original && s.w.restoreErr != nil:
			o.State, o.Message = host.Failed, s.w.restoreErr.Error()
		case current != original:
			s.w.step("restore " + key)
			s.w.live[key] = original.Value
		}
		if s.w.oldTransports[key] {
			o.Effect, o.State = host.NewTransport, host.Pending
		}
		back = append(back, o)
	}
	return back
}
