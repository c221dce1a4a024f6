package volume

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume/judge"
	"github.com/storageclient/operator/controllers/volume/optionset"
	"github.com/storageclient/operator/controllers/volume/plan"
	"github.com/storageclient/operator/test/builders"
)

// skews are the leads of the clock of one machine.
var skews = []time.Duration{-10 * time.Minute, -30 * time.Second, 0, 30 * time.Second, 10 * time.Minute}

// kubeletClock stamps times as the kubelet of node n, whose clock leads by its value. The API server stamps with the true time.
type kubeletClock time.Duration

func (c kubeletClock) at(t time.Time) metav1.Time { return metav1.NewTime(t.Add(time.Duration(c))) }

// event returns the event of a mount that failed from first to last.
func (c kubeletClock) event(first, last time.Time) *corev1.Event {
	e := kubeletEvent("e", "eda", namesVolume, first)
	e.CreationTimestamp, e.FirstTimestamp, e.LastTimestamp = metav1.NewTime(first), c.at(first), c.at(last)
	return e
}

// updatedAt adds the API server's time of the last update to the listed events: the fake client drops managed fields.
func updatedAt(at time.Time, funcs interceptor.Funcs) interceptor.Funcs {
	funcs.List = func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		err := c.List(ctx, list, opts...)
		if events, ok := list.(*corev1.EventList); ok {
			for i := range events.Items {
				events.Items[i].ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubelet", Time: new(metav1.NewTime(at))}}
			}
		}
		return err
	}
	return funcs
}

// pod returns a pod that was bound to the node at one time and started at another. Zero if it waits.
func (c kubeletClock) pod(bound, started time.Time) *corev1.Pod {
	pod := failingPod("eda", "web-data")
	pod.CreationTimestamp = metav1.NewTime(bound)
	pod.Status.StartTime = new(c.at(bound.Add(time.Second)))
	if !started.IsZero() {
		pod.Status.Phase = corev1.PodRunning
		pod.Status.ContainerStatuses[0].State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: c.at(started)}}
	}
	return pod
}

func TestTheClockOfAKubeletDoesNotMatter(t *testing.T) {
	written := noon.Add(-time.Hour)
	before, after, end := written.Add(-time.Minute), written.Add(10*time.Second), written.Add(50*time.Minute)
	pv := created("a", 0)
	pv.Spec.ClaimRef.Name = "web-data"
	for _, skew := range skews {
		c := kubeletClock(skew)
		recreated := c.event(after, end)
		recreated.FirstTimestamp = c.at(before)
		for name, test := range map[string]struct {
			event *corev1.Event
			pod   *corev1.Pod
			want  bool
			// again is the expected value if the volume had failed with earlier options of the operator.
			again bool
		}{
			"a failed mount after the write":                                 {c.event(after, end), c.pod(before, time.Time{}), true, true},
			"a failed mount before the write that repeats":                   {c.event(before, end), c.pod(before, time.Time{}), false, true},
			"a failed mount before the write that repeats once, right after": {c.event(before, after), c.pod(before, time.Time{}), false, false},
			"a failed mount before the write, whose event was created again": {recreated, c.pod(before, time.Time{}), false, true},
			"a pod that has started since":                                   {c.event(after, end), c.pod(before, end.Add(time.Second)), false, false},
			"a pod that started before the failure":                          {c.event(after, end), c.pod(before, before.Add(5*time.Second)), true, true},
		} {
			t.Run(skew.String()+" "+name, func(t *testing.T) {
				updated := test.event.LastTimestamp.Add(-skew)
				r, _ := newReconciler(t, updatedAt(updated, refusePathsAsNames), nodeN(), test.event.DeepCopy(), test.pod.DeepCopy())
				for rewritten, want := range map[time.Time]bool{{}: test.want, written: test.again} {
					got, err := inspectFailedMounts(context.Background(), r.Client, []plan.Watched{{Volume: pv, Since: written, Rewritten: rewritten}})
					if err != nil || (len(got) == 1) != want {
						t.Errorf("written again at %s: got %+v, %v; want a failure: %t", rewritten, got, err, want)
					}
				}
			})
		}
		original := func(m *v1alpha1.MountStatus) { m.Options = []string{"rw", "vers=4.1"} }
		inTime := written.Add(judge.ClockTolerance + 2*time.Second)
		for name, test := range map[string]struct {
			pod     *corev1.Pod
			event   *corev1.Event
			reports *v1alpha1.StorageClientNode
			want    optionset.Kind
		}{
			"a waiting pod has started since the restore, with an unknown mount": {c.pod(before, after), nil, nil, optionset.OwnUnknown},
			"a waiting pod has started with the options":                         {c.pod(before, after), nil, c.reported(inTime, func(m *v1alpha1.MountStatus) { m.Options = append(m.Options, "nconnect=4") }), optionset.OwnUnknown},
			"a waiting pod has started with a mount from before the restore":     {c.pod(before, after), nil, c.reported(before, original), optionset.OwnUnknown},
			"a waiting pod has started with a mount of unknown age":              {c.pod(before, after), nil, c.reported(inTime, original, func(m *v1alpha1.MountStatus) { m.Since = nil }), optionset.OwnUnknown},
			"a waiting pod has started without the options":                      {c.pod(before, after), nil, c.reported(inTime, original), optionset.OwnMounted},
			"a waiting pod has started with fewer connections than its options":  {c.pod(before, after), nil, c.reported(inTime, func(m *v1alpha1.MountStatus) { m.Connections = 1 }), optionset.OwnUnknown},
			"a pod had started before the restore":                               {c.pod(before.Add(-time.Hour), before), nil, nil, optionset.NoPodWaits},
			"a pod fails, maybe still with the options":                          {c.pod(before, time.Time{}), c.event(before, written.Add(4*time.Minute)), nil, ""},
			"a pod fails in the same way long after":                             {c.pod(before, time.Time{}), c.event(before, written.Add(6*time.Minute)), nil, optionset.OwnFailed},
			"a pod arrived after the restore, and started":                       {c.pod(after, after.Add(time.Minute)), nil, nil, optionset.OwnMounted},
			"a pod arrived right at the restore, and started":                    {c.pod(written, after), nil, nil, optionset.OwnUnknown},
			"a pod arrived after the restore, without a reported mount":          {c.pod(after, after.Add(time.Minute)), nil, c.reported(after, func(m *v1alpha1.MountStatus) { m.Volume = "b" }), optionset.OwnUnknown},
		} {
			t.Run(skew.String()+" "+name, func(t *testing.T) {
				objects, updated := []client.Object{nodeN(), test.pod.DeepCopy()}, time.Time{}
				if test.reports != nil {
					objects = append(objects, test.reports.DeepCopy())
				}
				if test.event != nil {
					objects, updated = append(objects, test.event.DeepCopy()), test.event.LastTimestamp.Add(-skew)
				}
				r, _ := newReconciler(t, updatedAt(updated, refusePathsAsNames), objects...)
				r.APIReader = r.Client
				failure := (&failedMount{message: namesVolume}).kindOn(pv)
				checks := []plan.RollbackCheck{{Volume: pv, Blame: optionset.Blame{RevertedAt: written, Failure: failure, Unclear: true, Options: []string{"nconnect=4", "nocto"}}}}
				got, err := (&scope{Reconciler: r}).inspectRollbacks(context.Background(), checks)
				if err != nil || got["a"] != test.want {
					t.Errorf("got result %q, %v; want %q", got["a"], err, test.want)
				}
			})
		}
	}
}

// reported returns the StorageClientNode of node n, with a mount of volume a for the Pod at a time by the node's clock.
func (c kubeletClock) reported(mounted time.Time, change ...func(*v1alpha1.MountStatus)) *v1alpha1.StorageClientNode {
	report := mountedBy("u")
	m := &report.Status.Mounts[0]
	m.Protocol, m.Options, m.Used, m.State, m.Since = "NFSv4.1", []string{"rw", "vers=4.1", "nocto"}, true, v1alpha1.MountEffective, new(c.at(mounted))
	for _, do := range change {
		do(m)
	}
	return report
}

// A node's word about a mount counts only if the API server shows a pod there that uses the volume and arrived after the write.
func TestEvidenceOfPods(t *testing.T) {
	written := noon.Add(-time.Hour)
	before, after := written.Add(-time.Minute), written.Add(time.Minute)
	mounted := after.Add(2 * time.Second)
	on := func(node string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Spec.NodeName = node } }
	for _, skew := range skews {
		c := kubeletClock(skew)
		pod := func(bound time.Time, change ...func(*corev1.Pod)) *corev1.Pod {
			p := c.pod(bound, bound.Add(10*time.Second))
			for _, do := range change {
				do(p)
			}
			return p
		}
		earlier := pod(before, func(p *corev1.Pod) { p.Name, p.UID = "earlier", "w" })
		is := func(phase corev1.PodPhase) func(*corev1.Pod) {
			return func(p *corev1.Pod) { p.Name, p.UID, p.Status.Phase = "earlier", "w", phase }
		}
		leaving := func(p *corev1.Pod) {
			p.DeletionTimestamp, p.Finalizers = &metav1.Time{Time: before}, []string{"batch.kubernetes.io/job-tracking"}
		}
		for name, test := range map[string]struct {
			objects []client.Object
			anyAge  bool
			want    string
		}{
			"the mount of a new pod":                               {objects: []client.Object{pod(after), c.reported(mounted)}, want: "n has mounted a"},
			"a mount without any pod":                              {objects: []client.Object{c.reported(mounted)}},
			"a mount for a pod of another node":                    {objects: []client.Object{pod(after, on("m")), c.reported(mounted)}},
			"a mount for a pod of another claim":                   {objects: []client.Object{pod(after, func(p *corev1.Pod) { p.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = "mine" }), c.reported(mounted)}},
			"a mount for a pod of another namespace":               {objects: []client.Object{pod(after, func(p *corev1.Pod) { p.Namespace = "mallory" }), c.reported(mounted)}},
			"a mount for another pod":                              {objects: []client.Object{pod(after, func(p *corev1.Pod) { p.UID = "x" }), c.reported(mounted)}},
			"a mount for a pod that has not started":               {objects: []client.Object{c.pod(after, time.Time{}), c.reported(mounted)}},
			"a mount for a pod from before the write":              {objects: []client.Object{pod(before), c.reported(mounted)}},
			"a mount for a pod right after the write":              {objects: []client.Object{pod(written.Add(judge.ClockTolerance)), c.reported(mounted)}},
			"a mount that is older than its pod":                   {objects: []client.Object{pod(after), earlier, c.reported(before)}},
			"a mount that was last missing before its pod":         {objects: []client.Object{pod(after), c.reported(after.Add(-4 * time.Second))}, want: "n has mounted a"},
			"the same next to an earlier pod":                      {objects: []client.Object{pod(after), earlier, c.reported(after.Add(-4 * time.Second))}},
			"a mount that was last missing before the write":       {objects: []client.Object{pod(after), c.reported(written)}},
			"a new mount next to an earlier pod":                   {objects: []client.Object{pod(after), earlier, c.reported(mounted)}, want: "n has mounted a"},
			"a mount of unknown age":                               {objects: []client.Object{pod(after), c.reported(mounted, func(m *v1alpha1.MountStatus) { m.Since = nil })}},
			"a mount for a pod that the kubelet has not accepted":  {objects: []client.Object{pod(after, func(p *corev1.Pod) { p.Status.StartTime = nil }), c.reported(mounted)}},
			"a mount without completed operations":                 {objects: []client.Object{pod(after), c.reported(mounted, func(m *v1alpha1.MountStatus) { m.Used = false })}},
			"a mount with other options":                           {objects: []client.Object{pod(after), c.reported(mounted, func(m *v1alpha1.MountStatus) { m.Options = m.Options[:2] })}},
			"a mount of another volume":                            {objects: []client.Object{pod(after), c.reported(mounted, func(m *v1alpha1.MountStatus) { m.Volume = "b" })}},
			"a mount before a boot":                                {objects: []client.Object{pod(after), func() client.Object { r := c.reported(mounted); r.Status.BootID = "previous"; return r }()}},
			"the same next to a finished pod of a Job":             {objects: []client.Object{pod(after), pod(before, is(corev1.PodSucceeded)), c.reported(after.Add(-4 * time.Second))}, want: "n has mounted a"},
			"the same next to a failed pod":                        {objects: []client.Object{pod(after), pod(before, is(corev1.PodFailed)), c.reported(after.Add(-4 * time.Second))}, want: "n has mounted a"},
			"the same next to a pod that is being deleted":         {objects: []client.Object{pod(after), pod(before, is(corev1.PodRunning), leaving), c.reported(after.Add(-4 * time.Second))}},
			"a new pod next to a finished one, without an agent":   {objects: []client.Object{pod(after), pod(before, is(corev1.PodSucceeded))}, want: "Pod eda/pod on n has started with a"},
			"a new pod next to one that is deleted, without agent": {objects: []client.Object{pod(after), pod(before, is(corev1.PodRunning), leaving)}},
			"a new pod on a node without an agent":                 {objects: []client.Object{pod(after)}, want: "Pod eda/pod on n has started with a"},
			"a new pod next to an earlier one, without an agent":   {objects: []client.Object{pod(after), earlier}},
			"any effective mount for a write of an earlier release": {objects: []client.Object{pod(before), c.reported(before, func(m *v1alpha1.MountStatus) { m.Since, m.Used = nil, false })},
				anyAge: true, want: "n has mounted a"},
			"a stale mount for a write of an earlier release":          {objects: []client.Object{pod(before), c.reported(before, func(m *v1alpha1.MountStatus) { m.State = v1alpha1.MountStale })}, anyAge: true},
			"a mount for a write of an earlier release, without a pod": {objects: []client.Object{c.reported(mounted)}, anyAge: true},
		} {
			t.Run(skew.String()+" "+name, func(t *testing.T) {
				objects := []client.Object{nodeN()}
				for _, object := range test.objects {
					objects = append(objects, object.DeepCopyObject().(client.Object))
				}
				r, _ := newReconciler(t, refusePathsAsNames, objects...)
				r.APIReader = r.Client
				pv := created("a", 0)
				pv.Spec.ClaimRef.Name = "web-data"
				got, err := (&scope{Reconciler: r}).inspectEvidence(context.Background(), []plan.Awaited{{
					Volume: pv, Set: "s", Written: written, After: written.Add(judge.ClockTolerance), Options: []string{"nocto"}, AnyAge: test.anyAge,
				}})
				if err != nil || got["s"].Text != test.want {
					t.Errorf("got evidence %q, %v; want %q", got["s"].Text, err, test.want)
				}
			})
		}
	}
}

// Agents report mounts of NFS, SMB and XFS. For other file systems, a new pod is the only evidence, also on a node with an agent.
func TestEvidenceOfFileSystemsThatAgentsDoNotReport(t *testing.T) {
	written, c := noon.Add(-time.Hour), kubeletClock(0)
	before, after := written.Add(-time.Minute), written.Add(time.Minute)
	pod := func(bound time.Time, change ...func(*corev1.Pod)) *corev1.Pod {
		p := c.pod(bound, bound.Add(10*time.Second))
		for _, do := range change {
			do(p)
		}
		return p
	}
	earlier := func(p *corev1.Pod) { p.Name, p.UID = "earlier", "w" }
	finished := func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }
	local := func(fsType string) builders.VolumeOption {
		return func(pv *corev1.PersistentVolume) {
			pv.Spec.NFS, pv.Spec.Local = nil, &corev1.LocalVolumeSource{Path: "/disk", FSType: &fsType}
		}
	}
	agent := func(mounts ...v1alpha1.MountStatus) client.Object {
		n := mountedBy("u")
		n.Status.Mounts = mounts
		return n
	}
	xfs := func(since time.Time, options ...string) client.Object {
		return agent(v1alpha1.MountStatus{MountPoint: "/x", Volume: "a", PodUIDs: []string{"u"}, Protocol: "xfs", Options: options, Used: true,
			State: v1alpha1.MountEffective, Since: new(c.at(since))})
	}
	const byPod, byAgent = "Pod eda/pod on n has started with a", "n has mounted a"
	for name, test := range map[string]struct {
		volume  builders.VolumeOption
		objects []client.Object
		anyAge  bool
		want    string
	}{
		"ext4": {volume: local("ext4"), objects: []client.Object{agent(), pod(after)}, want: byPod},
		"a disk of a CSI driver": {volume: func(pv *corev1.PersistentVolume) {
			builders.CSI("ebs.csi.aws.com", nil)(pv)
			pv.Spec.CSI.FSType = "ext4"
		}, objects: []client.Object{agent(), pod(after)}, want: byPod},
		"ext4 without an agent":                          {volume: local("ext4"), objects: []client.Object{pod(after)}, want: byPod},
		"ext4 next to an earlier pod":                    {volume: local("ext4"), objects: []client.Object{agent(), pod(after), pod(before, earlier)}},
		"ext4 next to a finished pod":                    {volume: local("ext4"), objects: []client.Object{agent(), pod(after), pod(before, earlier, finished)}, want: byPod},
		"ext4, with a pod from before the write":         {volume: local("ext4"), objects: []client.Object{agent(), pod(before)}},
		"ext4, with a finished pod from before":          {volume: local("ext4"), objects: []client.Object{agent(), pod(before, finished)}, anyAge: true},
		"ext4, with a pod that has not started":          {volume: local("ext4"), objects: []client.Object{agent(), c.pod(after, time.Time{})}},
		"a file system of unknown type":                  {volume: local(""), objects: []client.Object{agent(), pod(after)}, want: byPod},
		"XFS of unknown type that the agent reports":     {volume: local(""), objects: []client.Object{xfs(after.Add(2*time.Second), "rw", "noatime"), pod(after)}, want: byAgent},
		"XFS of unknown type that lacks the options":     {volume: local(""), objects: []client.Object{xfs(after.Add(2*time.Second), "rw", "relatime"), pod(after)}},
		"XFS that the agent does not report yet":         {volume: local("xfs"), objects: []client.Object{agent(), pod(after)}},
		"XFS that the agent reports":                     {volume: local("xfs"), objects: []client.Object{xfs(after.Add(2*time.Second), "rw", "noatime"), pod(after)}, want: byAgent},
		"NFS that the agent does not report yet":         {volume: func(*corev1.PersistentVolume) {}, objects: []client.Object{agent(), pod(after)}},
		"NFS, with a finished pod, but without an agent": {volume: func(*corev1.PersistentVolume) {}, objects: []client.Object{pod(before, finished)}, anyAge: true},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := newReconciler(t, refusePathsAsNames, append(test.objects, nodeN())...)
			r.APIReader = r.Client
			pv := created("a", 0, test.volume)
			pv.Spec.ClaimRef.Name = "web-data"
			got, err := (&scope{Reconciler: r}).inspectEvidence(context.Background(), []plan.Awaited{{
				Volume: pv, Set: "s", Written: written, After: written.Add(judge.ClockTolerance), Options: []string{"noatime"}, AnyAge: test.anyAge,
			}})
			if err != nil || got["s"].Text != test.want {
				t.Errorf("got evidence %q, %v; want %q", got["s"].Text, err, test.want)
			}
		})
	}
}
