package plan

import (
	"testing"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
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
