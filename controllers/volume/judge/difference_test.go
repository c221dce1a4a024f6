package judge

import (
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/builders"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/lists"
)

func ofClass(name, class string, change ...builders.ProfileOption) v1alpha1.StorageClientProfile {
	p := builders.NFSProfile(name, []string{"nocto"}, append([]builders.ProfileOption{builders.Selecting(v1alpha1.VolumeSelector{StorageClassNames: []string{class}})}, change...)...)
	p.ResourceVersion = "1"
	return p
}

// A volume is evaluated again only if a related profile changes: one that selects it, selected it, or is in its annotations.
func TestMemoryEvaluatesAgainOnlyAffectedVolumes(t *testing.T) {
	plain, carrying := builders.NFSVolume(nil), builders.NFSVolume([]string{"nocto"}, builders.Carrying(nil, []string{"nocto"}, "gone"))
	failed := builders.NFSVolume(nil, builders.Annotated(v1alpha1.FailedMountOptionsAnnotation, `{"set":"x"}`))
	for _, pv := range []*corev1.PersistentVolume{plain, carrying, failed} {
		pv.Spec.StorageClassName = "mine"
	}
	mine, others := ofClass("mine", "mine"), ofClass("others", "others")
	first := []v1alpha1.StorageClientProfile{mine, others}
	changed := func(p v1alpha1.StorageClientProfile, change builders.ProfileOption) v1alpha1.StorageClientProfile {
		p = *p.DeepCopy()
		p.ResourceVersion = "2"
		change(&p)
		return p
	}
	deeper := func(p *v1alpha1.StorageClientProfile) {
		p.Spec.Volumes[0].MountOptions = []v1alpha1.MountOption{"noac"}
	}
	for name, test := range map[string]struct {
		volume   *corev1.PersistentVolume
		next     []v1alpha1.StorageClientProfile
		pauseAll bool
		same     bool
	}{
		"a profile that selects others":                {plain, []v1alpha1.StorageClientProfile{mine, changed(others, deeper)}, false, true},
		"a profile that selects others goes":           {plain, []v1alpha1.StorageClientProfile{mine}, false, true},
		"a new profile that selects others":            {plain, append([]v1alpha1.StorageClientProfile{ofClass("new", "new")}, first...), false, true},
		"a profile that selects it":                    {plain, []v1alpha1.StorageClientProfile{changed(mine, deeper), others}, false, false},
		"a profile that selected it goes":              {plain, []v1alpha1.StorageClientProfile{others}, false, false},
		"a profile comes to select it":                 {plain, []v1alpha1.StorageClientProfile{mine, changed(others, builders.Selecting(v1alpha1.VolumeSelector{StorageClassNames: []string{"mine"}}))}, false, false},
		"a new profile that selects it":                {plain, append([]v1alpha1.StorageClientProfile{ofClass("new", "mine")}, first...), false, false},
		"a pause of everything":                        {plain, first, true, false},
		"a profile that it carries comes back":         {carrying, append([]v1alpha1.StorageClientProfile{ofClass("gone", "new", builders.Paused)}, first...), false, false},
		"a profile that follows classes":               {plain, append([]v1alpha1.StorageClientProfile{ofClass("new", "new", builders.Ruled(func(r *v1alpha1.VolumeRule) { r.MountOptionsFrom = v1alpha1.MountOptionsFromClass }))}, first...), false, false},
		"any profile, if the volume records a failure": {failed, []v1alpha1.StorageClientProfile{mine, changed(others, deeper)}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			compiler, memory := &Compiler{}, &Memory{}
			classes := map[string][]string{"mine": nil}
			judge := func(list []v1alpha1.StorageClientProfile, paused bool) *Evaluation {
				return memory.Evaluate(Input{Volume: test.volume, Profiles: compiler.Compile(lists.Pointers(list), catalogue.AllowList{}, paused, classes)})
			}
			before := judge(first, false)
			if got := judge(test.next, test.pauseAll); (got == before) != test.same {
				t.Errorf("got the cached evaluation: %t, want %t", got == before, test.same)
			}
		})
	}
}

// After any number of changes, a Memory returns the same result as an evaluation without it.
func TestMemoryMatchesAFreshEvaluation(t *testing.T) {
	const seed, rounds = 7, 400
	rng := rand.New(rand.NewPCG(seed, seed))
	classes, names := []string{"a", "b", "c"}, []string{"p", "q", "r", "s"}
	pick := func(list []string) string { return list[rng.IntN(len(list))] }
	var volumes []*corev1.PersistentVolume
	for i := range 12 {
		options := []builders.VolumeOption{builders.Named("pv-" + string(rune('a'+i)))}
		var list []string
		if i%3 == 0 {
			list = []string{"nocto"}
			options = append(options, builders.Carrying([]string{"hard"}, list, pick(names)))
		}
		pv := builders.NFSVolume(list, options...)
		pv.ResourceVersion, pv.Spec.StorageClassName = "1", pick(classes)
		volumes = append(volumes, pv)
	}
	list := []v1alpha1.StorageClientProfile{}
	compiler, memory := &Compiler{}, &Memory{}
	for round := range rounds {
		name := pick(names)
		var next []v1alpha1.StorageClientProfile
		for _, p := range list {
			if p.Name != name {
				next = append(next, p)
			}
		}
		if rng.IntN(4) > 0 {
			p := ofClass(name, pick(classes), builders.OnConflict(v1alpha1.ConflictUseProfile))
			p.ResourceVersion = string(rune('0' + round))
			p.Spec.Volumes[0].MountOptions = []v1alpha1.MountOption{v1alpha1.MountOption(pick([]string{"nocto", "nconnect=4", "nconnect=8", "acregmin=30"}))}
			p.Spec.Priority = int32(rng.IntN(2))
			if rng.IntN(3) == 0 {
				[]builders.ProfileOption{builders.Paused, builders.Deleted, builders.Retaining, builders.InModePlan}[rng.IntN(4)](&p)
			}
			next = append(next, p)
		}
		list = next
		profiles := compiler.Compile(lists.Pointers(list), catalogue.AllowList{}, rng.IntN(20) == 0, nil)
		for _, pv := range volumes {
			in := Input{Volume: pv, Profiles: profiles}
			want, got := Evaluate(in), memory.Evaluate(in)
			if diff := cmp.Diff(want.Verdict, got.Verdict, visibleFields); diff != "" {
				t.Fatalf("round %d, %s (-want +got):\n%s", round, pv.Name, diff)
			}
			if want.withCurrentNconnect == nil || got.withCurrentNconnect == nil {
				if (want.withCurrentNconnect == nil) != (got.withCurrentNconnect == nil) {
					t.Fatalf("%s: a profile declares nconnect for only one of the verdicts %+v and %+v", pv.Name, want.Verdict, got.Verdict)
				}
				continue
			}
			if diff := cmp.Diff(want.withCurrentNconnect(), got.withCurrentNconnect(), visibleFields); diff != "" {
				t.Fatalf("round %d, %s, with the current nconnect (-want +got):\n%s", round, pv.Name, diff)
			}
		}
	}
}

// visibleFields limits a comparison to the exported fields of a verdict.
var visibleFields = cmpopts.IgnoreUnexported(Verdict{})
