package reboot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"

	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/text"
)

// packageLocks are the files that package managers lock while they change the system. dpkg and APT: lib/dpkg/lock.c; debian.org, "apt-get(8)", files.
// rpm: the paths of its database before and after it moved below /usr (rpm's lib/rpmlock.c; fedoraproject.org/wiki/Changes/RelocateRPMToUsr). dnf and
// zypper change the system through rpm.
var packageLocks = []string{
	"/var/lib/dpkg/lock-frontend",
	"/var/lib/dpkg/lock",
	"/var/lib/apt/lists/lock",
	"/var/cache/apt/archives/lock",
	"/var/lib/rpm/.rpm.lock",
	"/usr/lib/sysimage/rpm/.rpm.lock",
}

var pidFiles = []string{"/run/dnf*.pid", "/run/yum.pid", "/run/zypp.pid"}

const (
	kernelList = "/proc/locks"
	// maxPIDFile is a limit in bytes. zypper writes its command line after the process ID.
	maxPIDFile = 4096
)

// findLocks returns the locks that package managers hold. It neither locks nor creates a file. A missing file is not locked.
func (l Logind) findLocks() ([]string, error) {
	var locks []string
	seen := map[string]bool{}
	kernel, err := l.readKernelLocks()
	if err != nil {
		return nil, err
	}
	for _, name := range packageLocks {
		resolved, err := l.fs.Resolve(name)
		if isMissing(err) || seen[resolved] {
			continue
		}
		if err != nil {
			return nil, err
		}
		seen[resolved] = true
		locked, pid, err := l.isLocked(name, kernel)
		if err != nil {
			return nil, err
		}
		if locked {
			locks = append(locks, name+" is locked"+l.byProcess(pid))
		}
	}
	running, err := l.findPIDFiles()
	return append(locks, running...), err
}

// isLocked reports whether a process has a write lock on a file, and its process ID. Zero if unknown. Shared locks of readers do not count.
func (l Logind) isLocked(name string, kernel map[string]int) (locked bool, pid int, err error) {
	file, err := l.fs.Open(name)
	if isMissing(err) {
		return false, 0, nil
	}
	if err != nil {
		return false, 0, fmt.Errorf("open %s: %w", name, err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return false, 0, fmt.Errorf("stat %s: %w", name, err)
	}
	var inode string
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		inode = fmt.Sprintf("%02x:%02x:%d", unix.Major(stat.Dev), unix.Minor(stat.Dev), stat.Ino)
	}
	// The kernel's list shows flock(2) locks and process IDs. It has other device numbers for btrfs, so fcntl(2) locks are queried by fcntl(2).
	pid, locked = kernel[inode]
	if locked {
		return true, pid, nil
	}
	lock := unix.Flock_t{Type: unix.F_RDLCK, Whence: io.SeekStart}
	if err := unix.FcntlFlock(file.Fd(), unix.F_OFD_GETLK, &lock); err != nil {
		return false, 0, fmt.Errorf("query the lock of %s: %w", name, err)
	}
	return lock.Type != unix.F_UNLCK, 0, nil
}

// readKernelLocks returns the files with a write lock, by device and inode, and the process that holds it. Zero if no process owns the lock. The list
// in the host's /proc shows all locks. The list of another PID namespace omits locks of processes that it cannot name.
func (l Logind) readKernelLocks() (map[string]int, error) {
	data, err := l.fs.ReadIfThere(kernelList)
	if err != nil {
		return nil, err
	}
	locks := map[string]int{}
	for line := range strings.Lines(string(data)) {
		// 3: POSIX  ADVISORY  WRITE 1234 08:01:131090 0 EOF; a waiting lock has "->" after the number.
		fields := strings.Fields(line)
		if len(fields) < 8 || fields[1] == "->" || fields[3] != "WRITE" || fields[1] == "LEASE" {
			continue
		}
		pid, err := strconv.Atoi(fields[4])
		if err != nil {
			continue
		}
		locks[fields[5]] = max(pid, 0)
	}
	return locks, nil
}

func isMissing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// findPIDFiles returns the running package managers whose process ID is in a file.
func (l Logind) findPIDFiles() ([]string, error) {
	var running []string
	for _, pattern := range pidFiles {
		names, err := l.fs.Glob(path.Dir(pattern), path.Base(pattern))
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			if pid := l.readPID(name); pid > 0 && l.fs.Exists(commandFile(pid)) {
				running = append(running, name+" is held"+l.byProcess(pid))
			}
		}
	}
	return running, nil
}

func (l Logind) readPID(name string) int {
	file, err := l.fs.Open(name)
	if err != nil {
		return 0
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxPIDFile))
	fields := strings.Fields(string(data))
	if err != nil || len(fields) == 0 {
		return 0
	}
	pid, _ := strconv.Atoi(fields[0])
	return pid
}

func commandFile(pid int) string { return fmt.Sprintf("/proc/%d/comm", pid) }

func (l Logind) byProcess(pid int) string {
	if pid <= 0 {
		return ""
	}
	comm, err := l.fs.ReadValue(commandFile(pid))
	if err != nil || comm == "" {
		return fmt.Sprintf(" by process %d", pid)
	}
	return fmt.Sprintf(" by %s (process %d)", text.Line(comm), pid)
}

// inhibitor is one inhibitor in logind's list. Mode "delay", which the kubelet uses, only delays a shutdown. "block-weak" does not apply to root
// (systemd.io/INHIBITOR_LOCKS). The agent never holds an inhibitor.
type inhibitor struct {
	What, Who, Why, Mode string
	UID, PID             uint32
}

// holdsShutdown reports whether a reboot by root would override this inhibitor of a shutdown.
func (i inhibitor) holdsShutdown() bool {
	return i.Mode == "block" && slices.Contains(strings.Split(i.What, ":"), "shutdown")
}

// FindHolders returns the programs on the host that a reboot must not interrupt, sorted: active package managers, and programs that inhibit shutdown.
// An error means that they are unknown, for example because logind does not respond. Without logind, no program can inhibit a shutdown.
func (l Logind) FindHolders(ctx context.Context) ([]string, error) {
	locks, err := l.findLocks()
	if err != nil {
		return nil, err
	}
	inhibitors, err := l.listInhibitors(ctx)
	if err != nil {
		return nil, err
	}
	holders := slices.Concat(locks, lists.Each(lists.Filter(inhibitors, inhibitor.holdsShutdown), func(i inhibitor) string {
		return fmt.Sprintf("%s inhibits shutdown (%q, process %d)", text.Line(i.Who), text.Line(i.Why), i.PID)
	}))
	slices.Sort(holders)
	return holders, nil
}

func (l Logind) listInhibitors(ctx context.Context) ([]inhibitor, error) {
	var list []inhibitor
	err := l.callLogind(ctx, "ListInhibitors", nil, &list)
	var answer dbus.Error
	switch {
	case err == nil:
		return list, nil
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED), errors.As(err, &answer) && isAbsent(answer):
		return nil, nil
	}
	return nil, fmt.Errorf("list shutdown inhibitors of logind: %w", err)
}
