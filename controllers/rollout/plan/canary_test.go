package plan

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/livegate"
	"github.com/storageclient/operator/test/check"
)

// x is younger and vacant, so it is claimed first. It becomes the canary of all nodes of the deleted profile, including y.
func TestForANodeClaimedInThisPlanIsTheCanaryOfADeletedProfile(t *testing.T) {
	f := cluster("y", "x")
	f.profile("q")
	for i := range f.Profiles {
		p := &f.Profiles[i]
		p.Rollout.Canary = &v1alpha1.Canary{Nodes: ptr.To[int32](1), SoakSeconds: ptr.To[int32](60)}
		p.Rollout.Reboot.RestoreReboot = true
	}
	f.Profiles[0].Deleting = true
	f.Profiles[1].BootKeys = sets.New("kernelArgument/b")
	y := f.node("y").ClientNode
	y.Spec.Release, y.Status.Restored = true, true
	n := f.node("x")
	n.Profiles, n.Untuned, n.Vacant = []string{"eda", "q"}, true, true
	x := n.ClientNode
	x.Spec.Settings = []v1alpha1.NodeSetting{{Key: "kernelArgument/b", Value: "1", Profile: "q"}}
	x.Status.Settings = append(x.Status.Settings, v1alpha1.SettingStatus{Key: "kernelArgument/b", State: v1alpha1.SettingInSync})
	want := []string{"claim x for eda", "x: Claimed Claimed", "y: Waiting WaitingForCanary"}
	check.Equal(t, "plan", want, lines(For(f.Snapshot), "x", "y"))
}

// a is first in the order, and cannot get or report its settings. It is the canary for a while, with its reason in the message of b. Then b is.
func TestForANodeThatCannotFollowIsNoCanaryForLong(t *testing.T) {
	for name, test := range map[string]struct {
		change func(n *Node, since time.Time)
		reason string
	}{
		"its agent is silent": {func(n *Node, since time.Time) { n.AgentReady, n.AgentSilent, n.SilentSince = false, true, since }, "a (its agent has been silent since "},
		"its agent has not reported": {func(n *Node, since time.Time) { n.ClientNode.Status.Hash, n.ApplyingSince = "h0", since },
			"a (the agent has not reported the desired settings yet"},
		"another profile holds it": {func(n *Node, since time.Time) {
			n.ClientNode.DesiredBootHash, n.BehindSince = "b9", since
		}, "a (the new settings that require a reboot have not reached the node yet"},
	} {
		t.Run(name, func(t *testing.T) {
			for silence, isWaitedFor := range map[time.Duration]bool{livegate.LostAfter - time.Second: true, livegate.LostAfter: false} {
				f := cluster("a", "b")
				f.Profiles[0].Rollout.Canary = &v1alpha1.Canary{Nodes: ptr.To[int32](1), SoakSeconds: ptr.To[int32](60)}
				test.change(f.node("a"), noon.Add(-silence))
				f.node("b").ClientNode.DesiredBootHash = f.node("a").ClientNode.DesiredBootHash
				f.node("b").ClientNode.Spec.BootHash = f.node("a").ClientNode.DesiredBootHash
				next := For(f.Snapshot)
				note := next.Notes["b"]
				isClaimed := note.Reason == v1alpha1.RolloutReasonClaimed
				if isClaimed == isWaitedFor || isWaitedFor && (note.Reason != v1alpha1.RolloutReasonWaitingForCanary || !strings.Contains(note.Message, test.reason)) {
					t.Errorf("after %s: got %v, %s: %s; want a wait %t, and the reason of a", silence, lines(next), note.Reason, note.Message, isWaitedFor)
				}
				if isWaitedFor && !next.Next.Equal(noon.Add(time.Second)) {
					t.Errorf("got the next plan at %s, want the end of the wait", next.Next)
				}
			}
		})
	}
}
