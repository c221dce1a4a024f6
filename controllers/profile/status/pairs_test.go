package status

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
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

// A node waits for a user if settings of another profile have failed: the live gate counts all failures, and all profiles of a node must admit it.
// The first profile is then final, and names the cause.
func TestAnotherProfilesFailureIsFinalWithItsCause(t *testing.T) {
	const (
		own, others = "sysctl/net.core.rmem_max", "sysctl/net.core.wmem_max"
		stalled     = "Ready=False/NodesFailed Reconciling=False/NodesFailed Stalled=True/NodesFailed"
		remedy      = "; check these nodes, or change the settings; next: kubectl storageclient node "
	)
	fail := func(w *world, key, node string) {
		state(key, v1alpha1.SettingFailed)(nil, w.objects[node])
	}
	allow := func(w *world, failures int32, profiles ...int) {
		for _, i := range profiles {
			w.profiles[i].Spec.Rollout.FailureThreshold = new(failures)
		}
	}
	for name, test := range map[string]struct {
		// change changes a world with two profiles, p and other, and two nodes that have all their settings.
		change func(*world)
		want   string
		// message is the start of the message of Stalled, or of Ready if the profile is not Stalled.
		message string
	}{
		"no node waits": {func(w *world) { fail(w, others, "n1") }, "Ready=True/UpToDate", ""},
		"a node joins": {
			func(w *world) { fail(w.bare("n9"), others, "n1") }, stalled, "1 node waits: stopped; settings failed on n1" + remedy + "n1",
		},
		"the profile is edited, and the node with the failure has the edit": {
			func(w *world) {
				w.profiles[0].Spec.Node.Sysctls = map[string]v1alpha1.SettingText{"net.core.rmem_max": "8388608"}
				w.receive(0)
				w.reportAll(0)
				fail(w, others, "n1")
			},
			stalled, "1 node waits: stopped; settings failed on n1" + remedy + "n1",
		},
		"the other profile allows more failures": {
			func(w *world) { allow(w, 2, 1); fail(w.bare("n9"), others, "n1") }, stalled, "1 node waits: stopped; settings failed on n1" + remedy + "n1",
		},
		"both allow more failures, and the canary has failed": {
			func(w *world) { allow(w, 3, 0, 1); fail(w.bare("n9"), others, "n1"); fail(w, others, "n2") },
			stalled, "1 node waits: blocked by the failed canary: n1, n2" + remedy + "n1",
		},
		"this profile allows more failures": {
			func(w *world) { allow(w, 2, 0); fail(w.bare("n9"), others, "n1") },
			stalled, "1 node waits: StorageClientProfile other: stopped; settings failed on n1" + remedy + "n1",
		},
		"this profile does not select the node with the failure": {
			func(w *world) {
				w.profiles[0].Spec.AllNodes, w.profiles[0].Spec.NodeSelector.MatchLabels = false, map[string]string{"pool": "p"}
				w.bare("n9").nodes[2].Labels["pool"] = "p"
				w.receive(0)
				w.reportAll(0)
				fail(w, others, "n1")
			},
			stalled + " MountsEffective=Unknown/Pending", "1 node waits: StorageClientProfile other: stopped; settings failed on n1" + remedy + "n1",
		},
		"together, the failures of both profiles reach the threshold": {
			func(w *world) { allow(w, 2, 0, 1); fail(w.bare("n9"), others, "n1"); fail(w, own, "n2") },
			stalled, "Failed on n2; 1 node waits: stopped; settings failed on n1, n2" + remedy + "n2",
		},
		"a reboot continues": {
			func(w *world) {
				w.profiles[0].Spec.Rollout.Reboot.Policy = v1alpha1.RebootAutomatic
				fail(w.bare("n9"), others, "n1")
				rebootDue(v1alpha1.ReasonWaitingForBudget)(nil, w.objects["n2"])
			},
			"Ready=False/RollingOut Reconciling=True/WaitingForBudget",
			"1/3 nodes and 0/0 volumes up to date; n2: WaitingForBudget: waits for WaitingForBudget; 1 node waits: stopped; settings failed on n1",
		},
		"the profile is paused": {
			func(w *world) { w.profiles[0].Spec.Paused = true; fail(w.bare("n9"), others, "n1") },
			"Ready=False/RollingOut Reconciling=False/PausedByField Paused=True/PausedByField", "2/3 nodes",
		},
		"only one storage server reports the failure, and a new node can prove the settings": {
			func(w *world) { failedBy(others, "filer")(nil, w.bare("n9").objects["n1"]) }, "Ready=False/RollingOut Reconciling=True/RollingOut", "2/3 nodes",
		},
		"another node still applies its settings": {
			func(w *world) {
				fail(w.bare("n9"), others, "n1")
				w.objects["n2"].Status.Hash = "former"
				w.objects["n2"].Status.Settings = nil
			},
			"Ready=False/RollingOut Reconciling=True/RollingOut", "1/3 nodes and 0/0 volumes up to date; 1 node waits: stopped; settings failed on n1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(nil).node("n1", nil).node("n2", nil).withOtherProfile("16777216")
			for i := range w.nodes {
				w.receive(i)
				w.reportAll(i)
			}
			test.change(w)
			r := w.report()
			check.Equal(t, "summary", test.want, summary(r))
			conditions := r.conditions(nil, 1, metav1.NewTime(now))
			got := conditions[0].Message
			if meta.IsStatusConditionTrue(conditions, v1alpha1.ConditionStalled) {
				got = meta.FindStatusCondition(conditions, v1alpha1.ConditionStalled).Message
			}
			if !strings.HasPrefix(got, test.message) {
				t.Errorf("got  %s\nwant %s", got, test.message)
			}
		})
	}
}
