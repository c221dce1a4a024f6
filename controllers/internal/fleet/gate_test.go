package fleet_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/fleet"
	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/tuning/catalogue"
)

// Other nodes wait for a node that has the settings and does not confirm them, so it must name the reason.
func TestANodeThatDoesNotConfirmItsSettingsNamesTheReason(t *testing.T) {
	setting := func(state v1alpha1.SettingState, waitsFor v1alpha1.SettingWait, message string) v1alpha1.SettingStatus {
		return v1alpha1.SettingStatus{Key: netKey, Desired: values[netKey], State: state, WaitsFor: waitsFor, TakesEffect: v1alpha1.EffectLive, Message: message}
	}
	for name, test := range map[string]struct {
		status v1alpha1.SettingStatus
		// bootID is the boot of the report. reason is the reason of the condition Tuned.
		bootID, reason string
		want           string
	}{
		"it has them":                 {setting(v1alpha1.SettingInSync, "", ""), "b", v1alpha1.NodeReasonTuned, ""},
		"it is proving them":          {setting(v1alpha1.SettingPending, v1alpha1.WaitsForProof, "testing"), "b", v1alpha1.NodeReasonApplying, ""},
		"no connection confirms them": {setting(v1alpha1.SettingPending, v1alpha1.WaitsForConnections, "filer does not respond"), "b", v1alpha1.NodeReasonApplying, "filer does not respond"},
		"another program changes one": {setting(v1alpha1.SettingDrifted, "", "find and stop that program"), "b", v1alpha1.NodeReasonDrifted, netKey + ": find and stop that program"},
		"its agent has been silent":   {setting(v1alpha1.SettingInSync, "", ""), "a", v1alpha1.NodeReasonAgentSilent, "the node's agent has not reported since the node's last boot"},
		"its agent restarts":          {setting(v1alpha1.SettingInSync, "", ""), "a", v1alpha1.NodeReasonTuned, ""},
	} {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
			node.Status.NodeInfo.BootID = "b"
			node.Status.Conditions = []corev1.NodeCondition{{Type: v1alpha1.TunedNodeCondition, Reason: test.reason}}
			clientNode := &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
			clientNode.Spec.Settings = []v1alpha1.NodeSetting{{Key: netKey, Value: values[netKey], Profile: "p"}}
			clientNode.Status = v1alpha1.StorageClientNodeStatus{BootID: test.bootID, ObservedGeneration: 1, Settings: []v1alpha1.SettingStatus{test.status}}
			all := fleet.Snapshot{Profiles: fleet.NewProfileSet(nil, catalogue.AllowList{}), Ready: map[string]bool{"n": true}}
			check.Equal(t, "unconfirmed", test.want, fleet.GateEntry(all, node, clientNode, "").Unconfirmed)
		})
	}
}

// Two nodes whose tunnels have one name have two witnesses.
func TestATunnelThatAccusesBelongsToItsNode(t *testing.T) {
	for server, want := range map[string]string{"127.0.0.1:20049": "127.0.0.1:20049 on n", "filer": "filer"} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
		clientNode := &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
		clientNode.Spec.Settings = []v1alpha1.NodeSetting{{Key: netKey, Value: values[netKey], Profile: "p"}}
		clientNode.Status.Settings = []v1alpha1.SettingStatus{{Key: netKey, Desired: values[netKey], State: v1alpha1.SettingFailed, FailedConnections: []string{server}}}
		clientNode.Status.ObservedGeneration, clientNode.Status.BootID = 1, "b"
		node.Status.NodeInfo.BootID = "b"
		all := fleet.Snapshot{Profiles: fleet.NewProfileSet(nil, catalogue.AllowList{}), Ready: map[string]bool{"n": true}}
		check.Equal(t, "accuser", want, fleet.GateEntry(all, node, clientNode, "").Accuser)
	}
}
