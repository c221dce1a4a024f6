package agent

import (
	"context"
	"fmt"
	"math"
	"os"
	"time"

	"k8s.io/utils/clock"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/bootloader"
	"github.com/storageclient/operator/agent/host/connect"
	"github.com/storageclient/operator/agent/host/filesystems"
	"github.com/storageclient/operator/agent/host/journal"
	"github.com/storageclient/operator/agent/host/kernellog"
	"github.com/storageclient/operator/agent/host/modprobe"
	"github.com/storageclient/operator/agent/host/mounts"
	"github.com/storageclient/operator/agent/host/nfsmountconf"
	"github.com/storageclient/operator/agent/host/probe"
	"github.com/storageclient/operator/agent/host/readahead"
	"github.com/storageclient/operator/agent/host/sockets"
	"github.com/storageclient/operator/agent/host/sysctl"
	"github.com/storageclient/operator/agent/host/tuned"
	"github.com/storageclient/operator/agent/sample"
	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/mountoptions"
	"github.com/storageclient/operator/tuning/recommend"
	"github.com/storageclient/operator/tuning/text"
)

const (
	bootIDFile        = "/proc/sys/kernel/random/boot_id"
	kernelVersionFile = "/proc/sys/kernel/osrelease"
)

// API is what the loop needs of the API server. Package apiclient is it.
type API interface {
	// Get reads the client node live, not from a cache.
	Get(ctx context.Context) (*v1alpha1.StorageClientNode, error)
	// Follow calls changed with the client node as it is and at every change, and with nil where there is none, until
	// the context is done.
	Follow(ctx context.Context, changed func(*v1alpha1.StorageClientNode))
	// Prove makes a new connection to the API server and reads that many bytes over it, or all there is where that is less,
	// and declares the status over another, all but rollout.
	Prove(ctx context.Context, size int64, status v1alpha1.StorageClientNodeStatus) error
	// ApplyStatus declares the status, all but rollout. With a resource version, the write is a conflict where the
	// client node has changed since.
	ApplyStatus(
		ctx context.Context, status v1alpha1.StorageClientNodeStatus, resourceVersion string,
	) (*v1alpha1.StorageClientNode, error)
}

// MountReader reads the host's mounts. mounts.Reader is it.
type MountReader interface {
	// Read reads the mounts with all that is known of them.
	Read() (mounts.Table, error)
	// Busy reads the busy mounts alone, and how many lines of the mount table could not be read.
	Busy() (busy []mounts.Busy, malformed int, err error)
}

// Rebooter reboots the host. reboot.Logind is it.
type Rebooter interface {
	// FindHolders names what on the host a reboot must not interrupt. An error means that it is not known.
	FindHolders(ctx context.Context) ([]string, error)
	// Reboot returns once the host has agreed to go down.
	Reboot(ctx context.Context) error
}

// Host is one machine, as the loop knows it.
type Host struct {
	// FS is the machine's file system.
	FS host.FS
	// BootClock is the machine's clock that cannot be set. The time to prove a live value is measured by it.
	BootClock host.BootClock
	// Subjects serve the settings, in the order in which they are applied.
	Subjects []host.Subject
	// Journal keeps the originals.
	Journal *journal.Journal
	// Mounts reads the mount table.
	Mounts MountReader
	// Rebooter reboots it.
	Rebooter Rebooter
	// Bootloader tells how the kernel command line is kept.
	Bootloader func() bootloader.Detection
	// SlotLimit is how many requests a transport that is made now may have in flight, NFSv3 and 4.0 only; 0 where that is
	// not known. It may be nil.
	SlotLimit func() int
	// OldSessions are the clients (mounts.Mount.Client) whose session is older than the number of slots that is set. It may be nil.
	OldSessions func() []string

	// SetNodeUID tells the UID of the Node, from which the identity of its NFSv4 client is worked out. It may be nil.
	SetNodeUID func(uid string)

	// Servers lists the servers that the machine mounts from over TCP; nil where it mounts from none. AskServer makes a new
	// connection to one and waits for an answer.
	Servers   func() ([]connect.Server, error)
	AskServer func(ctx context.Context, server connect.Server) error

	// Health reads what tells whether the servers answer; nothing is told of them where it has no Counters.
	Health HealthReader

	// Probe hands an order to the node's trial runner and waits for the result; nil where the machine has none.
	Probe func(ctx context.Context, order probe.Order) (probe.Result, error)

	// Sample reads what the mounts do over a window, from counters alone; nil where the machine cannot.
	Sample func(ctx context.Context, window time.Duration) ([]recommend.Sample, error)

	// unchecked is true where settings are kept without a proof over new connections.
	unchecked bool
	// attended is true where an agent stays on the machine, and looks after it when it has booted.
	attended bool
}

// NewHost puts the subjects of this build together for the machine whose file system and commands are given.
func NewHost(fs host.FS, runner host.Runner, rebooter Rebooter, kubeletDir string) Host {
	reader := mounts.NewReader(fs, kubeletDir)
	records := journal.New(fs, sysctl.DropIn, sysctl.FormerDropIn, modprobe.DropIn, modprobe.FormerDropIn, bootloader.DropIn, bootloader.Generator,
		readahead.UdevRule, readahead.NFSConf, nfsmountconf.DropIn, nfsmountconf.FormerDropIn, filesystems.DropIns)
	modules, byType := modprobe.New(fs, reader.Transports), readahead.New(fs, reader.Entries)
	modules.JudgeSessions(reader.Sessions, records)
	byVolume := readahead.NewVolumes(byType, reader.VolumeEntries, func(key string) (host.Original, bool) {
		entry, ok := records.Entries()[key]
		return entry.Original, ok
	})
	boot := bootloader.New(fs, runner, records, bootloader.Options{HashSize: hashSize})
	return Host{
		FS: fs, BootClock: host.SystemBootClock{},
		Subjects: []host.Subject{
			// Before the sysctls: what is declared wins over what a profile of tuned sets, when both are set and when
			// both are put back.
			tuned.New(fs, runner),
			sysctl.New(fs),
			modules,
			// Volumes before types: what they decide about is nothing to the type.
			byVolume,
			byType,
			nfsmountconf.New(fs, differencesOf(mountoptions.NFS)),
			filesystems.New(fs, runner, reader.Entries, filesystems.Options{
				Merge: func(own, wanted []string) []string {
					return mountoptions.XFS.Merge(own, wanted, v1alpha1.ConflictUseProfile, nil).Options
				},
				Differences: differencesOf(mountoptions.XFS),
				Hazardous:   catalogue.IsHazard,
				SystemDirs:  append(catalogue.SystemDirs(), kubeletDir),
				Weakened: func(has, wanted []string) (option, loses string) {
					for _, d := range mountoptions.XFS.Weakened(has, wanted) {
						return d.Wanted, d.Observed
					}
					return "", ""
				},
			}),
			boot,
		},
		Journal:  records,
		Mounts:   reader,
		Rebooter: rebooter,
		SlotLimit: func() int {
			limit, err := modules.SlotLimit()
			if err != nil {
				return 0
			}
			return limit
		},
		OldSessions: func() []string {
			old, err := modules.OldSessions()
			if err != nil {
				return nil
			}
			var clients []string
			for _, session := range old {
				clients = append(clients, session.Client)
			}
			return clients
		},
		Bootloader: boot.Detect,
		SetNodeUID: modules.SetNodeUID,
		Servers:    reader.Servers,
		AskServer:  connect.Ask,
		Sample:     sample.Sampler{Mounts: reader, Sockets: sockets.Read, Clock: clock.RealClock{}}.Take,
		Health:     HealthReader{Counters: reader.Counters, Log: kernellog.New(fs).Read, Sockets: sockets.Read, ClientName: reader.ClientName},
	}
}

// fromNow returns a time from now by the boot clock.
func (h Host) fromNow(d time.Duration) time.Duration {
	now, err := h.BootClock.SinceBoot()
	if err != nil {
		return 0
	}
	return now + d
}

// until returns the time that is left until a time by the boot clock. None is left if the clock cannot be read.
func (h Host) until(at time.Duration) time.Duration {
	now, err := h.BootClock.SinceBoot()
	if err != nil {
		return 0
	}
	return max(at-now, 0)
}

// bootloaderStatus is what the status and a report say of a boot loader.
func bootloaderStatus(found bootloader.Detection) v1alpha1.Bootloader {
	return v1alpha1.Bootloader{
		Type: v1alpha1.BootloaderType(found.Type), Proven: found.Proven, Message: text.Cut(found.Message, maxMessage),
	}
}

// attendBoots tells the subjects whether an agent will be there after the next boot.
func (h Host) attendBoots(attended bool) {
	for _, subject := range h.Subjects {
		if attender, ok := subject.(host.Attender); ok {
			attender.Attend(attended)
		}
	}
}

// confineSubjects tells the subjects which places of the host they may touch.
func (h Host) confineSubjects(f fence) {
	for _, subject := range h.Subjects {
		if confined, ok := subject.(host.Confined); ok {
			confined.Confine(f.allowed.RefusePoint)
		}
	}
}

// takeOverFiles gives files of ours that an earlier release wrote the names that this one has for them.
func (h Host) takeOverFiles() {
	if h.FS.IsReadOnly() {
		return
	}
	for _, subject := range h.Subjects {
		if renamer, ok := subject.(host.Renamer); ok {
			renamer.TakeOverFiles()
		}
	}
}

// rearmTrial makes the next boot one that is tried once, where one is to be.
func (h Host) rearmTrial() error {
	for _, subject := range h.Subjects {
		if trier, ok := subject.(host.BootTrier); ok {
			if err := trier.Rearm(); err != nil {
				return err
			}
		}
	}
	return nil
}

// differencesOf tells by their names which of the wanted options a mount with the observed ones does not have.
func differencesOf(protocol mountoptions.Protocol) func(wanted, observed []string) []string {
	return func(wanted, observed []string) []string {
		var names []string
		for _, d := range protocol.Compare(wanted, observed) {
			names = append(names, d.Option)
		}
		return names
	}
}

// hashSize asks the catalogue what a kernel makes of a hash table's size.
func hashSize(name string, entries, memory uint64) (granted uint64, clamped bool) {
	grant, known := catalogue.HashSize(
		name, int64(min(entries, math.MaxInt64)), int64(min(memory, math.MaxInt64)), int64(os.Getpagesize()))
	if !known {
		return entries, false
	}
	return uint64(grant.Largest), grant.Clamped
}

// boot is what does not change until the next boot.
type boot struct {
	id, kernelVersion string
}

func (h Host) readBoot() (boot, error) {
	id, err := h.FS.ReadValue(bootIDFile)
	if err != nil {
		return boot{}, fmt.Errorf("read boot ID: %w", err)
	}
	kernelVersion, err := h.FS.ReadValue(kernelVersionFile)
	if err != nil {
		return boot{}, fmt.Errorf("read kernel version: %w", err)
	}
	if _, err := h.BootClock.SinceBoot(); err != nil {
		return boot{}, err
	}
	return boot{id: id, kernelVersion: kernelVersion}, nil
}
