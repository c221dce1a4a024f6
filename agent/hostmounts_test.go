package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageclient/operator/agent/host/hosttest"
	"github.com/storageclient/operator/agent/host/mounts"
	"github.com/storageclient/operator/agent/mountwatch"
	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

const (
	readAhead4 = "readAhead/nfs4"
	nfsAll     = "nfsMountDefaults/_all"
	nfsFiler   = "nfsMountDefaults/filer1"
	diskFS     = "filesystem/mnt/disks/*"
	profileOf  = "tuned/profile"
	dirty      = "sysctl/vm.dirty_ratio"

	window = "/sys/class/bdi/0:52/read_ahead_kb"
	pod    = "/var/lib/kubelet/pods/11111111-1111-1111-1111-111111111111/volumes/kubernetes.io~csi/pv1/mount"
)

// storageHost is the machine of a world with the real subjects on plain files. Only the used commands of systemd, tuned and mount are
// simulated.
type storageHost struct {
	*world
	active, enabled bool
	flags, super    string
	// profile contains, by file, further values that the profile of tuned sets.
	profile map[string]profileValue
}

// profileValue is a value of a tuned profile. failure is the text with which its verification fails: it contains the current value.
type profileValue struct{ value, failure string }

func newStorageHost(t *testing.T) *storageHost {
	t.Helper()
	h := storageOn(newWorld(t))
	h.real = func() Host { return NewHost(h.fs, h, h.world, mounts.DefaultKubeletDir) }
	return h
}

// storageOn gives a machine mounts and their programs.
func storageOn(w *world) *storageHost {
	h := &storageHost{world: w, flags: "rw,relatime", super: "rw,attr2,inode64,logbufs=8,logbsize=32k,noquota"}
	for name, data := range map[string]string{
		"/usr/sbin/mount.nfs": "", "/usr/libexec/nfsrahead": "", "/usr/sbin/tuned-adm": "",
		"/etc/tuned/active_profile": "", "/etc/tuned/profile_mode": "",
		"/usr/lib/tuned/latency-performance/tuned.conf": "[sysctl]\nvm.dirty_ratio=10\nvm.swappiness=10\n",
		"/run/systemd/generator/mnt-disks-d1.mount":     "[Mount]\nWhat=/dev/sdb1\nWhere=/mnt/disks/d1\nType=xfs\nOptions=defaults,relatime\n",
		"/proc/sys/vm/dirty_ratio":                      "20\n",
		window:                                          "128\n",
	} {
		h.write(name, data)
	}
	h.writeTable()
	return h
}

func (h *storageHost) writeTable(lines ...string) {
	h.write("/proc/1/mountinfo", "30 1 8:1 / / rw - ext4 /dev/sda1 rw\n"+
		fmt.Sprintf("31 30 8:17 / /mnt/disks/d1 %s - xfs /dev/sdb1 %s\n", h.flags, h.super)+
		"32 30 0:52 / /mnt/nfs rw - nfs4 filer:/a rw,vers=4.1\n"+strings.Join(lines, ""))
}

func (h *storageHost) Run(_ context.Context, argv ...string) ([]byte, error) {
	command := strings.Join(argv, " ")
	yes := map[bool]string{true: "active", false: "inactive"}
	switch {
	case strings.HasPrefix(command, "systemctl show tuned.service"):
		return fmt.Appendf(nil, "LoadState=loaded\nActiveState=%s\nUnitFileState=%s\n",
			yes[h.active], map[bool]string{true: "enabled", false: "disabled"}[h.enabled]), nil
	case strings.HasPrefix(command, "systemctl show --property=NeedDaemonReload"):
		return []byte("NeedDaemonReload=yes\n"), nil
	case argv[0] == "xfs_info":
		return []byte("log      =internal log           bsize=4096   blocks=16384, version=2\n         = sectsz=512   sunit=0 blks, lazy-count=1\n"), nil
	case strings.HasPrefix(command, "tuned-adm verify"):
		return nil, h.verifyProfile()
	case command == "systemctl daemon-reload":
		return nil, nil
	}
	h.step(command)
	switch {
	case command == "systemctl enable tuned.service", command == "systemctl disable tuned.service":
		h.enabled = argv[1] == "enable"
	case command == "systemctl stop tuned.service":
		h.active = false
		h.write("/proc/sys/vm/dirty_ratio", "20\n")
	case strings.HasPrefix(command, "tuned-adm profile "):
		h.active = true
		h.write("/etc/tuned/active_profile", argv[2]+"\n")
		h.write("/etc/tuned/profile_mode", "manual\n")
		for file, set := range h.profileValues() {
			h.write(file, set.value+"\n")
		}
	case argv[0] == "systemd-run":
		h.flags = strings.TrimSuffix(strings.TrimPrefix(argv[len(argv)-3], "remount,bind,"), ",diratime")
		h.writeTable()
	default:
		return nil, fmt.Errorf("%s: not simulated", command)
	}
	return nil, nil
}

func (h *storageHost) profileValues() map[string]profileValue {
	values := map[string]profileValue{"/proc/sys/vm/dirty_ratio": {"10", "'vm.dirty_ratio' = '%s', expected '10'"}}
	maps.Copy(values, h.profile)
	return values
}

// verifyProfile writes the log of tuned's verification.
func (h *storageHost) verifyProfile() (err error) {
	log := []string{"INFO: verifying profile(s): x"}
	for file, set := range h.profileValues() {
		if got := strings.TrimSpace(hosttest.ReadFile(h.t, h.dir, file)); got != set.value {
			log = append(log, "ERROR: verify: failed: "+fmt.Sprintf(set.failure, got))
			err = errors.New("run tuned-adm verify: exit status 1")
		}
	}
	h.write("/var/log/tuned/tuned.log", strings.Join(log, "\n")+"\n")
	return err
}

func (h *storageHost) tree() map[string]string {
	files := hosttest.ReadTree(h.t, h.dir, "/etc", "/sys", "/proc/sys/vm", "/proc/1", "/var/lib/storage-client")
	files["tuned"] = fmt.Sprint(h.active, h.enabled)
	return files
}

func hostSettings() []v1alpha1.NodeSetting {
	return []v1alpha1.NodeSetting{
		setting(diskFS, "xfs:noatime,logbsize=256k"), setting(nfsAll, "nocto,hard"), setting(nfsFiler, "nconnect=4"),
		setting(readAhead4, "15360"), setting(dirty, "20"), setting(profileOf, "latency-performance"),
	}
}

func (h *storageHost) states() map[string]v1alpha1.SettingState {
	states := map[string]v1alpha1.SettingState{}
	for _, s := range h.clientNode.Status.Settings {
		states[s.Key] = s.State
	}
	return states
}

func TestHostSettingsGoFromTheObjectToTheHostAndBack(t *testing.T) {
	h := newStorageHost(t)
	before := h.tree()
	h.declare(hostSettings()...)
	h.runUntilIdle(h.agent())
	want := map[string]v1alpha1.SettingState{
		diskFS: v1alpha1.SettingPending, nfsAll: v1alpha1.SettingInSync, nfsFiler: v1alpha1.SettingInSync,
		readAhead4: v1alpha1.SettingInSync, dirty: v1alpha1.SettingInSync, profileOf: v1alpha1.SettingInSync,
	}
	check.Equal(t, "states", want, h.states())
	if h.clientNode.Status.RebootRequired {
		t.Error("a mount option requires a reboot")
	}
	if got := hosttest.ReadFile(t, h.dir, "/proc/sys/vm/dirty_ratio"); got != "20\n" {
		t.Errorf("vm.dirty_ratio: got %q, want the declared value instead of the one in the profile of tuned", got)
	}
	for key, part := range map[string]string{profileOf: "vm.dirty_ratio=10 (declared: vm.dirty_ratio=20)", diskFS: "2048 KiB"} {
		if !strings.Contains(h.message(key), part) {
			t.Errorf("%s: got %q, want it to contain %q", key, h.message(key), part)
		}
	}
	check.Equal(t, "flags", "rw,noatime", h.flags)

	h.log = nil
	a := h.runUntilIdle(h.agent())
	if diff := cmp.Diff([]string{"status"}, h.log); diff != "" && len(h.log) > 0 {
		t.Errorf("changes after a restart:\n%s", diff)
	}

	h.change(func(spec *v1alpha1.StorageClientNodeSpec) { spec.Release = true })
	h.runUntilIdle(a)
	if !h.clientNode.Status.Restored {
		t.Errorf("settings are not restored: got %+v", h.clientNode.Status.Settings)
	}
	check.Equal(t, "host", before, h.tree())
}

// A declared read-ahead and a sysctl override the profile of tuned: the sysctl also while new connections prove it, and no file contains it.
func TestValuesThatTheAgentSetsDoNotFailTheProfileOfTuned(t *testing.T) {
	const xfs, queue, rmemFile = "readAhead/xfs", "/sys/devices/sdb/queue/read_ahead_kb", "/proc/sys/net/core/rmem_max"
	for name, test := range map[string]struct {
		settings []v1alpha1.NodeSetting
		// changed is the disk's window if another program has changed it.
		changed string
		state   v1alpha1.SettingState
		message string
	}{
		"both": {settings: []v1alpha1.NodeSetting{setting(xfs, "1024"), setting(rmem, "16777216")}, state: v1alpha1.SettingInSync,
			message: "readahead=4096 for sdb (declared: readAhead/xfs=1024)"},
		"the sysctl": {settings: []v1alpha1.NodeSetting{setting(rmem, "at-least 16777216")}, state: v1alpha1.SettingInSync,
			message: "net.core.rmem_max=4194304 (declared: net.core.rmem_max=16777216)"},
		"another program": {changed: "1024", state: v1alpha1.SettingFailed, message: "device sdb: 'readahead' = '1024', expected '4096'"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newStorageHost(t)
			h.write("/usr/lib/tuned/latency-performance/tuned.conf", "[sysctl]\nnet.core.rmem_max=4194304\n[disk]\nreadahead=>4096\n")
			h.write(queue, "128\n")
			h.write("/sys/devices/sdb/sdb1/partition", "1\n")
			h.write(rmemFile, "212992\n")
			hosttest.WriteLink(t, h.dir, "/sys/dev/block/8:17", "../../devices/sdb/sdb1")
			h.profile = map[string]profileValue{
				rmemFile: {"4194304", "'net.core.rmem_max' = '%s', expected '4194304'"},
				queue:    {"4096", "device sdb: 'readahead' = '%s', expected '4096'"},
			}
			h.writeErr = func(status v1alpha1.StorageClientNodeStatus) error {
				for _, s := range status.Settings {
					if s.State == v1alpha1.SettingFailed && test.changed == "" {
						t.Errorf("reported %s: %s", s.Key, s.Message)
					}
				}
				return nil
			}
			h.declare(append(test.settings, setting(profileOf, "latency-performance"))...)
			h.runUntilIdle(h.agent())
			if test.changed != "" {
				h.write(queue, test.changed+"\n")
			}
			// A new agent verifies the profile again.
			h.runUntilIdle(h.agent())
			if h.state(profileOf) != test.state || !strings.Contains(h.message(profileOf), test.message) {
				t.Errorf("got %s %q, want %s %q", h.state(profileOf), h.message(profileOf), test.state, test.message)
			}
		})
	}
}

// The tests of each subject stop it at every step. This test stops all subjects together at every third step.
func TestHostSettingsSurviveACrashAnywhere(t *testing.T) {
	for n := 1; ; n += 3 {
		h := newStorageHost(t)
		before := h.tree()
		h.declare(hostSettings()...)
		h.dieAt = n
		a := h.runUntilIdle(h.agent())
		h.change(func(spec *v1alpha1.StorageClientNodeSpec) { spec.Release = true })
		h.runUntilIdle(a)
		if diff := cmp.Diff(before, h.tree()); diff != "" || !h.clientNode.Status.Restored {
			t.Fatalf("after a crash at step %d of %d (-before +after):\n%s%+v", n, h.steps, diff, h.clientNode.Status.Settings)
		}
		if h.steps < n {
			return
		}
	}
}

func TestANewMountHasItsReadAheadAtOnceAndIsNoDrift(t *testing.T) {
	for name, numberOf := range map[string]func(i int) int{
		"with a new number": func(i int) int { return 60 + i },
		// The kernel gives a new mount the lowest free number.
		"with the number of the mount before it": func(int) int { return 60 },
	} {
		t.Run(name, func(t *testing.T) {
			h := newStorageHost(t)
			h.declare(setting(readAhead4, "15360"))
			a := h.runUntilIdle(h.agent())
			for i := range 2 * maxHeals {
				file := fmt.Sprintf("/sys/class/bdi/0:%d/read_ahead_kb", numberOf(i))
				h.write(file, "")
				h.write("/sys/new", "128\n")
				check.NoError(t, os.Rename(filepath.Join(h.dir, "/sys/new"), filepath.Join(h.dir, file)))
				h.writeTable(fmt.Sprintf("40 30 0:%d / %s%d rw - nfs4 filer:/b rw,vers=4.1\n", numberOf(i), pod, i))
				h.clock.Step(mountwatch.Interval)
				if h.runPass(a) {
					t.Fatal("the agent crashed")
				}
				if got := hosttest.ReadFile(t, h.dir, file); got != "15360\n" {
					t.Fatalf("mount %d: got %q after %s", i, got, mountwatch.Interval)
				}
			}
			if drift := h.clientNode.Status.Settings[0].Drift; drift != nil {
				t.Errorf("got drift %+v", drift)
			}
			h.write(window, "64\n")
			h.clock.Step(driftInterval)
			h.runPass(a)
			if got := hosttest.ReadFile(t, h.dir, window); got != "15360\n" {
				t.Errorf("drift is not reset: got %q, %s", got, h.message(readAhead4))
			}
		})
	}
}

func TestAnyFileOfTheAgentRevealsALostJournal(t *testing.T) {
	for _, file := range []string{
		"/etc/udev/rules.d/99-storage-client-readahead.rules", "/etc/nfs.conf.d/zz-storage-client.conf",
		"/etc/nfsmount.conf.d/zz-storage-client.conf", "/etc/systemd/system/mnt-disks-d1.mount.d/storage-client.conf",
	} {
		h := newStorageHost(t)
		h.write(file, "#\n")
		h.declare(hostSettings()...)
		h.runUntilIdle(h.agent())
		if h.state(readAhead4) != v1alpha1.SettingFailed || !strings.Contains(h.message(readAhead4), file) {
			t.Errorf("%s: got %s %q", file, h.state(readAhead4), h.message(readAhead4))
		}
	}
}

func TestAHostWithoutSupportIsUnchanged(t *testing.T) {
	h := newStorageHost(t)
	for _, file := range []string{"/usr/sbin/mount.nfs", "/usr/sbin/tuned-adm", "/run/systemd/generator/mnt-disks-d1.mount"} {
		check.NoError(t, os.Remove(filepath.Join(h.dir, file)))
	}
	before := h.tree()
	h.declare(setting(diskFS, "xfs:noatime"), setting(nfsAll, "hard"), setting(profileOf, "latency-performance"))
	h.runUntilIdle(h.agent())
	want := map[string]v1alpha1.SettingState{
		diskFS: v1alpha1.SettingUnsupported, nfsAll: v1alpha1.SettingUnsupported, profileOf: v1alpha1.SettingUnsupported,
	}
	check.Equal(t, "states", want, h.states())
	after := h.tree()
	maps.DeleteFunc(after, func(name, _ string) bool { return strings.HasPrefix(name, "/var/lib/storage-client") })
	check.Equal(t, "host", before, after)
	if slices.ContainsFunc(h.log, func(step string) bool { return strings.HasPrefix(step, "systemctl") }) {
		t.Errorf("commands: got %v", h.log)
	}
}

func TestAHostsFileSystemIsNotMadeWeaker(t *testing.T) {
	for value, reason := range map[string]string{
		"xfs:noatime,rw":      "rw would weaken its mount, which has ro: remove rw from mountOptions in spec.node.filesystems",
		"xfs:noatime,noquota": "noquota would weaken its mount, which has uqnoenforce: remove noquota from mountOptions in spec.node.filesystems",
	} {
		h := newStorageHost(t)
		h.write("/run/systemd/generator/mnt-disks-d1.mount", "[Mount]\nWhat=/dev/sdb1\nWhere=/mnt/disks/d1\nType=xfs\nOptions=ro,uqnoenforce\n")
		before := hosttest.ReadTree(t, h.dir, "/etc")
		h.declare(setting(diskFS, value))
		h.runUntilIdle(h.agent())
		if h.state(diskFS) != v1alpha1.SettingUnsupported || !strings.Contains(h.message(diskFS), "/mnt/disks/d1: "+reason) {
			t.Errorf("%s: got %s %q, want a message with %q", value, h.state(diskFS), h.message(diskFS), reason)
		}
		if diff := cmp.Diff(before, hosttest.ReadTree(t, h.dir, "/etc")); diff != "" {
			t.Errorf("%s: files (-before +after):\n%s", value, diff)
		}
	}
	h := newStorageHost(t)
	h.write("/run/systemd/generator/mnt-disks-d1.mount", "[Mount]\nWhat=/dev/sdb1\nWhere=/mnt/disks/d1\nType=xfs\nOptions=rw,noquota\n")
	h.declare(setting(diskFS, "xfs:noatime,rw,noquota"))
	h.runUntilIdle(h.agent())
	if h.state(diskFS) != v1alpha1.SettingInSync {
		t.Errorf("an option that weakens no mount: got %s %q", h.state(diskFS), h.message(diskFS))
	}
}

func TestAReleaseDoesNotWaitForMountsThatKeepTheirOptions(t *testing.T) {
	h := newStorageHost(t)
	h.declare(setting(diskFS, "xfs:noatime,logbsize=256k"))
	a := h.runUntilIdle(h.agent())
	h.super = strings.ReplaceAll(h.super, "32k", "256k")
	h.writeTable()
	h.clock.Step(driftInterval)
	h.runPass(a)
	if h.state(diskFS) != v1alpha1.SettingInSync {
		t.Fatalf("got %s %q", h.state(diskFS), h.message(diskFS))
	}
	h.change(func(spec *v1alpha1.StorageClientNodeSpec) { spec.Release = true })
	h.runPass(a)
	h.clock.Step(15 * time.Second)
	h.runPass(a)
	if !h.clientNode.Status.Restored || len(h.journal()) > 0 || h.clientNode.Status.RebootRequired {
		t.Errorf("got restored %v, journal %v", h.clientNode.Status.Restored, h.journal())
	}
}
