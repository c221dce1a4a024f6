package judge

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/builders"
)

var (
	usesProfile = builders.OnConflict(v1alpha1.ConflictUseProfile)
	overClass   = builders.OnConflict(v1alpha1.ConflictUseProfileOverClass)
)

// UseProfileOverClass replaces values of the class only, in each pass, and after other profiles have replaced values of the volume.
func TestOwnValuesStayInLaterPasses(t *testing.T) {
	type step struct {
		class    string
		profiles []v1alpha1.StorageClientProfile
		want     string
	}
	profile := func(name, options string, more ...builders.ProfileOption) v1alpha1.StorageClientProfile {
		return builders.NFSProfile(name, strings.Fields(options), more...)
	}
	both := func(list ...v1alpha1.StorageClientProfile) []v1alpha1.StorageClientProfile { return list }
	eight, sixteen := profile("a", "nconnect=8", priority(10), usesProfile), profile("b", "nconnect=16 nocto", overClass)
	for name, test := range map[string]struct {
		volume string
		steps  []step
	}{
		"another profile replaced the volume's value and is deleted": {"nconnect=4", []step{
			{"", both(eight, sixteen), "nconnect=8 nocto"}, {"", both(sixteen), "nconnect=4 nocto"},
		}},
		"another profile replaced it by the same value": {"nconnect=4", []step{
			{"", both(profile("a", "nconnect=16", priority(10), usesProfile), sixteen), "nconnect=16 nocto"}, {"", both(sixteen), "nconnect=4 nocto"},
		}},
		"the policy replaced it before": {"nconnect=4", []step{
			{"", both(profile("b", "nconnect=16", usesProfile)), "nconnect=16"}, {"", both(profile("b", "nconnect=16", overClass)), "nconnect=4"},
		}},
		"another profile replaced one timer of the volume's actimeo": {"actimeo=600", []step{
			{"", both(profile("a", "acregmin=5", usesProfile), profile("b", "acdirmax=90", overClass)), "acregmin=5 acregmax=600 acdirmin=600 acdirmax=600"},
		}},
		"the class has one of the timers": {"actimeo=30 acregmin=5", []step{
			{"acregmin=5", both(profile("a", "acregmin=10 acregmax=90", overClass)), "acregmin=10 acregmax=30 acdirmin=30 acdirmax=30"},
		}},
		"a value of the class stays replaced without the class": {"nconnect=4", []step{
			{"nconnect=4", both(sixteen), "nconnect=16 nocto"}, {"", both(sixteen), "nconnect=16 nocto"}, {"nconnect=4", both(sixteen), "nconnect=16 nocto"},
		}},
		"and while profiles disagree": {"nconnect=4", []step{
			{"nconnect=4", both(sixteen), "nconnect=16 nocto"}, {"nconnect=4", both(sixteen, profile("c", "nconnect=2")), "nconnect=16 nocto"}, {"", both(sixteen), "nconnect=16 nocto"},
		}},
		"but not for another profile": {"nconnect=4", []step{
			{"nconnect=4", both(sixteen, profile("c", "nconnect=2", overClass, priority(-1))), "nconnect=16 nocto"}, {"", both(profile("c", "nconnect=2", overClass, priority(-1))), "nconnect=4"},
		}},
		"the value of the class in another spelling": {"nfsvers=3", []step{
			{"vers=3", both(profile("b", "vers=4.1", overClass)), "vers=4.1"}, {"", both(profile("b", "v4.1", overClass)), "vers=4.1"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			pv := builders.NFSVolume(strings.Fields(test.volume))
			for i, s := range test.steps {
				v := verdictWith(pv, strings.Fields(s.class), s.profiles...)
				write(pv, v)
				if diff := cmp.Diff(strings.Fields(s.want), pv.Spec.MountOptions); diff != "" {
					t.Errorf("step %d, %s: options (-want +got):\n%s", i, v.Message, diff)
				}
				if again := verdictWith(pv, strings.Fields(s.class), s.profiles...); again.Action != ActionNone {
					t.Errorf("step %d: the next verdict is %s: %s", i, again.Action, again.Message)
				}
			}
			write(pv, verdictWith(pv, nil))
			if diff := cmp.Diff(strings.Fields(test.volume), pv.Spec.MountOptions); diff != "" {
				t.Errorf("restored options (-want +got):\n%s", diff)
			}
		})
	}
}

// The record of replaced values changes without a write of the options.
func TestReplacedValuesAreRecorded(t *testing.T) {
	a, b := builders.NFSProfile("a", []string{"nconnect=8"}, overClass, priority(10)), builders.NFSProfile("b", []string{"nconnect=8"}, overClass)
	pv := builders.NFSVolume([]string{"nconnect=4"})
	for _, list := range [][]v1alpha1.StorageClientProfile{{a, b}, {b}} {
		write(pv, verdictWith(pv, []string{"nconnect=4"}, list...))
		want := map[string][]string{list[0].Name: {"nconnect=4"}}
		if diff := cmp.Diff(want, MarkOf(pv).Replaced); diff != "" {
			t.Errorf("replaced values (-want +got):\n%s", diff)
		}
		if MarkOf(pv).Since.IsZero() {
			t.Error("got no batch in the mark")
		}
	}
	own := builders.NFSVolume([]string{"nconnect=4"})
	write(own, verdictWith(own, nil, builders.NFSProfile("a", []string{"nconnect=8"}, usesProfile)))
	if got := MarkOf(own).Replaced; got == nil || len(got) > 0 {
		t.Errorf("after a replaced value of the volume: got %v, want an empty record", got)
	}
	added := builders.NFSVolume(nil)
	write(added, verdictWith(added, nil, b))
	if got := MarkOf(added).Replaced; got != nil {
		t.Errorf("without a replaced value: got %v, want no record", got)
	}
}

// Each profile's policy acts for its own declarations, and a dispute is about the disputed values.
func TestValuesAreDecidedOneByOne(t *testing.T) {
	profile := func(name, options string, more ...builders.ProfileOption) v1alpha1.StorageClientProfile {
		return builders.NFSProfile(name, strings.Fields(options), more...)
	}
	for name, test := range map[string]struct {
		volume, current string
		profiles        []v1alpha1.StorageClientProfile
		want            string
		message         string
	}{
		"KeepVolume, and another profile completes four equal timers": {volume: "acregmin=3 acregmax=5",
			profiles: []v1alpha1.StorageClientProfile{profile("a", "acregmin=30 acregmax=30 acdirmin=30", priority(10)), profile("b", "acdirmax=30", usesProfile)},
			want:     "acregmin=3 acregmax=5 acdirmin=30 acdirmax=30", message: "acregmin stays 3 (profile wants 30; onConflict: KeepVolume)"},
		"a dispute about one timer leaves the others": {volume: "hard",
			profiles: []v1alpha1.StorageClientProfile{profile("a", "acregmin=3", priority(10)), profile("b", "actimeo=30", priority(10)), profile("c", "acdirmax=600")},
			want:     "hard acregmax=30 acdirmin=30 acdirmax=30", message: "disagree: acregmin=3 (a) against actimeo=30 (b)"},
		"the disputed timer of the volume stays": {volume: "actimeo=60",
			profiles: []v1alpha1.StorageClientProfile{profile("a", "acregmin=3", usesProfile), profile("b", "actimeo=30", usesProfile)},
			want:     "acregmin=60 acregmax=30 acdirmin=30 acdirmax=30", message: "disagree"},
		"the disputed timer that was written stays": {volume: "hard", current: "hard acregmin=3",
			profiles: []v1alpha1.StorageClientProfile{profile("a", "acregmin=3"), profile("b", "actimeo=30")},
			want:     "hard acregmin=3 acregmax=30 acdirmin=30 acdirmax=30", message: "disagree"},
		"one message for a whole actimeo": {volume: "hard",
			profiles: []v1alpha1.StorageClientProfile{profile("a", "actimeo=30"), profile("b", "actimeo=60 nocto")},
			want:     "hard nocto", message: "disagree: actimeo=30 (a) against actimeo=60 (b)"},
		"two kinds of local locks": {volume: "vers=3",
			profiles: []v1alpha1.StorageClientProfile{profile("a", "local_lock=all nocto"), profile("b", "local_lock=none")},
			want:     "vers=3 nocto", message: "disagree: local_lock=all (a) against local_lock=none (b)"},
		"noac against timers, whatever the names": {volume: "hard",
			profiles: []v1alpha1.StorageClientProfile{profile("a", "actimeo=600"), profile("b", "acregmin=5"), profile("c", "noac nocto")},
			want:     "hard nocto", message: "disagree"},
		"the same value by two policies": {volume: "soft",
			profiles: []v1alpha1.StorageClientProfile{profile("a", "hard"), profile("b", "hard", usesProfile)}, want: "hard"},
		"local locks that another profile replaces let nolock in": {volume: "vers=3 local_lock=posix",
			profiles: []v1alpha1.StorageClientProfile{profile("a", "nolock"), profile("b", "local_lock=all", usesProfile)}, want: "vers=3 nolock"},
		"sync without noac, which the volume keeps out": {volume: "ac",
			profiles: []v1alpha1.StorageClientProfile{profile("a", "sync noac")}, want: "ac sync", message: "ac stays ac (profile wants noac; onConflict: KeepVolume)"},
		"sync of a lower priority without noac": {volume: "acdirmax=90",
			profiles: []v1alpha1.StorageClientProfile{profile("a", "noac", priority(10)), profile("b", "sync")}, want: "acdirmax=90 sync"},
		"sync stays with noac gone": {volume: "noac",
			profiles: []v1alpha1.StorageClientProfile{profile("a", "sync"), profile("b", "acregmin=5", usesProfile)}, want: "acregmin=5 sync"},
	} {
		t.Run(name, func(t *testing.T) {
			pv := builders.NFSVolume(strings.Fields(test.volume))
			if test.current != "" {
				pv = builders.NFSVolume(strings.Fields(test.current), builders.Carrying(strings.Fields(test.volume), strings.Fields(test.current), "a"))
			}
			v := verdictWith(pv, nil, test.profiles...)
			if diff := cmp.Diff(strings.Fields(test.want), v.Options, cmpopts.EquateEmpty()); diff != "" || !strings.Contains(v.Message, test.message) {
				t.Errorf("message %q, want %q; options (-want +got):\n%s", v.Message, test.message, diff)
			}
		})
	}
}

// A list that the former release wrote stays if it means the same.
func TestUpgradeWritesNoOtherSpelling(t *testing.T) {
	for name, test := range map[string]struct {
		original, applied, rule string
		profiles                []string
		isWritten               bool
	}{
		"four timers for actimeo":               {"hard", "hard acregmin=30 acregmax=30 acdirmin=30 acdirmax=30", "actimeo=30", []string{"fast"}, false},
		"nolock with its kind of lock":          {"vers=3", "vers=3 nolock local_lock=all", "nolock local_lock=all", []string{"fast"}, false},
		"a synonym":                             {"hard", "hard proto=tcp", "tcp", []string{"fast"}, false},
		"sync next to noac":                     {"noac", "noac sync", "sync", []string{"fast"}, false},
		"a lost nolock":                         {"vers=3", "vers=3 local_lock=flock", "nolock local_lock=flock", []string{"fast"}, true},
		"a list that differs if it is sorted":   {"hard", "hard actimeo=30 acregmax=90", "actimeo=30 acregmax=90", []string{"fast"}, true},
		"a value that the kernel does not show": {"hard", "hard fsc=a", "fsc=b", []string{"fast"}, true},
		"another profile wrote it":              {"hard", "hard proto=tcp", "tcp", []string{"fast", "gone"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			applied := strings.Fields(test.applied)
			pv := builders.NFSVolume(applied, builders.Carrying(strings.Fields(test.original), applied, test.profiles...))
			v := verdictWith(pv, nil, builders.NFSProfile("fast", strings.Fields(test.rule)))
			if got := v.Action == ActionWrite; got != test.isWritten {
				t.Errorf("got %s: %s, want a write: %t", v.Action, v.Message, test.isWritten)
			}
		})
	}
}
