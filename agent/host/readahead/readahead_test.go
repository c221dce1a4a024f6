package readahead

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/hosttest"
	"github.com/storageclient/operator/agent/host/mounts"
	"github.com/storageclient/operator/test/check"
)

var errCrash = errors.New("crash")

const mountinfo = `24 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
40 24 0:52 / /mnt/a rw - nfs4 filer:/a rw,vers=4.1
41 24 0:52 / /mnt/again rw - nfs4 filer:/a rw,vers=4.1
42 24 0:53 / /mnt/b rw - nfs4 filer:/b rw,vers=4.1
43 24 0:54 / /mnt/c rw - nfs filer:/c rw,vers=3
44 24 0:60 / /mnt/s rw - cifs //files/s rw
45 24 8:17 / /mnt/part rw - xfs /dev/sdb1 rw
46 24 9:0 / /mnt/raid rw - xfs /dev/md0 rw
`

func bdi(id string) string { return "/sys/class/bdi/" + id + "/read_ahead_kb" }

func machine(t *testing.T) (string, host.FS) {
	t.Helper()
	dir, fs := hosttest.OpenHost(t, "debian-12")
	hosttest.WriteFile(t, dir, "/proc/1/mountinfo", mountinfo)
	hosttest.WriteFile(t, dir, nfsrahead, "")
	for id, value := range map[string]string{"0:52": "128", "0:53": "128", "0:54": "512", "cifs-7": "4096", "9:0": "256", "8:0": "128"} {
		hosttest.WriteFile(t, dir, bdi(id), value+"\n")
	}
	hosttest.WriteFile(t, dir, "/sys/devices/sdb/queue/read_ahead_kb", "128\n")
	hosttest.WriteFile(t, dir, "/sys/devices/sdb/sdb1/partition", "1\n")
	check.NoError(t, os.MkdirAll(filepath.Join(dir, "/sys/dev/block"), 0o755))
	check.NoError(t, os.Symlink("../../devices/sdb/sdb1", filepath.Join(dir, "/sys/dev/block/8:17")))
	return dir, fs
}

func subject(fs host.FS) *Subject {
	s, _ := New(fs, mounts.NewReader(fs, mounts.DefaultKubeletDir).Entries, nil, nil)
	return s
}

func apply(t *testing.T, s *Subject, pairs ...string) {
	t.Helper()
	hosttest.Apply(t, s, hosttest.Settings(pairs...))
}

func expect(t *testing.T, s *Subject, name, value string, state host.State, parts ...string) host.Observation {
	t.Helper()
	got := hosttest.Observe(t, s, name, value)
	hosttest.ExpectState(t, got, state, parts...)
	return got
}

func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	return hosttest.ReadTree(t, dir, "/sys", "/etc")
}

func TestOnlyMountsOfTheTypeHaveTheWindow(t *testing.T) {
	dir, fs := machine(t)
	s := subject(fs)
	expect(t, s, "nfs4", "15360", host.Drifted, "0:52 has 128")
	before := tree(t, dir)
	apply(t, s, "nfs4", "15360", "cifs", "8192", "xfs", "1024")

	want := before
	want[bdi("0:52")], want[bdi("0:53")] = "15360\n", "15360\n"
	want[bdi("cifs-7")], want[bdi("9:0")], want["/sys/devices/sdb/queue/read_ahead_kb"] = "8192\n", "1024\n", "1024\n"
	want[NFSConf] = host.OwnHeader + "[nfsrahead]\nnfs4=15360\n"
	want[UdevRule] = host.OwnHeader + `ACTION=="add", SUBSYSTEM=="bdi", KERNEL=="cifs-[0-9]*", ATTR{read_ahead_kb}="8192"` + "\n"
	check.Equal(t, "host", want, tree(t, dir))
	for name, value := range map[string]string{"nfs4": "15360", "cifs": "8192", "xfs": "1024"} {
		if got := expect(t, subject(fs), name, value, host.InSync); got.Observed != value || got.Effect != host.Live {
			t.Errorf("observed: got %+v", got)
		}
	}
	changes := 0
	apply(t, subject(fs.WithHook(func(host.Op, string) error { changes++; return nil })), "nfs4", "15360", "cifs", "8192", "xfs", "1024")
	check.Equal(t, "changes of a second Apply", 0, changes)
}

func TestObservedWindowIsTheSmallest(t *testing.T) {
	dir, fs := machine(t)
	s := subject(fs)
	apply(t, s, "nfs4", "15360")
	hosttest.WriteFile(t, dir, bdi("0:53"), "64\n")
	if got := expect(t, s, "nfs4", "15360", host.Drifted, "0:53 has 64"); got.Observed != "64" {
		t.Errorf("observed: got %q", got.Observed)
	}
	apply(t, s, "nfs4", "15360")
	expect(t, s, "nfs4", "15360", host.InSync)
}

func TestNoMountWaitsForTheNextOne(t *testing.T) {
	tests := map[string]struct{ fsType, without, message string }{
		"NFS, if nfs-utils sets windows":    {"nfs4", "", NFSConf},
		"NFS, if nfs-utils does not":        {"nfs4", nfsrahead, "from the agent"},
		"SMB, which udev knows by its name": {"cifs", "", UdevRule},
		"a disk's file system, the agent's": {"xfs", "", "from the agent"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir, fs := machine(t)
			hosttest.WriteFile(t, dir, "/proc/1/mountinfo", strings.SplitAfter(mountinfo, "\n")[0])
			for _, file := range []string{test.without, "/sys/class/bdi/cifs-7"} {
				if file != "" {
					check.NoError(t, os.RemoveAll(filepath.Join(dir, file)))
				}
			}
			s := subject(fs)
			apply(t, s, test.fsType, "1024")
			if got := expect(t, s, test.fsType, "1024", host.Pending, test.message); got.Effect != host.NextMount {
				t.Errorf("got effect %s", got.Effect)
			}
			if original, err := s.Original(t.Context(), test.fsType); original.Present || err != nil {
				t.Errorf("got original %v, error %v", original, err)
			}
		})
	}
}

func TestNewMountsAreFollowedAndDriftIsNot(t *testing.T) {
	dir, fs := machine(t)
	s := subject(fs)
	apply(t, s, "nfs4", "15360")
	hosttest.WriteFile(t, dir, "/proc/1/mountinfo", mountinfo+"50 24 0:70 / /mnt/new rw - nfs4 filer:/n rw\n")
	hosttest.WriteFile(t, dir, bdi("0:70"), "128\n")
	hosttest.WriteFile(t, dir, bdi("0:52"), "64\n")
	s.FollowMounts(t.Context(), hosttest.Settings("nfs4", "15360"))
	check.Equal(t, "window of the new mount", "15360\n", hosttest.ReadFile(t, dir, bdi("0:70")))
	if got := hosttest.ReadFile(t, dir, bdi("0:52")); got != "64\n" {
		t.Errorf("drift was reset: got %q", got)
	}
}

func unmount(t *testing.T, dir, id string) {
	t.Helper()
	check.NoError(t, os.RemoveAll(filepath.Dir(filepath.Join(dir, bdi(id)))))
}

func TestAMountThatComesAgainWithTheSameNumberIsFollowed(t *testing.T) {
	dir, fs := machine(t)
	s := subject(fs)
	apply(t, s, "nfs4", "15360")
	unmount(t, dir, "0:53")
	s.FollowMounts(t.Context(), hosttest.Settings("nfs4", "15360"))
	hosttest.WriteFile(t, dir, bdi("0:53"), "128\n")
	s.FollowMounts(t.Context(), hosttest.Settings("nfs4", "15360"))
	expect(t, s, "nfs4", "15360", host.InSync)
}

// replaceFile gives a file another inode, as a new mount with the same number does.
func replaceFile(t *testing.T, dir, name, data string) {
	t.Helper()
	hosttest.WriteFile(t, dir, name+".new", data)
	check.NoError(t, os.Rename(filepath.Join(dir, name+".new"), filepath.Join(dir, name)))
}

// The kernel gives a new mount the lowest free number: the number of a mount that was unmounted since the last call.
func TestAMountThatReusesANumberAtOnceIsFollowed(t *testing.T) {
	for fsType, file := range map[string]string{"nfs4": bdi("0:53"), "xfs": "/sys/devices/sdb/queue/read_ahead_kb"} {
		dir, fs := machine(t)
		s := subject(fs)
		apply(t, s, fsType, "15360")
		for _, value := range []string{"128\n", "64\n"} {
			replaceFile(t, dir, file, value)
			s.FollowMounts(t.Context(), hosttest.Settings(fsType, "15360"))
			expect(t, s, fsType, "15360", host.InSync)
		}
		hosttest.WriteFile(t, dir, file, "128\n")
		s.FollowMounts(t.Context(), hosttest.Settings(fsType, "15360"))
		expect(t, s, fsType, "15360", host.Drifted)
	}
}

func TestRestoredMountsAreFollowedAgain(t *testing.T) {
	_, fs := machine(t)
	s := subject(fs)
	apply(t, s, "nfs4", "15360")
	apply(t, s)
	s.Restore(t.Context(), map[string]host.Original{"nfs4": {Present: true, Value: "128"}})
	s.FollowMounts(t.Context(), hosttest.Settings("nfs4", "15360"))
	expect(t, s, "nfs4", "15360", host.Drifted, NFSConf)
}

func TestMountThatDisappearsIsNoFailure(t *testing.T) {
	t.Run("before it is written", func(t *testing.T) {
		dir, fs := machine(t)
		s := subject(fs.WithHook(func(op host.Op, name string) error {
			if op != host.OpWriteValue || name != bdi("0:52") {
				return nil
			}
			unmount(t, dir, "0:52")
			return errors.New("no such device")
		}))
		apply(t, s, "nfs4", "15360")
		expect(t, s, "nfs4", "15360", host.InSync)
	})
	t.Run("before it is read", func(t *testing.T) {
		dir, fs := machine(t)
		s := subject(fs)
		apply(t, s, "nfs4", "15360")
		s.kernel = reading{fs, func(name string) {
			if name == bdi("0:52") {
				unmount(t, dir, "0:52")
			}
		}}
		expect(t, s, "nfs4", "15360", host.InSync)
	})
}

// reading calls a function before each read.
type reading struct {
	host.FS

	before func(name string)
}

func (r reading) ReadValue(name string) (string, error) {
	r.before(name)
	return r.FS.ReadValue(name)
}

func TestDifferentContentOfTheAgentsFileIsDrift(t *testing.T) {
	const rule = `ACTION=="%s", SUBSYSTEM=="bdi", KERNEL=="cifs-[0-9]*", ATTR{read_ahead_kb}="%s"` + "\n"
	for name, test := range map[string]struct{ fsType, file, data string }{
		"nothing for NFS":          {"nfs4", NFSConf, ""},
		"nothing for SMB":          {"cifs", UdevRule, ""},
		"another value for NFS":    {"nfs4", NFSConf, "[nfsrahead]\nnfs4=128\n"},
		"another value for SMB":    {"cifs", UdevRule, fmt.Sprintf(rule, "add", "128")},
		"a rule for another event": {"cifs", UdevRule, fmt.Sprintf(rule, "remove", "8192")},
	} {
		t.Run(name, func(t *testing.T) {
			dir, fs := machine(t)
			s := subject(fs)
			pairs := map[string]string{"nfs4": "15360", "cifs": "8192"}
			apply(t, s, "nfs4", pairs["nfs4"], "cifs", pairs["cifs"])
			hosttest.WriteFile(t, dir, test.file, host.OwnHeader+test.data)
			expect(t, s, test.fsType, pairs[test.fsType], host.Drifted, test.file)
			apply(t, s, "nfs4", pairs["nfs4"], "cifs", pairs["cifs"])
			expect(t, s, test.fsType, pairs[test.fsType], host.InSync)
		})
	}
}

func TestAFileThatCannotBeWrittenIsFailed(t *testing.T) {
	dir, fs := machine(t)
	s := subject(fs.WithHook(func(op host.Op, _ string) error {
		if op == host.OpCreate {
			return errors.New("no space left on device")
		}
		return nil
	}))
	if err := s.Apply(t.Context(), hosttest.Settings("nfs4", "15360")); err == nil {
		t.Error("Apply: got no error")
	}
	for _, id := range []string{"0:52", "0:53"} {
		if got := hosttest.ReadFile(t, dir, bdi(id)); got != "128\n" {
			t.Errorf("%s: got %q before the agent's file contains it", id, got)
		}
		hosttest.WriteFile(t, dir, bdi(id), "15360\n")
	}
	expect(t, s, "nfs4", "15360", host.Failed, NFSConf, "no space left")
}

func TestTheKernelRoundsDownToPages(t *testing.T) {
	dir, fs := machine(t)
	s := subject(fs)
	s.kernel = rounding{fs}
	apply(t, s, "nfs4", "15361")
	if got := hosttest.ReadFile(t, dir, bdi("0:52")); got != "15360\n" {
		t.Fatalf("got window %q", got)
	}
	expect(t, s, "nfs4", "15361", host.InSync, "whole pages")
}

type rounding struct{ host.FS }

func (r rounding) WriteValue(name, value string) error {
	return r.FS.WriteValue(name, grantedSize(value))
}

func TestWindowThatTheKernelChangesIsFailed(t *testing.T) {
	_, fs := machine(t)
	s := subject(fs)
	s.kernel = stubborn{fs}
	apply(t, s, "nfs4", "15360")
	expect(t, s, "nfs4", "15360", host.Failed, `set "64" instead of "15360"`)
}

type stubborn struct{ host.FS }

func (s stubborn) WriteValue(name, _ string) error { return s.FS.WriteValue(name, "64") }

func TestAWindowThatCannotBeWrittenIsFailed(t *testing.T) {
	_, fs := machine(t)
	s := subject(fs.WithHook(func(op host.Op, _ string) error {
		if op == host.OpWriteValue {
			return errors.New("read-only file system")
		}
		return nil
	}))
	apply(t, s, "nfs4", "15360")
	expect(t, s, "nfs4", "15360", host.Failed, "read-only file system")
}

func TestInvalidTypeOrSizeIsRejected(t *testing.T) {
	for _, setting := range []host.Setting{{Name: "../x", Value: "4"}, {Name: "nfs", Value: `4", RUN+="x`}} {
		dir, fs := machine(t)
		before := tree(t, dir)
		s := subject(fs)
		apply(t, s, setting.Name, setting.Value)
		expect(t, s, setting.Name, setting.Value, host.Failed)
		s.FollowMounts(t.Context(), []host.Setting{setting})
		check.Equal(t, "changed", before, tree(t, dir))
	}
}

func TestRestoreEqualsBefore(t *testing.T) {
	dir, fs := machine(t)
	hosttest.WriteFile(t, dir, "/proc/1/mountinfo", mountinfo+"50 24 0:71 / /mnt/own rw - nfs4 filer:/o rw\n")
	hosttest.WriteFile(t, dir, bdi("0:71"), "2048\n")
	before := tree(t, dir)
	s := subject(fs)
	originals := map[string]host.Original{}
	for _, name := range []string{"nfs4", "nfs", "cifs", "xfs"} {
		original, err := s.Original(t.Context(), name)
		check.NoError(t, err)
		originals[name] = original
	}
	check.Equal(t, "original", "128 0:71=2048", originals["nfs4"].Value)
	apply(t, s, "nfs4", "15360", "nfs", "15360", "cifs", "64", "xfs", "64")
	s = subject(fs)
	apply(t, s)
	for _, o := range s.Restore(t.Context(), originals) {
		if o.State != host.InSync {
			t.Errorf("got %+v", o)
		}
	}
	check.Equal(t, "host", before, tree(t, dir))
}

func TestEachDiskReturnsToItsOriginalWindow(t *testing.T) {
	dir, fs := machine(t)
	hosttest.WriteFile(t, dir, "/proc/1/mountinfo", mountinfo+
		"50 24 9:1 / /mnt/raid1 rw - xfs /dev/md1 rw\n51 24 8:33 / /mnt/part2 rw - xfs /dev/sdc1 rw\n")
	hosttest.WriteFile(t, dir, bdi("9:1"), "256\n")
	hosttest.WriteFile(t, dir, "/sys/devices/sdc/queue/read_ahead_kb", "512\n")
	hosttest.WriteFile(t, dir, "/sys/devices/sdc/sdc1/partition", "1\n")
	check.NoError(t, os.Symlink("../../devices/sdc/sdc1", filepath.Join(dir, "/sys/dev/block/8:33")))
	before := tree(t, dir)
	s := subject(fs)
	original, err := s.Original(t.Context(), "xfs")
	if err != nil || original.Value != "256 sdb=128 sdc=512" {
		t.Errorf("got original %q, error %v", original.Value, err)
	}
	apply(t, s, "xfs", "64")
	apply(t, s)
	s.Restore(t.Context(), map[string]host.Original{"xfs": original})
	check.Equal(t, "host", before, tree(t, dir))
}

func TestMountsWithAnUnknownOriginal(t *testing.T) {
	dir, fs := machine(t)
	s := subject(fs)
	apply(t, s, "nfs", "15360", "cifs", "8192")
	apply(t, s)
	back := s.Restore(t.Context(), map[string]host.Original{"nfs": {}, "cifs": {}})
	if back[0].Name != "cifs" || back[0].State != host.Pending || back[0].Effect != host.NextMount {
		t.Errorf("SMB: %+v", back[0])
	}
	if back[1].State != host.InSync || hosttest.ReadFile(t, dir, bdi("0:54")) != "128\n" {
		t.Errorf("NFS: got %+v, want the default window of the kernel", back[1])
	}
	hosttest.WriteFile(t, dir, bdi("cifs-7"), "4096\n")
	if back = s.Restore(t.Context(), map[string]host.Original{"cifs": {}}); back[0].State != host.InSync {
		t.Errorf("after a new mount: got %+v", back[0])
	}
}

func TestApplyConvergesAfterACrashAtEveryChange(t *testing.T) {
	for n := 1; ; n++ {
		dir, fs := machine(t)
		count := 0
		crashed := subject(fs.WithHook(func(host.Op, string) error {
			if count++; count >= n {
				return errCrash
			}
			return nil
		}))
		_ = crashed.Apply(t.Context(), hosttest.Settings("nfs4", "15360", "cifs", "8192"))
		s := subject(fs)
		apply(t, s, "nfs4", "15360", "cifs", "8192")
		expect(t, s, "nfs4", "15360", host.InSync)
		expect(t, s, "cifs", "8192", host.InSync)
		if got := hosttest.ReadTree(t, dir, "/etc/udev", "/etc/nfs.conf.d"); len(got) != 2 {
			t.Errorf("after a crash at change %d: got %v", n, got)
		}
		if count < n {
			if n < 12 {
				t.Errorf("got only %d changes", n-1)
			}
			return
		}
	}
}

func TestAReadOnlyEtcLeavesLaterMountsToTheAgent(t *testing.T) {
	dir, fs := machine(t)
	hosttest.WriteFile(t, dir, "/proc/1/mountinfo", strings.Replace(mountinfo, "/ / rw,relatime", "/ / ro,relatime", 1))
	s := subject(fs.WithHook(func(_ host.Op, name string) error {
		if strings.HasPrefix(name, "/etc/") {
			return syscall.EROFS
		}
		return nil
	}))
	apply(t, s, "nfs4", "15360", "cifs", "8192")
	expect(t, s, "nfs4", "15360", host.InSync)
	expect(t, s, "cifs", "8192", host.InSync)
	check.Equal(t, "window", "15360\n", hosttest.ReadFile(t, dir, bdi("0:52")))
}
