package status

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/storageclient/operator/api/v1alpha1"
)

// A second profile does not change the settings or options of the first one: their settings are equal or disjoint. The first one stays Ready while the second is applied,
// whatever its name, priority and nodes.
func TestASecondProfileDisturbsNoSettings(t *testing.T) {
	sysctls := map[string]v1alpha1.SettingText{"net.core.rmem_max": "16777216", "net.core.wmem_max": "16777216", "net.core.somaxconn": "8192", "vm.dirty_ratio": "20"}
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name, pool string) v1alpha1.StorageClientProfile {
			p := v1alpha1.StorageClientProfile{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Finalizers: []string{v1alpha1.Finalizer}, Generation: 1}}
			p.Spec.NodeSelector.MatchLabels = map[string]string{pool: "true"}
			p.Spec.Priority = rapid.Int32Range(0, 2).Draw(t, "priority of "+name)
			p.Spec.Node = &v1alpha1.NodeTuning{Sysctls: map[string]v1alpha1.SettingText{}}
			for _, key := range rapid.SliceOfNDistinct(rapid.SampledFrom(slices.Sorted(maps.Keys(sysctls))), 1, 3, rapid.ID).Draw(t, "settings of "+name) {
				p.Spec.Node.Sysctls[key] = sysctls[key]
			}
			return p
		}
		first := draw("p", "all")
		second := draw(rapid.SampledFrom([]string{"a", "z"}).Draw(t, "name"), rapid.SampledFrom([]string{"all", "pool"}).Draw(t, "pool"))
		w := newWorld(func(p *v1alpha1.StorageClientProfile) { *p = first })
		for i := range 3 {
			w.node(fmt.Sprintf("n%d", i), nil)
			w.nodes[i].Labels["all"] = "true"
			if i > 0 {
				w.nodes[i].Labels["pool"] = "true"
			}
		}
		expect := func(moment string) {
			ready := meta.FindStatusCondition(w.report().Status(v1alpha1.StorageClientProfileStatus{}, now).Conditions, v1alpha1.ConditionReady)
			if ready.Status != metav1.ConditionTrue {
				t.Fatalf("%s: got Ready=%s %s: %s", moment, ready.Status, ready.Reason, ready.Message)
			}
		}
		expect("alone")
		w.profiles = append(w.profiles, second)
		expect("the second profile is new")
		for i := range w.nodes {
			clientNode := w.objects[w.nodes[i].Name]
			desired := w.snapshot().Profiles.Desired(&w.nodes[i], clientNode)
			clientNode.Spec.Settings, clientNode.Spec.Hash, clientNode.Spec.BootHash = desired.Settings, desired.Hash, desired.BootHash
			clientNode.Generation++
			expect("the settings are written to " + clientNode.Name)
			clientNode.Status.ObservedGeneration, clientNode.Status.Hash, clientNode.Status.Settings = clientNode.Generation, desired.Hash, nil
			for _, s := range desired.Settings {
				clientNode.Status.Settings = append(clientNode.Status.Settings, v1alpha1.SettingStatus{Key: s.Key, Desired: s.Value, State: v1alpha1.SettingInSync})
			}
			expect(clientNode.Name + " has the settings")
		}
	})
}
