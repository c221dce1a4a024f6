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

func TestASetIsKeptWhileTheProfilesAreTheSame(t *testing.T) {
	var sets ProfileSets
	a, b := stored("a", "1", "4096"), stored("b", "2", "8192")
	first := sets.Of([]v1alpha1.StorageClientProfile{a, b}, catalogue.AllowList{})
	for name, test := range map[string]struct {
		profiles []v1alpha1.StorageClientProfile
		same     bool
	}{
		"in another order":          {[]v1alpha1.StorageClientProfile{b, a}, true},
		"in another version":        {[]v1alpha1.StorageClientProfile{a, stored("b", "3", "8192")}, false},
		"one less":                  {[]v1alpha1.StorageClientProfile{a}, false},
		"one of which has none":     {[]v1alpha1.StorageClientProfile{a, stored("b", "", "8192")}, false},
		"another of the same name":  {[]v1alpha1.StorageClientProfile{a, {ObjectMeta: metav1.ObjectMeta{Name: "b", UID: "other", ResourceVersion: "2"}}}, false},
		"none, which were never in": {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			sets.Of([]v1alpha1.StorageClientProfile{a, b}, catalogue.AllowList{})
			known := sets.last
			if got := sets.Of(test.profiles, catalogue.AllowList{}); (got == known) != test.same {
				t.Errorf("the same set: %t, want %t", got == known, test.same)
			}
		})
	}
	if got := first.ByName("a").Spec.Node.Sysctls["net.core.somaxconn"]; got != "4096" {
		t.Errorf("the first set says %s", got)
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
