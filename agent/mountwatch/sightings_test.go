package mountwatch

import (
	"testing"
	"time"

	"github.com/storageclient/operator/agent/host/mounts"
)

func TestSince(t *testing.T) {
	start := time.Date(2026, 9, 1, 10, 0, 0, 0, time.UTC)
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	nfs := func(age int, operations uint64) mounts.Mount {
		return mounts.Mount{Device: "0:52", ID: "9", MountPoint: "/p", Volume: "pv", FSType: "nfs4", Age: age, Operations: operations}
	}
	smb := func(id, point string, operations uint64) mounts.Mount {
		return mounts.Mount{Device: "0:60", ID: id, MountPoint: point, Volume: "pv", FSType: "cifs", Age: -1, Operations: operations, CountsShare: true}
	}
	type reading struct {
		seconds int
		// unchanged is a check that finds the mount points of the volumes unchanged.
		unchanged bool
		mounts    []mounts.Mount
	}
	tests := map[string]struct {
		readings []reading
		device   string
		since    time.Time
		used     bool
	}{
		"by the kernel's age": {[]reading{{100, false, []mounts.Mount{nfs(30, 0)}}}, "0:52", at(70), false},
		"it does not change with a rounded age, and a finished operation is recorded": {
			[]reading{{100, false, []mounts.Mount{nfs(30, 1)}}, {160, false, []mounts.Mount{nfs(89, 1)}}, {220, false, []mounts.Mount{nfs(151, 0)}}}, "0:52", at(70), true,
		},
		"a younger one is another": {[]reading{{100, false, []mounts.Mount{nfs(30, 7)}}, {160, false, []mounts.Mount{nfs(20, 0)}}}, "0:52", at(140), false},
		"one that is as old as its own time allows is another": {
			[]reading{{100, false, []mounts.Mount{nfs(1, 0)}}, {160, false, []mounts.Mount{nfs(50, 0)}}}, "0:52", at(110), false,
		},
		"the mount time of an initial mount is unknown": {[]reading{{100, false, []mounts.Mount{smb("1", "/a", 5)}}}, "0:60", time.Time{}, false},
		"a new mount is younger than the last check without it": {
			[]reading{{100, false, nil}, {105, true, nil}, {110, false, []mounts.Mount{smb("1", "/a", 5)}}}, "0:60", at(105), false,
		},
		"the counter of a share starts with the mount": {
			[]reading{{100, false, nil}, {110, false, []mounts.Mount{smb("1", "/a", 5)}}, {170, false, []mounts.Mount{smb("1", "/a", 6)}}}, "0:60", at(100), true,
		},
		"another pod's mount of it is the same": {
			[]reading{{100, false, nil}, {110, false, []mounts.Mount{smb("1", "/a", 5)}}, {170, false, []mounts.Mount{smb("1", "/a", 5), smb("2", "/b", 5)}}}, "0:60", at(100), false,
		},
		"a mount that is mounted again on the same device is another": {
			[]reading{{100, false, []mounts.Mount{smb("1", "/a", 5)}}, {155, true, nil}, {160, false, []mounts.Mount{smb("2", "/b", 5)}}}, "0:60", at(155), false,
		},
		"at the same mount point, there were no additional checks": {
			[]reading{{100, false, []mounts.Mount{smb("1", "/a", 5)}}, {155, true, nil}, {160, false, []mounts.Mount{smb("2", "/a", 5)}}}, "0:60", at(100), false,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var s sightings
			for _, r := range test.readings {
				if r.unchanged {
					s.noteUnchanged(at(r.seconds))
				} else {
					s.noteMounts(r.mounts, at(r.seconds))
				}
			}
			if got := s.byDevice[test.device]; !got.mountedAt.Equal(test.since) || got.used != test.used {
				t.Errorf("got since %s and used %t, want %s and %t", got.mountedAt, got.used, test.since, test.used)
			}
		})
	}
}
