package status

import (
	"cmp"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume/plan"
	"github.com/storageclient/operator/test/check"
)

// podOf returns a pod and its controller. No controller has it if the kind is empty.
func podOf(namespace, name, kind, controller string) corev1.Pod {
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"pod-template-hash": "6d5"}}}
	if kind != "" {
		pod.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: controller, Controller: new(true)}}
	}
	return pod
}

func TestAProfileThatWaitsForAMount(t *testing.T) {
	claim := types.NamespacedName{Namespace: "eda", Name: "data"}
	awaiting := plan.AwaitedEvidence{Waiting: 3, Until: now, Volumes: []plan.AwaitedVolume{{Name: "pv1", VolumeClaim: claim, MountsPerPod: true}}}
	web := podOf("eda", "web-1", "ReplicaSet", "web-6d5")
	approval := rebootDue(v1alpha1.ReasonWaitingForApproval)
	tests := map[string]struct {
		policy      v1alpha1.RebootPolicy
		change      func(*Report)
		node        func(*corev1.Node, *v1alpha1.StorageClientNode)
		reconciling string
		message     string
	}{
		"names the workload to restart": {
			change: func(r *Report) { r.pods = map[types.NamespacedName][]corev1.Pod{claim: {web, web}} }, reconciling: v1alpha1.ReasonWaitingForEvidence,
			message: "3 volumes wait for a pod to mount pv1 with its new options: restart one of its pods: kubectl rollout restart -n eda deployment/web",
		},
		"or a pod that comes again by itself, or does not": {
			change: func(r *Report) {
				r.pods = map[types.NamespacedName][]corev1.Pod{claim: {podOf("eda", "a", "Job", "a"), podOf("eda", "b", "", "")}}
			},
			reconciling: v1alpha1.ReasonWaitingForEvidence,
			message:     "3 volumes wait for a pod to mount pv1 with its new options: restart one of its pods: kubectl delete pod -n eda a, or recreate Pod eda/b",
		},
		"and reports the condition for a node": {
			change: func(r *Report) {
				r.pods = map[types.NamespacedName][]corev1.Pod{claim: {web}}
				r.volumes.Evidence.Volumes = []plan.AwaitedVolume{{Name: "pv1", VolumeClaim: claim, Server: "filer"}}
			},
			reconciling: v1alpha1.ReasonWaitingForEvidence,
			message: "3 volumes wait for a pod to mount pv1 with its new options: restart one of its pods: kubectl rollout restart -n eda deployment/web" +
				"; nconnect is visible only on a node without other mounts from filer",
		},
		"or that no pod uses the volume": {
			change: func(r *Report) { r.volumes.Evidence.Waiting, r.volumes.Matched = 1, 2 }, reconciling: v1alpha1.ReasonWaitingForEvidence,
			message: "1 volume waits for a pod to mount pv1 with its new options; no Pod uses it; start one, or set rollout.volumes.onNoEvidence to Proceed",
		},
		"names a volume that was created before the options were proven": {
			change: func(r *Report) { r.volumes.Evidence.LeftOut = "pv2" }, reconciling: v1alpha1.ReasonWaitingForEvidence,
			message: "3 volumes wait for a pod to mount pv1 with its new options; no Pod uses it; start one, or set rollout.volumes.onNoEvidence to Proceed" +
				"; then restart the Pods of pv2",
		},
		"and hides neither the workload nor the condition for a node": {
			change: func(r *Report) {
				r.pods, r.volumes.Evidence.LeftOut = map[types.NamespacedName][]corev1.Pod{claim: {web}}, "pv2"
				r.volumes.Evidence.Volumes = []plan.AwaitedVolume{{Name: "pv1", VolumeClaim: claim, Server: "filer"}}
			}, reconciling: v1alpha1.ReasonWaitingForEvidence,
			message: "3 volumes wait for a pod to mount pv1 with its new options: restart one of its pods: kubectl rollout restart -n eda deployment/web" +
				"; nconnect is visible only on a node without other mounts from filer" +
				"; then restart the Pods of pv2",
		},
		"not while the canary soaks": {
			change: func(r *Report) {
				r.volumes.Evidence.Until, r.volumes.Batch = now.Add(time.Second), "the canary pv1 soaks"
			},
			reconciling: v1alpha1.ReasonRollingOut, message: "1/1 nodes and 1/4 volumes up to date; the canary pv1 soaks",
		},
		"not while other volumes are on their way": {
			change: func(r *Report) { r.volumes.Matched = 5 }, reconciling: v1alpha1.ReasonRollingOut, message: "1/1 nodes and 1/5 volumes up to date",
		},
		"also if the due reboot is not allowed": {
			node: rebootDue(v1alpha1.RolloutReasonRebootPolicyNever), policy: v1alpha1.RebootNever,
			reconciling: v1alpha1.ReasonWaitingForEvidence,
			message:     "3 volumes wait for a pod to mount pv1 with its new options; no Pod uses it; start one, or set rollout.volumes.onNoEvidence to Proceed",
		},
		"and hides no approval that is due": {node: approval, reconciling: v1alpha1.ReasonWaitingForApproval, message: "The plan needs approval"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := newWorld(policy(cmp.Or(test.policy, v1alpha1.RebootOnApproval))).node("a", test.node).report()
			r.volumes = plan.Summary{Matched: 4, UpToDate: 1, Evidence: awaiting}
			if test.change != nil {
				test.change(&r)
			}
			got := r.evaluateReconciling(r.evaluateStalled())
			if got.status != metav1.ConditionTrue || got.reason != test.reconciling || got.message != test.message {
				t.Errorf("Reconciling is %s/%s: %q\nwant %s: %q", got.status, got.reason, got.message, test.reconciling, test.message)
			}
			ready := r.evaluateReady(r.evaluateStalled())
			inReady, _, _ := strings.Cut(test.message, "; then") // it has less room
			if ready.status != metav1.ConditionFalse || test.reconciling == v1alpha1.ReasonWaitingForEvidence && !strings.Contains(ready.message, inReady) {
				t.Errorf("Ready is %s: %q", ready.status, ready.message)
			}
			if claims := r.AwaitedClaims(); (len(claims) == 1) != (test.reconciling != v1alpha1.ReasonRollingOut) {
				t.Errorf("the pods of %v are to be read", claims)
			}
		})
	}
}

func TestTheStatusIsDueWhenASoakEnds(t *testing.T) {
	r := newWorld(nil).node("a", nil).report()
	r.volumes.Evidence = plan.AwaitedEvidence{Waiting: 1, Until: now.Add(time.Minute)}
	check.Equal(t, "time until the next evaluation of the status", time.Minute, r.RequeueAfter(now))
	if after := r.RequeueAfter(now.Add(time.Hour)); after != 0 {
		t.Errorf("the status is judged again after %s although nothing changes by time", after)
	}
}
