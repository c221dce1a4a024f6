package overview

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

// friday is noon on a Friday.
var friday = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func zoned(name, zone string, change func(*corev1.Node)) corev1.Node {
	n := node(name, map[string]string{"pool": "eda", corev1.LabelTopologyZone: zone})
	if change != nil {
		change(&n)
	}
	return n
}

func annotated(key string) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Annotations = map[string]string{key: "true"} }
}

func TestPlanListsRebootsInTheOrderOfTheRollout(t *testing.T) {
	cluster := Cluster{
		MaxUnavailable: intstr.FromString("5%"), Now: friday, ManagerNode: "manager",
		Nodes: []corev1.Node{
			zoned("manager", "a", nil),
			zoned("chosen", "y", func(n *corev1.Node) { n.Labels["canary"] = "yes" }),
			zoned("b-2", "b", nil),
			zoned("b-1", "b", func(n *corev1.Node) { n.CreationTimestamp = metav1.NewTime(friday) }),
			zoned("never", "a", annotated(v1alpha1.NeverDisruptAnnotation)),
			zoned("odd", "a", func(n *corev1.Node) { n.Annotations = map[string]string{v1alpha1.PausedAnnotation: "yes"} }),
			zoned("down", "a", func(n *corev1.Node) { n.Status.Conditions = nil }),
			zoned("cordoned", "a", func(n *corev1.Node) { n.Spec.Unschedulable = true }),
			zoned("ours", "c", func(n *corev1.Node) {
				n.Spec.Unschedulable, n.Status.Conditions = true, nil
				annotated(v1alpha1.DisruptionAnnotation)(n)
			}),
		},
	}
	p := profile("eda", func(s *v1alpha1.StorageClientProfileSpec) {
		s.Node.KernelArguments = []v1alpha1.KernelArgument{"ihash_entries=16777216"}
		s.Rollout.Canary = &v1alpha1.Canary{NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"canary": "yes"}}}
		s.Rollout.Windows = []v1alpha1.Window{{Schedule: "0 2 * * 6", DurationSeconds: 14400}}
	})
	cluster.Profiles = []v1alpha1.StorageClientProfile{p}
	got := Plan(&p, cluster)
	var order []string
	for _, r := range got.Reboots {
		order = append(order, strings.TrimSuffix(r.Node+" in "+r.Zone+": "+r.Held, ": "))
	}
	want := []string{
		"chosen in y", "b-2 in b", "b-1 in b", "ours in c", "manager in a", "cordoned in a: node was cordoned by another controller or user",
		"down in a: node is not Ready", "never in a: node has the annotation " + v1alpha1.NeverDisruptAnnotation,
		"odd in a: node has the annotation " + v1alpha1.PausedAnnotation + `="yes" (counts as true; use true or false)`,
	}
	check.Equal(t, "order", want, order)
	// Five nodes reboot one at a time, and each takes five and a half minutes.
	opens := time.Date(2026, 11, 21, 2, 0, 0, 0, time.UTC)
	if got.Earliest == nil || !got.Earliest.Time.Equal(opens) || got.EstimatedCompletion == nil || !got.EstimatedCompletion.Time.Equal(opens.Add(27*time.Minute+30*time.Second)) {
		t.Errorf("got a rollout from %s to %s", got.Earliest, got.EstimatedCompletion)
	}
	p.Spec.Rollout.Reboot.Policy = v1alpha1.RebootNever
	if got := Plan(&p, cluster); len(got.Reboots) == 0 || got.Earliest != nil || got.EstimatedCompletion != nil {
		t.Errorf("with policy Never: got a rollout from %s to %s, want none", got.Earliest, got.EstimatedCompletion)
	}
}

func TestForecastReboots(t *testing.T) {
	at := func(day, hour, minute, second int) time.Time {
		return time.Date(2026, 11, day, hour, minute, second, 0, time.UTC)
	}
	daily := func(seconds int32, schedules ...string) []v1alpha1.Window {
		var out []v1alpha1.Window
		for _, schedule := range schedules {
			out = append(out, v1alpha1.Window{Schedule: schedule, DurationSeconds: seconds})
		}
		return out
	}
	percent := func(share string) *intstr.IntOrString { v := intstr.FromString(share); return &v }
	for name, c := range map[string]struct {
		change      func(*v1alpha1.Rollout)
		reboots     int
		all         string
		first, last time.Time
	}{
		"without windows it starts at once": {nil, 3, "100%", at(20, 12, 0, 0), at(20, 12, 16, 30)},
		"nothing to do takes no time":       {nil, 0, "100%", at(20, 12, 0, 0), time.Time{}},
		"as many at a time as the profile allows": {
			func(r *v1alpha1.Rollout) { r.MaxUnavailable = percent("20%") }, 3, "100%", at(20, 12, 0, 0), at(20, 12, 11, 0),
		},
		"and the cluster": {
			func(r *v1alpha1.Rollout) { r.MaxUnavailable = percent("20%") }, 3, "5%", at(20, 12, 0, 0), at(20, 12, 16, 30),
		},
		"load balancers get their time before each drain": {
			func(r *v1alpha1.Rollout) { r.Drain.ExcludeFromLoadBalancersSeconds = 60 }, 2, "100%", at(20, 12, 0, 0), at(20, 12, 13, 0),
		},
		"a closed window is waited for": {
			func(r *v1alpha1.Rollout) { r.Windows = daily(3600, "0 13 * * *") }, 2, "100%", at(20, 13, 0, 0), at(20, 13, 11, 0),
		},
		"what does not fit waits for the next opening": {
			// Drains start at 13:00:00, 13:05:30 and 14:00:00.
			func(r *v1alpha1.Rollout) { r.Windows = daily(540, "0 13,14 * * *") }, 3, "100%", at(20, 13, 0, 0), at(20, 14, 5, 30),
		},
		"a drain that ends as the window closes fits": {
			func(r *v1alpha1.Rollout) { r.Windows = daily(450, "0 13,14 * * *") }, 2, "100%", at(20, 13, 0, 0), at(20, 13, 11, 0),
		},
		"one that would be cut off does not": {
			func(r *v1alpha1.Rollout) { r.Windows = daily(449, "0 13,14 * * *") }, 2, "100%", at(20, 13, 0, 0), at(20, 14, 5, 30),
		},
		"the rest of an open window counts": {
			func(r *v1alpha1.Rollout) { r.Windows = daily(3900, "0 11 * * *") }, 2, "100%", at(20, 12, 0, 0), at(21, 11, 5, 30),
		},
		"a rest that is too short for a drain does not": {
			func(r *v1alpha1.Rollout) { r.Windows = daily(3660, "0 11 * * *") }, 1, "100%", at(20, 12, 0, 0), at(21, 11, 5, 30),
		},
		"windows that follow each other are one": {
			func(r *v1alpha1.Rollout) {
				r.Windows, r.Drain.ExcludeFromLoadBalancersSeconds = daily(60, "0-9 13 * * *"), 60
			},
			1, "100%", at(20, 13, 0, 0), at(20, 13, 6, 30),
		},
		"windows that never end": {
			func(r *v1alpha1.Rollout) { r.Windows = daily(3600, "0 * * * *") }, 20, "100%", at(20, 12, 0, 0), at(20, 13, 50, 0),
		},
		"no opening is long enough": {
			func(r *v1alpha1.Rollout) { r.Windows = daily(60, "0 13 * * *") }, 1, "100%", at(20, 13, 0, 0), time.Time{},
		},
		"a window that cannot be read": {
			func(r *v1alpha1.Rollout) { r.Windows = daily(60, "at noon") }, 1, "100%", time.Time{}, time.Time{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := profile("eda", func(s *v1alpha1.StorageClientProfileSpec) {
				if c.change != nil {
					c.change(&s.Rollout)
				}
			})
			got := ForecastReboots(&p, c.reboots, Fleet{Matched: 10, All: 20, MaxUnavailable: intstr.FromString(c.all)}, friday)
			check.Equal(t, "result", Forecast{First: c.first, Last: c.last}, got)
		})
	}
}
