package agentpod

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

func TestReady(t *testing.T) {
	ready := corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
	for name, test := range map[string]struct {
		pod  corev1.Pod
		want bool
	}{
		"a Pod that is Ready":                    {corev1.Pod{Status: ready}, true},
		"a Pod without conditions":               {corev1.Pod{}, false},
		"a Pod that is not":                      {corev1.Pod{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}}}}, false},
		"a Pod that is Ready and on its way out": {corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{Time: time.Unix(1, 0)}}, Status: ready}, false},
	} {
		t.Run(name, func(t *testing.T) {
			check.Equal(t, "result", test.want, IsReady(&test.pod))
		})
	}
}

func TestSilent(t *testing.T) {
	node := &corev1.Node{}
	node.Status.NodeInfo.BootID = "boot-2"
	reported := func(bootID string) *v1alpha1.StorageClientNode {
		return &v1alpha1.StorageClientNode{Status: v1alpha1.StorageClientNodeStatus{BootID: bootID}}
	}
	for name, test := range map[string]struct {
		clientNode *v1alpha1.StorageClientNode
		ready      bool
		want       string
	}{
		"alive, and reported in this boot":     {reported("boot-2"), true, ""},
		"its Pod is not Ready":                 {reported("boot-2"), false, "the node's agent is not Ready"},
		"it has not reported":                  {reported(""), true, "the node's agent has not reported yet"},
		"the report is from the previous boot": {reported("boot-1"), true, "the node's agent has not reported since the node's last boot"},
	} {
		t.Run(name, func(t *testing.T) {
			check.Equal(t, "result", test.want, SilentReason(node, test.clientNode, test.ready))
		})
	}
}
