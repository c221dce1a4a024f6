package judge

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/builders"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/lists"
)

var (
	followsClass = builders.Ruled(func(r *v1alpha1.VolumeRule) { r.MountOptionsFrom = v1alpha1.MountOptionsFromClass })
	provisioned  = builders.Annotated(provisionedBy, "nfs.csi.k8s.io")
	classless    = func(pv *corev1.PersistentVolume) { pv.Spec.StorageClassName = "" }
)

func TestVolumesFollowTheirClass(t *testing.T) {
	follow := func(options string, more ...builders.ProfileOption) v1alpha1.StorageClientProfile {
		return builders.NFSProfile("fast", strings.Fields(options), append([]builders.ProfileOption{followsClass}, more...)...)
	}
	none := "none"
	for name, test := range map[string]struct {
		current string
		more    []builders.VolumeOption
		profile v1alpha1.StorageClientProfile
		class   string
		want    string
		state   State
		message string
	}{
		"a volume with the options of its class":          {"nconnect=4", nil, follow(""), "nconnect=4", "nconnect=4", StateUpToDate, ""},
		"a value that was edited":                         {"nconnect=4 hard", nil, follow(""), "nconnect=8 hard", "nconnect=8 hard", StatePending, "by fast and StorageClass nfs"},
		"an option that is new":                           {"hard", nil, follow(""), "hard nocto", "hard nocto", StatePending, ""},
		"entries with several options":                    {"hard,nconnect=4", nil, follow(""), "hard,nconnect=8", "hard nconnect=8", StatePending, ""},
		"the options of the profile win":                  {"nconnect=4", nil, follow("nconnect=2 nocto"), "nconnect=8", "nconnect=2 nocto", StatePending, ""},
		"an option that the class no longer has":          {"nconnect=4 nocto", []builders.VolumeOption{provisioned}, follow(""), "nconnect=4", "nconnect=4", StatePending, ""},
		"an actimeo that the class still has":             {"actimeo=30 hard nocto", []builders.VolumeOption{provisioned}, follow(""), "hard actimeo=30", "actimeo=30 hard", StatePending, ""},
		"an actimeo, and the class has one of its timers": {"actimeo=30 nocto", []builders.VolumeOption{provisioned}, follow(""), "acregmin=5", "acregmin=5 acregmax=30 acdirmin=30 acdirmax=30", StatePending, ""},
		"a class that no longer has options":              {"nconnect=4", []builders.VolumeOption{provisioned}, follow(""), "", "", StatePending, ""},
		"an option that no profile may set stays":         {"x-own=1 port=2049 nocto nconnect=4", []builders.VolumeOption{provisioned}, follow(""), "nconnect=4", "x-own=1 port=2049 nconnect=4", StatePending, ""},
		"an option of unknown origin stays":               {"nconnect=4 nocto", nil, follow(""), "nconnect=4", "nconnect=4 nocto", StateUpToDate, ""},
		"options that protect a volume stay":              {"sec=krb5p nocto", []builders.VolumeOption{provisioned}, follow(""), "nconnect=4", "sec=krb5p nconnect=4", StatePending, ""},
		"the operator never weakens a mount":              {"sec=krb5p", []builders.VolumeOption{provisioned}, follow(""), "sec=sys", "sec=krb5p", StateUpToDate, "sec stays krb5p"},
		"KeepVolume keeps the values of the volume":       {"nconnect=4 nocto", []builders.VolumeOption{provisioned}, follow("", builders.OnConflict(v1alpha1.ConflictKeepVolume)), "nconnect=8 hard", "nconnect=4 nocto hard", StatePending, ""},
		"an unknown option that both have":                {"weird hard", nil, follow(""), "weird hard nocto", "weird hard nocto", StatePending, ""},
		"a class that is gone":                            {"nconnect=4", nil, follow("nocto"), none, "nconnect=4", StateBlocked, "StorageClass nfs does not exist"},
		"a volume without a class":                        {"nconnect=4", []builders.VolumeOption{classless}, follow("nocto"), none, "nconnect=4", StateBlocked, "has no StorageClass"},
		"an option of the class that no profile may set":  {"hard", nil, follow(""), "hard suid", "hard", StateBlocked, "suid is rejected"},
		"an unknown option of the class":                  {"hard", nil, follow(""), "hard nconect=8", "hard", StateBlocked, "Did you mean nconnect"},
		"a managed volume, and the class was edited": {"nconnect=8", []builders.VolumeOption{builders.Carrying([]string{"nconnect=4"}, []string{"nconnect=8"}, "fast")},
			follow(""), "nconnect=2", "nconnect=2", StatePending, ""},
		"a managed volume, and the class is gone": {"nconnect=8", []builders.VolumeOption{builders.Carrying([]string{"nconnect=4"}, []string{"nconnect=8"}, "fast")},
			follow(""), none, "nconnect=8", StateBlocked, "mountOptions stay"},
	} {
		t.Run(name, func(t *testing.T) {
			pv := builders.NFSVolume(strings.Fields(test.current), test.more...)
			v := Volume(Input{Volume: pv, Class: strings.Fields(strings.TrimPrefix(test.class, none)), HasClass: test.class != none, Profiles: profiles(test.profile)})
			if v.State != test.state || !strings.Contains(v.Message, test.message) {
				t.Errorf("got %s: %s, want %s: %s", v.State, v.Message, test.state, test.message)
			}
			if diff := cmp.Diff(strings.Fields(test.want), optionsAfter(pv, v), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("options (-want +got):\n%s", diff)
			}
			if v.Action == ActionWrite && !slices.Equal(v.Original, RecordOf(pv).Original) && !slices.Equal(v.Original, pv.Spec.MountOptions) {
				t.Errorf("got original options %v, want the recorded or the current ones", v.Original)
			}
		})
	}
}

func TestRestoreOfFollowedClass(t *testing.T) {
	pv := builders.NFSVolume([]string{"nconnect=8"}, builders.Carrying([]string{"nconnect=4", "nocto"}, []string{"nconnect=8"}, "fast"), provisioned)
	gone := builders.NFSProfile("fast", nil, followsClass, builders.Deleted)
	v := Volume(Input{Volume: pv, Class: []string{"nconnect=8"}, HasClass: true, Profiles: profiles(gone)})
	if diff := cmp.Diff([]string{"nconnect=4", "nocto"}, v.Options); v.Action != ActionRestore || diff != "" {
		t.Errorf("got action %s, want %s; options (-want +got):\n%s", v.Action, ActionRestore, diff)
	}
}

// A failed set counts as declared while a class has its options.
func TestDeclareWithFollowedClass(t *testing.T) {
	profile, pv := builders.NFSProfile("fast", nil, followsClass), builders.NFSVolume([]string{"hard"})
	v := Volume(Input{Volume: pv, Class: []string{"nconnect=8"}, HasClass: true, Profiles: profiles(profile)})
	failed := SetOf(SourceOf(pv), v.Set, v.RuleSet, v.Rules)
	for want, classes := range map[bool]map[string][]string{
		true: {"other": nil, "nfs": {"nconnect=8"}}, false: {"other": nil, "nfs": {"nconnect=4"}},
	} {
		if got := new(Compiler).Compile(lists.Pointers([]v1alpha1.StorageClientProfile{profile}), catalogue.AllowList{}, false, classes).Declare(failed); got != want {
			t.Errorf("classes %v: got declared: %t, want %t", classes, got, want)
		}
	}
}

func TestEditedClassIsAnotherSet(t *testing.T) {
	profile, pv := builders.NFSProfile("fast", nil, followsClass), builders.NFSVolume([]string{"hard"})
	sets := map[string]bool{}
	for _, class := range [][]string{{"nconnect=8"}, {"nconnect=4"}} {
		sets[Volume(Input{Volume: pv, Class: class, HasClass: true, Profiles: profiles(profile)}).Set] = true
	}
	if len(sets) != 2 {
		t.Errorf("got sets %v, want one for each version of the class", sets)
	}
}

func TestProfilesAreCompiledAgainForClasses(t *testing.T) {
	for want, profile := range map[bool]v1alpha1.StorageClientProfile{true: builders.NFSProfile("fast", nil, followsClass), false: builders.NFSProfile("fast", []string{"hard"})} {
		c := &Compiler{}
		compile := func(class ...string) *Profiles {
			return c.Compile(lists.Pointers([]v1alpha1.StorageClientProfile{profile}), catalogue.AllowList{}, false, map[string][]string{"nfs": class})
		}
		before := compile("hard")
		if again := compile("hard"); again != before {
			t.Error("got new Profiles without a change, want the same ones")
		}
		if got := compile("soft") != before; got != want {
			t.Errorf("got new Profiles: %t, want %t", got, want)
		}
	}
}
