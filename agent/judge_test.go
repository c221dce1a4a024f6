package agent

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/hosttest"
	"github.com/storageclient/operator/agent/host/journal"
	"github.com/storageclient/operator/agent/host/mounts"
	"github.com/storageclient/operator/agent/mountwatch"
	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

const (
	podA = "aaaaaaaa-1111-4111-8111-111111111111"
	podB = "bbbbbbbb-1111-4111-8111-111111111111"
)

// nfs41 returns a mount of volume pv with one connection and the given changes.
func nfs41(volume string, changes ...func(*mounts.Mount)) mounts.Mount {
	m := mounts.Mount{
		MountPoint: "/" + volume, FSType: "nfs4", Server: "filer", Protocol: "NFSv4.1", Volume: volume, Connections: 1, PodUIDs: []string{podA},
		Options: strings.Split("rw,vers=4.1,acregmin=30,acregmax=30,acdirmin=30,acdirmax=30,hard,proto=tcp,timeo=600,sec=sys", ","),
		Client:  "10.0.0.1:2049 4.1 tcp ", First: "/" + volume,
	}
	for _, change := range changes {
		change(&m)
	}
	return m
}

func options(text string) func(*mounts.Mount) {
	return func(m *mounts.Mount) { m.Options = append(m.Options, strings.Split(text, ",")...) }
}

func open(n int) func(*mounts.Mount) { return func(m *mounts.Mount) { m.Connections = n } }

func after(first string) func(*mounts.Mount) { return func(m *mounts.Mount) { m.First = first } }

// pods returns the UIDs of n pods.
func pods(n int) func(*mounts.Mount) {
	return func(m *mounts.Mount) {
		m.PodUIDs = nil
		for i := range n {
			m.PodUIDs = append(m.PodUIDs, fmt.Sprintf("%08d-1111-4111-8111-111111111111", i+1))
		}
	}
}

func volume(name string, options ...string) v1alpha1.NodeVolume {
	return v1alpha1.NodeVolume{Name: name, MountOptions: options}
}

func TestMountsAreComparedWithTheirVolumes(t *testing.T) {
	v3 := func(m *mounts.Mount) {
		m.Protocol, m.FSType, m.Client, m.SlotLimit = "NFSv3", "nfs", "10.0.0.1:2049 3 tcp ", 65536
		m.Options = []string{"rw", "vers=3", "hard", "proto=tcp"}
	}
	slots := setting("module/sunrpc/tcp_max_slot_table_entries", "128")
	tests := map[string]struct {
		volumes  []v1alpha1.NodeVolume
		settings []v1alpha1.NodeSetting
		release  bool
		mounts   []mounts.Mount
		// state and message belong to the last mount.
		state   v1alpha1.MountState
		message []string
		without string
	}{
		"an undeclared volume": {
			volumes: []v1alpha1.NodeVolume{volume("other", "actimeo=60")}, mounts: []mounts.Mount{nfs41("pv")}, state: v1alpha1.MountUnmanaged,
		},
		"a mount of the host": {
			volumes: []v1alpha1.NodeVolume{volume("pv", "actimeo=60")}, mounts: []mounts.Mount{nfs41("")}, state: v1alpha1.MountUnmanaged,
		},
		"as desired": {
			volumes: []v1alpha1.NodeVolume{volume("pv", "actimeo=30", "hard", "nconnect=1")}, mounts: []mounts.Mount{nfs41("pv")}, state: v1alpha1.MountEffective,
		},
		"an option from before": {
			volumes: []v1alpha1.NodeVolume{volume("pv", "acregmax=60", "hard")}, mounts: []mounts.Mount{nfs41("pv")},
			state: v1alpha1.MountStale, message: []string{"acregmax is 30, desired 60: the mount was made with a different value"}, without: "opened the connections",
		},
		"more than fits a message": {
			volumes: []v1alpha1.NodeVolume{volume("pv", "actimeo=60", "soft")}, mounts: []mounts.Mount{nfs41("pv")},
			state: v1alpha1.MountStale, message: []string{"acregmin is 30, desired 60", "and 2 more"},
		},
		"as much as fits a message": {
			volumes: []v1alpha1.NodeVolume{volume("pv", "acregmin=60", "acregmax=60", "acdirmin=60")}, mounts: []mounts.Mount{nfs41("pv")},
			state: v1alpha1.MountStale, message: []string{"acregmin is 30", "acregmax is 30", "acdirmin is 30"}, without: "more",
		},
		"a smaller value that the server grants is not a difference": {
			volumes: []v1alpha1.NodeVolume{volume("pv", "rsize=1048576")}, mounts: []mounts.Mount{nfs41("pv", options("rsize=65536"))}, state: v1alpha1.MountEffective,
		},
		"a session from before its slots were set": {
			volumes: []v1alpha1.NodeVolume{volume("pv", "hard")}, settings: []v1alpha1.NodeSetting{setting("module/nfs/max_session_slots", "180")},
			mounts: []mounts.Mount{nfs41("other", func(m *mounts.Mount) { m.PodUIDs = []string{podB} }), nfs41("pv", after("/other"))},
			state:  v1alpha1.MountStale, message: []string{
				"the session is older than max_session_slots", "mount /other (volume other) to filer opened", "pods " + podA + ", " + podB,
			},
		},
		"a session of another client": {
			volumes: []v1alpha1.NodeVolume{volume("pv", "hard")}, settings: []v1alpha1.NodeSetting{setting("module/nfs/max_session_slots", "180")},
			mounts: []mounts.Mount{nfs41("pv", func(m *mounts.Mount) { m.Client = "10.0.0.2:2049 4.1 tcp " })}, state: v1alpha1.MountEffective,
		},
		"a session whose slots are not declared": {
			volumes: []v1alpha1.NodeVolume{volume("pv", "hard")}, mounts: []mounts.Mount{nfs41("pv")}, state: v1alpha1.MountEffective,
		},
		"another mount came first to the server": {
			volumes: []v1alpha1.NodeVolume{volume("pv", "nconnect=8")},
			mounts: []mounts.Mount{
				nfs41("old", options("nconnect=4"), open(4), func(m *mounts.Mount) { m.PodUIDs = []string{podB} }),
				nfs41("", open(4), after("/old"), func(m *mounts.Mount) { m.MountPoint, m.PodUIDs = "/home", nil }),
				nfs41("elsewhere", func(m *mounts.Mount) { m.Client, m.PodUIDs = "10.0.0.2:2049 4.1 tcp ", []string{"cccccccc"} }),
				nfs41("pv", options("nconnect=4"), open(4), after("/old")),
			},
			state: v1alpha1.MountStale, message: []string{
				"nconnect is 4 because of open connections, desired 8", "mount /old (volume old) to filer opened the connections of 3 mounts",
				"these keep them open: pods " + podA + ", " + podB + "; mounts outside pods /home",
			}, without: "cccccccc",
		},
		"connections that were added by hand count": {
			volumes: []v1alpha1.NodeVolume{volume("pv", "nconnect=4")}, mounts: []mounts.Mount{nfs41("pv", open(4))}, state: v1alpha1.MountEffective,
		},
		"connections that are gone do not": {
			volumes: []v1alpha1.NodeVolume{volume("pv", "nconnect=4")}, mounts: []mounts.Mount{nfs41("pv", options("nconnect=4"), open(3))},
			state: v1alpha1.MountStale, message: []string{"nconnect is 3 because of", "desired 4"},
		},
		"connections that are too many": {
			volumes: []v1alpha1.NodeVolume{volume("pv", "nconnect=2")}, mounts: []mounts.Mount{nfs41("pv", options("nconnect=2"), open(4))},
			state: v1alpha1.MountStale, message: []string{"nconnect is 4 because of", "desired 2"},
		},
		"a pod that has two mounts of the server": {
			volumes: []v1alpha1.NodeVolume{volume("pv", "nconnect=4")}, mounts: []mounts.Mount{nfs41("old", after("/old")), nfs41("pv", after("/old"))},
			state: v1alpha1.MountStale, message: []string{"the connections of 2 mounts", "these keep them open: pods " + podA}, without: podA + ", ",
		},
		"as many pods as fit a message": {
			volumes: []v1alpha1.NodeVolume{volume("pv", "nconnect=4")}, mounts: []mounts.Mount{nfs41("pv", pods(12))},
			state: v1alpha1.MountStale, message: []string{"pods 00000001-", "00000012-"}, without: "more",
		},
		"more pods than fit a message": {
			volumes: []v1alpha1.NodeVolume{volume("pv", "nconnect=4")}, mounts: []mounts.Mount{nfs41("pv", pods(14))},
			state: v1alpha1.MountStale, message: []string{"pods 00000001-", "00000012-1111-4111-8111-111111111111, and 2 more"}, without: "00000013-",
		},
		"a kernel that does not report open connections": {
			volumes: []v1alpha1.NodeVolume{volume("pv", "nconnect=4")}, mounts: []mounts.Mount{nfs41("pv", open(0))},
			state: v1alpha1.MountStale, message: []string{"nconnect is not shown, desired 4", "mount /pv (volume pv) to filer opened"},
		},
		"a transport from before the slot limit changed": {
			volumes: []v1alpha1.NodeVolume{volume("pv", "hard")}, settings: []v1alpha1.NodeSetting{slots}, mounts: []mounts.Mount{nfs41("pv", v3)},
			state: v1alpha1.MountStale, message: []string{"the slot limit is 65536, desired 128", "to filer opened the connections", "pods " + podA},
			without: "mounts outside pods",
		},
		"a transport from before the slot limit grew": {
			volumes: []v1alpha1.NodeVolume{volume("pv", "hard")}, settings: []v1alpha1.NodeSetting{slots},
			mounts: []mounts.Mount{nfs41("pv", v3, func(m *mounts.Mount) { m.SlotLimit = 64 })},
			state:  v1alpha1.MountStale, message: []string{"the slot limit is 64, desired 128"},
		},
		"a transport of NFSv4.0 from before the slot limit changed": {
			volumes: []v1alpha1.NodeVolume{volume("pv", "hard")}, settings: []v1alpha1.NodeSetting{slots},
			mounts: []mounts.Mount{nfs41("pv", func(m *mounts.Mount) { m.Protocol, m.SlotLimit = "NFSv4.0", 65536 })},
			state:  v1alpha1.MountStale, message: []string{"the slot limit is 65536, desired 128"},
		},
		"a transport from before the slots at its start changed": {
			volumes: []v1alpha1.NodeVolume{volume("pv", "hard")}, settings: []v1alpha1.NodeSetting{setting("module/sunrpc/tcp_slot_table_entries", "128")},
			mounts: []mounts.Mount{nfs41("pv", v3)}, state: v1alpha1.MountStale, message: []string{"the slot limit is 65536, desired 128"},
		},
		"a kernel that does not report the slot limit": {
			volumes: []v1alpha1.NodeVolume{volume("pv", "hard")}, settings: []v1alpha1.NodeSetting{slots},
			mounts: []mounts.Mount{nfs41("pv", v3, func(m *mounts.Mount) { m.SlotLimit = 0 })}, state: v1alpha1.MountEffective,
		},
		"a slot limit that no profile declares": {
			volumes: []v1alpha1.NodeVolume{volume("pv", "hard")}, mounts: []mounts.Mount{nfs41("pv", v3)}, state: v1alpha1.MountEffective,
		},
		"a session does not obey the slot limit": {
			volumes: []v1alpha1.NodeVolume{volume("pv", "hard")}, settings: []v1alpha1.NodeSetting{slots},
			mounts: []mounts.Mount{nfs41("pv", func(m *mounts.Mount) { m.SlotLimit = 65536 })}, state: v1alpha1.MountEffective,
		},
		"an SMB mount": {
			volumes: []v1alpha1.NodeVolume{volume("pv", "actimeo=30")},
			mounts:  []mounts.Mount{{MountPoint: "/pv", FSType: "cifs", Protocol: "SMB3.1.1", Volume: "pv", Options: []string{"rw", "actimeo=1"}}},
			state:   v1alpha1.MountStale, message: []string{"is 1, desired 30"},
		},
		"a mount that shares no connections": {
			volumes: []v1alpha1.NodeVolume{volume("pv", "nconnect=4")},
			mounts:  []mounts.Mount{{MountPoint: "/pv", FSType: "ceph", Protocol: "ceph", Volume: "pv", Options: []string{"rw"}}},
			state:   v1alpha1.MountStale, message: []string{"nconnect is not shown, desired 4"}, without: "opened the connections",
		},
		"a released node compares no mounts": {
			volumes: []v1alpha1.NodeVolume{volume("pv", "acregmax=60")}, release: true, mounts: []mounts.Mount{nfs41("pv")}, state: v1alpha1.MountUnmanaged,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.mounts = test.mounts
			w.declare(test.settings...)
			w.clientNode.Spec.Volumes, w.clientNode.Spec.Release = test.volumes, test.release
			w.real = func() Host {
				h := w.host()
				h.Modules = &fakeModules{slotLimit: 128, sessions: []mounts.Session{{Client: "10.0.0.1:2049 4.1 tcp "}}}
				return h
			}
			w.runPass(w.agent())
			var got v1alpha1.MountStatus
			for _, m := range w.clientNode.Status.Mounts {
				if m.MountPoint == test.mounts[len(test.mounts)-1].MountPoint {
					got = m
				}
			}
			if got.State != test.state || (len(test.message) == 0) != (got.Message == "") {
				t.Errorf("got %s: %q, want %s", got.State, got.Message, test.state)
			}
			for _, part := range test.message {
				if !strings.Contains(got.Message, part) {
					t.Errorf("message: got %q, want it to contain %q", got.Message, part)
				}
			}
			if test.without != "" && strings.Contains(got.Message, test.without) {
				t.Errorf("message: got %q, want it without %q", got.Message, test.without)
			}
		})
	}
}

// Pods start and stop with their volumes all the time. That must not count as a new spec.
func TestOtherVolumesAreNotANewSpec(t *testing.T) {
	w := newWorld(t)
	w.declare(setting(rmem, "16777216"))
	a := w.runUntilIdle(w.agent())
	for range maxHeals {
		w.live[rmem] = "1"
		w.clock.Step(driftInterval)
		w.runPass(a)
	}
	w.live[rmem] = "1"
	applied := w.applies
	w.change(func(spec *v1alpha1.StorageClientNodeSpec) { spec.Volumes = []v1alpha1.NodeVolume{volume("pv", "hard")} })
	w.runPass(a)
	if got := w.clientNode.Status.ObservedGeneration; got != w.clientNode.Generation {
		t.Errorf("observed generation %d, want %d at once", got, w.clientNode.Generation)
	}
	w.clock.Step(driftInterval)
	w.runPass(a)
	if w.live[rmem] != "1" || w.applies != applied || w.message(rmem) != leftAloneMessage {
		t.Errorf("a setting that is no longer reset: got value %s after %d applications: %s", w.live[rmem], w.applies-applied, w.message(rmem))
	}
	w.change(func(spec *v1alpha1.StorageClientNodeSpec) { spec.Settings[0].Value = "8388608" })
	w.runPass(a)
	if w.live[rmem] != "8388608" {
		t.Errorf("new orders are not applied: live value %s", w.live[rmem])
	}
}

func TestHealedDriftIsReportedWithTheObservedValue(t *testing.T) {
	w := newWorld(t)
	w.declare(setting(rmem, "16777216"), setting(wmem, "16777216"))
	a := w.runUntilIdle(w.agent())
	drift := func(key string) *v1alpha1.Drift {
		for _, s := range w.clientNode.Status.Settings {
			if s.Key == key {
				return s.Drift
			}
		}
		return nil
	}
	if got := drift(rmem); got != nil {
		t.Fatalf("got drift %+v, want none", got)
	}
	w.live[rmem] = "4096"
	w.clock.Step(driftInterval)
	w.runPass(a)
	at := w.clock.Now().Truncate(time.Second)
	if got := drift(rmem); got == nil || got.Count != 1 || got.LastObserved != "4096" || !got.LastTime.Time.Equal(at) || w.state(rmem) != v1alpha1.SettingInSync {
		t.Fatalf("got drift %+v, state %s", got, w.state(rmem))
	}
	if got := drift(wmem); got != nil {
		t.Errorf("%s did not drift: %+v", wmem, got)
	}

	a = w.runUntilIdle(w.agent())
	if got := drift(rmem); got == nil || got.Count != 1 {
		t.Errorf("drift after a restart of the agent: got %+v", got)
	}
	delete(w.files, rmem)
	w.clock.Step(driftInterval)
	w.runPass(a)
	if got := drift(rmem); got == nil || got.Count != 2 {
		t.Errorf("drift after the second change: got %+v", got)
	}
	w.boot()
	a = w.runUntilIdle(w.agent())
	if got := drift(rmem); got == nil || got.Count != 2 {
		t.Errorf("drift after a boot: got %+v", got)
	}
	w.declare(setting(wmem, "16777216"))
	a = w.runUntilIdle(a)
	w.declare(setting(rmem, "16777216"), setting(wmem, "16777216"))
	w.runUntilIdle(a)
	if got := drift(rmem); got != nil {
		t.Errorf("drift after a new declaration: got %+v", got)
	}
}

func TestDriftOfBootSettingsIsOnlyReported(t *testing.T) {
	w := newWorld(t)
	w.declare(setting(ihash, "1048576"))
	a := w.runUntilIdle(w.agent())
	w.boot()
	w.live[ihash] = "1048576"
	a = w.runUntilIdle(a)
	w.live[ihash] = "524288"
	w.clock.Step(driftInterval)
	w.runPass(a)
	if s := w.clientNode.Status.Settings[0]; s.Drift != nil || s.State != v1alpha1.SettingPending {
		t.Errorf("got %+v", s)
	}
}

const (
	second    = "/sys/class/bdi/0:53/read_ahead_kb"
	podVolume = "33 30 0:53 / " + pod + " rw - nfs4 filer:/b rw,vers=4.1\n"
)

// windows returns the two read-ahead windows: of the mount of the host, and of volume pv1.
func (h *storageHost) windows() [2]string {
	read := func(name string) string {
		if !h.fs.Exists(name) {
			return ""
		}
		value, err := h.fs.ReadValue(name)
		if err != nil {
			h.t.Fatal(err)
		}
		return value
	}
	return [2]string{read(window), read(second)}
}

func (h *storageHost) readAhead(kib int32) {
	h.change(func(spec *v1alpha1.StorageClientNodeSpec) {
		spec.Volumes = []v1alpha1.NodeVolume{{Name: "pv1"}}
		if kib != 0 {
			spec.Volumes[0].ReadAheadKiB = ptr.To(kib)
		}
	})
}

func (h *storageHost) runDriftPass(a *Agent) {
	h.clock.Step(driftInterval)
	h.runPass(a)
}

func TestTheReadAheadOfAVolumeWins(t *testing.T) {
	h := newStorageHost(t)
	h.writeTable(podVolume)
	h.write(second, "256\n")
	expect := func(name, hostWindow, volume string) {
		t.Helper()
		if got := h.windows(); got != [2]string{hostWindow, volume} {
			t.Errorf("%s: windows %v, want %s and %s", name, got, hostWindow, volume)
		}
	}
	h.declare(setting(readAhead4, "15360"))
	a := h.runUntilIdle(h.agent())
	expect("by type", "15360", "15360")
	h.readAhead(1024)
	h.runPass(a)
	expect("the volume is named", "15360", "1024")
	if m := h.clientNode.Status.Mounts[len(h.clientNode.Status.Mounts)-1]; m.ReadAheadKiB != 1024 || m.State != v1alpha1.MountEffective {
		t.Errorf("got mount %+v", m)
	}
	if len(h.clientNode.Status.Settings) != 1 || h.state(readAhead4) != v1alpha1.SettingInSync {
		t.Errorf("settings: got %+v, want only the InSync setting of the type", h.clientNode.Status.Settings)
	}
	steps := h.steps
	a = h.runUntilIdle(h.agent())
	h.runDriftPass(a)
	for _, step := range h.log[steps:] {
		if strings.HasPrefix(step, string(host.OpWriteValue)) {
			t.Errorf("a restart of the agent changed the host: %s", step)
		}
	}
	h.readAhead(2048)
	h.runPass(a)
	expect("another value", "15360", "2048")
	h.write(second, "128\n")
	h.runDriftPass(a)
	expect("another program changed it", "15360", "2048")
	if h.clientNode.Status.Settings[0].Drift != nil {
		t.Errorf("drift of the type is reported: %+v", h.clientNode.Status.Settings[0].Drift)
	}
	h.writeTable()
	h.write("/proc/1/mountinfo", strings.Replace(hostTable(h), "32 30 0:52 / /mnt/nfs rw - nfs4 filer:/a rw,vers=4.1\n", "", 1)+
		"32 30 0:53 / /mnt/nfs rw - nfs4 filer:/a rw,vers=4.1\n33 30 0:52 / "+pod+" rw - nfs4 filer:/b rw,vers=4.1\n")
	h.runDriftPass(a)
	expect("the pod came again, and the numbers are swapped", "2048", "15360")
	h.writeTable(podVolume)
	h.runDriftPass(a)
	expect("and back", "15360", "2048")

	h.declare()
	h.runUntilIdle(a)
	expect("the type is declared no more", "128", "2048")
	h.readAhead(0)
	h.runPass(a)
	expect("the volume is not either", "128", "256")
	if entries := h.journal(); len(entries) != 0 {
		t.Errorf("the journal still contains %v", entries)
	}
}

func hostTable(h *storageHost) string {
	data, err := h.fs.ReadFile("/proc/1/mountinfo")
	if err != nil {
		h.t.Fatal(err)
	}
	return string(data)
}

func TestTheReadAheadOfAVolumeGoesBackToTheTypes(t *testing.T) {
	h := newStorageHost(t)
	h.writeTable(podVolume)
	h.write(second, "256\n")
	h.declare()
	h.readAhead(1024)
	a := h.runUntilIdle(h.agent())
	h.declare(setting(readAhead4, "15360"))
	a = h.runUntilIdle(a)
	check.Equal(t, "windows with both settings", [2]string{"15360", "1024"}, h.windows())
	h.readAhead(0)
	h.runPass(a)
	check.Equal(t, "windows with only the setting of the type", [2]string{"15360", "15360"}, h.windows())
	h.readAhead(1024)
	h.runPass(a)
	before := h.clientNode.Status
	h.change(func(spec *v1alpha1.StorageClientNodeSpec) { spec.Release = true })
	h.runUntilIdle(a)
	if got := h.windows(); got != [2]string{"128", "256"} || !h.clientNode.Status.Restored || before.Restored {
		t.Errorf("released: got %v, restored %v", got, h.clientNode.Status.Restored)
	}
	if entries := h.journal(); len(entries) != 0 {
		t.Errorf("the journal still contains %v", entries)
	}
}

func TestANewMountOfAVolumeGetsItsReadAhead(t *testing.T) {
	h := newStorageHost(t)
	h.declare()
	h.readAhead(1024)
	a := h.runUntilIdle(h.agent())
	h.writeTable(podVolume)
	h.write(second, "256\n")
	h.clock.Step(mountwatch.Interval)
	h.runPass(a)
	if got := h.windows(); got != [2]string{"128", "1024"} {
		t.Errorf("got windows %v within %s", got, mountwatch.Interval)
	}
	h.writeTable()
	h.change(func(spec *v1alpha1.StorageClientNodeSpec) { spec.Volumes = nil })
	h.clock.Step(mountwatch.Interval)
	h.runPass(a)
	if entries := h.journal(); len(entries) != 0 {
		t.Errorf("the journal still contains %v after the unmount", entries)
	}
}

func TestAnUnavailableReadAheadIsReportedOnTheMount(t *testing.T) {
	tests := map[string]struct {
		table   string
		name    string
		kib     int32
		rejects bool
		// journal is the content of the journal. Empty if there is none.
		journal   string
		state     v1alpha1.MountState
		readAhead v1alpha1.SettingState
		message   string
	}{
		"an SMB mount": {
			table: "33 30 0:54 / " + pod + " rw - cifs //files/s rw,vers=3.1.1\n", kib: 1024, state: v1alpha1.MountEffective, readAhead: v1alpha1.SettingUnsupported,
			message: "read-ahead window of this mount is unknown",
		},
		"the kernel rejects it": {
			table: podVolume, kib: 1024, rejects: true, state: v1alpha1.MountStale, readAhead: v1alpha1.SettingFailed, message: "desired readAheadKiB 1024: the kernel rejects",
		},
		"a size out of range": {
			table: podVolume, kib: 1 << 21, state: v1alpha1.MountStale, readAhead: v1alpha1.SettingFailed, message: "rejected by this node's agent: must be 4 to 1048576 KiB",
		},
		"the journal cannot be read": {
			table: podVolume, kib: 1024, journal: "{", state: v1alpha1.MountStale, readAhead: v1alpha1.SettingFailed, message: "no settings changed on this node: ",
		},
		"the agent may only restore": {
			table: podVolume, kib: 1024, journal: `{"version": 1, "later": 1}`, state: v1alpha1.MountStale, readAhead: v1alpha1.SettingFailed, message: "not changed: ",
		},
		"the volume declares none": {table: podVolume, state: v1alpha1.MountEffective},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			h := newStorageHost(t)
			h.writeTable(test.table)
			h.write(second, "256\n")
			if test.journal != "" {
				h.write(journal.File, test.journal)
			}
			fs := h.fs
			h.fs = fs.WithHook(func(op host.Op, _ string) error {
				if test.rejects && op == host.OpWriteValue {
					return errCrash
				}
				return nil
			})
			h.declare()
			h.readAhead(test.kib)
			h.runUntilIdle(h.agent())
			m := h.clientNode.Status.Mounts[len(h.clientNode.Status.Mounts)-1]
			if m.State != test.state || m.ReadAheadState != test.readAhead || !strings.Contains(m.Message, test.message) {
				t.Errorf("got %s, read-ahead %q: %q", m.State, m.ReadAheadState, m.Message)
			}
			check.Equal(t, "windows", [2]string{"128", "256"}, h.windows())
		})
	}
}

// An object cannot contain a setting of that name, regardless of its author.
func TestNoObjectNamesTheReadAheadOfAVolumeAsASetting(t *testing.T) {
	h := newStorageHost(t)
	h.writeTable(podVolume)
	h.write(second, "256\n")
	h.declare(setting("volumeReadAhead/pv1", "1024"))
	h.runUntilIdle(h.agent())
	if diff := cmp.Diff([2]string{"128", "256"}, h.windows()); diff != "" || h.state("volumeReadAhead/pv1") != v1alpha1.SettingUnsupported {
		t.Errorf("state %s, windows (-want +got):\n%s", h.state("volumeReadAhead/pv1"), diff)
	}
}

// Lines from /proc/self/mountinfo and mountstats of Linux 6.1.
const (
	nfsFlags  = "rw,noexec,relatime"
	nfsLine   = "812 28 0:52 / /var/lib/kubelet/pods/" + podA + "/volumes/kubernetes.io~nfs/pv " + nfsFlags + " shared:430 - nfs4 10.0.0.1:/export/a rw,vers=4.1,rsize=262144,wsize=262144,namlen=255,hard,proto=tcp,timeo=600,retrans=2,sec=sys,clientaddr=10.0.0.2,local_lock=none,addr=10.0.0.1\n"
	nfsStats  = "device 10.0.0.1:/export/a mounted on /var/lib/kubelet/pods/" + podA + "/volumes/kubernetes.io~nfs/pv with fstype nfs4 statvers=1.1\n\topts:\trw,vers=4.1,rsize=262144,wsize=262144,namlen=255,acregmin=3,acregmax=60,acdirmin=30,acdirmax=60,hard,proto=tcp,timeo=600,retrans=2,sec=sys,clientaddr=10.0.0.2,local_lock=none\n\tage:\t41\n"
	cifsLine  = "813 28 0:53 / /var/lib/kubelet/pods/" + podA + "/volumes/kubernetes.io~csi/pv/mount rw,nosuid,relatime shared:431 - cifs //10.0.0.3/share rw,vers=3.1.1,cache=strict,username=u,uid=0,noforceuid,gid=0,noforcegid,addr=10.0.0.3,file_mode=0755,dir_mode=0755,soft,nounix,serverino,mapposix,rsize=4194304,wsize=4194304,bsize=1048576,echo_interval=60,actimeo=1,closetimeo=1\n"
	xfsLine   = "814 28 8:32 / /var/lib/kubelet/pods/" + podA + "/volumes/kubernetes.io~csi/pv/mount rw,nodev,noatime shared:432 - xfs /dev/sdc rw,attr2,inode64,logbufs=8,logbsize=32k,noquota\n"
	plainLine = "814 28 8:32 / /var/lib/kubelet/pods/" + podA + "/volumes/kubernetes.io~csi/pv/mount rw,relatime shared:432 - xfs /dev/sdc rw,attr2,inode64,logbufs=8,logbsize=32k,noquota\n"
)

func TestFlagsOfAMountAreRead(t *testing.T) {
	for name, test := range map[string]struct {
		mountinfo, mountstats string
		desired               []string
		state                 v1alpha1.MountState
		message               string
	}{
		"NFS with it":        {nfsLine, nfsStats, []string{"noexec"}, v1alpha1.MountEffective, ""},
		"NFS without":        {nfsLine, nfsStats, []string{"noexec", "nosuid", "nodev"}, v1alpha1.MountStale, "suid is not shown, desired nosuid"},
		"NFS without stats":  {nfsLine, "", []string{"noexec", "nodev"}, v1alpha1.MountStale, "dev is not shown, desired nodev"},
		"CIFS with it":       {cifsLine, "", []string{"nosuid"}, v1alpha1.MountEffective, ""},
		"CIFS without":       {cifsLine, "", []string{"noexec"}, v1alpha1.MountStale, "exec is not shown, desired noexec"},
		"XFS with it":        {xfsLine, "", []string{"nodev", "noatime", "rw"}, v1alpha1.MountEffective, ""},
		"XFS without":        {xfsLine, "", []string{"noexec"}, v1alpha1.MountStale, "exec is not shown, desired noexec"},
		"XFS writable":       {xfsLine, "", []string{"ro"}, v1alpha1.MountStale, "rw is rw, desired ro"},
		"XFS with relatime":  {plainLine, "", []string{"relatime", "diratime"}, v1alpha1.MountEffective, ""},
		"XFS without atimes": {plainLine, "", []string{"noatime", "nodiratime"}, v1alpha1.MountStale, "atime is relatime, desired noatime"},
		"XFS read strictly":  {plainLine, "", []string{"strictatime"}, v1alpha1.MountStale, "atime is relatime, desired strictatime"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBox(t)
			hosttest.WriteFile(t, b.dir, "/proc/1/mountinfo", "28 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"+test.mountinfo)
			hosttest.WriteFile(t, b.dir, "/proc/1/mountstats", test.mountstats)
			watch := mountwatch.New(mounts.NewReader(b.fs, mounts.DefaultKubeletDir), &fakeModules{}, b.clock)
			watch.Read()
			var status v1alpha1.StorageClientNodeStatus
			watch.Report(&status, &v1alpha1.StorageClientNodeSpec{Volumes: []v1alpha1.NodeVolume{volume("pv", test.desired...)}}, nil)
			if len(status.Mounts) != 1 {
				t.Fatalf("got mounts %+v", status.Mounts)
			}
			if got := status.Mounts[0]; got.State != test.state || !strings.Contains(got.Message, test.message) {
				t.Errorf("got %s %q, want %s %q", got.State, got.Message, test.state, test.message)
			}
		})
	}
}

// The kernel has more than the minimum, and only the line in the file is gone: the value is not what changed.
func TestDriftOfAMinimumDoesNotNameAValueThatSatisfiesIt(t *testing.T) {
	for observed, want := range map[string]string{"33554432": "the file lacks the value", "16777216": "the file lacks the value", "4096": "4096"} {
		it := &item{key: rmem, entry: &journal.Entry{Applied: "at-least 16777216", Original: host.Original{Value: "212992"}}}
		it.observed.Observation = host.Observation{Observed: observed, Desired: "16777216", Message: "the file lacks the value"}
		h := healed{}
		h.addDrift(it, time.Unix(1, 0))
		if got := h[rmem].LastObserved; got != want {
			t.Errorf("live value %s: got %q, want %q", observed, got, want)
		}
	}
}
