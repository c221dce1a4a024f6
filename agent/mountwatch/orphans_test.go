package mountwatch

import (
	"fmt"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/storageclient/operator/agent/host/mounts"
	"github.com/storageclient/operator/api/v1alpha1"
)

// fakeReader has one mount, which may be an orphan.
type fakeReader struct {
	orphans []mounts.Orphan
	reads   int
}

const orphaned = "/var/lib/kubelet/pods/u1/volumes/kubernetes.io~csi/pv1/mount"

func (f *fakeReader) Read() (mounts.Table, error) {
	return mounts.Table{Mounts: []mounts.Mount{{MountPoint: orphaned, FSType: "nfs4", Server: "filer", PodUIDs: []string{"u1"}}, {MountPoint: "/m", FSType: "nfs4"}}}, nil
}

// Busy returns another table than Read, so that each check reads all mounts.
func (f *fakeReader) Busy() ([]mounts.Busy, int, error) { return nil, 1, nil }

func (f *fakeReader) Orphans() []mounts.Orphan {
	f.reads++
	return f.orphans
}

func TestAnOrphanIsReportedOnceItLasts(t *testing.T) {
	const message = "orphan: no process of its pod runs on this node (pod %s, server filer, directory last changed 2023-11-14T22:13:20Z); " +
		"do not access it, because that can hang."
	changed := time.Unix(1700000000, 0)
	for name, c := range map[string]struct {
		orphan mounts.Orphan
		want   string
	}{
		"of a pod":        {mounts.Orphan{MountPoint: orphaned, PodUID: "u1", Changed: changed}, fmt.Sprintf(message, "u1")},
		"a staging mount": {mounts.Orphan{MountPoint: orphaned, Changed: changed}, fmt.Sprintf(message, "unknown: staging mount")},
	} {
		t.Run(name, func(t *testing.T) {
			reader, clock := &fakeReader{orphans: []mounts.Orphan{c.orphan}}, clocktesting.NewFakeClock(time.Unix(1800000000, 0))
			w := New(reader, nil, clock)
			expect := func(want string) {
				t.Helper()
				var status v1alpha1.StorageClientNodeStatus
				w.Report(&status, &v1alpha1.StorageClientNodeSpec{}, nil)
				if len(status.Mounts) != 2 || status.Mounts[0].Message != "" || status.Mounts[1].Message != want {
					t.Errorf("at %s: got %+v, want the message %q", clock.Now(), status.Mounts, want)
				}
			}
			for passed := time.Duration(0); passed <= orphanAfter; passed += Interval {
				w.Run()
				if passed < orphanAfter {
					expect("")
				}
				clock.Step(Interval)
			}
			expect(c.want)
			if want := int(orphanAfter/fullInterval) + 1; reader.reads != want {
				t.Errorf("got %d reads of the processes, want %d", reader.reads, want)
			}
			reader.orphans = nil
			clock.Step(fullInterval)
			w.Run()
			expect("")
		})
	}
}
