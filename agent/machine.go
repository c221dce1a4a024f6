package agent

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/storageclient/operator/agent/bounds"
	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/bootloader/loader"
	"github.com/storageclient/operator/agent/host/connect"
	"github.com/storageclient/operator/agent/host/journal"
	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/text"
)

const (
	bootIDFile        = "/proc/sys/kernel/random/boot_id"
	kernelVersionFile = "/proc/sys/kernel/osrelease"
)

// Machine is the machine that settings are applied to. All exported fields are required.
type Machine struct {
	// FS is the file system of the machine.
	FS host.FS
	// BootClock is the monotonic clock of the machine, which cannot be set. It measures the time to prove a live value.
	BootClock host.BootClock
	// Subjects apply the settings, in this order.
	Subjects []host.Subject
	// Journal contains the original values.
	Journal *journal.Journal
	// Bootloader detects the boot loader that keeps the kernel command line.
	Bootloader func() loader.Detection
	// Servers lists the TCP servers that the machine mounts from. AskServer opens a new connection to one and waits for a response.
	Servers   func() ([]connect.Server, error)
	AskServer func(ctx context.Context, server connect.Server) error

	// unchecked is true if settings are kept without a proof over new connections.
	unchecked bool
	// attended is true if an agent runs on the machine after the next boot.
	attended bool
}

type boot struct {
	id, kernelVersion, kernelBuild string
}

func (m Machine) readBoot() (boot, error) {
	id, err := m.FS.ReadValue(bootIDFile)
	if err != nil {
		return boot{}, fmt.Errorf("read boot ID: %w", err)
	}
	kernelVersion, err := m.FS.ReadValue(kernelVersionFile)
	if err != nil {
		return boot{}, fmt.Errorf("read kernel version: %w", err)
	}
	if _, err := m.BootClock.SinceBoot(); err != nil {
		return boot{}, err
	}
	return boot{id: id, kernelVersion: kernelVersion, kernelBuild: readBuild(m.FS)}, nil
}

// readBuild returns the build of the kernel. Only Ubuntu has a signature. Without both, only advice on the kernel is missing.
func readBuild(fs host.FS) string {
	build, err := fs.ReadValue("/proc/version_signature")
	if err != nil {
		build, _ = fs.ReadValue("/proc/version")
	}
	return build
}

func (m Machine) fromNow(d time.Duration) time.Duration {
	now, err := m.BootClock.SinceBoot()
	if err != nil {
		return 0
	}
	return now + d
}

// timeUntil returns the remaining time until a boot clock time. Zero if the clock cannot be read.
func (m Machine) timeUntil(at time.Duration) time.Duration {
	now, err := m.BootClock.SinceBoot()
	if err != nil {
		return 0
	}
	return max(at-now, 0)
}

// subjectOf returns the subject of a key. Nil if this agent does not support it.
func (m Machine) subjectOf(key string) host.Subject {
	name := catalogue.Key(key).Subject()
	for _, subject := range m.Subjects {
		if subject.Name() == name {
			return subject
		}
	}
	return nil
}

// attendBoots sets on all subjects whether an agent runs after the next boot.
func (m Machine) attendBoots(attended bool) {
	for _, subject := range m.Subjects {
		subject.Attend(attended)
	}
}

func (m Machine) confineSubjects(f fence) {
	for _, subject := range m.Subjects {
		subject.Confine(f.allowed.ValidateMountPoint)
	}
}

func (m Machine) rearmTrial(permitted bool) error {
	for _, subject := range m.Subjects {
		if err := subject.Rearm(permitted); err != nil {
			return err
		}
	}
	return nil
}

func bootloaderStatus(found loader.Detection) v1alpha1.Bootloader {
	return v1alpha1.Bootloader{
		Type: v1alpha1.BootloaderType(found.Type), Proven: found.Proven, Message: text.Cut(found.Message, bounds.Message),
	}
}

// unsupported returns the unconfirmed settings of subjects that this agent does not support.
func (m Machine) unsupported(u journal.Unconfirmed) map[string]journal.UnconfirmedSetting {
	unsupported := maps.Clone(u.Settings)
	maps.DeleteFunc(unsupported, func(key string, _ journal.UnconfirmedSetting) bool { return u.Reverted || m.subjectOf(key) != nil })
	return unsupported
}

// restoresOnly returns the reason why settings on the host can only be restored. Empty if settings may be changed.
func (m Machine) restoresOnly() string {
	if err := m.Journal.MayChange(); err != nil {
		return err.Error()
	}
	u, _ := m.Journal.Unconfirmed()
	if unsupported := slices.Collect(maps.Keys(m.unsupported(u))); len(unsupported) > 0 {
		return "a newer agent set " + text.List(unsupported) + " and did not confirm it, so only restoring is possible; upgrade this agent"
	}
	return ""
}
