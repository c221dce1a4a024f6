package filesystems

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/hosttest"
	"github.com/storageclient/operator/agent/host/mounts"
	"github.com/storageclient/operator/test/check"
)

// confined returns a subject that changes only /mnt and /srv.
func (m *machine) confined() *Subject {
	s := New(m.fs, m, mounts.NewReader(m.fs, mounts.DefaultKubeletDir).Entries, Options{
		Merge: merge, Differences: differences, Declined: declined, Weakened: weakened,
		Hazardous:  func(option string) bool { return option == "noexec" },
		SystemDirs: []string{"/usr", "/var/lib/kubelet", "/var/lib/containerd"},
	})
	s.Confine(func(place string) string {
		if strings.HasPrefix(place, "/mnt/") || strings.HasPrefix(place, "/srv/") {
			return ""
		}
		return place + " is refused"
	})
	return s
}

func (m *machine) addLine(line string) {
	const file = "/proc/1/mountinfo"
	hosttest.WriteFile(m.t, m.dir, file, hosttest.ReadFile(m.t, m.dir, file)+line+"\n")
}

func (m *machine) link(name, target string) {
	m.t.Helper()
	if err := os.MkdirAll(filepath.Join(m.dir, filepath.Dir(name)), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.Symlink(target, filepath.Join(m.dir, name)); err != nil {
		m.t.Fatal(err)
	}
}

const d1 = "mnt/disks/d1"

func TestSystemFileSystemsStayUnchanged(t *testing.T) {
	for name, test := range map[string]struct {
		prepare func(m *machine)
		point   string
		want    string
	}{
		"data": {func(*machine) {}, d1, ""},
		"data that pods have as a volume": {func(m *machine) {
			m.addLine("90 1 8:17 / /var/lib/kubelet/pods/u/volumes/kubernetes.io~local-volume/pv rw - xfs /dev/sdb1 rw")
		}, d1, ""},
		"data that is also mounted below /var": {func(m *machine) { m.addLine("90 1 8:17 /log /var/log/app rw - xfs /dev/sdb1 rw") }, d1, ""},
		"a mount point elsewhere": {func(m *machine) {
			m.unit("/etc/systemd/system/usr.mount", "/usr", "/dev/sdf1", "xfs", "")
			m.addLine("90 1 8:81 / /usr rw,relatime - xfs /dev/sdf1 rw,logbufs=8,logbsize=32k,noquota")
		}, "usr", "/usr is refused"},
		"a mount point that is a link": {func(m *machine) {
			m.link("/mnt/alias", "/opt/data")
			m.unit("/etc/systemd/system/mnt-alias.mount", "/mnt/alias", "/dev/sdf1", "xfs", "")
		}, "mnt/alias", "/opt/data is refused"},
		"one that a system directory links to": {func(m *machine) {
			m.link("/var/lib/kubelet", "/mnt/disks/d1/kubelet")
		}, d1, "it contains /var/lib/kubelet"},
		"one below the target of a system directory's link": {func(m *machine) {
			m.link("/var/lib/containerd", "/mnt/disks")
		}, d1, "it is in /var/lib/containerd, which resolves to /mnt/disks"},
		"one with a directory of the kubelet": {func(m *machine) {
			m.addLine("90 1 8:17 /aks/kubelet /var/lib/kubelet rw - xfs /dev/sdb1 rw")
		}, d1, "it is also mounted at /var/lib/kubelet"},
		"one that is also mounted in the system": {func(m *machine) { m.addLine("90 1 8:17 / /usr/local rw - xfs /dev/sdb1 rw") }, d1, "it is also mounted at /usr/local"},
		"one that is also /var":                  {func(m *machine) { m.addLine("90 1 8:17 /var /var rw - xfs /dev/sdb1 rw") }, d1, "it is also mounted at /var"},
		"one with containers' layers": {func(m *machine) {
			m.addLine("90 1 0:99 / /run/containerd/x/rootfs rw - overlay overlay rw,lowerdir=/a,upperdir=/mnt/disks/d1/images/9/fs,workdir=/w")
		}, d1, "it contains container layers: /mnt/disks/d1/images/9/fs"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			test.prepare(m)
			s := m.confined()
			m.apply(s, test.point, "xfs:noexec")
			staged, err := m.fs.Glob(systemDir, "*.mount.d/"+dropInName)
			check.NoError(t, err)
			if test.want == "" {
				m.expect(s, test.point, "xfs:noexec", host.Pending, "exec staged")
				return
			}
			m.expect(s, test.point, "xfs:noexec", host.Unsupported, test.want)
			if len(staged) > 0 || slices.ContainsFunc(m.ran, func(command string) bool { return strings.HasPrefix(command, "systemd-run") }) {
				t.Errorf("got staged %v, commands %v", staged, m.ran)
			}
		})
	}
}

func TestStagedOptionsOfARejectedPlaceStayUnlessHazardous(t *testing.T) {
	for options, isKept := range map[string]bool{"noatime": true, "noexec": false} {
		m := newMachine(t)
		m.apply(m.subject(), d1, "xfs:"+options)
		before := hosttest.ReadFile(t, m.dir, dropIn1)
		m.addLine("90 1 8:17 /aks/kubelet /var/lib/kubelet rw - xfs /dev/sdb1 rw")
		s := m.confined()
		m.apply(s, d1, "xfs:"+options)
		if got := hosttest.ReadFile(t, m.dir, dropIn1); before == "" || (got == before) != isKept || (got == "") == isKept {
			t.Errorf("%s: drop-in: got %q, want %q", options, got, before)
		}
		note := "is also mounted at /var/lib/kubelet"
		if isKept {
			note = "the last applied value stays"
		}
		m.expect(s, d1, "xfs:"+options, host.Unsupported, note)

		// Undesired options are restored at any place.
		m.apply(s)
		if m.fs.Exists(dropIn1) {
			t.Errorf("%s: the drop-in still exists", options)
		}
		hosttest.ExpectState(t, s.Restore(t.Context(), map[string]host.Original{d1: {Present: true, Value: "/mnt/disks/d1 rw,attr2,inode64,logbufs=8,logbsize=32k,noquota,rw,nosuid,relatime"}})[0], host.InSync)
	}
}
