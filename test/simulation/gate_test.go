package simulation

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/test/memapi"
	"github.com/storageclient/operator/tuning/nodesettings"
)

// withSomaxconn returns a live value, and a kernel argument that nodes keep because the profiles disagree about it.
func withSomaxconn(value string) []v1alpha1.NodeSetting {
	return []v1alpha1.NodeSetting{
		{Key: "kernelArgument/ihash_entries", Value: "32767", Profile: "p0"}, {Key: "sysctl/net.core.somaxconn", Value: value, Profile: "p0"},
	}
}

// give has the node controller write settings, and the agent report them.
func give(w *world, name string, settings []v1alpha1.NodeSetting) *v1alpha1.StorageClientNode {
	if w.clientNode(name) == nil {
		w.api.Add(byNodes, &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{
			Name: name, OwnerReferences: []metav1.OwnerReference{{Kind: "Node", Name: name, UID: w.node(name).UID}},
		}})
	}
	memapi.Change(w.api, byNodes, w.clientNode(name), func(c *v1alpha1.StorageClientNode) {
		c.Spec.Settings = settings
		c.Spec.Hash, c.Spec.BootHash = nodesettings.Hashes(settings)
	})
	memapi.Change(w.api, byAgent, w.clientNode(name), func(c *v1alpha1.StorageClientNode) { c.Status.Hash = c.Spec.Hash })
	return w.clientNode(name)
}

// Proofs and starts from before the end of the faults still count.
func TestTheGateCountsTheSettingsThatNodesAlreadyHave(t *testing.T) {
	for name, test := range map[string]struct {
		value  string        // value of n10 at the end of the faults; the profiles declare 32768
		age    time.Duration // age of that value
		change func(*world)
		want   string
	}{
		"the canary has soaked":                             {"32768", time.Hour, nil, ""},
		"the canary soaks":                                  {"32768", time.Second, nil, unproven("n11")},
		"n10 has another value, so n11 is the canary":       {"32767", time.Second, nil, ""},
		"another value does not prove the new one":          {"32767", time.Hour, nil, unproven("n12")},
		"a node without its kernel argument does not count": {"32768", time.Hour, removeArgument, unproven("n12")},
		"a value that will be replaced does not count":      {"32768", time.Hour, selectOtherValue, unproven("n12")},
	} {
		t.Run(name, func(t *testing.T) {
			w := newGateWorld()
			give(w, "n10", withSomaxconn(test.value))
			if test.change != nil {
				test.change(w)
			}
			w.now = w.now.Add(test.age)
			w.calmSince = w.writes
			w.noteKept()
			w.checkGate(give(w, "n11", withSomaxconn("32768")))
			if test.age == time.Hour {
				w.checkGate(give(w, "n12", withSomaxconn("32768")))
			}
			got := ""
			if w.broken != nil {
				got = w.broken.Error()
			}
			check.Equal(t, "result", test.want, got)
		})
	}
}

func unproven(node string) string {
	return "invariant 11: " + node + " gets settings that 2 nodes have, but only 0 of 1 canary nodes of p0 have proven them"
}

// removeArgument removes the kernel argument from the settings of n10.
func removeArgument(w *world) {
	memapi.Change(w.api, byNodes, w.clientNode("n10"), func(c *v1alpha1.StorageClientNode) { c.Spec.Settings = c.Spec.Settings[1:] })
}

// selectOtherValue adds a profile with another value, which selects only n10.
func selectOtherValue(w *world) {
	w.changeNode(byPeople, "n10", func(n *corev1.Node) { n.Labels = map[string]string{"pool": "a"} })
	p := gateProfile("p2", "32769")
	p.Spec.Priority, p.Spec.AllNodes, p.Spec.NodeSelector.MatchLabels = 1, false, map[string]string{"pool": "a"}
	p.Spec.Node.Sysctls["net.core.somaxconn"] = "32769"
	w.api.Add(byPeople, p)
}

// newGateWorld has three nodes, and two profiles for them whose canary is one node.
func newGateWorld() *world {
	w := newWorld(1)
	for _, name := range []string{"n10", "n11", "n12"} {
		w.api.Add(byKubelet, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
		})
	}
	w.api.Add(byPeople, gateProfile("p0", "32768"))
	w.api.Add(byPeople, gateProfile("p1", "32769"))
	return w
}

func gateProfile(name, argument string) *v1alpha1.StorageClientProfile {
	p := &v1alpha1.StorageClientProfile{ObjectMeta: metav1.ObjectMeta{Name: name}}
	p.Spec.AllNodes = true
	p.Spec.Node = &v1alpha1.NodeTuning{
		Sysctls:         map[string]v1alpha1.SettingText{"net.core.somaxconn": "32768"},
		KernelArguments: []v1alpha1.KernelArgument{v1alpha1.KernelArgument("ihash_entries=" + argument)},
	}
	p.Spec.Rollout = v1alpha1.Rollout{
		MaxConcurrentLive: ptr.To(intstr.FromInt32(3)), Canary: &v1alpha1.Canary{Nodes: ptr.To[int32](1), SoakSeconds: ptr.To[int32](60)},
	}
	return p
}
