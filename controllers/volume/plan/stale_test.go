package plan

import (
	"strings"
	"testing"

	"github.com/storageclient/operator/api/v1alpha1"
)

// One volume has several mounts, and only some of them are older than the change.
func TestEachMountOfAVolumeIsCompared(t *testing.T) {
	mount := func(point, options string) v1alpha1.MountStatus {
		return v1alpha1.MountStatus{MountPoint: point, Volume: "pv1", Protocol: "NFSv4.1", Options: strings.Split(options, ","), State: v1alpha1.MountEffective}
	}
	nodes := []*v1alpha1.StorageClientNode{{Status: v1alpha1.StorageClientNodeStatus{Mounts: []v1alpha1.MountStatus{
		mount("/old", "rw,vers=4.1,hard"), mount("/new", "rw,vers=4.1,nocto"), mount("/older", "rw,vers=4.1,hard"),
	}}}}
	got := StaleMounts([]Volume{{Name: "pv1", Wanted: []string{"nocto"}}}, nodes)
	if len(got) != 2 || got[0].MountPoint != "/old" || got[1].MountPoint != "/older" {
		t.Errorf("got %+v, want the mounts /old and /older", got)
	}
}

func TestStaleMountsByProtocol(t *testing.T) {
	volumes := []Volume{{Name: "smb", Wanted: []string{"actimeo=30"}}, {Name: "xfs", Wanted: []string{"noatime", "logbsize=256k"}}}
	mount := func(volume, protocol, options string) v1alpha1.MountStatus {
		return v1alpha1.MountStatus{Volume: volume, MountPoint: "/" + volume, Protocol: protocol, Options: strings.Split(options, ",")}
	}
	for name, test := range map[string]struct {
		mount v1alpha1.MountStatus
		want  string
	}{
		"SMB as wanted":             {mount("smb", "SMB3.1.1", "rw,relatime,vers=3.1.1,cache=strict,actimeo=30,closetimeo=1"), ""},
		"SMB with two timers":       {mount("smb", "SMB3.1.1", "rw,vers=3.1.1,acregmax=60,acdirmax=30"), "acregmax is 60, desired 30"},
		"XFS as wanted":             {mount("xfs", "xfs", "rw,attr2,inode64,logbufs=8,logbsize=256k,noquota,noatime"), ""},
		"XFS that was only remount": {mount("xfs", "xfs", "rw,noatime,attr2,inode64,logbufs=8,logbsize=32k,noquota"), "logbsize is 32768, desired 262144"},
	} {
		t.Run(name, func(t *testing.T) {
			got := StaleMounts(volumes, []*v1alpha1.StorageClientNode{{Status: v1alpha1.StorageClientNodeStatus{Mounts: []v1alpha1.MountStatus{test.mount}}}})
			if test.want == "" && len(got) > 0 || test.want != "" && (len(got) != 1 || !strings.Contains(got[0].Message, test.want)) {
				t.Errorf("got %+v, want %q", got, test.want)
			}
		})
	}
}
