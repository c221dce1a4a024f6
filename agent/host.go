package agent

import (
	"math"
	"os"

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
	"github.com/storageclient/operator/agent/host/readahead"
	"github.com/storageclient/operator/agent/host/sockets"
	"github.com/storageclient/operator/agent/host/sysctl"
	"github.com/storageclient/operator/agent/host/tuned"
	"github.com/storageclient/operator/agent/mounted"
	"github.com/storageclient/operator/agent/orders"
	"github.com/storageclient/operator/agent/permit"
	"github.com/storageclient/operator/agent/sample"
	"github.com/storageclient/operator/agent/servers"
	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/mountoptions"
)

// Modules are the kernel modules of a machine. modprobe.Subject is them.
type Modules interface {
	mounted.Modules
	// SetNodeUID tells the UID of the Node, from which the identity of its NFSv4 client is worked out.
	SetNodeUID(uid string)
}

// Host is one machine as the loop knows it. All of it has to be set; NewHost does so.
type Host struct {
	Machine
	// Mounts reads the mount table.
	Mounts mounted.Reader
	// Modules report what connections that are made now would get.
	Modules Modules
	// Rebooter reboots the machine.
	Rebooter permit.Rebooter
	// Health reads what tells whether the storage servers answer.
	Health servers.Reader
	// Probe hands an order to the node's trial runner. It is orders.NoRunner for a machine that has none.
	Probe orders.Runner
	// Sample reads what the mounts do over a window.
	Sample orders.Sampler
}

// NewHost puts the subjects of this build together for the machine whose file system and commands are given. It has no trial runner.
func NewHost(fs host.FS, runner host.Runner, rebooter permit.Rebooter, kubeletDir string) Host {
	machine, reader, modules := assemble(fs, runner, kubeletDir)
	return Host{
		Machine: machine, Mounts: reader, Modules: modules, Rebooter: rebooter, Probe: orders.NoRunner,
		Health: servers.Reader{Counters: reader.Counters, Log: kernellog.New(fs).Read, Sockets: sockets.Read, ClientName: reader.ClientName},
		Sample: sample.Sampler{Mounts: reader, Sockets: sockets.Read, Clock: clock.RealClock{}}.Take,
	}
}

// NewMachine is NewHost without what the loop alone needs.
func NewMachine(fs host.FS, runner host.Runner, kubeletDir string) Machine {
	machine, _, _ := assemble(fs, runner, kubeletDir)
	return machine
}

func assemble(fs host.FS, runner host.Runner, kubeletDir string) (Machine, mounts.Reader, *modprobe.Subject) {
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
	return Machine{
		FS: fs, BootClock: host.SystemBootClock{}, Journal: records, Bootloader: boot.Detect, Servers: reader.Servers, AskServer: connect.Ask,
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
	}, reader, modules
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
