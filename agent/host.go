package agent

import (
	"math"
	"os"

	"k8s.io/utils/clock"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/bootloader"
	"github.com/storageclient/operator/agent/host/bootloader/grubcfg"
	"github.com/storageclient/operator/agent/host/bootloader/life"
	"github.com/storageclient/operator/agent/host/bootloader/loader"
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
	"github.com/storageclient/operator/agent/mountwatch"
	"github.com/storageclient/operator/agent/orders"
	"github.com/storageclient/operator/agent/permit"
	"github.com/storageclient/operator/agent/sample"
	"github.com/storageclient/operator/agent/servers"
	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/knownbad"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/mountoptions"
)

// Modules are the kernel modules of a machine. modprobe.Subject implements it.
type Modules interface {
	mountwatch.Modules
	// SetNodeUID sets the UID of the Node. The identity of its NFSv4 client derives from it.
	SetNodeUID(uid string)
}

// Host contains the interfaces to one machine. All fields are required; NewHost sets them.
type Host struct {
	Machine
	// Mounts reads the mount table.
	Mounts mountwatch.Reader
	// Modules reports the module parameters that apply to new connections.
	Modules Modules
	// Rebooter reboots the machine.
	Rebooter permit.Rebooter
	// Health reads the data for the health of the storage servers.
	Health servers.Reader
	// Probe sends an order to the trial runner of the node. Set it to orders.NoRunner if the machine has none.
	Probe orders.Runner
	// Sample measures the mounts over a time span.
	Sample orders.Sampler
}

// NewHost returns the Host for a file system and a command runner, with all subjects of this build. It has no trial runner.
func NewHost(fs host.FS, runner host.Runner, rebooter permit.Rebooter, kubeletDir string) Host {
	machine, reader, modules := assemble(fs, runner, kubeletDir)
	reader.Signs = mountwatch.Signs(fs)
	return Host{
		Machine: machine, Mounts: reader, Modules: modules, Rebooter: rebooter, Probe: orders.NoRunner,
		Health: servers.Reader{Counters: reader.Counters, Log: kernellog.New(fs, knownbad.Logged).Read, Sockets: sockets.Read, ClientName: reader.ClientName},
		Sample: sample.Sampler{Mounts: reader, Sockets: sockets.Read, Clock: clock.RealClock{}}.Take,
	}
}

// NewMachine returns the Machine of NewHost, without the parts that only the loop needs.
func NewMachine(fs host.FS, runner host.Runner, kubeletDir string) Machine {
	machine, _, _ := assemble(fs, runner, kubeletDir)
	return machine
}

func assemble(fs host.FS, runner host.Runner, kubeletDir string) (Machine, mounts.Reader, *modprobe.Subject) {
	reader := mounts.NewReader(fs, kubeletDir)
	records := journal.New(fs, sysctl.DropIn, modprobe.DropIn, loader.DropIn, grubcfg.Generator, readahead.UdevRule, readahead.NFSConf,
		nfsmountconf.DropIn, filesystems.DropIns)
	modules := modprobe.New(fs, reader.Transports, reader.Sessions, records)
	byType, byVolume := readahead.New(fs, reader.Entries, reader.VolumeEntries, func(key string) (host.Original, bool) {
		entry, ok := records.Entries()[key]
		return entry.Original, ok
	})
	profiles, sysctls := tuned.New(fs, runner, func() map[string]string { return unconfirmedSysctls(records) }, byVolume.SettingOfDisk), sysctl.New(fs)
	sysctls.SetReapplier(profiles.ReappliesSysctl)
	boot := life.New(fs, runner, records, hashSize, bootloader.Kinds)
	return Machine{
		FS: fs, BootClock: host.SystemBootClock{}, Journal: records, Bootloader: boot.Detect, Servers: reader.Servers, AskServer: connect.Probe,
		Subjects: []host.Subject{
			// tuned comes before sysctl: declared sysctls override the tuned profile, both when they are set and when they are restored.
			profiles,
			sysctls,
			modules,
			// Volumes come before types: the type skips mounts that have a value for their volume.
			byVolume,
			byType,
			nfsmountconf.New(fs, differencesOf(mountoptions.NFS)),
			filesystems.New(fs, runner, reader.Entries, filesystems.Options{
				Merge: func(original, wanted []string) []string {
					return mountoptions.XFS.Merge(original, wanted, v1alpha1.ConflictUseProfile, nil).Options
				},
				Differences: differencesOf(mountoptions.XFS),
				Declined:    declinedOf(mountoptions.XFS),
				Hazardous:   catalogue.IsHazard,
				SystemDirs:  append(catalogue.SystemDirs(), kubeletDir),
				Weakened: func(current, wanted []string) (option, loses string) {
					for _, d := range mountoptions.XFS.Weakened(current, wanted) {
						return d.Desired, d.Observed
					}
					return "", ""
				},
			}),
			boot,
		},
	}, reader, modules
}

// differencesOf returns a function that lists the desired options that differ from the observed mount options, by name.
func differencesOf(protocol mountoptions.Protocol) func(wanted, observed []string) []string {
	return func(wanted, observed []string) []string {
		return lists.Each(protocol.Compare(wanted, observed), func(d mountoptions.Difference) string { return d.Option })
	}
}

// declinedOf returns a function that describes the differences that a new mount may have too.
func declinedOf(protocol mountoptions.Protocol) func(wanted, observed []string) []string {
	return func(wanted, observed []string) []string {
		return lists.Pick(protocol.Compare(wanted, observed), func(d mountoptions.Difference) (string, bool) { return d.String(), d.Limited })
	}
}

// hashSize returns the size of a hash table that the kernel allocates for a requested size, according to the catalogue.
func hashSize(name string, entries, memory uint64) (granted uint64, clamped bool) {
	grant, known := catalogue.HashSize(
		name, int64(min(entries, math.MaxInt64)), int64(min(memory, math.MaxInt64)), int64(os.Getpagesize()))
	if !known {
		return entries, false
	}
	return uint64(grant.Largest), grant.Clamped
}
