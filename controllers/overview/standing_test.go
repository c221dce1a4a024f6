package overview

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

func TestStandings(t *testing.T) {
	with := func(name, zone string, tuned corev1.ConditionStatus) corev1.Node {
		n := zoned(name, zone, nil)
		if tuned != "" {
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: v1alpha1.TunedNodeCondition, Status: tuned, Reason: "R-" + string(tuned), Message: "said by the condition"})
		}
		return n
	}
	withPhase := func(name string, phase v1alpha1.RolloutPhase) v1alpha1.StorageClientNode {
		o := object(name, []v1alpha1.NodeSetting{nodeSetting("sysctl/vm.dirty_ratio", "20", "eda")},
			v1alpha1.SettingStatus{Key: "sysctl/vm.dirty_ratio", Desired: "20", State: v1alpha1.SettingInSync})
		o.Status.Rollout = &v1alpha1.RolloutStatus{Phase: phase, Reason: "Noted"}
		return o
	}
	eda := profile("eda", func(*v1alpha1.StorageClientProfileSpec) {})
	clientNodes := []v1alpha1.StorageClientNode{withPhase("done", v1alpha1.RolloutUpToDate), withPhase("drifted", v1alpha1.RolloutUpToDate), withPhase("draining", v1alpha1.RolloutDraining), withPhase("quiet", v1alpha1.RolloutUpToDate)}
	c := Cluster{StorageClientNodes: clientNodes, Nodes: []corev1.Node{
		with("done", "a", corev1.ConditionTrue), with("drifted", "a", corev1.ConditionFalse), with("draining", "b", corev1.ConditionTrue),
		with("quiet", "b", ""), with("live", "b", corev1.ConditionTrue), with("fresh", "b", ""),
	}}
	short := func(all []Progress) map[string]string {
		out := map[string]string{}
		for _, s := range all {
			out[s.Name] = s.Zone + " " + s.Phase + " " + s.Reason
			if s.Done {
				out[s.Name] += " done"
			}
		}
		return out
	}
	want := map[string]string{
		"done": "a UpToDate Noted done", "drifted": "a - R-False", "draining": "b Draining Noted", "quiet": "b UpToDate Noted done",
		"live": "b - R-True done", "fresh": "b - NotManaged",
	}
	check.Equal(t, "standings", want, short(ProgressOf(&eda, c)))
	c.Nodes = NodesOf(clientNodes)
	want = map[string]string{"done": " UpToDate Noted done", "drifted": " UpToDate Noted done", "draining": " Draining Noted", "quiet": " UpToDate Noted done"}
	check.Equal(t, "standings without Nodes", want, short(ProgressOf(&eda, c)))
}
