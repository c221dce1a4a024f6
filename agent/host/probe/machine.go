package probe

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/storageclient/operator/agent/host/sockets"
	"github.com/storageclient/operator/agent/host/workload"
)

const (
	// workDir is a directory in the image. The process mounts a private file system over it.
	workDir = "/tmp"
	// maxText limits the kernel's messages about one mount, in bytes.
	maxText = 1024
)

// machine is the kernel on which this process runs.
type machine struct{}

func (machine) resolve(ctx context.Context, network, server string) ([]netip.Addr, error) {
	return net.DefaultResolver.LookupNetIP(ctx, network, server)
}

// clientAddr sends no packet: a datagram socket only chooses its route.
func (machine) clientAddr(server netip.Addr) (netip.Addr, error) {
	connection, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(server, 2049)))
	if err != nil {
		return netip.Addr{}, err
	}
	defer connection.Close()
	local, ok := connection.LocalAddr().(*net.UDPAddr)
	if !ok {
		return netip.Addr{}, fmt.Errorf("no local address to reach %s", server)
	}
	return local.AddrPort().Addr().WithZone(""), nil
}

func (machine) prepare() error {
	if err := unix.Mount("tmpfs", workDir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "size=64k,mode=0755"); err != nil {
		return fmt.Errorf("mount tmpfs: %w", err)
	}
	for _, dir := range []string{sysfsDir, volumeDir} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	loadClient()
	// The container's sysfs may belong to another network namespace, or be read-only.
	if err := unix.Mount("sysfs", sysfsDir, "sysfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount sysfs: %w", err)
	}
	return nil
}

// loadClient makes the kernel load its NFS client, as the first mount of the type would. If the kernel cannot load it, there is no identifier to set.
func loadClient() {
	for _, fsType := range []string{"nfs", "nfs4"} {
		if fd, err := unix.Fsopen(fsType, unix.FSOPEN_CLOEXEC); err == nil {
			_ = unix.Close(fd)
		}
	}
}

func (machine) mount(source, target, fsType string, flags uintptr, data string) error {
	return unix.Mount(source, target, fsType, flags, data)
}

// explain passes the parameters one by one to a file system context, which keeps the kernel's messages. It never attaches the mount.
func (machine) explain(source string, a attempt) string {
	fd, err := unix.Fsopen(a.fsType, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	err = unix.FsconfigSetString(fd, "source", source)
	for option := range strings.SplitSeq(a.data, ",") {
		if err != nil {
			break
		}
		if name, value, hasValue := strings.Cut(option, "="); hasValue {
			err = unix.FsconfigSetString(fd, name, value)
		} else {
			err = unix.FsconfigSetFlag(fd, option)
		}
	}
	if err == nil {
		_ = unix.FsconfigCreate(fd)
	}
	return readMessages(fd)
}

// readMessages reads the log of a file system context: one message per read, each after a letter for its kind.
func readMessages(fd int) string {
	var lines []string
	buffer := make([]byte, maxText)
	for len(lines) < 8 {
		n, err := unix.Read(fd, buffer)
		if err != nil || n <= 0 {
			break
		}
		line := strings.TrimSpace(string(buffer[:n]))
		if kind, message, ok := strings.Cut(line, " "); ok && kind != "i" {
			lines = append(lines, message)
		}
	}
	message := strings.Join(lines, "; ")
	return message[:min(len(message), maxText)]
}

// unmount detaches the mount if the server no longer responds. The mount ends with the process.
func (machine) unmount(target string) error {
	if err := unix.Unmount(target, 0); err != nil {
		return unix.Unmount(target, unix.MNT_DETACH)
	}
	return nil
}

// readRoot works on a thread that is not used again afterwards.
func (machine) readRoot(target string, user int) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		done <- readRootAs(target, user)
	}()
	return <-done
}

func readRootAs(target string, user int) error {
	if err := becomeOnThread(user); err != nil {
		return err
	}
	return readRoot(target)
}

// becomeOnThread makes the server treat this thread as a user.
func becomeOnThread(user int) error {
	// In the kernel, groups and IDs belong to a thread. The group is set first: afterwards, the right to change it may be gone.
	if _, _, errno := syscall.RawSyscall(syscall.SYS_SETGROUPS, 0, 0, 0); errno != 0 {
		return fmt.Errorf("setgroups: %w", errno)
	}
	if err := unix.Setfsgid(user); err != nil {
		return fmt.Errorf("setfsgid: %w", err)
	}
	if err := unix.Setfsuid(user); err != nil {
		return fmt.Errorf("setfsuid: %w", err)
	}
	return nil
}

func readRoot(target string) error {
	var state unix.Statfs_t
	if err := unix.Statfs(target, &state); err != nil {
		return fmt.Errorf("statfs: %w", err)
	}
	fd, err := unix.Open(target, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open the root: %w", err)
	}
	defer unix.Close(fd)
	// One response of the server is enough.
	if _, err := unix.Getdents(fd, make([]byte, 8192)); err != nil {
		return fmt.Errorf("read the root: %w", err)
	}
	return nil
}

func (machine) device(point string) (string, error) {
	var stat unix.Stat_t
	if err := unix.Stat(point, &stat); err != nil {
		return "", fmt.Errorf("stat %s: %w", point, err)
	}
	return fmt.Sprintf("%d:%d", unix.Major(stat.Dev), unix.Minor(stat.Dev)), nil
}

func (machine) readLink(name string) (string, error) { return os.Readlink(name) }

func (machine) readFile(name string) (string, error) {
	file, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, 1<<20))
	return string(data), err
}

func (machine) writeFile(name, data string) error {
	file, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteString(data)
	return errors.Join(err, file.Close())
}

func (machine) connections() ([]sockets.Socket, error) { return sockets.Read() }

func (machine) newName() string { return rand.Text() }

func (machine) pause(d time.Duration) { time.Sleep(d) }

func (machine) wait(ctx context.Context, d time.Duration) { workload.Wait(ctx, d) }

func (machine) now() time.Time { return time.Now() }

// makeReadOnly sets the flag of this one mount. The file system itself does not get the flag.
func (machine) makeReadOnly(target string, flags uintptr) error {
	return unix.Mount("", target, "", flags|unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, "")
}

func (machine) workAs(ctx context.Context, user int, o workload.Options) (workload.Result, error) {
	return startWork(ctx, workOrder{User: user, Options: o})
}

// countVolumes counts the NFS file systems of a network namespace, from /proc/net/nfsfs/volumes. The file has a header and a line for each file
// system (nfs_volume_list_show in the kernel's fs/nfs/client.c).
func countVolumes(data string) int {
	n := 0
	for line := range strings.Lines(data) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] != "NV" {
			n++
		}
	}
	return n
}

// devicesBelow returns the devices of the mounts at and below a point in /proc/self/mountinfo, by mount point.
func devicesBelow(data, point string) map[string]string {
	devices := map[string]string{}
	for line := range strings.Lines(data) {
		if fields := strings.Fields(line); len(fields) >= 5 && (fields[4] == point || strings.HasPrefix(fields[4], point+"/")) {
			devices[fields[4]] = fields[2]
		}
	}
	return devices
}

// devicesOf returns the device of the mount at a point in /proc/self/mountinfo, and the devices of all other mounts.
func devicesOf(data, point string) (device string, otherDevices []string) {
	for line := range strings.Lines(data) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		if fields[4] == point {
			device = fields[2]
			continue
		}
		otherDevices = append(otherDevices, fields[2])
	}
	return device, otherDevices
}
