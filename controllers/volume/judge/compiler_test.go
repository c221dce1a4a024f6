package judge

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/builders"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/lists"
)

func TestCompilerCompilesEachVersionOnce(t *testing.T) {
	c := &Compiler{}
	optionsOf := func(list ...v1alpha1.StorageClientProfile) []string {
		return Volume(Input{Volume: builders.NFSVolume(nil), Profiles: c.Compile(lists.Pointers(list), catalogue.AllowList{}, false, nil)}).Options
	}
	p := builders.NFSProfile("fast", []string{"nconnect=4"})
	p.UID, p.ResourceVersion = "a", "1"
	optionsOf(p)

	changed := builders.NFSProfile("fast", []string{"nconnect=8"})
	changed.UID, changed.ResourceVersion = p.UID, p.ResourceVersion
	if diff := cmp.Diff([]string{"nconnect=4"}, optionsOf(changed)); diff != "" {
		t.Errorf("options of the same version (-want +got):\n%s", diff)
	}
	other := builders.NFSProfile("fast", []string{"nconnect=8"})
	other.UID, other.ResourceVersion = p.UID, "2"
	if diff := cmp.Diff([]string{"nconnect=8"}, optionsOf(other)); diff != "" {
		t.Errorf("options of a new version (-want +got):\n%s", diff)
	}
	recreated := builders.NFSProfile("fast", []string{"nocto"})
	recreated.UID, recreated.ResourceVersion = "b", "2"
	if diff := cmp.Diff([]string{"nocto"}, optionsOf(recreated)); diff != "" {
		t.Errorf("options of a new profile with the same name (-want +got):\n%s", diff)
	}
}

// A volume with the same Profiles is not evaluated again.
func TestCompilerReturnsTheSameUntilADeclarationChanges(t *testing.T) {
	tests := map[string]struct {
		change func(*v1alpha1.StorageClientProfile)
		same   bool
	}{
		"status":     {func(p *v1alpha1.StorageClientProfile) { p.Status.ObservedGeneration = 1 }, true},
		"a label":    {func(p *v1alpha1.StorageClientProfile) { p.Labels = map[string]string{"a": "b"} }, true},
		"spec":       {func(p *v1alpha1.StorageClientProfile) { p.Spec.Volumes[0].MountOptions[0] = "nconnect=8" }, false},
		"the policy": {builders.Retaining, false},
		"the annotation that pauses": {func(p *v1alpha1.StorageClientProfile) {
			p.Annotations = map[string]string{v1alpha1.PausedAnnotation: v1alpha1.True}
		}, false},
		"finalizer": {func(p *v1alpha1.StorageClientProfile) { p.Finalizers = nil }, false},
		"deletion":  {builders.Deleted, false},
		"name":      {func(p *v1alpha1.StorageClientProfile) { p.Name = "other" }, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := &Compiler{}
			p, q := builders.NFSProfile("fast", []string{"nconnect=4"}), builders.NFSProfile("q", []string{"nocto"})
			p.ResourceVersion, q.ResourceVersion = "1", "1"
			before := c.Compile(lists.Pointers([]v1alpha1.StorageClientProfile{p, q}), catalogue.AllowList{}, false, nil)
			changed := *p.DeepCopy()
			changed.ResourceVersion = "2"
			test.change(&changed)
			if got := c.Compile(lists.Pointers([]v1alpha1.StorageClientProfile{changed, q}), catalogue.AllowList{}, false, nil) == before; got != test.same {
				t.Errorf("got the same Profiles: %t, want %t", got, test.same)
			}
		})
	}
	c := &Compiler{}
	p := []v1alpha1.StorageClientProfile{builders.NFSProfile("fast", []string{"nconnect=4"}), builders.NFSProfile("q", nil)}
	before := c.Compile(lists.Pointers(p), catalogue.AllowList{}, false, nil)
	if c.Compile(lists.Pointers(p), catalogue.AllowList{}, true, nil) == before {
		t.Error("got the same Profiles after a pause of all profiles, want new ones")
	}
	if all := c.Compile(lists.Pointers(p), catalogue.AllowList{}, true, nil); c.Compile(lists.Pointers(p[:1]), catalogue.AllowList{}, true, nil) == all {
		t.Error("got the same Profiles after a profile was deleted, want new ones")
	}
}

func TestMemoryEvaluatesAgainAfterAChange(t *testing.T) {
	p, other := profiles(builders.NFSProfile("fast", []string{"nocto"})), profiles(builders.NFSProfile("fast", []string{"nocto"}))
	pv := builders.NFSVolume(nil)
	volumeClaim := builders.VolumeClaimOf(pv, nil)
	volumeClaim.ResourceVersion = "1"
	first := Input{Volume: pv, VolumeClaim: volumeClaim, Class: []string{"hard"}, Profiles: p}
	tests := map[string]struct {
		change func(*Input)
		same   bool
	}{
		"nothing":                          {func(*Input) {}, true},
		"an equal class":                   {func(in *Input) { in.Class = []string{"hard"} }, true},
		"the class":                        {func(in *Input) { in.Class = []string{"soft"} }, false},
		"the profiles":                     {func(in *Input) { in.Profiles = other }, false},
		"the volume":                       {func(in *Input) { in.Volume = in.Volume.DeepCopy(); in.Volume.ResourceVersion = "8" }, false},
		"another volume of the name":       {func(in *Input) { in.Volume = in.Volume.DeepCopy(); in.Volume.UID = "new" }, false},
		"the PersistentVolumeClaim":        {func(in *Input) { in.VolumeClaim = in.VolumeClaim.DeepCopy(); in.VolumeClaim.ResourceVersion = "2" }, false},
		"the PersistentVolumeClaim's life": {func(in *Input) { in.VolumeClaim = nil }, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := &Memory{}
			before, changed := m.Evaluate(first), first
			test.change(&changed)
			if got := m.Evaluate(changed) == before; got != test.same {
				t.Errorf("got the cached evaluation: %t, want %t", got, test.same)
			}
			m.Limit(1)
			for _, other := range []string{"b", "c"} {
				m.Evaluate(Input{Volume: builders.NFSVolume(nil, builders.Named(other)), Profiles: p})
			}
			if m.Evaluate(changed) == before {
				t.Error("got the cached evaluation of a deleted volume, want a new one")
			}
		})
	}
}
