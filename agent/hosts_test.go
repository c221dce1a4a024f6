package agent

import (
	"maps"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/localreport"
	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

// everything declares a setting of each kind.
func everything() v1alpha1.StorageClientProfile {
	p := profile("full", map[string]string{
		"net.core.rmem_max": "16777216", "net.ipv4.route.flush": "1", "vm.dirty_ratio": "20",
	}, "ihash_entries=2097152")
	p.Spec.Node.KernelModules = []v1alpha1.KernelModule{
		{Name: "sunrpc", Parameters: map[string]v1alpha1.SettingText{"tcp_max_slot_table_entries": "128"}},
		{Name: "nfs", Parameters: map[string]v1alpha1.SettingText{"max_session_slots": "180"}},
	}
	p.Spec.Node.ReadAhead = []v1alpha1.ReadAhead{{FSTypes: []string{"nfs4"}, SizeKiB: 15360}}
	p.Spec.Node.Tuned = &v1alpha1.Tuned{Profile: "latency-performance"}
	p.Spec.Node.NFSMountDefaults = []v1alpha1.NFSMountDefaults{{Options: []v1alpha1.MountOption{"nconnect=4"}}}
	p.Spec.Node.Filesystems = []v1alpha1.Filesystem{{
		MountPoint: "/mnt/disks/*", FSType: "xfs", MountOptions: []v1alpha1.MountOption{"logbsize=256k"},
	}}
	return p
}

const (
	sessions = "module/nfs/max_session_slots"

	isSet    = v1alpha1.SettingInSync
	waits    = v1alpha1.SettingPending
	fails    = v1alpha1.SettingFailed
	isNotFor = v1alpha1.SettingUnsupported
)

// complete contains the states on a host that supports all settings of everything.
var complete = map[string]v1alpha1.SettingState{
	rmem: isSet, flush: isSet, dirty: isSet, slots: isSet, sessions: isSet,
	readAhead4: isSet, nfsAll: isSet, profileOf: isSet, diskFS: waits, ihash: waits,
}

// statesWith returns the states of a complete host with the given differences.
func statesWith(changes map[string]v1alpha1.SettingState) map[string]v1alpha1.SettingState {
	states := maps.Clone(complete)
	maps.Copy(states, changes)
	return states
}

var hostCases = map[string]struct {
	bootloader v1alpha1.BootloaderType
	// readOnly is a read-only directory of the host.
	readOnly string
	// applied contains the states after apply. messageParts contains parts of messages.
	applied      map[string]v1alpha1.SettingState
	messageParts map[string]string
}{
	"debian-12": {
		bootloader: v1alpha1.BootloaderGrubDebian,
		applied:    statesWith(map[string]v1alpha1.SettingState{nfsAll: isNotFor, readAhead4: waits, profileOf: isNotFor, diskFS: isNotFor}),
		messageParts: map[string]string{
			nfsAll: "install nfs-common", profileOf: "install the package tuned", diskFS: "no match among", slots: "sunrpc is not loaded",
			readAhead4: "no mount of this type yet", ihash: "staged",
		},
	},
	"ubuntu-24.04-cloudimg": {
		bootloader:   v1alpha1.BootloaderGrubDebian,
		applied:      statesWith(map[string]v1alpha1.SettingState{profileOf: isNotFor, diskFS: isNotFor}),
		messageParts: map[string]string{ihash: "smaller than the kernel's default size of 4194304"},
	},
	"rocky-9": {
		bootloader:   v1alpha1.BootloaderGrubBLS,
		applied:      statesWith(nil),
		messageParts: map[string]string{profileOf: "declared: vm.dirty_ratio=20", ihash: "staged"},
	},
	"fedora-coreos": {
		bootloader: v1alpha1.BootloaderRPMOSTree,
		applied: statesWith(map[string]v1alpha1.SettingState{
			ihash: isNotFor, readAhead4: waits, profileOf: isNotFor, diskFS: isNotFor,
		}),
		messageParts: map[string]string{ihash: "rpm-ostree kargs"},
	},
	"flatcar": {
		bootloader: v1alpha1.BootloaderUnsupported,
		applied: statesWith(map[string]v1alpha1.SettingState{
			ihash: isNotFor, readAhead4: waits, profileOf: isNotFor, diskFS: isNotFor,
		}),
		messageParts: map[string]string{ihash: "linux_append in /oem/grub.cfg"},
	},
	// Effective values on Talos are lost at the next boot. The agent cannot write a file there, and no program would read it. Without a
	// running agent, the values are not set again.
	"talos": {
		bootloader: v1alpha1.BootloaderUnsupported,
		readOnly:   "/etc",
		applied: statesWith(map[string]v1alpha1.SettingState{
			rmem: fails, dirty: fails, slots: fails, sessions: fails,
			ihash: isNotFor, nfsAll: isNotFor, readAhead4: waits, profileOf: isNotFor, diskFS: isNotFor,
		}),
		messageParts: map[string]string{ihash: "machine.install.extraKernelArgs", rmem: "/etc is read-only, and no agent will set it again", slots: "/etc is read-only, and no agent will set it again"},
	},
}

func TestOneProfileOnEveryHost(t *testing.T) {
	for name, test := range hostCases {
		t.Run(name, func(t *testing.T) {
			b := newBoxOf(t, name)
			if test.readOnly != "" {
				b.fs = b.fs.WithHook(func(_ host.Op, changed string) error {
					if strings.HasPrefix(changed, test.readOnly+"/") {
						return syscall.EROFS
					}
					return nil
				})
			}
			before := b.persistentFiles()
			if planned := b.compare(localreport.Plan, everything()); len(planned.Settings) != len(test.applied) || planned.Bootloader.Type != test.bootloader {
				t.Errorf("plan: boot loader %s, settings %+v", planned.Bootloader.Type, planned.Settings)
			}
			b.expectHost(b.apply(everything()), test.applied, test.messageParts)
			b.expectHost(b.compare(localreport.Observe, everything()), observedStates(test.applied, test.readOnly != ""), nil)
			b.expectHost(b.apply(everything()), test.applied, nil)

			for _, s := range b.restore().Settings {
				if s.State != isSet {
					t.Errorf("restore: %s: got %s: %s", s.Key, s.State, s.Message)
				}
			}
			check.Equal(t, "the host after restore", before, b.persistentFiles())
		})
	}
}

// observedStates returns the states that another process observes. If no file can be written, no file records a completed action.
func observedStates(applied map[string]v1alpha1.SettingState, readOnly bool) map[string]v1alpha1.SettingState {
	states := maps.Clone(applied)
	if readOnly {
		states[flush] = waits
	}
	return states
}

// expectHost compares the states of a report, and checks that no unsupported value is effective.
func (b *box) expectHost(r localreport.Report, want map[string]v1alpha1.SettingState, messageParts map[string]string) {
	b.t.Helper()
	got, messages := map[string]v1alpha1.SettingState{}, map[string]string{}
	allGood := true
	var reboot []string
	for _, s := range r.Settings {
		got[s.Key], messages[s.Key] = s.State, s.Message
		allGood = allGood && (s.State == isSet || s.State == waits && r.Command != localreport.Observe)
		if s.State == waits && s.TakesEffect == v1alpha1.EffectReboot {
			reboot = append(reboot, s.Key)
		}
		if s.State == isNotFor && s.Message == "" {
			b.t.Errorf("%s: %s is not supported, and the message is empty", r.Command, s.Key)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		b.t.Errorf("%s: states (-want +got):\n%s%v", r.Command, diff, messages)
	}
	for key, part := range messageParts {
		if !strings.Contains(messages[key], part) {
			b.t.Errorf("%s: message of %s: got %q, want it to contain %q", r.Command, key, messages[key], part)
		}
	}
	if diff := cmp.Diff(reboot, r.RebootRequiredBy); diff != "" || r.AsDeclared != allGood {
		b.t.Errorf("%s: as declared %t; reboot required by (-want +got):\n%s", r.Command, r.AsDeclared, diff)
	}
}

// persistentFiles returns the tree without the parts that restore cannot reproduce. These are the file of an action, and all lines of a
// menu that load no kernel.
func (b *box) persistentFiles() map[string]string {
	files := b.tree()
	delete(files, "/proc/sys/net/ipv4/route/flush")
	var kernels []string
	for line := range strings.Lines(files[grubCfg]) {
		if words := strings.Fields(line); len(words) > 0 && words[0] == "linux" {
			kernels = append(kernels, strings.Join(words, " "))
		}
	}
	if kernels != nil {
		files[grubCfg] = strings.Join(kernels, "\n")
	}
	return files
}
