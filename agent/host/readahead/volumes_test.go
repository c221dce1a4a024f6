package readahead

import (
	"errors"
	"slices"
	"testing"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/hosttest"
	"github.com/storageclient/operator/agent/host/mounts"
)

// nfsEntry returns an NFS mount of a volume.
func nfsEntry(volume, device string) mounts.VolumeEntry {
	return mounts.VolumeEntry{Volume: volume, Device: device, FSType: "nfs4"}
}

// volumes returns the subject of a host with the given mounts of volumes and an empty journal.
func volumes(fs host.FS, entries ...mounts.VolumeEntry) *Volumes {
	_, v := New(fs, mounts.NewReader(fs, mounts.DefaultKubeletDir).Entries, func() ([]mounts.VolumeEntry, error) { return entries, nil },
		func(string) (host.Original, bool) { return host.Original{}, false })
	return v
}

func expectWindows(t *testing.T, dir string, want map[string]string) {
	t.Helper()
	for id, value := range want {
		if got := hosttest.ReadFile(t, dir, bdi(id)); got != value+"\n" {
			t.Errorf("%s: got %q, want %s", id, got, value)
		}
	}
}

func TestVolumesThatShareAWindowUseTheFirstByName(t *testing.T) {
	for _, entries := range [][]mounts.VolumeEntry{
		{nfsEntry("pv1", "0:52"), nfsEntry("pv2", "0:52")}, {nfsEntry("pv2", "0:52"), nfsEntry("pv1", "0:52")},
	} {
		dir, fs := machine(t)
		v := volumes(fs, entries...)
		desired := hosttest.Settings("pv1", "1024", "pv2", "2048")
		hosttest.Apply(t, v, desired)
		expectWindows(t, dir, map[string]string{"0:52": "1024", "0:53": "128"})
		got := v.Observe(t.Context(), desired)
		hosttest.ExpectState(t, got[0], host.InSync)
		hosttest.ExpectState(t, got[1], host.Unsupported, "with volume pv1, whose value applies")

		hosttest.Apply(t, v, desired[:1])
		hosttest.ExpectState(t, v.Restore(t.Context(), map[string]host.Original{"pv2": {Present: true, Value: "128"}})[0], host.InSync)
		expectWindows(t, dir, map[string]string{"0:52": "1024"})
	}
}

func TestNewMountsOfAVolumeAreFollowedAndDriftIsNot(t *testing.T) {
	dir, fs := machine(t)
	v := volumes(fs, nfsEntry("pv1", "0:52"), nfsEntry("pv1", "0:53"))
	desired := hosttest.Settings("pv1", "1024")
	hosttest.Apply(t, v, desired)
	hosttest.WriteFile(t, dir, bdi("0:52"), "64\n")
	unmount(t, dir, "0:53")
	v.FollowMounts(t.Context(), desired)
	hosttest.WriteFile(t, dir, bdi("0:53"), "128\n")
	if got := v.Observe(t.Context(), desired)[0]; got.Observed != "64" {
		t.Errorf("observed: got %+v, want the smallest window", got)
	}
	v.FollowMounts(t.Context(), desired)
	expectWindows(t, dir, map[string]string{"0:52": "64", "0:53": "1024"})
	hosttest.ExpectState(t, v.Observe(t.Context(), desired)[0], host.Drifted, "0:52 has 64")
	hosttest.Apply(t, v, desired)
	expectWindows(t, dir, map[string]string{"0:52": "1024"})

	hosttest.Apply(t, v, nil)
	v.Restore(t.Context(), map[string]host.Original{"pv1": {Present: true, Value: "128"}})
	expectWindows(t, dir, map[string]string{"0:52": "128", "0:53": "128"})
	v.FollowMounts(t.Context(), desired)
	expectWindows(t, dir, map[string]string{"0:52": "1024", "0:53": "1024"})
}

func TestAMountOfAVolumeThatReusesANumberAtOnceIsFollowed(t *testing.T) {
	dir, fs := machine(t)
	v, desired := volumes(fs, nfsEntry("pv1", "0:52")), hosttest.Settings("pv1", "1024")
	hosttest.Apply(t, v, desired)
	replaceFile(t, dir, bdi("0:52"), "128\n")
	v.FollowMounts(t.Context(), desired)
	expectWindows(t, dir, map[string]string{"0:52": "1024"})
	hosttest.WriteFile(t, dir, bdi("0:52"), "128\n")
	v.FollowMounts(t.Context(), desired)
	expectWindows(t, dir, map[string]string{"0:52": "128"})
}

func TestAMountOfAVolumeThatIsYoungerThanItsOriginal(t *testing.T) {
	dir, fs := machine(t)
	disk := mounts.VolumeEntry{Volume: "pv2", Device: "9:0", FSType: "xfs"}
	v := volumes(fs, nfsEntry("pv1", "0:52"), disk)
	hosttest.Apply(t, v, hosttest.Settings("pv1", "1024", "pv2", "1024"))
	hosttest.Apply(t, v, nil)
	v.Restore(t.Context(), map[string]host.Original{"pv1": {}, "pv2": {}})
	expectWindows(t, dir, map[string]string{"0:52": kernelDefault, "9:0": "1024"})
}

func TestInvalidSizeOfAVolumeIsRejected(t *testing.T) {
	dir, fs := machine(t)
	v := volumes(fs, nfsEntry("pv1", "0:52"))
	desired := hosttest.Settings("pv1", "64k")
	hosttest.Apply(t, v, desired)
	hosttest.ExpectState(t, v.Observe(t.Context(), desired)[0], host.Failed, "not a number of KiB")
	expectWindows(t, dir, map[string]string{"0:52": "128"})
}

func TestFailedRestoreOfAVolumeIsReported(t *testing.T) {
	originals := map[string]host.Original{"pv1": {Present: true, Value: "256"}}
	t.Run("the first of two windows is rejected", func(t *testing.T) {
		dir, fs := machine(t)
		v := volumes(fs.WithHook(func(op host.Op, name string) error {
			if op == host.OpWriteValue && name == bdi("0:52") {
				return errors.New("read-only file system")
			}
			return nil
		}), nfsEntry("pv1", "0:52"), nfsEntry("pv1", "0:53"))
		hosttest.ExpectState(t, v.Restore(t.Context(), originals)[0], host.Failed, "read-only file system")
		expectWindows(t, dir, map[string]string{"0:52": "128"})
	})
	t.Run("the mount table is not read to find the other owner", func(t *testing.T) {
		dir, fs := machine(t)
		reads := 0
		v := volumes(fs)
		v.entries = func() ([]mounts.VolumeEntry, error) {
			if reads++; reads > 1 {
				return nil, errors.New("no mount table")
			}
			return []mounts.VolumeEntry{nfsEntry("pv1", "0:52"), nfsEntry("pv2", "0:52")}, nil
		}
		v.setDesired(hosttest.Settings("pv2", "128"))
		hosttest.ExpectState(t, v.Restore(t.Context(), originals)[0], host.Failed, "no mount table")
		expectWindows(t, dir, map[string]string{"0:52": "128"})
	})
}

func TestTheSettingOfADisk(t *testing.T) {
	for name, test := range map[string]struct {
		// journalled are the keys in the journal. want contains the settings by disk.
		journalled []string
		want       map[string]string
	}{
		"none":                              {},
		"a type, on a partition and a disk": {[]string{"readAhead/xfs"}, map[string]string{"sdb": "readAhead/xfs", "md0": "readAhead/xfs"}},
		"another type":                      {[]string{"readAhead/nfs4", "readAhead/ext4"}, nil},
		"a volume":                          {[]string{"volumeReadAhead/pv1"}, map[string]string{"md0": "volume pv1"}},
		"a volume and its type":             {[]string{"volumeReadAhead/pv1", "readAhead/xfs"}, map[string]string{"md0": "volume pv1", "sdb": "readAhead/xfs"}},
		"a volume that is not mounted":      {[]string{"volumeReadAhead/pv2"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			dir, fs := machine(t)
			hosttest.WriteLink(t, dir, "/sys/dev/block/9:0", "../../devices/virtual/block/md0")
			disk := mounts.VolumeEntry{Volume: "pv1", Device: "9:0", FSType: "xfs"}
			_, v := New(fs, mounts.NewReader(fs, mounts.DefaultKubeletDir).Entries, func() ([]mounts.VolumeEntry, error) { return []mounts.VolumeEntry{nfsEntry("pv3", "0:52"), disk}, nil },
				func(key string) (host.Original, bool) { return host.Original{}, slices.Contains(test.journalled, key) })
			for _, disk := range []string{"sda", "sdb", "sdb1", "md0"} {
				if got := v.SettingOfDisk(disk); got != test.want[disk] {
					t.Errorf("%s: got %q, want %q", disk, got, test.want[disk])
				}
			}
		})
	}
}
