// Package reboot reboots the host.
package reboot

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"time"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"

	"github.com/storageclient/operator/agent/host"
)

const (
	// busSocket is the system bus on every systemd host.
	busSocket = "/run/dbus/system_bus_socket"
	// callTimeout limits a call of logind, which responds before the shutdown starts.
	callTimeout = 30 * time.Second
	// syncTimeout limits the wait for data to reach the disks. A mount of the host itself whose server is gone would block it forever. The data that
	// the agent has written is already durable, and the shutdown syncs again.
	syncTimeout = 30 * time.Second
)

// systemctl reboots through the firmware and the boot loader. Without the variables, systemctl starts a kernel that is loaded for kexec, or only restarts
// the userspace if /run/nextroot exists: with the arguments of that kernel, or in the same boot (systemctl(1), reboot).
var systemctl = []string{"env", "SYSTEMCTL_SKIP_AUTO_KEXEC=1", "SYSTEMCTL_SKIP_AUTO_SOFT_REBOOT=1", "systemctl", "reboot"}

// Logind reboots through systemd-logind. Holders of shutdown inhibitors, above all the kubelet, are therefore notified.
type Logind struct {
	fs     host.FS
	runner host.Runner
	sync   func()
}

// New returns a rebooter for the host of that file system.
func New(fs host.FS, runner host.Runner) Logind {
	return Logind{fs: fs, runner: runner, sync: unix.Sync}
}

// Reboot requests a reboot of the host and returns once the host has agreed. It uses systemctl if logind is unreachable. Rejection is an error.
func (l Logind) Reboot(ctx context.Context) error {
	l.syncDisks(ctx)
	// false: there is no user who could enter a password.
	err := l.callLogind(ctx, "Reboot", []any{false})
	if err == nil {
		return nil
	}
	err = fmt.Errorf("request a reboot from logind: %w", err)
	var refusal dbus.Error
	if errors.As(err, &refusal) && !isAbsent(refusal) && !isSilent(refusal) {
		return err
	}
	if _, fallback := l.runner.Run(ctx, systemctl...); fallback != nil {
		return errors.Join(err, fallback)
	}
	return nil
}

func (l Logind) syncDisks(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	done := make(chan struct{})
	go func() {
		l.sync()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// callLogind calls a method of logind's manager on the host's bus, and stores its reply.
func (l Logind) callLogind(ctx context.Context, method string, arguments []any, answer ...any) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	address := "unix:path=" + dbus.EscapeBusAddressValue(path.Join(l.fs.Dir(), busSocket))
	conn, err := dbus.Connect(address, dbus.WithContext(ctx))
	if err != nil {
		return fmt.Errorf("connect to the host's system bus: %w", err)
	}
	defer conn.Close()
	logind := conn.Object("org.freedesktop.login1", "/org/freedesktop/login1")
	return logind.CallWithContext(ctx, "org.freedesktop.login1.Manager."+method, 0, arguments...).Store(answer...)
}

// isAbsent reports whether an error comes from the bus itself, because there is no logind, and not from logind.
func isAbsent(err dbus.Error) bool {
	return slices.Contains([]string{
		"org.freedesktop.DBus.Error.ServiceUnknown",
		"org.freedesktop.DBus.Error.NameHasNoOwner",
		"org.freedesktop.DBus.Error.Spawn.ServiceNotFound",
		"org.freedesktop.systemd1.NoSuchUnit",
		"org.freedesktop.systemd1.LoadFailed",
	}, err.Name)
}

// isSilent reports whether an error comes from the bus itself, because logind did not respond: it exited during the call, or its start hangs. Its
// inhibitors outlive it.
func isSilent(err dbus.Error) bool {
	return err.Name == "org.freedesktop.DBus.Error.NoReply" || err.Name == "org.freedesktop.DBus.Error.TimedOut"
}
