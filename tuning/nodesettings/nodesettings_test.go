package nodesettings

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"pgregory.net/rapid"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

// profile returns a profile with a priority and the changes of the options.
func profile(name string, priority int32, options ...func(*v1alpha1.StorageClientProfileSpec)) v1alpha1.StorageClientProfile {
	p := v1alpha1.StorageClientProfile{ObjectMeta: metav1.ObjectMeta{Name: name}}
	p.Spec.Priority = priority
	p.Spec.Node = &v1alpha1.NodeTuning{}
	for _, option := range options {
		option(&p.Spec)
	}
	return p
}

func sysctl(name, value string) func(*v1alpha1.StorageClientProfileSpec) {
	return func(spec *v1alpha1.StorageClientProfileSpec) {
		if spec.Node.Sysctls == nil {
			spec.Node.Sysctls = map[string]v1alpha1.SettingText{}
		}
		spec.Node.Sysctls[name] = v1alpha1.SettingText(value)
	}
}

func atLeast(name, numbers string) func(*v1alpha1.StorageClientProfileSpec) {
	return func(spec *v1alpha1.StorageClientProfileSpec) {
		if spec.Node.SysctlsAtLeast == nil {
			spec.Node.SysctlsAtLeast = map[string]v1alpha1.WholeNumbers{}
		}
		spec.Node.SysctlsAtLeast[name] = v1alpha1.WholeNumbers(numbers)
	}
}

func argument(arguments ...v1alpha1.KernelArgument) func(*v1alpha1.StorageClientProfileSpec) {
	return func(spec *v1alpha1.StorageClientProfileSpec) {
		spec.Node.KernelArguments = append(spec.Node.KernelArguments, arguments...)
	}
}

func module(name, parameter, value string) func(*v1alpha1.StorageClientProfileSpec) {
	return func(spec *v1alpha1.StorageClientProfileSpec) {
		spec.Node.KernelModules = append(spec.Node.KernelModules, v1alpha1.KernelModule{
			Name: name, Parameters: map[string]v1alpha1.SettingText{parameter: v1alpha1.SettingText(value)}})
	}
}

func maxSlots(limit string) func(*v1alpha1.StorageClientProfileSpec) {
	return sysctl("sunrpc.tcp_max_slot_table_entries", limit)
}

func volume(options ...v1alpha1.MountOption) func(*v1alpha1.StorageClientProfileSpec) {
	return func(spec *v1alpha1.StorageClientProfileSpec) {
		spec.Volumes = append(spec.Volumes, v1alpha1.VolumeRule{
			Name: fmt.Sprint("rule-", len(spec.Volumes)), MountOptions: options,
			Selector: v1alpha1.VolumeSelector{Protocols: []v1alpha1.VolumeProtocol{v1alpha1.ProtocolNFS}}})
	}
}

func retain(spec *v1alpha1.StorageClientProfileSpec) { spec.DeletionPolicy = v1alpha1.DeletionRetain }

const fromNconnect = v1alpha1.FromNconnect

// setting returns a setting in one line: "key=value profile". The line ends with " -" if the value is not restored.
func setting(s v1alpha1.NodeSetting) string {
	mark := ""
	if s.OnRemoval == v1alpha1.DeletionRetain {
		mark = " -"
	}
	return s.Key + "=" + s.Value + " " + s.Profile + mark
}

func lines(settings []v1alpha1.NodeSetting) []string {
	var out []string
	for _, s := range settings {
		out = append(out, setting(s))
	}
	return out
}

const (
	keyRmem  = "sysctl/net.core.rmem_max"
	keyIhash = "kernelArgument/ihash_entries"
)

func TestMerge(t *testing.T) {
	type profiles = []v1alpha1.StorageClientProfile
	for name, test := range map[string]struct {
		profiles  profiles
		inForce   []v1alpha1.NodeSetting
		want      []string
		conflicts []Conflict
	}{
		"no profile":                 {},
		"a profile without settings": {profiles: profiles{{ObjectMeta: metav1.ObjectMeta{Name: "a"}}}},
		"everything that one profile can declare": {
			profiles: profiles{profile("a", 0, sysctl("net.core.rmem_max", "16777216"), sysctl("net.ipv4.tcp_rmem", " 4096\t131072  6291456"),
				argument("ihash_entries=16777216", "nosmt"), module("nfs", "max_session_slots", "180"), module("sunrpc", "tcp_slot_table_entries", "64"), maxSlots("128"))},
			want: []string{
				"kernelArgument/ihash_entries=16777216 a", "kernelArgument/nosmt= a", "module/nfs/max_session_slots=180 a",
				"module/sunrpc/tcp_max_slot_table_entries=128 a", "module/sunrpc/tcp_slot_table_entries=64 a",
				"sysctl/net.core.rmem_max=16777216 a", "sysctl/net.ipv4.tcp_rmem=4096 131072 6291456 a"}},
		"the higher priority wins, key by key": {
			profiles: profiles{profile("low", 1, sysctl("net.core.rmem_max", "1048576"), sysctl("vm.dirty_ratio", "10")),
				profile("high", 2, sysctl("net.core.rmem_max", "16777216"))},
			want: []string{keyRmem + "=16777216 high", "sysctl/vm.dirty_ratio=10 low"}},
		"a higher priority that agrees is the source": {
			profiles: profiles{profile("a", 1, sysctl("vm.dirty_ratio", "10")), profile("b", 2, sysctl("vm.dirty_ratio", "10"))},
			want:     []string{"sysctl/vm.dirty_ratio=10 b"}},
		"equal priority and equal value is no conflict": {
			profiles: profiles{profile("b", 0, sysctl("vm.dirty_ratio", "10")), profile("a", 0, sysctl("vm.dirty_ratio", "10"))},
			want:     []string{"sysctl/vm.dirty_ratio=10 a"}},
		"equal priority and different values keep the effective value": {
			profiles:  profiles{profile("a", 0, sysctl("vm.dirty_ratio", "10")), profile("b", 0, sysctl("vm.dirty_ratio", "20"))},
			inForce:   []v1alpha1.NodeSetting{{Key: "sysctl/vm.dirty_ratio", Value: "20", Profile: "b", OnRemoval: v1alpha1.DeletionRestore}},
			want:      []string{"sysctl/vm.dirty_ratio=20 b"},
			conflicts: []Conflict{{Key: "sysctl/vm.dirty_ratio", Profiles: []string{"a", "b"}, Values: []string{"10", "20"}, Kept: "20"}}},
		"equal priority and different values leave the key out without an effective value": {
			profiles:  profiles{profile("a", 0, sysctl("vm.dirty_ratio", "10")), profile("b", 0, sysctl("vm.dirty_ratio", "20"))},
			conflicts: []Conflict{{Key: "sysctl/vm.dirty_ratio", Profiles: []string{"a", "b"}, Values: []string{"10", "20"}}}},
		"an effective value stays even if no profile declares it anymore": {
			profiles:  profiles{profile("a", 0, sysctl("vm.dirty_ratio", "10")), profile("b", 0, sysctl("vm.dirty_ratio", "20"))},
			inForce:   []v1alpha1.NodeSetting{{Key: "sysctl/vm.dirty_ratio", Value: "30", Profile: "gone", OnRemoval: v1alpha1.DeletionRetain}},
			want:      []string{"sysctl/vm.dirty_ratio=30 gone -"},
			conflicts: []Conflict{{Key: "sysctl/vm.dirty_ratio", Profiles: []string{"a", "b"}, Values: []string{"10", "20"}, Kept: "30"}}},
		"an effective value counts for a profile that declares it": {
			profiles:  profiles{profile("a", 0, sysctl("vm.dirty_ratio", "10"), retain), profile("b", 0, sysctl("vm.dirty_ratio", "20"))},
			inForce:   []v1alpha1.NodeSetting{{Key: "sysctl/vm.dirty_ratio", Value: "10", Profile: "gone", OnRemoval: v1alpha1.DeletionRestore}},
			want:      []string{"sysctl/vm.dirty_ratio=10 a -"},
			conflicts: []Conflict{{Key: "sysctl/vm.dirty_ratio", Profiles: []string{"a", "b"}, Values: []string{"10", "20"}, Kept: "10"}}},
		"an effective flag has a conflict and no value": {
			profiles:  profiles{profile("a", 0, argument("nosmt")), profile("b", 0, argument("nosmt=force"))},
			inForce:   []v1alpha1.NodeSetting{{Key: "kernelArgument/nosmt", Profile: "a", OnRemoval: v1alpha1.DeletionRestore}},
			want:      []string{"kernelArgument/nosmt= a"},
			conflicts: []Conflict{{Key: "kernelArgument/nosmt", Profiles: []string{"a", "b"}, Values: []string{"", "force"}}}},
		"a lower priority does not step in for a conflict": {
			profiles: profiles{profile("a", 1, sysctl("vm.dirty_ratio", "10")), profile("b", 1, sysctl("vm.dirty_ratio", "20")),
				profile("c", 0, sysctl("vm.dirty_ratio", "30"))},
			conflicts: []Conflict{{Key: "sysctl/vm.dirty_ratio", Profiles: []string{"a", "b"}, Values: []string{"10", "20"}}}},
		"a higher priority settles a conflict below it": {
			profiles: profiles{profile("a", 0, sysctl("vm.dirty_ratio", "10")), profile("b", 0, sysctl("vm.dirty_ratio", "20")),
				profile("c", 1, sysctl("vm.dirty_ratio", "30"))},
			want: []string{"sysctl/vm.dirty_ratio=30 c"}},
		"a conflict on one key leaves the others alone": {
			profiles: profiles{profile("a", 0, sysctl("vm.dirty_ratio", "10"), argument("ihash_entries=16777216")),
				profile("b", 0, sysctl("vm.dirty_ratio", "20"))},
			want:      []string{keyIhash + "=16777216 a"},
			conflicts: []Conflict{{Key: "sysctl/vm.dirty_ratio", Profiles: []string{"a", "b"}, Values: []string{"10", "20"}}}},
		"the value contains the minimum": {
			profiles: profiles{profile("a", 0, atLeast("net.ipv4.tcp_rmem", "4096 1048576 16777216"))},
			want:     []string{"sysctl/net.ipv4.tcp_rmem=at-least 4096 1048576 16777216 a"}},
		"of several that want at least something the largest, whatever their priority": {
			profiles: profiles{profile("a", 1, atLeast("net.core.rmem_max", "8388608")), profile("b", 0, atLeast("net.core.rmem_max", "16777216"))},
			want:     []string{keyRmem + "=at-least 16777216 b"}},
		"the largest number at each position belongs to no single profile": {
			profiles: profiles{profile("a", 0, atLeast("net.ipv4.tcp_rmem", "4096 65536 16777216")), profile("b", 0, atLeast("net.ipv4.tcp_rmem", "4096 1048576 8388608"), retain)},
			want:     []string{"sysctl/net.ipv4.tcp_rmem=at-least 4096 1048576 16777216 a -"}},
		"an exact value wins over a lower priority that wants more": {
			profiles: profiles{profile("a", 1, sysctl("net.core.rmem_max", "4194304")), profile("b", 0, atLeast("net.core.rmem_max", "16777216"))},
			want:     []string{keyRmem + "=4194304 a"}},
		"an exact value that is enough for all": {
			profiles: profiles{profile("a", 0, sysctl("net.core.rmem_max", "16777216")), profile("b", 1, atLeast("net.core.rmem_max", "16777216"))},
			want:     []string{keyRmem + "=16777216 a"}},
		"an exact value gives way to a higher priority that wants more": {
			profiles: profiles{profile("a", 0, sysctl("net.core.rmem_max", "16777216")), profile("b", 1, atLeast("net.core.rmem_max", "33554432"))},
			want:     []string{keyRmem + "=at-least 33554432 b"}},
		"an exact value against one of its priority that wants more": {
			profiles:  profiles{profile("a", 0, sysctl("net.core.rmem_max", "4194304")), profile("b", 0, atLeast("net.core.rmem_max", "16777216"))},
			inForce:   []v1alpha1.NodeSetting{{Key: keyRmem, Value: "4194304", Profile: "a", OnRemoval: v1alpha1.DeletionRestore}},
			want:      []string{keyRmem + "=4194304 a"},
			conflicts: []Conflict{{Key: keyRmem, Profiles: []string{"a", "b"}, Values: []string{"4194304", "at-least 16777216"}, Kept: "4194304"}}},
		"one number of three is too low": {
			profiles: profiles{profile("a", 0, sysctl("net.ipv4.tcp_rmem", "4096 131072 33554432")), profile("b", 0, atLeast("net.ipv4.tcp_rmem", "4096 1048576 16777216"))},
			conflicts: []Conflict{{Key: "sysctl/net.ipv4.tcp_rmem", Profiles: []string{"a", "b"},
				Values: []string{"4096 131072 33554432", "at-least 4096 1048576 16777216"}}}},
		"undeclared values are not kept": {
			inForce: []v1alpha1.NodeSetting{{Key: "sysctl/vm.dirty_ratio", Value: "20", Profile: "b"}}},
		"it is restored only if all profiles declare it": {
			profiles: profiles{profile("a", 0, sysctl("vm.dirty_ratio", "10")), profile("b", 0, sysctl("vm.dirty_ratio", "10"), retain)},
			want:     []string{"sysctl/vm.dirty_ratio=10 a -"}},
		"a lower priority does not decide what is restored": {
			profiles: profiles{profile("a", 1, sysctl("vm.dirty_ratio", "10")), profile("b", 0, sysctl("vm.dirty_ratio", "10"), retain)},
			want:     []string{"sysctl/vm.dirty_ratio=10 a"}},
		"the slot table is one key however it is spelt": {
			profiles: profiles{profile("a", 2, sysctl("sunrpc.tcp_max_slot_table_entries", "64")),
				profile("b", 1, module("sunrpc", "tcp_max_slot_table_entries", "32")), profile("c", 0, maxSlots("128"))},
			want: []string{"module/sunrpc/tcp_max_slot_table_entries=64 a"}},
		"slots from the largest nconnect of all profiles": {
			profiles: profiles{profile("a", 0, maxSlots(fromNconnect), volume("nconnect=2")), profile("b", 0, volume("hard"), volume("nconnect=8"))},
			want:     []string{"module/sunrpc/tcp_max_slot_table_entries=512 a"}},
		"over 8 connections no limit is set": {
			profiles: profiles{profile("a", 1, maxSlots(fromNconnect)), profile("b", 0, volume("nconnect=16"))}},
		"over 8 connections a lower priority may set one": {
			profiles: profiles{profile("a", 1, maxSlots(fromNconnect), volume("nconnect=16")), profile("b", 0, maxSlots("128"))},
			want:     []string{"module/sunrpc/tcp_max_slot_table_entries=128 b"}},
		"over 16 connections, which only VAST's client has, no limit is set": {
			profiles: profiles{profile("a", 1, maxSlots(fromNconnect)), profile("b", 0, volume("nconnect=32"))}},
		"of a pair, the parameter with the higher priority is set": {
			profiles: profiles{profile("a", 0, sysctl("vm.dirty_bytes", "268435456")), profile("b", 100, sysctl("vm.dirty_ratio", "20"))},
			inForce:  []v1alpha1.NodeSetting{{Key: "sysctl/vm.dirty_bytes", Value: "268435456", Profile: "a", OnRemoval: v1alpha1.DeletionRestore}},
			want:     []string{"sysctl/vm.dirty_ratio=20 b"}},
		"of a pair of equal priority, the effective parameter stays": {
			profiles: profiles{profile("a", 0, sysctl("vm.dirty_bytes", "268435456")), profile("b", 0, sysctl("vm.dirty_ratio", "20"))},
			inForce:  []v1alpha1.NodeSetting{{Key: "sysctl/vm.dirty_ratio", Value: "20", Profile: "b", OnRemoval: v1alpha1.DeletionRestore}},
			want:     []string{"sysctl/vm.dirty_ratio=20 b"},
			conflicts: []Conflict{{Key: "sysctl/vm.dirty_bytes", Profiles: []string{"a", "b"},
				Values: []string{"sysctl/vm.dirty_bytes=268435456", "sysctl/vm.dirty_ratio=20"}, Kept: "sysctl/vm.dirty_ratio=20"}}},
		"of a pair of equal priority, neither is set without an effective one": {
			profiles: profiles{profile("a", 0, sysctl("vm.overcommit_ratio", "80")), profile("b", 0, sysctl("vm.overcommit_kbytes", "1048576"))},
			conflicts: []Conflict{{Key: "sysctl/vm.overcommit_kbytes", Profiles: []string{"a", "b"},
				Values: []string{"sysctl/vm.overcommit_ratio=80", "sysctl/vm.overcommit_kbytes=1048576"}}}},
		"of a pair, a conflict about one parameter keeps the other one that is effective": {
			profiles: profiles{profile("a", 10, sysctl("vm.dirty_ratio", "20")), profile("b", 10, sysctl("vm.dirty_ratio", "30")), profile("c", 0, sysctl("vm.dirty_bytes", "268435456"))},
			inForce:  []v1alpha1.NodeSetting{{Key: "sysctl/vm.dirty_bytes", Value: "268435456", Profile: "c", OnRemoval: v1alpha1.DeletionRestore}},
			want:     []string{"sysctl/vm.dirty_bytes=268435456 c"},
			conflicts: []Conflict{{Key: "sysctl/vm.dirty_ratio", Profiles: []string{"a", "b"}, Values: []string{"20", "30"},
				Kept: "sysctl/vm.dirty_bytes=268435456"}}},
		"a pair of a higher priority settles the conflict below it": {
			profiles: profiles{profile("a", 0, sysctl("vm.dirty_bytes", "268435456")), profile("b", 0, sysctl("vm.dirty_ratio", "20")),
				profile("c", 1, sysctl("vm.dirty_ratio", "10")), profile("d", 2, sysctl("vm.dirty_bytes", "536870912"))},
			want: []string{"sysctl/vm.dirty_bytes=536870912 d"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := Merge(test.profiles, test.inForce)
			check.Equal(t, "settings", test.want, lines(got.Settings), cmpopts.EquateEmpty())
			check.Equal(t, "conflicts", test.conflicts, got.Conflicts, cmpopts.EquateEmpty())
			hash, bootHash := Hashes(got.Settings)
			if got.Hash != hash || got.BootHash != bootHash {
				t.Errorf("got hashes %s, %s; want %s, %s", got.Hash, got.BootHash, hash, bootHash)
			}
		})
	}
}

// The release before accepted both parameters of overcommit in one profile, and applied them. Now the profile is invalid, and held.
func TestAHeldProfileKeepsBothParametersOfAPair(t *testing.T) {
	p := profile("p", 0, sysctl("vm.overcommit_ratio", "80"), sysctl("vm.overcommit_kbytes", "1048576"))
	current := Settings(&p)
	both := []string{"sysctl/vm.overcommit_kbytes=1048576 p", "sysctl/vm.overcommit_ratio=80 p"}
	for name, test := range map[string]struct {
		other v1alpha1.StorageClientProfile
		want  []string
	}{
		"alone":                               {profile("z", 0), both},
		"next to one with the same parameter": {profile("z", 0, sysctl("vm.overcommit_ratio", "80")), both},
		"below one of a higher priority":      {profile("z", 1, sysctl("vm.overcommit_ratio", "90")), []string{both[0], "sysctl/vm.overcommit_ratio=90 z"}},
	} {
		got := MergeHolding([]v1alpha1.StorageClientProfile{p, test.other}, current, sets.New("p"))
		check.Equal(t, name+": settings", test.want, lines(got.Settings))
		check.Equal(t, name+": conflicts", 0, len(got.Conflicts))
	}
}

func TestSlotsFollowTheTableOfTheNetAppGuide(t *testing.T) {
	want := map[int]string{0: "128", 1: "128", 2: "256", 3: "256", 4: "256", 5: "512", 6: "512", 7: "512", 8: "512", 9: "", 16: ""}
	for nconnect, value := range want {
		p := profile("a", 0, maxSlots(fromNconnect))
		if nconnect > 0 {
			volume(v1alpha1.MountOption(fmt.Sprint("nconnect=", nconnect)))(&p.Spec)
		}
		got := ""
		for _, s := range Settings(&p) {
			got = s.Value
		}
		if got != value {
			t.Errorf("nconnect=%d: got %q, want %q", nconnect, got, value)
		}
	}
}

func TestMergeLeavesOutWhatDoesNotFit(t *testing.T) {
	low, high := profile("low", 0), profile("high", 1)
	for i := range MaxSettings {
		sysctl(fmt.Sprintf("net.a%03d", i), "1")(&low.Spec)
	}
	sysctl("net.z", "1")(&high.Spec)
	got := Merge([]v1alpha1.StorageClientProfile{low, high}, nil)
	if len(got.Settings) != MaxSettings || settingOf(got.Settings, "sysctl/net.z").Profile != "high" {
		t.Errorf("got %d settings, including %+v of the profile with the highest priority", len(got.Settings), settingOf(got.Settings, "sysctl/net.z"))
	}
	check.Equal(t, "omitted", []string{"sysctl/net.a255"}, got.Omitted)
}

func TestTakesEffectAtBoot(t *testing.T) {
	for key, want := range map[string]bool{keyIhash: true, keyRmem: false, keyTCPMaxSlots: false} {
		if got := TakesEffectAtBoot(key); got != want {
			t.Errorf("TakesEffectAtBoot(%q): got %v", key, got)
		}
	}
}

func drawProfile(t *rapid.T, name string) v1alpha1.StorageClientProfile {
	p := profile(name, int32(rapid.IntRange(0, 2).Draw(t, "priority")))
	for _, key := range rapid.SliceOfDistinct(rapid.SampledFrom([]string{"vm.a", "vm.b", "vm.c", "sunrpc.tcp_max_slot_table_entries"}), rapid.ID[string]).Draw(t, "keys") {
		sysctl(key, strconv.Itoa(rapid.IntRange(1, 2).Draw(t, "value")))(&p.Spec)
	}
	if rapid.Bool().Draw(t, "derived") {
		maxSlots(fromNconnect)(&p.Spec)
	}
	volume(v1alpha1.MountOption(fmt.Sprint("nconnect=", rapid.IntRange(1, 16).Draw(t, "nconnect"))))(&p.Spec)
	if rapid.Bool().Draw(t, "retain") {
		retain(&p.Spec)
	}
	return p
}

func TestMergeProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var profiles []v1alpha1.StorageClientProfile
		for i := range rapid.IntRange(0, 4).Draw(t, "profiles") {
			profiles = append(profiles, drawProfile(t, fmt.Sprint("p", i)))
		}
		first := Merge(profiles, nil)
		shuffled := rapid.Permutation(profiles).Draw(t, "shuffled")
		if diff := cmp.Diff(first, Merge(shuffled, nil)); diff != "" {
			t.Fatalf("got another result for another order of the profiles:\n%s", diff)
		}
		again := Merge(profiles, first.Settings)
		if diff := cmp.Diff(first, again); diff != "" {
			t.Fatalf("got another result after a second merge:\n%s", diff)
		}
		if !slices.IsSortedFunc(first.Settings, byKey) || !slices.IsSortedFunc(first.Conflicts, func(a, b Conflict) int { return strings.Compare(a.Key, b.Key) }) {
			t.Fatal("got unsorted settings")
		}
		if len(profiles) == 1 {
			if diff := cmp.Diff(Settings(&profiles[0]), first.Settings, cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("for a single profile: got differences:\n%s", diff)
			}
		}
		for _, c := range first.Conflicts {
			if settingOf(first.Settings, c.Key).Key != "" {
				t.Fatalf("%s: got a value despite an unresolved conflict", c.Key)
			}
			effective := v1alpha1.NodeSetting{Key: c.Key, Value: "9", Profile: "before", OnRemoval: v1alpha1.DeletionRestore}
			merged := Merge(profiles, []v1alpha1.NodeSetting{effective})
			if diff := cmp.Diff(effective, settingOf(merged.Settings, c.Key)); diff != "" {
				t.Fatalf("got the effective value changed:\n%s", diff)
			}
		}
	})
}
