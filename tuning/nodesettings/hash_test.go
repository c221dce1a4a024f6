package nodesettings

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

func readProfiles(t *testing.T) []v1alpha1.StorageClientProfile {
	t.Helper()
	files, err := filepath.Glob("testdata/profiles/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no profiles: %v", err)
	}
	profiles := make([]v1alpha1.StorageClientProfile, len(files))
	for i, file := range files {
		data, err := os.ReadFile(file)
		check.NoError(t, err)
		if err := yaml.UnmarshalStrict(data, &profiles[i]); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
	}
	return profiles
}

// You may add lines to hashes.golden. If a line changes, an upgrade of the operator reboots nodes or requires new approvals: change the
// code, not the line.
func TestHashesOfUnchangedProfilesNeverChange(t *testing.T) {
	golden, err := os.ReadFile("testdata/hashes.golden")
	check.NoError(t, err)
	profiles := readProfiles(t)
	var got strings.Builder
	line := func(name string, hashes ...string) {
		for i, h := range hashes {
			if h == "" {
				hashes[i] = "-"
			}
		}
		fmt.Fprintf(&got, "%s %s\n", name, strings.Join(hashes, " "))
	}
	deleted := func(p *v1alpha1.StorageClientProfile) *v1alpha1.StorageClientProfile {
		p = p.DeepCopy()
		p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
		return p
	}
	// The hashes of plans are from earlier releases: approvals contain them.
	for i := range profiles {
		p := &profiles[i]
		hash, bootHash := Hashes(Settings(p))
		line(p.Name, hash, bootHash, BootSettingsHash(p), BootSettingsHash(deleted(p)))
	}
	all := Merge(profiles, nil)
	line("all-together", all.Hash, all.BootHash)
	for i := range profiles {
		p := &profiles[i]
		line("plan/"+p.Name, PlanHash(p), PlanHash(deleted(p)))
	}
	if diff := cmp.Diff(strings.Split(string(golden), "\n"), strings.Split(got.String(), "\n")); diff != "" {
		t.Errorf("got changed hashes (-before +now):\n%s", diff)
	}
}

func TestHashes(t *testing.T) {
	a := v1alpha1.NodeSetting{Key: "kernelArgument/ihash_entries", Value: "16777216", Profile: "a", OnRemoval: v1alpha1.DeletionRestore}
	b := v1alpha1.NodeSetting{Key: "sysctl/net.core.rmem_max", Value: "16777216", Profile: "b", OnRemoval: v1alpha1.DeletionRetain}
	hashes := func(settings ...v1alpha1.NodeSetting) [2]string {
		hash, bootHash := Hashes(settings)
		return [2]string{hash, bootHash}
	}
	both := hashes(a, b)
	if hashes() != [2]string{} {
		t.Error("got a hash of an empty set")
	}
	if hashes(b, a) != both {
		t.Error("got another hash in another order")
	}
	c := v1alpha1.NodeSetting{Key: b.Key, Value: b.Value, Profile: "c", OnRemoval: v1alpha1.DeletionRestore}
	if hashes(a, c) != both {
		t.Error("got another hash with another source")
	}
	c.Value = "1"
	if got := hashes(a, c); got[0] == both[0] || got[1] != both[1] {
		t.Error("a live value must change the hash, and must not change the boot hash")
	}
	if got := hashes(b); got[1] != "" {
		t.Error("got a boot hash without settings that take effect at boot")
	}
	// printf 'kernelArgument/ihash_entries=16777216\nsysctl/net.core.rmem_max=16777216\n' | sha256sum
	check.Equal(t, "hash", "709d4d2dba322a18", both[0])
}

// The former release had another field for the slot table. Each case has the old spelling as its name, and the settings and hashes of that release.
func TestTheSlotTableAsASysctlKeepsItsSettingsAndHashes(t *testing.T) {
	type profiles = []v1alpha1.StorageClientProfile
	for old, test := range map[string]struct {
		profiles                 profiles
		settings                 []string
		hash, bootHash, planHash string
	}{
		"sunrpc: {tcpMaxSlotTableEntries: 128}": {
			profiles: profiles{profile("a", 0, maxSlots("128"), argument("ihash_entries=16777216"))},
			settings: []string{"kernelArgument/ihash_entries=16777216 a", "module/sunrpc/tcp_max_slot_table_entries=128 a"},
			hash:     "0759f936bd537bcc", bootHash: "0705087be39beafe", planHash: "fe5591e8c0997513",
		},
		"sunrpc: {tcpMaxSlotTableEntries: FromNconnect}": {
			profiles: profiles{profile("a", 0, maxSlots(fromNconnect))},
			settings: []string{"module/sunrpc/tcp_max_slot_table_entries=128 a"}, hash: "4b1b0961e77b0d6e",
		},
		"sunrpc: {tcpMaxSlotTableEntries: FromNconnect}, nconnect=4": {
			profiles: profiles{profile("a", 0, maxSlots(fromNconnect), volume("nconnect=4"))},
			settings: []string{"module/sunrpc/tcp_max_slot_table_entries=256 a"}, hash: "85fec7e946c69c3e",
		},
		"sunrpc: {tcpMaxSlotTableEntries: FromNconnect}, nconnect=2, and another profile with nconnect=8": {
			profiles: profiles{profile("a", 0, maxSlots(fromNconnect), volume("nconnect=2")), profile("b", 0, volume("nconnect=8"))},
			settings: []string{"module/sunrpc/tcp_max_slot_table_entries=512 a"}, hash: "c417c35b8cf64218",
		},
		"sunrpc: {tcpMaxSlotTableEntries: FromNconnect}, nconnect=16": {
			profiles: profiles{profile("a", 0, maxSlots(fromNconnect), volume("nconnect=16"), sysctl("vm.dirty_ratio", "10"))},
			settings: []string{"sysctl/vm.dirty_ratio=10 a"}, hash: "f422b519fe3998f7",
		},
	} {
		t.Run(old, func(t *testing.T) {
			merged := Merge(test.profiles, nil)
			if diff := cmp.Diff(test.settings, lines(merged.Settings)); diff != "" {
				t.Errorf("settings (-former release +now):\n%s", diff)
			}
			if plan := PlanHash(&test.profiles[0]); merged.Hash != test.hash || merged.BootHash != test.bootHash || plan != test.planHash {
				t.Errorf("got hashes %q, %q and %q, want %q, %q and %q", merged.Hash, merged.BootHash, plan, test.hash, test.bootHash, test.planHash)
			}
		})
	}
}
