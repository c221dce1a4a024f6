package fleet

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/catalogue"
)

func stored(name, version, somaxconn string) v1alpha1.StorageClientProfile {
	p := v1alpha1.StorageClientProfile{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: types.UID("uid-" + name), ResourceVersion: version, Finalizers: []string{v1alpha1.Finalizer},
	}}
	p.Spec.AllNodes = true
	p.Spec.Node = &v1alpha1.NodeTuning{Sysctls: map[string]v1alpha1.SettingText{"net.core.somaxconn": v1alpha1.SettingText(somaxconn)}}
	return p
}

func TestASetIsKeptWhileTheProfilesAskForTheSame(t *testing.T) {
	var sets ProfileSets
	a, b := stored("a", "1", "4096"), stored("b", "2", "8192")
	changed := func(change func(*v1alpha1.StorageClientProfile)) []v1alpha1.StorageClientProfile {
		next := stored("b", "3", "8192")
		change(&next)
		return []v1alpha1.StorageClientProfile{a, next}
	}
	first := sets.Of([]v1alpha1.StorageClientProfile{a, b}, catalogue.AllowList{})
	for name, test := range map[string]struct {
		profiles []v1alpha1.StorageClientProfile
		same     bool
	}{
		"in another order":     {[]v1alpha1.StorageClientProfile{b, a}, true},
		"with other counts":    {changed(func(p *v1alpha1.StorageClientProfile) { p.Status.Nodes.UpToDate = 7 }), true},
		"with another plan":    {changed(func(p *v1alpha1.StorageClientProfile) { p.Status.Plan.Hash = "abc" }), false},
		"observed":             {changed(func(p *v1alpha1.StorageClientProfile) { p.Status.ObservedGeneration = 7 }), false},
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
			known := sets.Of([]v1alpha1.StorageClientProfile{a, b}, catalogue.AllowList{})
			got := sets.Of(test.profiles, catalogue.AllowList{})
			if (got == known) != test.same {
				t.Errorf("the same set: %t, want %t", got == known, test.same)
			}
			if len(test.profiles) == 2 && got.ByName("a") != known.ByName("a") {
				t.Error("the profile that has not changed is checked again")
			}
		})
	}
	if got := first.ByName("a").Spec.Node.Sysctls["net.core.somaxconn"]; got != "4096" {
		t.Errorf("the first set says %s", got)
	}
}

// A node's labels decide which profiles select it, and so may their next version.
func TestASetRemembersWhichProfilesSelectANode(t *testing.T) {
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
		if got := set.Wanted(pool(name), nil).Profiles; !slices.Equal(got, want) {
			t.Errorf("in pool %s the node gets %v", name, got)
		}
	}
}

func TestASetKeepsNothingOfWhatItIsHanded(t *testing.T) {
	var sets ProfileSets
	handed := []v1alpha1.StorageClientProfile{stored("a", "1", "4096")}
	set := sets.Of(handed, catalogue.AllowList{})
	handed[0].Spec.Node.Sysctls["net.core.somaxconn"] = "1"
	if got := set.ByName("a").Spec.Node.Sysctls["net.core.somaxconn"]; got != "4096" {
		t.Errorf("got %s", got)
	}
}

// What is remembered of one node must not reach another: where profiles disagree, each keeps what it has.
func TestANodeKeepsWhatIsInForceThereWhereProfilesDisagree(t *testing.T) {
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
			if got := set.Wanted(node, clientNode); !slices.Equal(got.Settings, want) || len(got.Conflicts) != 1 || got.Conflicts[0].Kept != value {
				t.Errorf("with %q in force: %+v", value, got)
			}
		}
	}
}
