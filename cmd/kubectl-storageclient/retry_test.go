package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

// failedNode returns a node that failed its reboot for profile eda.
func failedNode(name string, permitted bool) *v1alpha1.StorageClientNode {
	c := &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: name}}
	c.Spec.Settings = []v1alpha1.NodeSetting{{Key: "kernelArgument/ihash_entries", Value: "16777216", Profile: "eda"}}
	c.Status.Rollout = &v1alpha1.RolloutStatus{Phase: v1alpha1.RolloutFailed, Reason: v1alpha1.RolloutReasonRebootTimedOut}
	if permitted {
		c.Spec.RebootPermit = &v1alpha1.RebootPermit{ID: "1", BootHash: "h", BootID: "b"}
	}
	return c
}

func TestRetry(t *testing.T) {
	const at = "2026-09-01T00:00:00Z"
	withFailures := func(count int32, lost ...string) *v1alpha1.StorageClientProfile {
		p := eda()
		p.Status.Nodes.Failed = count
		for _, name := range lost {
			p.Status.LostNodes = append(p.Status.LostNodes, v1alpha1.LostNode{Name: name})
		}
		return p
	}
	other := failedNode("n7", false)
	other.Spec.Settings[0].Profile = "other"
	waiting := failedNode("n8", false)
	waiting.Status.Rollout.Phase = v1alpha1.RolloutWaiting
	for name, c := range map[string]struct {
		profile *v1alpha1.StorageClientProfile
		nodes   []client.Object
		node    string
		// want is the annotation. Empty if err contains the reason for a missing annotation.
		want, out, err string
	}{
		"a node that is there": {
			withFailures(1), []client.Object{failedNode("n1", false)}, "", at, "Requested a retry of eda on: n1.\n", "",
		},
		"and one that is gone": {
			withFailures(2, "n2"), []client.Object{failedNode("n1", false)}, "", at, "Requested a retry of eda on: n1, n2 (deleted).\n", "",
		},
		"one of them": {
			withFailures(2, "n2"), []client.Object{failedNode("n1", false)}, "n2", at + "/n2", "Requested a retry of eda on: n2 (deleted).\n", "",
		},
		"more than are named": {
			withFailures(9, "n2"), nil, "", at, "Requested a retry of all failed nodes of eda. The agents retry failed settings without this command.\n", "",
		},
		"a node without a response to its permit stays failed": {
			withFailures(2, "n2"), []client.Object{failedNode("n1", true)}, "", at,
			"Requested a retry of eda on: n2 (deleted).\n" +
				"Not retried, no response to the reboot permit: n1. Bring these nodes back, or delete their Nodes and retry.\n", "",
		},
		"nothing has failed": {
			withFailures(0), []client.Object{other, waiting}, "", "", "", "no failed nodes to retry",
		},
		"one that is not named": {
			withFailures(9, "n2"), nil, "n3", at + "/n3", "Requested a retry of eda on n3, if it failed.\n", "",
		},
		"only a node without a response to its permit": {
			withFailures(1), []client.Object{failedNode("n1", true)}, "n1", at + "/n1",
			"Not retried, no response to the reboot permit: n1. Bring these nodes back, or delete their Nodes and retry.\n", "",
		},
		"another node has": {
			withFailures(1), []client.Object{failedNode("n1", false)}, "n3", "", "", "Node n3 has not failed",
		},
	} {
		t.Run(name, func(t *testing.T) {
			args := []string{"retry", "eda"}
			if c.node != "" {
				args = append(args, c.node)
			}
			r := execute(t, interceptor.Funcs{}, append([]client.Object{c.profile}, c.nodes...), args...)
			if (r.err == nil) != (c.err == "") || (r.err != nil && !strings.Contains(r.err.Error(), c.err)) {
				t.Fatalf("error is %v, want %q", r.err, c.err)
			}
			if c.err == "" && r.out != c.out {
				t.Errorf("output (-want +got):\n%s", cmp.Diff(c.out, r.out))
			}
			check.Equal(t, "annotation", c.want, r.annotations(t)[v1alpha1.RetryAnnotation])
		})
	}
}

func TestRetryOfAnUnknownProfileSaysSo(t *testing.T) {
	r := execute(t, interceptor.Funcs{}, nil, "retry", "eda")
	if r.err == nil || !strings.Contains(r.err.Error(), "get StorageClientProfile eda") {
		t.Errorf("error is %v", r.err)
	}
}
