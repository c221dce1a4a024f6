package overview

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

// The profile that claimed the node sets the limits, and a drain counts from the claim. A time that is past is no end.
func TestWaitsEndByTheRulesOfTheClaim(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC) // a Monday
	before := func(d time.Duration) *metav1.Time { return ptr.To(metav1.NewTime(now.Add(-d))) }
	profile := func(name string, seconds int32, windows ...v1alpha1.Window) v1alpha1.StorageClientProfile {
		p := v1alpha1.StorageClientProfile{ObjectMeta: metav1.ObjectMeta{Name: name}}
		p.Spec.AllNodes, p.Spec.Rollout.Windows = true, windows
		p.Spec.Rollout.Drain.TimeoutSeconds, p.Spec.Rollout.Reboot.TimeoutSeconds = &seconds, &seconds
		return p
	}
	saturday, always := v1alpha1.Window{Schedule: "0 2 * * 6", DurationSeconds: 3600}, v1alpha1.Window{Schedule: "* * * * *", DurationSeconds: 3600}
	claimed := func(by string, since *metav1.Time) map[string]string {
		return map[string]string{v1alpha1.DisruptionAnnotation: `{"profile":"` + by + `","bootHash":"h","since":"` + since.UTC().Format(time.RFC3339) + `"}`}
	}
	for name, test := range map[string]struct {
		note        v1alpha1.RolloutStatus
		annotations map[string]string
		windows     []v1alpha1.Window
		want        *metav1.Time
	}{
		"a drain, from the claim": {v1alpha1.RolloutStatus{Phase: v1alpha1.RolloutDraining, Since: before(time.Minute)},
			claimed("p", before(5*time.Minute)), nil, before(-5 * time.Minute)},
		"a drain for another profile": {v1alpha1.RolloutStatus{Phase: v1alpha1.RolloutDraining, Since: before(time.Minute)},
			claimed("slow", before(5*time.Minute)), nil, before(-55 * time.Minute)},
		"a drain that should be over": {v1alpha1.RolloutStatus{Phase: v1alpha1.RolloutDraining, Since: before(time.Minute)},
			claimed("p", before(time.Hour)), nil, nil},
		"a reboot, from its permit": {v1alpha1.RolloutStatus{Phase: v1alpha1.RolloutRebooting, Since: before(time.Minute)},
			claimed("p", before(5*time.Minute)), nil, before(-9 * time.Minute)},
		"a closed window": {v1alpha1.RolloutStatus{Phase: v1alpha1.RolloutWaiting, Reason: v1alpha1.RolloutReasonWaitingForWindow, Since: before(time.Hour)},
			nil, []v1alpha1.Window{saturday}, ptr.To(metav1.NewTime(time.Date(2026, 12, 5, 2, 0, 0, 0, time.UTC)))},
		"a closed window of another profile": {v1alpha1.RolloutStatus{Phase: v1alpha1.RolloutWaiting, Reason: v1alpha1.RolloutReasonWaitingForWindow, Since: before(time.Hour)},
			nil, []v1alpha1.Window{always}, nil},
		"a pause": {v1alpha1.RolloutStatus{Phase: v1alpha1.RolloutWaiting, Reason: v1alpha1.RolloutReasonBackingOff, Since: before(time.Hour), RetryAfter: before(-time.Minute)},
			nil, nil, before(-time.Minute)},
	} {
		t.Run(name, func(t *testing.T) {
			p := profile("p", 600, test.windows...)
			node := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", Annotations: test.annotations, Labels: map[string]string{corev1.LabelOSStable: "linux"}}}
			clientNode := v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
			clientNode.Status.Rollout = &test.note
			waits := Waits(&p, Cluster{Profiles: []v1alpha1.StorageClientProfile{p, profile("slow", 3600)}, Nodes: []corev1.Node{node},
				StorageClientNodes: []v1alpha1.StorageClientNode{clientNode}, Now: now})
			check.Equal(t, "waits", 1, len(waits))
			check.Equal(t, "end", timeOf(test.want).UTC(), timeOf(waits[0].Until).UTC())
		})
	}
}
