package plan

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
)

func TestStorageCondition(t *testing.T) {
	since := metav1.NewTime(time.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC))
	server := func(name string, state v1alpha1.ServerState, message string) v1alpha1.ServerStatus {
		return v1alpha1.ServerStatus{Server: name, Protocol: v1alpha1.ServerNFS, State: state, Message: message, Since: &since}
	}
	used := server("filer1", v1alpha1.ServerSilent, "Check the network")
	used.Volumes, used.PodUIDs = []string{"pv1", "pv2"}, []string{"u1"}
	stale := server("filer3", v1alpha1.ServerAnswering, "Restart")
	stale.Reason, stale.Volumes = v1alpha1.ServerReasonStaleHandles, []string{"pv3"}
	for name, test := range map[string]struct {
		servers         []v1alpha1.ServerStatus
		silent          bool
		unfenced        string
		status          corev1.ConditionStatus
		reason, message string
	}{
		"no mounts": {status: corev1.ConditionTrue, reason: v1alpha1.StorageReasonReachable, message: "The node has no mounts from storage servers"},
		"all respond, or are idle": {
			servers: []v1alpha1.ServerStatus{server("a", v1alpha1.ServerAnswering, ""), server("b", v1alpha1.ServerIdle, "Nothing asked")},
			status:  corev1.ConditionTrue, reason: v1alpha1.StorageReasonReachable, message: "No storage server has overdue requests from this node",
		},
		"one is silent": {
			servers: []v1alpha1.ServerStatus{server("a", v1alpha1.ServerAnswering, ""), used},
			status:  corev1.ConditionFalse, reason: v1alpha1.StorageReasonServerSilent,
			message: "NFS server filer1 does not respond since 2026-11-23T08:00:00Z: Check the network (2 volumes pv1, pv2; 1 pod)",
		},
		"one is stuck": {
			servers: []v1alpha1.ServerStatus{server("a", v1alpha1.ServerStuck, "One of four")},
			status:  corev1.ConditionFalse, reason: v1alpha1.StorageReasonServerStuck,
			message: "NFS server a has overdue requests since 2026-11-23T08:00:00Z: One of four",
		},
		"a silent server comes before a stuck server": {
			servers: []v1alpha1.ServerStatus{server("a", v1alpha1.ServerStuck, ""), server("b", v1alpha1.ServerSilent, "")},
			status:  corev1.ConditionFalse, reason: v1alpha1.StorageReasonServerSilent,
			message: "NFS server b does not respond since 2026-11-23T08:00:00Z; NFS server a has overdue requests since 2026-11-23T08:00:00Z",
		},
		"the handles of one are stale": {
			servers: []v1alpha1.ServerStatus{server("a", v1alpha1.ServerAnswering, ""), stale},
			status:  corev1.ConditionFalse, reason: v1alpha1.StorageReasonStaleHandles,
			message: "NFS server filer3 returns stale file handles since 2026-11-23T08:00:00Z: Restart (1 volume pv3)",
		},
		"servers that do not respond come before stale handles": {
			servers: []v1alpha1.ServerStatus{stale, server("a", v1alpha1.ServerStuck, "One of four")},
			status:  corev1.ConditionFalse, reason: v1alpha1.StorageReasonServerStuck,
			message: "NFS server a has overdue requests since 2026-11-23T08:00:00Z: One of four",
		},
		"no agent reports": {
			servers: []v1alpha1.ServerStatus{used}, silent: true, status: corev1.ConditionUnknown, reason: v1alpha1.StorageReasonAgentSilent,
			message: "the node's agent is not Ready",
		},
		"the node gets no agent": {
			unfenced: "apply the manifest", status: corev1.ConditionUnknown, reason: v1alpha1.StorageReasonAgentSilent,
			message: "The node agent is not rolled out to this node: apply the manifest",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := snapshotOf(clientNodeWith(), profile("p", nil))
			s.ClientNode.Status.Servers, s.Unfenced, s.AgentReady = test.servers, test.unfenced, !test.silent
			got, written := StorageCondition(s, s.ClientNode, now)
			if got.Type != "tuning.storageclient.dev/StorageReachable" || got.Status != test.status || got.Reason != test.reason || got.Message != test.message || !written {
				t.Errorf("got written %t: %s %s %s: %q,\nwant %s %s: %q",
					written, got.Type, got.Status, got.Reason, got.Message, test.status, test.reason, test.message)
			}
			s.Node.Status.Conditions = []corev1.NodeCondition{got}
			if again, written := StorageCondition(s, s.ClientNode, now.Add(time.Hour)); written || !again.LastTransitionTime.Equal(&got.LastTransitionTime) {
				t.Errorf("got the condition written again: %v", again)
			}
		})
	}
}
