package fleet

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/lists"
)

func stored(name, version, somaxconn string) v1alpha1.StorageClientProfile {
	p := v1alpha1.StorageClientProfile{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: types.UID("uid-" + name), ResourceVersion: version, Finalizers: []string{v1alpha1.Finalizer},
	}}
	p.Spec.AllNodes = true
	p.Spec.Node = &v1alpha1.NodeTuning{Sysctls: map[string]v1alpha1.SettingText{"net.core.somaxconn": v1alpha1.SettingText(somaxconn)}}
	return p
}

func TestASetIsKeptWhileDeclarationsAreEqual(t *testing.T) {
	var sets ProfileSets
	a, b := stored("a", "1", "4096"), stored("b", "2", "8192")
	changed := func(change func(*v1alpha1.StorageClientProfile)) []v1alpha1.StorageClientProfile {
		next := stored("b", "3", "8192")
		change(&next)
		return []v1alpha1.StorageClientProfile{a, next}
	}
	first := sets.Of(lists.Pointers([]v1alpha1.StorageClientProfile{a, b}), catalogue.AllowList{})
	for name, test := range map[string]struct {
		profiles []v1alpha1.StorageClientProfile
		same     bool
	}{
		"in another order":     {[]v1alpha1.StorageClientProfile{b, a}, true},
		"with other counts":    {changed(func(p *v1alpha1.StorageClientProfile) { p.Status.Nodes.UpToDate = 7 }), true},
		"with another plan":    {changed(func(p *v1alpha1.StorageClientProfile) { p.Status.Plan.Hash = "abc" }), true},
		"observed":             {changed(func(p *v1alpha1.StorageClientProfile) { p.Status.ObservedGeneration = 7 }), true},
		"with another label":   {changed(func(p *v1alpha1.StorageClientProfile) { p.Labels = map[string]string{"a": "b"} }), true},
		"with another value":   {[]v1alpha1.StorageClientProfile{a, stored("b", "3", "1024")}, false},
		"in a next generation": {changed(func(p *v1alpha1.StorageClientProfile) { p.Generation++ }), false},
		"paused": {changed(func(p *v1alpha1.StorageClientProfile) {
			p.Annotations = map[string]string{v1alpha1.PausedAnnotation: v1alpha1.True}
		}), false},
		"without its finalizer":  {changed(func(p *v1alpha1.StorageClientProfile) { p.Finalizers = nil }), false},
		"being deleted":          {changed(func(p *v1alpha1.StorageClientProfile) { p.DeletionTimestamp = new(metav1.Unix(1, 0)) }), false},
		"one less":               {[]v1alpha1.StorageClientProfile{a}, false},
		"one more":               {[]v1alpha1.StorageClientProfile{a, b, stored("c", "4", "4096")}, false},
		"another of the name":    {changed(func(p *v1alpha1.StorageClientProfile) { p.UID = "other" }), false},
		"none, which were never": {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			known := sets.Of(lists.Pointers([]v1alpha1.StorageClientProfile{a, b}), catalogue.AllowList{})
			got := sets.Of(lists.Pointers(test.profiles), catalogue.AllowList{})
			if (got == known) != test.same {
				t.Errorf("got the same set %t, want %t", got == known, test.same)
			}
			if len(test.profiles) == 2 && got.ByName("a") != known.ByName("a") {
				t.Error("got an unchanged profile validated again")
			}
		})
	}
	check.Equal(t, "value in the first set", "4096", first.ByName("a").Spec.Node.Sysctls["net.core.somaxconn"])
}

// A node's labels determine which profiles select it, and so may the labels of its next version.
func TestASetCachesTheProfilesOfANode(t *testing.T) {
	pool := func(name string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{corev1.LabelOSStable: "linux", "pool": name}}}
	}
	a, b := stored("a", "1", "4096"), stored("b", "1", "8192")
	for _, p := range []*v1alpha1.StorageClientProfile{&a, &b} {
		p.Spec.AllNodes, p.Spec.NodeSelector.MatchLabels = false, map[string]string{"pool": p.Name}
	}
	set := NewProfileSet([]v1alpha1.StorageClientProfile{b, a}, catalogue.AllowList{})
	for _, name := range []string{"a", "a", "b", "a", "c"} {
		var want []string
		if name != "c" {
			want = []string{name}
		}
		if got := set.Desired(pool(name), nil).Profiles; !slices.Equal(got, want) {
			t.Errorf("in pool %s: got %v", name, got)
		}
	}
}

// A set finds the profiles of a node by its labels. The result equals an evaluation of every profile.
func TestASetFindsTheProfilesThatSelectANode(t *testing.T) {
	var profiles []v1alpha1.StorageClientProfile
	add := func(name string, selector metav1.LabelSelector, change func(*v1alpha1.StorageClientProfile)) {
		p := stored(name, "1", "4096")
		p.Spec.AllNodes, p.Spec.NodeSelector = false, selector
		if change != nil {
			change(&p)
		}
		profiles = append(profiles, p)
	}
	labels := func(pairs ...string) map[string]string {
		out := map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			out[pairs[i]] = pairs[i+1]
		}
		return out
	}
	for i := range 12 {
		add(fmt.Sprintf("pool-%d", i), metav1.LabelSelector{MatchLabels: labels("fleet", "x", "pool", fmt.Sprint(i%6))}, nil)
	}
	add("fleet", metav1.LabelSelector{MatchLabels: labels("fleet", "x")}, nil)
	add("by expression", metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "pool", Operator: metav1.LabelSelectorOpIn, Values: []string{"1", "2"}}}}, nil)
	add("both", metav1.LabelSelector{MatchLabels: labels("pool", "3"), MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "gpu", Operator: metav1.LabelSelectorOpDoesNotExist}}}, nil)
	add("all", metav1.LabelSelector{}, func(p *v1alpha1.StorageClientProfile) { p.Spec.AllNodes = true })
	add("all, and labels", metav1.LabelSelector{MatchLabels: labels("pool", "nowhere")}, func(p *v1alpha1.StorageClientProfile) { p.Spec.AllNodes = true })
	add("none", metav1.LabelSelector{}, nil)
	for _, test := range []map[string]string{
		labels("fleet", "x", "pool", "1"), labels("fleet", "x", "pool", "3"), labels("fleet", "x", "pool", "3", "gpu", "yes"), labels("fleet", "y", "pool", "2"), labels("fleet", "x"), {},
	} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: test}}
		node.Labels[corev1.LabelOSStable] = "linux"
		var clientNode v1alpha1.StorageClientNode
		clientNode.Spec.Settings = []v1alpha1.NodeSetting{{Key: "k", Profile: "none"}, {Key: "l", Profile: "all"}, {Key: "m", Profile: "gone"}}
		for _, some := range [][]v1alpha1.StorageClientProfile{profiles, profiles[10:13]} {
			set := NewProfileSet(some, catalogue.AllowList{})
			var selecting, concerning []string
			for _, p := range set.All() {
				if p.Selects(node) {
					selecting = append(selecting, p.Name)
				}
				if p.Selects(node) || CarriesSettingsOf(p.Name, &clientNode) {
					concerning = append(concerning, p.Name)
				}
			}
			if diff := cmp.Diff(selecting, namesOf(set.Selecting(node))); diff != "" {
				t.Errorf("%v (-each +found):\n%s", test, diff)
			}
			if diff := cmp.Diff(concerning, namesOf(set.Concerning(node, &clientNode))); diff != "" {
				t.Errorf("%v, with its current settings (-each +found):\n%s", test, diff)
			}
		}
	}
}

func namesOf(profiles []*Profile) []string {
	var names []string
	for _, p := range profiles {
		names = append(names, p.Name)
	}
	return names
}

// One snapshot for all profiles returns the same nodes as a snapshot for one profile, even if the profile then selects other nodes.
func TestASnapshotFindsTheNodesOfAProfile(t *testing.T) {
	pool := func(name string) *v1alpha1.StorageClientProfile {
		p := stored(name, "1", "4096")
		p.Generation, p.Spec.AllNodes, p.Spec.NodeSelector.MatchLabels = 1, false, map[string]string{"pool": name}
		return &p
	}
	a, b := pool("a"), pool("b")
	alone := Snapshot{ClientNodes: map[string]*v1alpha1.StorageClientNode{"n3": {}}}
	alone.ClientNodes["n3"].Spec.Settings = []v1alpha1.NodeSetting{{Key: "k", Profile: "b"}}
	for i, name := range []string{"a", "b", "a", "a"} {
		alone.Nodes = append(alone.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("n%d", 3-i), Labels: map[string]string{corev1.LabelOSStable: "linux", "pool": name},
		}})
	}
	shared := alone.ForAllProfiles(NewProfileSet([]v1alpha1.StorageClientProfile{*a, *b}, catalogue.AllowList{}))
	moved := a.DeepCopy()
	moved.Generation, moved.ResourceVersion, moved.Spec.NodeSelector.MatchLabels = 2, "2", map[string]string{"pool": "b"}
	paused := a.DeepCopy()
	paused.ResourceVersion, paused.Annotations = "2", map[string]string{v1alpha1.PausedAnnotation: v1alpha1.True}
	for name, test := range map[string]struct {
		profile *v1alpha1.StorageClientProfile
		want    []string
	}{
		"as it is": {a, []string{"n0", "n1", "n3"}}, "one that a node carries": {b, []string{"n2", "n3"}}, "paused": {paused, []string{"n0", "n1", "n3"}},
		"with another selector": {moved, []string{"n2"}}, "new": {pool("c"), nil},
	} {
		for _, all := range []Snapshot{alone, shared} {
			profile := NewProfileSet([]v1alpha1.StorageClientProfile{*test.profile}, catalogue.AllowList{}).ByName(test.profile.Name)
			var got []string
			for _, node := range all.Concerned(profile) {
				got = append(got, node.Name)
			}
			check.Equal(t, name, test.want, got)
		}
	}
}

// A set with the newest version of one profile is the same set if the specs are equal.
func TestASetWithOneProfileAsItIsNow(t *testing.T) {
	a, b := stored("a", "1", "4096"), stored("b", "2", "8192")
	set := NewProfileSet([]v1alpha1.StorageClientProfile{a, b}, catalogue.AllowList{})
	counted := *b.DeepCopy()
	counted.ResourceVersion, counted.Status.Nodes.Matched = "3", 7
	if set.With(&counted, catalogue.AllowList{}) != set {
		t.Error("got another set for a change of counts in the status")
	}
	edited := stored("b", "3", "1024")
	got := set.With(&edited, catalogue.AllowList{})
	if text := got.ByName("b").Spec.Node.Sysctls["net.core.somaxconn"]; len(got.All()) != 2 || text != "1024" || got.ByName("a") != set.ByName("a") {
		t.Errorf("got value %s of the edited profile in the set %v", text, namesOf(got.All()))
	}
	added := stored("c", "4", "1024")
	check.Equal(t, "a new profile", []string{"a", "b", "c"}, namesOf(set.With(&added, catalogue.AllowList{}).All()))
}

func TestASetDoesNotKeepItsArguments(t *testing.T) {
	var sets ProfileSets
	profiles := []v1alpha1.StorageClientProfile{stored("a", "1", "4096")}
	set := sets.Of(lists.Pointers(profiles), catalogue.AllowList{})
	profiles[0].Spec.Node.Sysctls["net.core.somaxconn"] = "1"
	check.Equal(t, "value in the set", "4096", set.ByName("a").Spec.Node.Sysctls["net.core.somaxconn"])
}

// The cache of one node must not affect another node: if profiles conflict, each node keeps its current value.
func TestANodeKeepsCurrentValuesIfProfilesConflict(t *testing.T) {
	set := NewProfileSet([]v1alpha1.StorageClientProfile{stored("a", "1", "4096"), stored("b", "2", "8192")}, catalogue.AllowList{})
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{corev1.LabelOSStable: "linux"}}}
	const key = "sysctl/net.core.somaxconn"
	for range 2 {
		for _, value := range []string{"", "4096", "1024"} {
			clientNode := &v1alpha1.StorageClientNode{}
			var want []v1alpha1.NodeSetting
			if value != "" {
				want = []v1alpha1.NodeSetting{{Key: key, Value: value, Profile: "a", OnRemoval: v1alpha1.DeletionRestore}}
				clientNode.Spec.Settings = want
			}
			if got := set.Desired(node, clientNode); !slices.Equal(got.Settings, want) || len(got.Conflicts) != 1 || got.Conflicts[0].Kept != value {
				t.Errorf("with the effective value %q: got %+v", value, got)
			}
		}
	}
}

// A profile in mode Plan that was never active declares the values of an active profile. It has no settings, so that the node changes with the active
// profile alone.
func TestAPlanThatWasNeverActiveHasNoSettings(t *testing.T) {
	desired := func(current []v1alpha1.NodeSetting, profiles ...v1alpha1.StorageClientProfile) Desired {
		return NewProfileSet(profiles, catalogue.AllowList{}).Desired(node(), carrying(current...))
	}
	retain := func(p *v1alpha1.StorageClientProfile) { p.Spec.DeletionPolicy = v1alpha1.DeletionRetain }
	for name, plan := range map[string]v1alpha1.StorageClientProfile{
		"first by name":   profile("a", 0, "1048576", inPlanMode),
		"last by name":    profile("z", 0, "1048576", inPlanMode),
		"higher priority": profile("z", 10, "1048576", inPlanMode),
		"another policy":  profile("a", 0, "1048576", inPlanMode, retain),
	} {
		t.Run(name, func(t *testing.T) {
			before := desired(nil, profile("m", 0, "1048576"))
			check.Equal(t, "settings after the creation", before, desired(before.Settings, profile("m", 0, "1048576"), plan))
			check.Equal(t, "settings after a change", desired(nil, profile("m", 0, "2097152")), desired(before.Settings, profile("m", 0, "2097152"), plan))
			if after := desired(before.Settings, profile("m", 0, "1048576", leaving), plan); after.Managed {
				t.Errorf("after the deletion: got %+v, want a release", after.Settings)
			}
		})
	}
}
