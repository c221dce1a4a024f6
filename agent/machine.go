package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/storageclient/operator/agent/bounds"
	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/bootloader"
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

// Machine is what settings are applied to. All of it has to be set.
type Machine struct {
	// FS is the machine's file system.
	FS host.FS
	// BootClock is the machine's clock that cannot be set. The time to prove a live value is measured by it.
	BootClock host.BootClock
	// Subjects serve the settings, in the order in which they are applied.
	Subjects []host.Subject
	// Journal keeps the originals.
	Journal *journal.Journal
	// Bootloader tells how the kernel command line is kept.
	Bootloader func() bootloader.Detection
	// Servers lists the servers that the machine mounts from over TCP. AskServer makes a new connection to one and waits for an answer.
	Servers   func() ([]connect.Server, error)
	AskServer func(ctx context.Context, server connect.Server) error

	// unchecked is true where settings are kept without a proof over new connections.
	unchecked bool
	// attended is true where an agent stays on the machine, and looks after it when it has booted.
	attended bool
}

// boot is what does not change until the next boot.
type boot struct {
	id, kernelVersion string
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
	return boot{id: id, kernelVersion: kernelVersion}, nil
}

func (m Machine) fromNow(d time.Duration) time.Duration {
	now, err := m.BootClock.SinceBoot()
	if err != nil {
		return 0
	}
	return now + d
}

// until returns the time that is left until a time by the boot clock. None is left if the clock cannot be read.
func (m Machine) until(at time.Duration) time.Duration {
	now, err := m.BootClock.SinceBoot()
	if err != nil {
		return 0
	}
	return max(at-now, 0)
}

// subjectOf returns the subject of a key, nil if this agent does not support it.
func (m Machine) subjectOf(key string) host.Subject {
	name := catalogue.Key(key).Subject()
	for _, subject := range m.Subjects {
		if subject.Name() == name {
			return subject
		}
	}
	return nil
}

func (m Machine) setterOf(key string) host.Setter {
	setter, _ := m.subjectOf(key).(host.Setter)
	return setter
}

// attendBoots tells the subjects whether an agent will be there after the next boot.
func (m Machine) attendBoots(attended bool) {
	for _, subject := range m.Subjects {
		if attender, ok := subject.(host.Attender); ok {
			attender.Attend(attended)
		}
	}
}

// confineSubjects tells the subjects which places of the host they may touch.
func (m Machine) confineSubjects(f fence) {
	for _, subject := range m.Subjects {
		if confined, ok := subject.(host.Confined); ok {
			confined.Confine(f.allowed.RefusePoint)
		}
	}
}

// takeOverFiles gives files of ours that an earlier release wrote the names that this one has for them.
func (m Machine) takeOverFiles() {
	if m.FS.IsReadOnly() {
		return
	}
	for _, subject := range m.Subjects {
		if renamer, ok := subject.(host.Renamer); ok {
			renamer.TakeOverFiles()
		}
	}
}

// rearmTrial makes the next boot one that is tried once, where one is to be.
func (m Machine) rearmTrial() error {
	for _, subject := range m.Subjects {
		if trier, ok := subject.(host.BootTrier); ok {
			if err := trier.Rearm(); err != nil {
				return err
			}
		}
	}
	return nil
}

// bootloaderStatus is what the status and a report say of a boot loader.
func bootloaderStatus(found bootloader.Detection) v1alpha1.Bootloader {
	return v1alpha1.Bootloader{
		Type: v1alpha1.BootloaderType(found.Type), Proven: found.Proven, Message: text.Cut(found.Message, bounds.Message),
	}
}
