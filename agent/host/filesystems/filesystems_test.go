package filesystems

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/hosttest"
	"github.com/storageclient/operator/agent/host/mounts"
	"github.com/storageclient/operator/test/check"
)

const (
	disks   = "mnt/disks/*"
	wish    = "xfs:noatime,logbsize=256k"
	dropIn1 = "/etc/systemd/system/mnt-disks-d1.mount.d/storage-client.conf"
	dropIn2 = "/etc/systemd/system/mnt-disks-d2.mount.d/storage-client.conf"
	fstab1  = "/run/systemd/generator/mnt-disks-d1.mount"

	logV2 = `meta-data=/dev/sdb1              isize=512    agcount=4, agsize=65536 blks
         =                       sectsz=512   attr=2, projid32bit=1
data     =                       bsize=4096   blocks=262144, imaxpct=25
         =                       sunit=64     swidth=64 blks
naming   =version 2              bsize=4096   ascii-ci=0, ftype=1
log      =internal log           bsize=4096   blocks=16384, version=2
         =                       sectsz=512   sunit=0 blks, lazy-count=1
realtime =none                   extsz=4096   blocks=0, rtextents=0
`
)

var errCrash = errors.New("crash")

// machine simulates the used commands of a host with systemd.
type machine struct {
	t   *testing.T
	dir string
	fs  host.FS
	// mounted are the lines of the mount table by mount point: device, flags, type, source and superblock options.
	mounted map[string][5]string
	stale   bool
	xfsInfo map[string]string
	// steps are the changes of the host so far. The host crashes before change number dieAt.
	steps []string
	dieAt int
	// fail is the prefix of the changes and commands that fail.
	fail string
	ran  []string
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	m := &machine{t: t, dir: hosttest.CopyHost(t, "debian-12"), xfsInfo: map[string]string{"/mnt/disks/d1": logV2, "/mnt/disks/d2": logV2}}
	const xfs = "rw,attr2,inode64,logbufs=8,logbsize=32k,noquota"
	m.mounted = map[string][5]string{
		"/":             {"8:1", "rw,relatime", "ext4", "/dev/sda1", "rw"},
		"/mnt/disks/d1": {"8:17", "rw,nosuid,relatime", "xfs", "/dev/sdb1", xfs},
		"/mnt/disks/d2": {"8:33", "rw,relatime", "xfs", "/dev/sdc1", xfs},
		"/mnt/disks/e":  {"8:49", "rw,relatime", "ext4", "/dev/sdd1", "rw"},
		"/srv/loose":    {"8:65", "rw,relatime", "xfs", "/dev/sde1", xfs},
		"/srv/rooted":   {"8:1", "rw,relatime", "ext4", "/dev/sda1", "rw"},
	}
	m.writeTable()
	m.unit(fstab1, "/mnt/disks/d1", "/dev/sdb1", "xfs", "defaults,nosuid,relatime,x-systemd.device-timeout=5")
	m.unit("/etc/systemd/system/mnt-disks-d2.mount", "/mnt/disks/d2", "/dev/sdc1", "xfs", "")
	m.unit("/run/systemd/generator/mnt-disks-e.mount", "/mnt/disks/e", "/dev/sdd1", "ext4", "")
	m.unit("/run/systemd/generator/srv-rooted.mount", "/srv/rooted", "/dev/sda1", "ext4", "")
	fs, err := host.OpenFS(m.dir)
	check.NoError(t, err)
	t.Cleanup(func() { _ = fs.Close() })
	m.fs = fs.WithHook(func(op host.Op, name string) error {
		m.stale = m.stale || strings.HasSuffix(name, dropInName)
		return m.step(string(op) + " " + name)
	})
	return m
}

func (m *machine) unit(file, mountPoint, source, fsType, options string) {
	data := "[Unit]\nSourcePath=/etc/fstab\n[Mount]\nWhat=" + source + "\nWhere=" + mountPoint + "\nType=" + fsType + "\n"
	if options != "" {
		data += "Options=" + options + "\n"
	}
	hosttest.WriteFile(m.t, m.dir, file, data)
}

func (m *machine) writeTable() {
	var b strings.Builder
	i := 30
	for _, point := range []string{"/", "/mnt/disks/d1", "/mnt/disks/d2", "/mnt/disks/e", "/srv/loose", "/srv/rooted"} {
		if l, ok := m.mounted[point]; ok {
			i++
			fmt.Fprintf(&b, "%d 1 %s / %s %s shared:1 - %s %s %s\n", i, l[0], point, l[1], l[2], l[3], l[4])
		}
	}
	hosttest.WriteFile(m.t, m.dir, "/proc/1/mountinfo", b.String())
}

// addMount adds a mount to the mount table.
func (m *machine) addMount(device, root, point, fsType, source string) {
	const file = "/proc/1/mountinfo"
	hosttest.WriteFile(m.t, m.dir, file, hosttest.ReadFile(m.t, m.dir, file)+
		fmt.Sprintf("90 1 %s %s %s rw,relatime shared:1 - %s %s rw\n", device, root, point, fsType, source))
}

func (m *machine) step(change string) error {
	m.steps = append(m.steps, change)
	if m.dieAt > 0 && len(m.steps) >= m.dieAt || m.fail != "" && strings.HasPrefix(change, m.fail) {
		return errCrash
	}
	return nil
}

func (m *machine) Run(_ context.Context, argv ...string) ([]byte, error) {
	command := strings.Join(argv, " ")
	switch {
	case m.fail != "" && strings.HasPrefix(command, m.fail):
		return nil, errCrash
	case argv[0] == "xfs_info":
		if info, ok := m.xfsInfo[argv[1]]; ok {
			return []byte(info), nil
		}
		return nil, fmt.Errorf("run xfs_info: %w", exec.ErrNotFound)
	case strings.HasPrefix(command, "systemctl show --property=NeedDaemonReload "):
		return []byte(map[bool]string{true: "NeedDaemonReload=yes\n", false: "NeedDaemonReload=no\n"}[m.stale]), nil
	}
	if err := m.step(command); err != nil {
		return nil, err
	}
	m.ran = append(m.ran, command)
	options, isRemount := strings.CutPrefix(command, "systemd-run --quiet --wait --collect mount -o remount,bind,")
	switch {
	case command == "systemctl daemon-reload":
		m.stale = false
	case isRemount:
		words := strings.Fields(options)
		line := m.mounted[words[2]]
		if line[3] != words[1] {
			return nil, errors.New("wrong device")
		}
		visible := slices.DeleteFunc(strings.Split(words[0], ","), func(f string) bool { return f == "strictatime" || f == "diratime" })
		line[1] = strings.Join(visible, ",")
		m.mounted[words[2]] = line
		m.writeTable()
	default:
		return nil, fmt.Errorf("%s: not simulated", command)
	}
	return nil, nil
}

// kinds maps an option to its kind. The last option of a kind wins.
var kinds = map[string]string{
	"noatime": "atime", "relatime": "atime", "strictatime": "atime", "nodiratime": "diratime", "diratime": "diratime", "noquota": "quota",
}

func kindOf(option string) string {
	name, _, _ := strings.Cut(option, "=")
	if kind, ok := kinds[name]; ok {
		return kind
	}
	return name
}

func merge(original, desired []string) []string {
	merged := slices.Clone(original)
	for _, option := range desired {
		i := slices.IndexFunc(merged, func(o string) bool { return kindOf(o) == kindOf(option) })
		if i < 0 {
			merged = append(merged, option)
		} else {
			merged[i] = option
		}
	}
	return merged
}

// weakened supports only ro and quotas. The last option of a pair wins.
func weakened(current, desired []string) (option, lost string) {
	for _, pair := range [][2]string{{"noquota", "prjquota"}, {"noquota", "pqnoenforce"}, {"rw", "ro"}} {
		if lastOf(current, pair[:]) == pair[1] && slices.Contains(desired, pair[0]) {
			return pair[0], pair[1]
		}
	}
	return "", ""
}

func differences(desired, observed []string) []string {
	var differing []string
	for _, option := range desired {
		visible := lastOfKind(observed, kindOf(option))
		hidden := visible == "" && (option == "strictatime" || option == "diratime")
		if visible != option && !hidden {
			differing = append(differing, kindOf(option))
		}
	}
	return differing
}

// declined describes a desired discard that a mount does not show.
func declined(desired, observed []string) []string {
	if slices.Contains(desired, "discard") && !slices.Contains(observed, "discard") {
		return []string{"the device has no discard"}
	}
	return nil
}

func lastOfKind(options []string, kind string) string {
	last := ""
	for _, o := range options {
		if kindOf(o) == kind {
			last = o
		}
	}
	return last
}

func (m *machine) subject() *Subject {
	return New(m.fs, m, mounts.NewReader(m.fs, mounts.DefaultKubeletDir).Entries, Options{
		Merge: merge, Differences: differences, Declined: declined, Weakened: weakened,
	})
}

func settings(pairs ...string) []host.Setting {
	var list []host.Setting
	for i := 0; i < len(pairs); i += 2 {
		list = append(list, host.Setting{Name: pairs[i], Value: pairs[i+1]})
	}
	return list
}

func (m *machine) apply(s *Subject, pairs ...string) {
	m.t.Helper()
	if err := s.Apply(m.t.Context(), settings(pairs...)); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) expect(s *Subject, name, value string, state host.State, parts ...string) host.Observation {
	m.t.Helper()
	got := s.Observe(m.t.Context(), settings(name, value))[0]
	if got.State != state {
		m.t.Errorf("%s: got %s (%s), want %s", name, got.State, got.Message, state)
	}
	for _, part := range parts {
		if !strings.Contains(got.Message, part) {
			m.t.Errorf("message: got %q, want it to contain %q", got.Message, part)
		}
	}
	return got
}

// remount mounts a file system again with other options.
func (m *machine) remount(point, flags, super string) {
	line := m.mounted[point]
	line[1], line[4] = flags, super
	m.mounted[point] = line
	m.writeTable()
}

func TestOptionsAreStagedAndAccessTimesChangeAtOnce(t *testing.T) {
	m := newMachine(t)
	s := m.subject()
	m.expect(s, disks, wish, host.Drifted, "/mnt/disks/d1: not staged")
	m.apply(s, disks, wish)

	want := map[string]string{
		dropIn1:                                  host.OwnHeader + "[Mount]\nOptions=defaults,nosuid,noatime,x-systemd.device-timeout=5,logbsize=256k\n",
		dropIn2:                                  host.OwnHeader + "[Mount]\nOptions=noatime,logbsize=256k\n",
		"/etc/systemd/system/mnt-disks-d2.mount": hosttest.ReadFile(t, m.dir, "/etc/systemd/system/mnt-disks-d2.mount"),
	}
	check.Equal(t, "drop-ins", want, hosttest.ReadTree(t, m.dir, "/etc/systemd"))
	wantRan := []string{
		"systemctl daemon-reload",
		"systemd-run --quiet --wait --collect mount -o remount,bind,rw,nosuid,noatime,diratime /dev/sdb1 /mnt/disks/d1",
		"systemd-run --quiet --wait --collect mount -o remount,bind,rw,noatime,diratime /dev/sdc1 /mnt/disks/d2",
	}
	check.Equal(t, "commands", wantRan, m.ran)
	got := m.expect(s, disks, wish, host.Pending, "logbsize staged: takes effect when systemd mounts it again", "8 x 256k = 2048 KiB")
	if got.Effect != host.NextMount || !strings.HasPrefix(got.Observed, "/mnt/disks/d1 rw,attr2") {
		t.Errorf("observed: got %+v", got)
	}
	m.steps = nil
	m.apply(m.subject(), disks, wish)
	if len(m.steps) > 0 {
		t.Errorf("a second Apply made changes: %v", m.steps)
	}
	m.remount("/mnt/disks/d1", "rw,nosuid,noatime", "rw,attr2,inode64,logbufs=8,logbsize=256k,noquota")
	m.expect(s, disks, wish, host.Pending, "/mnt/disks/d2: logbsize")
	m.remount("/mnt/disks/d2", "rw,noatime", "rw,attr2,inode64,logbufs=8,logbsize=256k,noquota")
	m.expect(s, disks, wish, host.InSync, "2048 KiB")
}

// A mount without a desired discard may be older, or its device has none. A mount of the same file system at the next boot shows which.
func TestAnOptionThatTheDeviceMayDeclineDoesNotStayPending(t *testing.T) {
	const both = "xfs:discard,logbsize=256k"
	m := newMachine(t)
	s := m.subject()
	m.apply(s, "mnt/disks/d1", both)
	m.expect(s, "mnt/disks/d1", both, host.Pending, "discard, logbsize staged")
	m.remount("/mnt/disks/d1", "rw,nosuid,relatime", "rw,attr2,inode64,logbufs=8,logbsize=256k,noquota")
	m.expect(s, "mnt/disks/d1", both, host.Unsupported, "staged; the device has no discard")
	m.remount("/mnt/disks/d1", "rw,nosuid,relatime", "rw,attr2,discard,inode64,logbufs=8,logbsize=256k,noquota")
	m.expect(s, "mnt/disks/d1", both, host.InSync)
	m.apply(s)
	original := host.Original{Present: true, Value: "/mnt/disks/d1 rw,nosuid,relatime,attr2,inode64,logbufs=8,logbsize=256k,noquota"}
	got := s.Restore(t.Context(), map[string]host.Original{"mnt/disks/d1": original})[0]
	if got.State != host.Pending || !strings.Contains(got.Message, "still effective until the next mount: /mnt/disks/d1: discard") {
		t.Errorf("restore: got %s (%s), want Pending for discard", got.State, got.Message)
	}
}

func TestAccessTimesAloneAreLive(t *testing.T) {
	m := newMachine(t)
	s := m.subject()
	m.apply(s, "mnt/disks/e", ":noatime,nodiratime")
	if got := m.expect(s, "mnt/disks/e", ":noatime,nodiratime", host.InSync); got.Effect != host.Live {
		t.Errorf("got effect %s", got.Effect)
	}
	if got := m.mounted["/mnt/disks/e"][1]; got != "rw,noatime,nodiratime" {
		t.Errorf("got flags %s", got)
	}
	m.remount("/mnt/disks/e", "rw,relatime", "rw")
	m.expect(s, "mnt/disks/e", ":noatime,nodiratime", host.Drifted, "access time options")
}

func TestUnsupportedOptions(t *testing.T) {
	tests := map[string]struct {
		name, value string
		change      func(*machine)
		state       host.State
		message     string
	}{
		"no match":             {"mnt/none", wish, nil, host.Unsupported, "no match among"},
		"no match of the type": {"mnt/disks/e", wish, nil, host.Unsupported, "no match among"},
		"mounted by hand":      {"srv/loose", "xfs:noatime", nil, host.Unsupported, "neither fstab nor a systemd mount unit"},
		"a part of the root":   {"srv/rooted", ":noatime", nil, host.Unsupported, "rootflags=noatime"},
		"a log of version 1": {"mnt/disks/d1", wish, func(m *machine) {
			m.xfsInfo["/mnt/disks/d1"] = strings.ReplaceAll(logV2, "version=2\n ", "version=1\n ")
		}, host.Unsupported, "unmount it and run xfs_admin -j /dev/sdb1"},
		"a log of version 1, small buffers": {"mnt/disks/d1", "xfs:logbsize=16k", func(m *machine) {
			m.xfsInfo["/mnt/disks/d1"] = strings.ReplaceAll(logV2, "version=2\n ", "version=1\n ")
		}, host.Drifted, "not staged"},
		"a buffer under the log's stripe unit": {"mnt/disks/d1", "xfs:logbsize=64k", func(m *machine) {
			m.xfsInfo["/mnt/disks/d1"] = strings.ReplaceAll(logV2, "sunit=0 blks", "sunit=32 blks")
		}, host.Unsupported, "stripe unit of its log is 128k"},
		"the log cannot be read":             {"mnt/disks/d1", wish, func(m *machine) { delete(m.xfsInfo, "/mnt/disks/d1") }, host.Unsupported, "install xfsprogs"},
		"the log need not be read":           {"mnt/disks/d1", "xfs:noatime", func(m *machine) { delete(m.xfsInfo, "/mnt/disks/d1") }, host.Drifted, "not staged"},
		"a log of a file system not mounted": {"mnt/disks/d1", wish, func(m *machine) { delete(m.mounted, "/mnt/disks/d1"); m.writeTable() }, host.Unsupported, "not mounted"},
		"no quotas":                          {"mnt/disks/d1", "xfs:noquota", nil, host.Drifted, "not staged"},
		"a log of version 1, its largest buffers": {"mnt/disks/d1", "xfs:logbsize=32k", func(m *machine) {
			m.xfsInfo["/mnt/disks/d1"] = strings.ReplaceAll(logV2, "version=2\n ", "version=1\n ")
			m.remount("/mnt/disks/d1", "rw", "rw,logbsize=16k")
		}, host.Drifted, "not staged"},
		"a buffer as large as the log's stripe unit": {"mnt/disks/d1", "xfs:logbsize=128k", func(m *machine) {
			m.xfsInfo["/mnt/disks/d1"] = strings.ReplaceAll(logV2, "sunit=0 blks", "sunit=32 blks")
		}, host.Drifted, "not staged"},
		"a buffer that is already effective": {"mnt/disks/d1", "xfs:logbsize=32k", func(m *machine) { delete(m.xfsInfo, "/mnt/disks/d1") }, host.Drifted, "not staged"},
		"a log that is not described":        {"mnt/disks/d1", wish, func(m *machine) { m.xfsInfo["/mnt/disks/d1"] = "data     =\n" }, host.Unsupported, "does not show the version"},
		"the root, by a glob":                {"*", ":noatime", nil, host.Unsupported, "no match among"},
		"a bind mount of a part": {"mnt/part", ":noatime", func(m *machine) {
			m.unit("/run/systemd/generator/mnt-part.mount", "/mnt/part", "/mnt/disks/e/sub", "none", "bind")
			m.addMount("8:49", "/sub", "/mnt/part", "ext4", "/dev/sdd1")
		}, host.Unsupported, "no match among"},
		"a kernel file system without a requested type": {"mnt/shm", ":noatime", func(m *machine) {
			m.unit("/run/systemd/generator/mnt-shm.mount", "/mnt/shm", "tmpfs", "tmpfs", "")
			m.addMount("0:25", "/", "/mnt/shm", "tmpfs", "tmpfs")
		}, host.Unsupported, "no match among"},
		"one that is not mounted": {"mnt/shm", ":noatime", func(m *machine) {
			m.unit("/run/systemd/generator/mnt-shm.mount", "/mnt/shm", "tmpfs", "tmpfs", "")
		}, host.Unsupported, "no match among"},
		"effective quotas": {"mnt/disks/d1", "xfs:noquota", func(m *machine) { m.remount("/mnt/disks/d1", "rw", "rw,prjquota") },
			host.Unsupported, "noquota would weaken its mount, which has prjquota: remove noquota from mountOptions in spec.node.filesystems"},
		"quotas in the unit": {"mnt/disks/d1", "xfs:noatime,noquota", func(m *machine) { m.unit(fstab1, "/mnt/disks/d1", "/dev/sdb1", "xfs", "defaults,pqnoenforce") },
			host.Unsupported, "noquota would weaken its mount, which has pqnoenforce: remove noquota from mountOptions in spec.node.filesystems"},
		"read-only in the unit": {"mnt/disks/d2", "xfs:rw", func(m *machine) {
			m.unit("/etc/systemd/system/mnt-disks-d2.mount", "/mnt/disks/d2", "/dev/sdc1", "xfs", "ro")
		}, host.Unsupported, "rw would weaken its mount, which has ro: remove rw from mountOptions in spec.node.filesystems"},
		"effective quotas that the unit turns off": {"mnt/disks/d2", "xfs:noquota", func(m *machine) {
			m.unit("/etc/systemd/system/mnt-disks-d2.mount", "/mnt/disks/d2", "/dev/sdc1", "xfs", "noquota")
			m.remount("/mnt/disks/d2", "rw", "rw,prjquota")
		}, host.Unsupported, "which has prjquota"},
		"read-only after an error of the disk": {"mnt/disks/d2", "xfs:rw", func(m *machine) { m.remount("/mnt/disks/d2", "ro", "ro") }, host.Drifted, "not staged"},
		"one of two":                           {disks, wish, func(m *machine) { delete(m.xfsInfo, "/mnt/disks/d1") }, host.Drifted, "/mnt/disks/d1: the version of its log is unknown"},
		"a unit that is masked":                {"mnt/disks/d2", "xfs:noatime", func(m *machine) { m.mask("mnt-disks-d2.mount") }, host.Unsupported, "neither fstab"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			if test.change != nil {
				test.change(m)
			}
			s := m.subject()
			m.expect(s, test.name, test.value, test.state, test.message)
			before := hosttest.ReadTree(t, m.dir, "/etc/systemd")
			m.apply(s, test.name, test.value)
			if diff := cmp.Diff(before, hosttest.ReadTree(t, m.dir, "/etc/systemd")); test.state == host.Unsupported && diff != "" {
				t.Errorf("staged:\n%s", diff)
			}
		})
	}
}

func TestDropInThatWeakensAMountIsRemoved(t *testing.T) {
	m := newMachine(t)
	const unit = "/etc/systemd/system/mnt-disks-d2.mount"
	m.unit(unit, "/mnt/disks/d2", "/dev/sdc1", "xfs", "ro,prjquota")
	hosttest.WriteFile(t, m.dir, dropIn2, renderDropIn([]string{"rw", "prjquota"}))
	m.remount("/mnt/disks/d2", "rw,relatime", "rw,noquota")
	s := m.subject()
	m.apply(s, "mnt/disks/d2", "xfs:rw")
	m.expect(s, "mnt/disks/d2", "xfs:rw", host.Unsupported, "which has ro")
	want := map[string]string{unit: hosttest.ReadFile(t, m.dir, unit)}
	check.Equal(t, "files", want, hosttest.ReadTree(t, m.dir, "/etc/systemd"))
	m.expect(s, "mnt/disks/d2", "xfs:noquota", host.Unsupported, "which has prjquota")
}

func (m *machine) mask(name string) {
	file := filepath.Join(m.dir, "/etc/systemd/system", name)
	if err := os.RemoveAll(file); err != nil {
		m.t.Fatal(err)
	}
	if err := os.Symlink("/dev/null", file); err != nil {
		m.t.Fatal(err)
	}
}

func TestUnsupportedMountAfterApplyIsAnException(t *testing.T) {
	m := newMachine(t)
	delete(m.xfsInfo, "/mnt/disks/d1")
	s := m.subject()
	m.apply(s, disks, wish)
	m.expect(s, disks, wish, host.Pending, "/mnt/disks/d1: the version of its log is unknown")
	m.remount("/mnt/disks/d2", "rw,noatime", "rw,logbsize=256k")
	m.expect(s, disks, wish, host.Unsupported, "/mnt/disks/d1: the version of its log is unknown")
}

func TestLaterSettingByNameWins(t *testing.T) {
	m := newMachine(t)
	s := m.subject()
	m.apply(s, disks, ":noatime,nodiratime", "mnt/disks/e", ":relatime")
	const dropIn = "/etc/systemd/system/mnt-disks-e.mount.d/storage-client.conf"
	check.Equal(t, "drop-in", renderDropIn([]string{"relatime", "nodiratime"}), hosttest.ReadFile(t, m.dir, dropIn))
}

func TestUndeclaredOptionIsRemovedFromTheDropIn(t *testing.T) {
	m := newMachine(t)
	s := m.subject()
	m.apply(s, "mnt/disks/e", ":noatime,nodiratime")
	m.apply(s, "mnt/disks/e", ":noatime")
	check.Equal(t, "drop-in", renderDropIn([]string{"noatime"}), hosttest.ReadFile(t, m.dir, "/etc/systemd/system/mnt-disks-e.mount.d/storage-client.conf"))
}

func TestChangedDropInIsDrift(t *testing.T) {
	m := newMachine(t)
	s := m.subject()
	m.apply(s, "mnt/disks/e", ":noatime")
	hosttest.WriteFile(t, m.dir, "/etc/systemd/system/mnt-disks-e.mount.d/storage-client.conf", renderDropIn([]string{"noexec"}))
	m.expect(s, "mnt/disks/e", ":noatime", host.Drifted, "not staged")
}

func TestUndeclaredAccessTimesStayUnchanged(t *testing.T) {
	m := newMachine(t)
	m.remount("/mnt/disks/e", "rw,nodiratime,relatime", "rw")
	m.apply(m.subject(), "mnt/disks/e", ":noatime")
	check.Equal(t, "flags", "rw,noatime,nodiratime", m.mounted["/mnt/disks/e"][1])
}

func TestSystemdReadsItsUnitsAgainWhenADropInIsGone(t *testing.T) {
	m := newMachine(t)
	s := m.subject()
	m.apply(s, disks, wish)
	m.apply(s)
	if m.stale {
		t.Error("systemd still has the options of the agent's drop-in")
	}
}

func TestAChangeThatFailsIsAnError(t *testing.T) {
	for _, failing := range []string{"create ", "systemctl show", "systemctl daemon-reload"} {
		m := newMachine(t)
		m.fail = failing
		if err := m.subject().Apply(t.Context(), settings(disks, wish)); err == nil {
			t.Errorf("Apply: got no error though %q failed", failing)
		}
	}
	m := newMachine(t)
	s := m.subject()
	m.apply(s, disks, wish)
	m.fail = "remove "
	if err := s.Apply(t.Context(), nil); err == nil {
		t.Error("Apply: got no error though the agent's drop-ins still exist")
	}
}

func TestOriginalsCanBeRestored(t *testing.T) {
	m := newMachine(t)
	m.addMount("8:81", "/", `/mnt/disks/with\040blank`, "xfs", "/dev/sdf1")
	for name, want := range map[string]string{
		"srv/rooted": "", "mnt/disks/w*": "", "mnt/disks/e": "/mnt/disks/e rw,rw,relatime",
	} {
		original, err := m.subject().Original(t.Context(), name)
		check.NoError(t, err)
		if original != (host.Original{Present: want != "", Value: want}) {
			t.Errorf("%s: %+v, want %q", name, original, want)
		}
	}
}

func TestAFileSystemThatIsNotMountedIsStaged(t *testing.T) {
	m := newMachine(t)
	delete(m.mounted, "/mnt/disks/d1")
	m.writeTable()
	s := m.subject()
	m.apply(s, "mnt/disks/d1", "xfs:noatime")
	m.expect(s, "mnt/disks/d1", "xfs:noatime", host.Pending, "not mounted")
	if !strings.Contains(hosttest.ReadFile(t, m.dir, dropIn1), "nosuid,noatime") {
		t.Errorf("drop-in %q", hosttest.ReadFile(t, m.dir, dropIn1))
	}
}

func TestOtherDropIns(t *testing.T) {
	m := newMachine(t)
	const dir = "/etc/systemd/system/mnt-disks-d1.mount.d/"
	hosttest.WriteFile(t, m.dir, dir+"10-own.conf", "[Mount]\nOptions=nodev\n")
	hosttest.WriteFile(t, m.dir, dir+"zz.conf", "[Unit]\nDescription=x\nOptions=none\n")
	s := m.subject()
	m.apply(s, "mnt/disks/d1", "xfs:noatime")
	if got := hosttest.ReadFile(t, m.dir, dropIn1); !strings.Contains(got, "Options=nodev,noatime\n") {
		t.Errorf("drop-in %q", got)
	}
	m.expect(s, "mnt/disks/d1", "xfs:noatime", host.InSync)
	hosttest.WriteFile(t, m.dir, dir+"zz.conf", "[Mount]\nOptions=relatime\n")
	m.apply(s, "mnt/disks/d1", "xfs:noatime")
	m.expect(s, "mnt/disks/d1", "xfs:noatime", host.Shadowed, dir+"zz.conf")
	// systemd mounts it again with the options in that file. Access times can be set live in any case.
	mount := m.mounted["/mnt/disks/d1"]
	mount[1] = "rw,nosuid,relatime"
	m.mounted["/mnt/disks/d1"] = mount
	m.writeTable()
	m.expect(s, "mnt/disks/d1", "xfs:noatime", host.Drifted, "access time options")
	m.apply(s, "mnt/disks/d1", "xfs:noatime")
	m.expect(s, "mnt/disks/d1", "xfs:noatime", host.Shadowed, dir+"zz.conf")
	delete(m.mounted, "/mnt/disks/d1")
	m.writeTable()
	m.expect(s, "mnt/disks/d1", "xfs:noatime", host.Shadowed, dir+"zz.conf")
}

func TestInvalidSettingsAreRejected(t *testing.T) {
	for name, setting := range map[string]host.Setting{
		"a path that leaves":     {Name: "../etc", Value: "xfs:noatime"},
		"a line end":             {Name: disks, Value: "xfs:noatime\nExecStart=x"},
		"a specifier":            {Name: disks, Value: "xfs:noatime,%H"},
		"a blank":                {Name: disks, Value: "xfs:noatime x"},
		"a value without a type": {Name: disks, Value: "noatime"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			s := m.subject()
			m.apply(s, setting.Name, setting.Value)
			m.expect(s, setting.Name, setting.Value, host.Failed)
			if len(m.steps) > 0 {
				t.Errorf("changes: got %v", m.steps)
			}
		})
	}
}

func TestFailedRemountIsReported(t *testing.T) {
	m := newMachine(t)
	s := m.subject()
	line := m.mounted["/mnt/disks/e"]
	line[3] = "/dev/with$sign"
	m.mounted["/mnt/disks/e"] = line
	m.writeTable()
	m.apply(s, "mnt/disks/e", ":noatime")
	m.expect(s, "mnt/disks/e", ":noatime", host.Failed, "not allowed")
}

// systemd-run expands words that start with a dollar sign.
func TestInvalidJournalRunsNoCommand(t *testing.T) {
	m := newMachine(t)
	m.addMount("8:81", "/", "/mnt/$HOME", "ext4", "/dev/sdf1")
	originals := map[string]host.Original{"mnt/*": {Present: true, Value: "/mnt/$HOME rw,noatime"}}
	if got := m.subject().Restore(t.Context(), originals)[0]; got.State != host.Failed || len(m.ran) > 0 {
		t.Errorf("got %+v, commands %v", got, m.ran)
	}
}

func TestRestoreEqualsBefore(t *testing.T) {
	m := newMachine(t)
	m.remount("/mnt/disks/d2", "rw", "rw,attr2,inode64,logbufs=8,logbsize=32k,noquota")
	before, table := hosttest.ReadTree(t, m.dir, "/etc"), hosttest.ReadFile(t, m.dir, "/proc/1/mountinfo")
	s := m.subject()
	m.expect(s, disks, wish, host.Drifted)
	original, err := s.Original(t.Context(), disks)
	if err != nil || strings.Contains(original.Value, "/mnt/disks/e") || !strings.Contains(original.Value, "/mnt/disks/d1 rw,attr2") {
		t.Fatalf("got original %+v, error %v", original, err)
	}
	originals := map[string]host.Original{disks: original}
	m.apply(s, disks, wish)
	s = m.subject()
	m.apply(s)
	if got := s.Restore(t.Context(), originals)[0]; got.State != host.InSync {
		t.Errorf("got %+v", got)
	}
	check.Equal(t, "host", before, hosttest.ReadTree(t, m.dir, "/etc"))
	if m.fs.Exists(filepath.Dir(dropIn1)) {
		t.Error("the agent's directory still exists")
	}
	m.steps = nil
	s.Restore(t.Context(), originals)
	if len(m.steps) > 0 {
		t.Errorf("a second Restore made changes: %v", m.steps)
	}
	sortFlags := func(text string) []string { return strings.Fields(strings.ReplaceAll(text, ",", " ")) }
	check.Equal(t, "mounts", sortFlags(table), sortFlags(hosttest.ReadFile(t, m.dir, "/proc/1/mountinfo")))
}

func TestForeignChangesAreNotReverted(t *testing.T) {
	m := newMachine(t)
	s := m.subject()
	original, err := s.Original(t.Context(), "mnt/disks/d1")
	check.NoError(t, err)
	m.apply(s, "mnt/disks/d1", "xfs:noatime")
	m.remount("/mnt/disks/d1", "ro,nosuid,nodev,noatime", "rw,attr2,inode64,logbufs=8,logbsize=32k,prjquota")
	m.apply(s)
	if got := s.Restore(t.Context(), map[string]host.Original{"mnt/disks/d1": original})[0]; got.State != host.InSync {
		t.Errorf("got %+v", got)
	}
	if got := m.mounted["/mnt/disks/d1"][1]; got != "ro,nosuid,nodev,relatime" {
		t.Errorf("got flags %s", got)
	}
}

func TestExistingMountsWaitForTheNextMount(t *testing.T) {
	m := newMachine(t)
	s := m.subject()
	original, err := s.Original(t.Context(), "mnt/disks/d1")
	check.NoError(t, err)
	m.apply(s, "mnt/disks/d1", wish)
	m.remount("/mnt/disks/d1", "rw,nosuid,noatime", "rw,attr2,inode64,logbufs=8,logbsize=256k,noquota")
	m.apply(s)
	got := s.Restore(t.Context(), map[string]host.Original{"mnt/disks/d1": original})[0]
	if got.State != host.Pending || got.Effect != host.NextMount || !strings.Contains(got.Message, "/mnt/disks/d1: logbsize") {
		t.Errorf("got %+v", got)
	}
	if flags := m.mounted["/mnt/disks/d1"][1]; !strings.Contains(flags, "relatime") {
		t.Errorf("got flags %s", flags)
	}
	delete(m.mounted, "/mnt/disks/d1")
	m.writeTable()
	if got := s.Restore(t.Context(), map[string]host.Original{"mnt/disks/d1": original})[0]; got.State != host.InSync {
		t.Errorf("unmounted: %+v", got)
	}
}

func TestACrashAtEveryChange(t *testing.T) {
	for n := 1; ; n++ {
		m := newMachine(t)
		before := hosttest.ReadTree(t, m.dir, "/etc")
		s := m.subject()
		m.expect(s, disks, wish, host.Drifted)
		original, err := s.Original(t.Context(), disks)
		check.NoError(t, err)
		originals := map[string]host.Original{disks: original}
		m.dieAt = n
		_ = s.Apply(t.Context(), settings(disks, wish))
		if s.Apply(t.Context(), nil) == nil {
			s.Restore(t.Context(), originals)
		}
		steps := len(m.steps)
		m.dieAt = 0
		s = m.subject()
		m.apply(s, disks, wish)
		m.expect(s, disks, wish, host.Pending, "logbsize staged")
		if m.stale {
			t.Errorf("crash at %d: systemd has not read the drop-ins", n)
		}
		m.apply(s)
		if got := s.Restore(t.Context(), originals)[0]; got.State != host.InSync || m.stale {
			t.Errorf("crash at %d: %+v, stale %v", n, got, m.stale)
		}
		if diff := cmp.Diff(before, hosttest.ReadTree(t, m.dir, "/etc")); diff != "" {
			t.Errorf("crash at %d (-before +after):\n%s", n, diff)
		}
		if steps < n {
			if n < 20 {
				t.Errorf("got only %d changes", n-1)
			}
			return
		}
	}
}

func TestReadOnlyEtcRejectsTheDropIn(t *testing.T) {
	m := newMachine(t)
	m.mounted["/"] = [5]string{"8:1", "ro,relatime", "ext4", "/dev/sda1", "ro"}
	m.writeTable()
	s := m.subject()
	hosttest.Apply(t, s, hosttest.Settings("mnt/disks/d1", "xfs:noatime"))
	hosttest.ExpectState(t, hosttest.Observe(t, s, "mnt/disks/d1", "xfs:noatime"), host.Unsupported, "/etc is read-only", "would not read the agent's drop-in")
	if m.fs.Exists(dropIn1) || len(m.ran) > 0 {
		t.Errorf("commands: got %v", m.ran)
	}
}
