package main

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/storageclient/operator/api/v1alpha1"
)

// The command names the wait of a node, then that of a volume: also in JSON, and not for a profile that is done.
func TestStatusNamesTheWaitThatHoldsAProfileUp(t *testing.T) {
	open := eda()
	open.Status.Conditions = []metav1.Condition{
		{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonRollingOut, Message: "0/1 nodes up to date", LastTransitionTime: metav1.NewTime(at().Add(-time.Hour))},
		{Type: v1alpha1.ConditionReconciling, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonRollingOut, Message: "0/1 nodes up to date"},
	}
	objects := cluster()
	node, scn, pv := objects[0].(*corev1.Node), objects[1].(*v1alpha1.StorageClientNode), objects[2].(*corev1.PersistentVolume)
	scn.Status.Rollout = &v1alpha1.RolloutStatus{Phase: v1alpha1.RolloutDraining, Reason: v1alpha1.RolloutReasonDrainBlocked, Message: "Pod eda/sim is kept", Since: ptr.To(metav1.NewTime(at().Add(-4 * time.Minute)))}
	node.Annotations = map[string]string{v1alpha1.DisruptionAnnotation: `{"profile":"eda","bootHash":"h","since":"2026-08-31T23:55:00Z"}`}
	pv.Spec.MountOptions, pv.Annotations = nil, map[string]string{corev1.MountOptionAnnotation: "soft"}
	objects = append(objects, open)
	want := "\nHeld up by PersistentVolume pv1: VolumeLegacyAnnotation, for 60m: Not changed: annotation volume.beta.kubernetes.io/mount-options overrides " +
		"spec.mountOptions; move its options there and remove the annotation\n  Action: Move the annotation's options to spec.mountOptions and remove the annotation.\n"
	if r := execute(t, interceptor.Funcs{}, objects, "status", "eda"); r.err != nil || !strings.Contains(r.out, want) {
		t.Errorf("%v: the status lacks %q:\n%s", r.err, want, r.out)
	}
	delete(pv.Annotations, corev1.MountOptionAnnotation)
	want = "\nHeld up by Node n1: DrainBlocked, for 4m: Pod eda/sim is kept; ends on its own by 2026-09-01T00:10:00Z\n"
	if r := execute(t, interceptor.Funcs{}, objects, "status", "eda"); r.err != nil || !strings.Contains(r.out, want) {
		t.Errorf("%v: the status lacks %q:\n%s", r.err, want, r.out)
	}
	held := statusOf(t, execute(t, interceptor.Funcs{}, objects, "status", "eda", "-o", "json")).Profiles[0].Details.HeldUpBy
	if held == nil || held.Name != "Node n1" || held.Reason != v1alpha1.RolloutReasonDrainBlocked || held.Until == nil {
		t.Errorf("got %+v in JSON", held)
	}
	if r := execute(t, interceptor.Funcs{}, append(cluster(), eda()), "status", "eda"); strings.Contains(r.out, "Held up") {
		t.Errorf("a profile that is done is held up:\n%s", r.out)
	}
}
