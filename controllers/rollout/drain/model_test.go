package drain

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

// noon is the time of the models.
var noon = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

func tolerating(t corev1.Toleration) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.Tolerations = append(p.Spec.Tolerations, t) }
}

func annotated(key, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Annotations = map[string]string{key: value} }
}

// ends is a terminating pod whose grace period ends at a time.
func ends(at time.Time, grace int64) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds, p.Finalizers = &metav1.Time{Time: at}, &grace, []string{"example.com/stays"}
	}
}

func graceOf(seconds int64) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = &seconds }
}

func pending(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }

func modelOf(t *testing.T, options v1alpha1.Drain, pods ...*corev1.Pod) model {
	t.Helper()
	var list []corev1.Pod
	for _, p := range pods {
		list = append(list, *p)
	}
	m, err := newModel(list, options, noon)
	check.NoError(t, err)
	return m
}

func TestPodsThatWouldComeBackStay(t *testing.T) {
	const key = corev1.TaintNodeUnschedulable
	everything := tolerating(corev1.Toleration{Operator: corev1.TolerationOpExists})
	for name, c := range map[string]struct {
		change []func(*corev1.Pod)
		stays  bool
	}{
		"no toleration":                              {nil, false},
		"everything":                                 {[]func(*corev1.Pod){everything}, true},
		"every taint with the effect NoSchedule":     {[]func(*corev1.Pod){tolerating(corev1.Toleration{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule})}, true},
		"every taint with another effect":            {[]func(*corev1.Pod){tolerating(corev1.Toleration{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute})}, false},
		"the key":                                    {[]func(*corev1.Pod){tolerating(corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists})}, true},
		"the key with the effect":                    {[]func(*corev1.Pod){tolerating(corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule})}, true},
		"the key with another effect":                {[]func(*corev1.Pod){tolerating(corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute})}, false},
		"the key with its empty value":               {[]func(*corev1.Pod){tolerating(corev1.Toleration{Key: key, Operator: corev1.TolerationOpEqual})}, true},
		"the key with its empty value, by default":   {[]func(*corev1.Pod){tolerating(corev1.Toleration{Key: key})}, true},
		"the key with another value":                 {[]func(*corev1.Pod){tolerating(corev1.Toleration{Key: key, Value: "x"})}, false},
		"another key":                                {[]func(*corev1.Pod){tolerating(corev1.Toleration{Key: "team", Operator: corev1.TolerationOpExists})}, false},
		"the second of two":                          {[]func(*corev1.Pod){tolerating(corev1.Toleration{Key: "team"}), everything}, true},
		"everything, and local data":                 {[]func(*corev1.Pod){everything, scratch}, true},
		"everything, but no controller creates it":   {[]func(*corev1.Pod){everything, bare}, false},
		"everything, but a Job runs":                 {[]func(*corev1.Pod){everything, ownedBy("batch/v1", "Job")}, false},
		"everything, and the pod already terminates": {[]func(*corev1.Pod){everything, ends(noon, 30)}, false},
		"everything, and a Job never started":        {[]func(*corev1.Pod){everything, ownedBy("batch/v1", "Job"), pending}, true},
	} {
		t.Run(name, func(t *testing.T) {
			m := modelOf(t, options(nil), pod("web", c.change...))
			stays := len(m.Left) == 1 && m.Left[0].UID == "web-uid" && m.Names["web-uid"] == "" && len(m.evictable) == 0
			if stays != c.stays || len(m.Left) > 0 != c.stays || len(m.IgnoredPodUIDs) > 0 {
				t.Errorf("got left %v, ignored %v, evictable %d; want the pod to stay: %t", m.Left, m.IgnoredPodUIDs, len(m.evictable), c.stays)
			}
			if want := "Left on the node: Pod eda/web tolerates the taint " + key; c.stays && m.Remarks() != want {
				t.Errorf("got remarks %q, want %q", m.Remarks(), want)
			}
		})
	}
}

func TestPodsThatStayWithTheirVolumes(t *testing.T) {
	volume := func(source corev1.VolumeSource) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "v", VolumeSource: source})
		}
	}
	claim := volume(corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}})
	ephemeral := volume(corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}})
	local := volume(corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}})
	returning, daemon := tolerating(corev1.Toleration{Operator: corev1.TolerationOpExists}), ownedBy("apps/v1", "DaemonSet")
	for name, c := range map[string]struct {
		change []func(*corev1.Pod)
		want   bool
	}{
		"a pod of a DaemonSet with a claim":             {[]func(*corev1.Pod){daemon, claim}, true},
		"a pod of a DaemonSet with a directory":         {[]func(*corev1.Pod){daemon, local}, false},
		"a pod that comes back, with a claim":           {[]func(*corev1.Pod){returning, local, claim}, true},
		"a pod that comes back, with its own volume":    {[]func(*corev1.Pod){returning, ephemeral}, true},
		"a pod that comes back, with a directory":       {[]func(*corev1.Pod){returning, local}, false},
		"a pod that leaves, with a claim":               {[]func(*corev1.Pod){claim}, false},
		"a pod that comes back, but already terminates": {[]func(*corev1.Pod){returning, claim, ends(noon, 30)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			check.Equal(t, "keeps volumes", c.want, modelOf(t, options(nil), pod("web", c.change...)).KeepsVolumes)
		})
	}
}

// One pod with a volume is sufficient, whatever pods follow it.
func TestEveryPodThatStaysCounts(t *testing.T) {
	claim := func(pod *corev1.Pod) {
		source := corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "v", VolumeSource: source})
	}
	for name, change := range map[string]func(*corev1.Pod){"DaemonSet": ownedBy("apps/v1", "DaemonSet"), "returning": tolerating(corev1.Toleration{Operator: corev1.TolerationOpExists})} {
		if !modelOf(t, options(nil), pod("a", change, claim), pod("b", change)).KeepsVolumes {
			t.Errorf("%s: got no volume of the first pod", name)
		}
	}
}

func TestPodsThatCannotLeaveWithinTheDrain(t *testing.T) {
	for name, c := range map[string]struct {
		pod     *corev1.Pod
		options func(*v1alpha1.Drain)
		want    string
	}{
		"terminating since hours": {pod("a", ends(noon.Add(-6*time.Hour), 30)), nil,
			"Pod eda/a should have terminated at 2026-11-26T06:00:00Z; check its finalizers, its volumes and the kubelet, or delete it with --force"},
		"five minutes after its grace period":               {pod("a", ends(noon.Add(-5*time.Minute), 30)), nil, "Waiting for pod eda/a to terminate"},
		"within its grace period":                           {pod("a", ends(noon.Add(10*time.Minute), 600)), nil, "Waiting for pod eda/a to terminate"},
		"terminating until tomorrow":                        {pod("a", ends(noon.Add(23*time.Hour), 86400)), nil, "Pod eda/a may terminate until 2026-11-27T11:00:00Z, but the drain has 900 seconds; raise rollout.drain.timeoutSeconds, or wait"},
		"a short grace period by a clock that is ahead":     {pod("a", ends(noon.Add(20*time.Minute), 600)), nil, "Waiting for pod eda/a to terminate"},
		"a grace period of a day":                           {pod("a", graceOf(86400)), nil, "Pod eda/a has a grace period of 86400 seconds, but the drain has 900 seconds; raise rollout.drain.timeoutSeconds"},
		"a grace period as long as the drain":               {pod("a", graceOf(900)), nil, ""},
		"a grace period of a day, and the pod never ran":    {pod("a", graceOf(86400), pending), nil, ""},
		"a day, and time does not matter":                   {pod("a", graceOf(86400)), func(d *v1alpha1.Drain) { d.TimeoutSeconds = nil }, ""},
		"a day left to terminate, and time does not matter": {pod("a", ends(noon.Add(23*time.Hour), 86400)), func(d *v1alpha1.Drain) { d.TimeoutSeconds = nil }, "Waiting for pod eda/a to terminate"},
		"terminating for as long as the drain":              {pod("a", ends(noon.Add(900*time.Second), 900)), nil, "Waiting for pod eda/a to terminate"},
		"a Job's pod that does not terminate":               {pod("a", ownedBy("batch/v1", "Job"), ends(noon.Add(-6*time.Hour), 30)), nil, "Pod eda/a should have terminated at"},
		"a Job that runs":                                   {pod("a", ownedBy("batch/v1", "Job"), graceOf(86400)), nil, "Waiting for pod eda/a to finish"},
		"a Job whose pod never started":                     {pod("a", ownedBy("batch/v1", "Job"), pending, scratch), nil, ""},
		"a Job whose init container runs":                   {pod("a", ownedBy("batch/v1", "Job"), pending, initRuns), nil, "Waiting for pod eda/a to finish"},
		"a Job whose init container has ended": {
			pod("a", ownedBy("batch/v1", "Job"), pending, startedAgo(time.Hour), initStatus(corev1.ContainerStatus{State: ended})), nil, "Waiting for pod eda/a to finish",
		},
		"a Job whose init container has failed and waits": {
			pod("a", ownedBy("batch/v1", "Job"), pending, startedAgo(time.Hour), initStatus(corev1.ContainerStatus{LastTerminationState: ended})), nil,
			"Waiting for pod eda/a to finish",
		},
		"a Job whose container has crashed and starts again": {pod("a", ownedBy("batch/v1", "Job"), pending, crashed), nil, "Waiting for pod eda/a to finish"},
		"a Job whose pod has waited for ten minutes":         {pod("a", ownedBy("batch/v1", "Job"), pending, startedAgo(10*time.Minute)), nil, "Waiting for pod eda/a to finish"},
		"a Job whose pod has waited for longer":              {pod("a", ownedBy("batch/v1", "Job"), pending, startedAgo(10*time.Minute+time.Second)), nil, ""},
		"a Job whose pod the kubelet has not seen yet":       {pod("a", ownedBy("batch/v1", "Job"), pending, createdAgo(time.Minute)), nil, "Waiting for pod eda/a to finish"},
		"a Job whose pod the kubelet has not seen for long":  {pod("a", ownedBy("batch/v1", "Job"), pending, createdAgo(time.Hour)), nil, ""},
		"a Job on a node whose clock is behind":              {pod("a", ownedBy("batch/v1", "Job"), pending, createdAgo(time.Minute), startedAgo(11*time.Minute)), nil, "Waiting for pod eda/a to finish"},
		"a Job that was queued for long and starts":          {pod("a", ownedBy("batch/v1", "Job"), pending, createdAgo(time.Hour), startedAgo(time.Minute)), nil, "Waiting for pod eda/a to finish"},
		"a Job whose image is pulled, or volume mounted":     {pod("a", ownedBy("batch/v1", "Job"), pending, startedAgo(time.Minute), waits("ContainerCreating")), nil, "Waiting for pod eda/a to finish"},
		"a Job whose init containers wait":                   {pod("a", ownedBy("batch/v1", "Job"), pending, startedAgo(time.Minute), waits("PodInitializing")), nil, "Waiting for pod eda/a to finish"},
		"a Job whose image cannot be pulled":                 {pod("a", ownedBy("batch/v1", "Job"), pending, startedAgo(time.Minute), waits("ErrImagePull")), nil, ""},
		"a Job whose init container's image cannot be pulled": {
			pod("a", ownedBy("batch/v1", "Job"), pending, startedAgo(time.Minute), initStatus(corev1.ContainerStatus{
				State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull"}},
			})), nil, "",
		},
		"a Job whose containers have no state yet": {
			pod("a", ownedBy("batch/v1", "Job"), pending, startedAgo(time.Minute), initStatus(corev1.ContainerStatus{})), nil, "Waiting for pod eda/a to finish",
		},
		"a pod with a claim and no local data": {pod("a", func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
		}), nil, ""},
		"a Job whose pull backs off":                   {pod("a", ownedBy("batch/v1", "Job"), pending, startedAgo(time.Minute), waits("ImagePullBackOff")), nil, ""},
		"a Job whose configuration is missing":         {pod("a", ownedBy("batch/v1", "Job"), pending, startedAgo(time.Minute), waits("CreateContainerConfigError")), nil, ""},
		"a Job whose image name is not valid":          {pod("a", ownedBy("batch/v1", "Job"), pending, startedAgo(time.Minute), waits("InvalidImageName")), nil, ""},
		"a Job whose image went away after it had run": {pod("a", ownedBy("batch/v1", "Job"), pending, startedAgo(time.Hour), waits("ImagePullBackOff"), initRuns), nil, "Waiting for pod eda/a to finish"},
		"a pod to wait for that pulls its image": {pod("a", pending, startedAgo(time.Minute)), func(d *v1alpha1.Drain) {
			d.WaitForPodSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}}
		}, "Waiting for pod eda/a to finish"},
		"a pod to wait for that never started": {pod("a", pending), func(d *v1alpha1.Drain) {
			d.WaitForPodSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}}
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			m := modelOf(t, options(c.options), c.pod)
			if c.want == "" && (!m.Done() || len(m.evictable) != 1) {
				t.Errorf("got %s, %d evictable; want an evictable pod", m.Result, len(m.evictable))
			} else if c.want != "" && !strings.HasPrefix(m.String(), c.want) {
				t.Errorf("got %q, want %q", m.Result, c.want)
			}
		})
	}
}

func startedAgo(since time.Duration) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.StartTime = &metav1.Time{Time: noon.Add(-since)} }
}

func createdAgo(since time.Duration) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.CreationTimestamp = metav1.Time{Time: noon.Add(-since)} }
}

func waits(reason string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}}}
	}
}

func initRuns(p *corev1.Pod) {
	p.Status.InitContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
}

var ended = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}

func initStatus(status corev1.ContainerStatus) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.InitContainerStatuses = []corev1.ContainerStatus{status} }
}

func crashed(p *corev1.Pod) { p.Status.ContainerStatuses = []corev1.ContainerStatus{{RestartCount: 1}} }

func TestMarksOfOthersThatForbidDisruption(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*corev1.Pod)
		blocks bool
	}{
		"Karpenter":                               {annotated("karpenter.sh/do-not-disrupt", "true"), true},
		"Karpenter before 0.32":                   {annotated("karpenter.sh/do-not-evict", "true"), true},
		"Cluster Autoscaler":                      {annotated("cluster-autoscaler.kubernetes.io/safe-to-evict", "false"), true},
		"Cluster Autoscaler may evict it":         {annotated("cluster-autoscaler.kubernetes.io/safe-to-evict", "true"), false},
		"Karpenter may disrupt it":                {annotated("karpenter.sh/do-not-disrupt", "false"), false},
		"another annotation":                      {annotated("team", "true"), false},
		"marked, and it would come back":          {both(annotated("karpenter.sh/do-not-disrupt", "true"), tolerating(corev1.Toleration{Operator: corev1.TolerationOpExists})), true},
		"marked, but the drain waits for it":      {both(annotated("karpenter.sh/do-not-disrupt", "true"), ownedBy("batch/v1", "Job")), false},
		"marked, but it has already been evicted": {both(annotated("karpenter.sh/do-not-disrupt", "true"), ends(noon, 30)), false},
	} {
		t.Run(name, func(t *testing.T) {
			m := modelOf(t, options(nil), pod("web", c.change))
			if len(m.Blocked) > 0 != c.blocks || len(m.Left) > 0 || c.blocks && len(m.evictable) > 0 {
				t.Errorf("got blocked %v, left %v, %d evictable; want it to block: %t", m.Blocked, m.Left, len(m.evictable), c.blocks)
			}
		})
	}
}

func TestAnInvalidSelectorIsNoSelector(t *testing.T) {
	o := options(func(d *v1alpha1.Drain) {
		d.WaitForPodSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}}
	})
	if result, pods, err := SortPods([]corev1.Pod{*pod("a")}, o, noon); err == nil {
		t.Errorf("got %s, %d evictable pods and no error", result, len(pods))
	}
}

func both(changes ...func(*corev1.Pod)) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		for _, change := range changes {
			change(p)
		}
	}
}

func TestEachMarkHasASource(t *testing.T) {
	sources, entries := strings.Count(string(marksYAML), "\n  source: "), len(marks.Forbid)+len(marks.Last)
	if sources != entries || entries == 0 {
		t.Errorf("got %d sources for %d entries", sources, entries)
	}
}

// TestAPodThatComesBackIsLeft has an owner that puts its pods on the node directly. No toleration shows it.
func TestAPodThatComesBackIsLeft(t *testing.T) {
	perNode := func(p *corev1.Pod) {
		ownedBy("example.com/v1", "NodeRunner")(p)
		p.OwnerReferences[0].UID = "runner"
	}
	evictor := &evictions{}
	reader := newReader(t, pod("web"), pod("runner-1", perNode))
	r := newRunner(t, reader, evictor)
	r.DryRunEvictor = &evictions{}
	var got Result
	for _, next := range []string{"runner-2", "runner-3", "runner-4", ""} {
		got = drainOnce(t, r, options(nil))
		for _, name := range []string{"web", "runner-1", "runner-2", "runner-3"} {
			if slices.Contains(evictor.requested, name) {
				_ = reader.Delete(t.Context(), pod(name))
			}
		}
		if next != "" && !got.Done() {
			check.NoError(t, reader.Create(t.Context(), pod(next, perNode)))
		}
	}
	check.Equal(t, "requested evictions", []string{"runner-1", "runner-2", "web"}, evictor.requested)
	got = drainOnce(t, r, options(nil))
	if want := "Left on the node: Pod eda/runner-3 came back to the cordoned node after its eviction"; !got.Done() || got.Remarks() != want || len(got.IgnoredPodUIDs) > 0 || got.Names["runner-3-uid"] != "" {
		t.Errorf("got %s, remarks %q, ignored %v; want %q", got, got.Remarks(), got.IgnoredPodUIDs, want)
	}
}

// TestAPodThatNeverLeftHasNotComeBack has two pods of an owner that were bound to the node before its cordon, and listed after the drain's start.
func TestAPodThatNeverLeftHasNotComeBack(t *testing.T) {
	owned := func(p *corev1.Pod) { p.OwnerReferences[0].UID = "web" }
	evictor := &evictions{reject: rejections{"web-3": errTryLater}}
	reader := newReader(t, pod("web-1", owned), budget("pdb", "web-3"))
	r := newRunner(t, reader, evictor)
	r.DryRunEvictor = evictor
	drainOnce(t, r, options(nil))
	for _, name := range []string{"web-2", "web-3"} {
		check.NoError(t, reader.Create(t.Context(), pod(name, owned)))
	}
	drainOnce(t, r, options(nil))
	_ = reader.Delete(t.Context(), pod("web-1"))
	_ = reader.Delete(t.Context(), pod("web-2"))
	evictor.reject = nil
	got := drainOnce(t, r, options(nil))
	if len(got.Left) > 0 || !slices.Contains(got.Remaining, "eda/web-3") {
		t.Errorf("got %s, left %v; want web-3 to be evicted", got, got.Left)
	}
}

func TestLookAheadAsksTheBudgetsOfPodsThatStay(t *testing.T) {
	db := pod("db", tolerating(corev1.Toleration{Operator: corev1.TolerationOpExists}))
	d := &Drainer{Reader: newReader(t, db, budget("pdb", "db")), DryRunEvictor: &evictions{reject: rejections{"db": errTryLater}}, Now: time.Now}
	got, err := d.LookAhead(t.Context(), "a", options(nil))
	want := "Eviction of Pod eda/db blocked by PodDisruptionBudget eda/pdb: a drain would leave the pod on the node, because it tolerates the taint node.kubernetes.io/unschedulable"
	if err != nil || got.String() != want || got.IsHeldByBudgets() || len(got.Left) != 1 || got.Left[0].UID != "db-uid" {
		t.Errorf("got %q, held by budgets %t, error %v; want %q", got, got.IsHeldByBudgets(), err, want)
	}
}

// TestCordonFirst plays an owner that lets its pod go only after a cordon: budgets reject db in dry runs and in evictions, until it is lifted.
func TestCordonFirst(t *testing.T) {
	instance := func(p *corev1.Pod) { ownedBy("longhorn.io/v1beta2", "InstanceManager")(p) }
	first := func(d *v1alpha1.Drain) { d.LookAhead = v1alpha1.LookAheadCordonFirst }
	for name, c := range map[string]struct {
		options   func(*v1alpha1.Drain)
		db        *corev1.Pod
		dry, real error
		want      []string
	}{
		"only the pod that the budget keeps is evicted":             {first, pod("db"), errTryLater, errTryLater, []string{"db"}},
		"an eviction that works although its dry run did not":       {first, pod("db"), errTryLater, nil, []string{"db"}},
		"the budget is lifted":                                      {first, pod("db"), nil, nil, []string{"db", "web"}},
		"the owner keeps its pod until the other pods are gone":     {first, pod("db", instance), errTryLater, errTryLater, []string{"db", "web"}},
		"by default, all pods are evicted":                          {nil, pod("db"), errTryLater, errTryLater, []string{"db", "web"}},
		"another obstacle appears, and no pod is evicted":           {first, pod("db", bare), errTryLater, nil, nil},
		"the pod that the budget keeps is gone, and the rest leave": {first, pod("db", succeeded), nil, nil, []string{"web"}},
	} {
		t.Run(name, func(t *testing.T) {
			evictor := &evictions{reject: rejections{"db": c.real}}
			r := newRunner(t, newReader(t, pod("web"), c.db, budget("pdb", "db")), evictor)
			r.DryRunEvictor = &evictions{reject: rejections{"db": c.dry}}
			drainOnce(t, r, options(c.options))
			check.Equal(t, "requested evictions", c.want, evictor.requested)
		})
	}
}

func TestCordonFirstEvictsNoPodWithoutAResponse(t *testing.T) {
	evictor := &evictions{}
	r := newRunner(t, newReader(t, pod("web")), evictor)
	pods := []*corev1.Pod{pod("web")}
	o := options(func(d *v1alpha1.Drain) { d.LookAhead = v1alpha1.LookAheadCordonFirst })
	r.DryRunEvictor = evictor
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if got := r.findFirst(ended, pods, o, &budgets{}); got != nil {
		t.Errorf("got %d pods to evict, want none", len(got))
	}
}

// An owner that keeps its pod until the others are gone has a known API group and kind.
func TestPodsOfOwnersThatComeLast(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*corev1.Pod)
		want   bool
	}{
		"the owner":                     {ownedBy("longhorn.io/v1beta2", "InstanceManager"), true},
		"the owner in another version":  {ownedBy("longhorn.io/v1", "InstanceManager"), true},
		"another kind of its group":     {ownedBy("longhorn.io/v1beta2", "ShareManager"), false},
		"its kind in another group":     {ownedBy("example.com/v1", "InstanceManager"), false},
		"its kind in a group like its":  {ownedBy("longhorn.io.example.com/v1", "InstanceManager"), false},
		"a pod without an owner at all": {bare, false},
		"an owner that controls nothing": {func(p *corev1.Pod) {
			ownedBy("longhorn.io/v1beta2", "InstanceManager")(p)
			p.OwnerReferences[0].Controller = nil
		}, false},
	} {
		if got := isLast(pod("db", c.change)); got != c.want {
			t.Errorf("%s: got %t, want %t", name, got, c.want)
		}
	}
}

func TestHeldByBudgets(t *testing.T) {
	for name, c := range map[string]struct {
		result Result
		want   bool
	}{
		"no obstacle":               {Result{}, false},
		"budgets":                   {Result{Blocked: []Blocker{{Pod: "a", Budgets: []string{"b"}}}}, true},
		"budgets and a Job":         {Result{Blocked: []Blocker{{Pod: "a", Budgets: []string{"b"}}}, WaitedFor: []string{"j"}}, false},
		"budgets and a rule":        {Result{Blocked: []Blocker{{Pod: "a", Budgets: []string{"b"}}, {Pod: "c", Reason: "has an emptyDir"}}}, false},
		"several budgets for a pod": {Result{Blocked: []Blocker{{Pod: "a", Budgets: []string{"b", "c"}, Reason: "cannot be evicted"}}}, false},
	} {
		if got := c.result.IsHeldByBudgets(); got != c.want {
			t.Errorf("%s: got %t, want %t", name, got, c.want)
		}
	}
}
