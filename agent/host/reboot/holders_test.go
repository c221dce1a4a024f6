package reboot

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/test/shortdir"
)

// machine is the tree of a host, with a bus that responds to ListInhibitors.
type machine struct {
	t   *testing.T
	dir string
}

func (m machine) write(name, data string) {
	m.t.Helper()
	file := filepath.Join(m.dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(data), 0o640); err != nil {
		m.t.Fatal(err)
	}
}

func (m machine) open(name string) *os.File {
	m.t.Helper()
	file, err := os.OpenFile(filepath.Join(m.dir, name), os.O_RDWR, 0)
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { _ = file.Close() })
	return file
}

// lock locks a file like dpkg, APT and rpm, but with a lock that the same process can query.
func (m machine) lock(name string, kind int16) {
	m.t.Helper()
	m.write(name, "")
	lock := unix.Flock_t{Type: kind, Whence: io.SeekStart}
	if err := unix.FcntlFlock(m.open(name).Fd(), unix.F_OFD_SETLK, &lock); err != nil {
		m.t.Fatal(err)
	}
}

// list writes a line about a file to /proc/locks.
func (m machine) list(name, format string) {
	m.t.Helper()
	info, err := os.Stat(filepath.Join(m.dir, name))
	if err != nil {
		m.t.Fatal(err)
	}
	stat := info.Sys().(*syscall.Stat_t)
	m.write("/proc/locks", "1: POSIX  ADVISORY  WRITE 1 00:01:1 0 EOF\n"+
		fmt.Sprintf(format, fmt.Sprintf("%02x:%02x:%d", unix.Major(stat.Dev), unix.Minor(stat.Dev), stat.Ino))+"\n")
}

func (m machine) logind() Logind {
	m.t.Helper()
	fs, err := host.OpenFS(m.dir)
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { _ = fs.Close() })
	return New(fs.AsReadOnly(), &runner{})
}

func TestRebootHolders(t *testing.T) {
	lockFrontend, rpm := "/var/lib/dpkg/lock-frontend", "/usr/lib/sysimage/rpm/.rpm.lock"
	tests := map[string]struct {
		arrange func(m machine)
		want    []string
	}{
		"no holder on a host without a package manager and logind": {arrange: func(machine) {}},
		"an unlocked lock file is no holder":                       {arrange: func(m machine) { m.write(lockFrontend, "") }},
		"a lock that the kernel does not list by this device": {
			func(m machine) { m.lock(lockFrontend, unix.F_WRLCK) }, []string{lockFrontend + " is locked"},
		},
		"a reader is no holder": {arrange: func(m machine) { m.lock(rpm, unix.F_RDLCK) }},
		"a lock with the process behind it": {
			func(m machine) {
				m.lock(rpm, unix.F_WRLCK)
				m.list(rpm, "2: POSIX  ADVISORY  WRITE 1234 %s 0 EOF")
				m.write("/proc/1234/comm", "dnf\n")
			},
			[]string{rpm + " is locked by dnf (process 1234)"},
		},
		"a process that has exited": {
			func(m machine) {
				m.lock(rpm, unix.F_WRLCK)
				m.list(rpm, "2: POSIX  ADVISORY  WRITE 1234 %s 0 EOF")
			},
			[]string{rpm + " is locked by process 1234"},
		},
		"a lock of flock(2), which fcntl(2) does not see": {
			func(m machine) {
				m.write(lockFrontend, "")
				m.list(lockFrontend, "2: FLOCK  ADVISORY  WRITE 55 %s 0 EOF")
			},
			[]string{lockFrontend + " is locked by process 55"},
		},
		"a lock that belongs to no process": {
			func(m machine) {
				m.write(lockFrontend, "")
				m.list(lockFrontend, "2: OFDLCK ADVISORY  WRITE -1 %s 0 EOF")
			},
			[]string{lockFrontend + " is locked"},
		},
		"a waiting process is no holder": {
			arrange: func(m machine) {
				m.write(lockFrontend, "")
				m.list(lockFrontend, "2: -> POSIX  ADVISORY  WRITE 55 %s 0 EOF")
			},
		},
		"a lock file under two names is one": {
			func(m machine) {
				m.lock(rpm, unix.F_WRLCK)
				m.write("/var/lib/.keep", "")
				if err := os.Symlink("../../usr/lib/sysimage/rpm", filepath.Join(m.dir, "/var/lib/rpm")); err != nil {
					m.t.Fatal(err)
				}
			},
			[]string{"/var/lib/rpm/.rpm.lock is locked"},
		},
		"a package manager whose process ID is in a file": {
			func(m machine) {
				m.write("/run/zypp.pid", "77\nzypper up\n")
				m.write("/proc/77/comm", "zypper\n")
			},
			[]string{"/run/zypp.pid is held by zypper (process 77)"},
		},
		"and no longer runs":         {arrange: func(m machine) { m.write("/run/dnf.pid", "78") }},
		"or has left its file empty": {arrange: func(m machine) { m.write("/run/dnf-system.pid", "\n") }},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := machine{t, shortdir.New(t)}
			test.arrange(m)
			before := filesBelow(t, m.dir)
			got, err := m.logind().FindHolders(t.Context())
			check.NoError(t, err)
			check.Equal(t, "result", test.want, got)
			check.Equal(t, "files", before, filesBelow(t, m.dir))
		})
	}
}

func filesBelow(t *testing.T, dir string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(name string, _ os.DirEntry, err error) error {
		names = append(names, name)
		return err
	})
	check.NoError(t, err)
	return names
}

func TestWhoInhibitsShutdown(t *testing.T) {
	update := inhibitor{What: "sleep:shutdown", Who: "Package\nUpdater", Why: "Installing \"x\"", Mode: "block", PID: 812}
	kubelet := inhibitor{What: "shutdown", Who: "kubelet", Why: "Kubelet needs time", Mode: "delay", PID: 600}
	weak, sleep := update, update
	weak.Mode, sleep.What = "block-weak", "sleep:idle"
	tests := map[string]struct {
		inhibitors []inhibitor
		errName    string
		want       []string
		wantErr    string
	}{
		"delay inhibitors and other inhibitors are no holders": {inhibitors: []inhibitor{kubelet, weak, sleep}},
		"a block inhibitor is named with the reason": {
			inhibitors: []inhibitor{kubelet, update},
			want:       []string{`Package Updater inhibits shutdown ("Installing \"x\"", process 812)`},
		},
		"no inhibitor":      {},
		"there is no login": {errName: "org.freedesktop.DBus.Error.ServiceUnknown"},
		"logind exits during the call": {
			errName: "org.freedesktop.DBus.Error.NoReply", wantErr: "list shutdown inhibitors of logind: ",
		},
		"logind does not start": {
			errName: "org.freedesktop.DBus.Error.TimedOut", wantErr: "list shutdown inhibitors of logind: ",
		},
		"an empty response does not permit a reboot": {
			errName: "org.freedesktop.DBus.Error.AccessDenied", wantErr: "list shutdown inhibitors of logind: ",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m, done := machine{t, shortdir.New(t)}, make(chan struct{})
			listen(t, &bus{t: t, errName: test.errName, inhibitors: test.inhibitors}, m.dir, done)
			got, err := m.logind().FindHolders(t.Context())
			<-done
			if test.wantErr == "" && err != nil || test.wantErr != "" && (err == nil || !strings.Contains(err.Error(), test.wantErr)) {
				t.Errorf("error: got %v, want %q", err, test.wantErr)
			}
			check.Equal(t, "result", test.want, got)
		})
	}
}

// A socket that remains after its bus stopped counts as a missing bus.
func TestMissingBusDoesNotInhibitReboots(t *testing.T) {
	m := machine{t, shortdir.New(t)}
	m.write(busSocket, "")
	check.NoError(t, os.Remove(filepath.Join(m.dir, busSocket)))
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(m.dir, busSocket)})
	check.NoError(t, err)
	listener.SetUnlinkOnClose(false)
	check.NoError(t, listener.Close())
	if got, err := m.logind().FindHolders(t.Context()); err != nil || len(got) > 0 {
		t.Errorf("got holders %v, error %v", got, err)
	}
}

// A file that cannot be queried for locks does not count as unlocked.
func TestFailedLockQueryDoesNotPermitAReboot(t *testing.T) {
	m := machine{t, shortdir.New(t)}
	m.write("/var/lib/dpkg/.keep", "")
	check.NoError(t, os.Symlink("lock", filepath.Join(m.dir, "/var/lib/dpkg/lock")))
	if _, err := m.logind().FindHolders(t.Context()); err == nil {
		t.Error("no error")
	}
}
