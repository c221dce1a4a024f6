package volume

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume/plan"
)

// kubeletEvent returns an event of the kubelet of node n about the Pod "pod" with UID u.
func kubeletEvent(name, namespace, message string, first time.Time) *corev1.Event {
	e := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Reason: failedMountReason, Message: message, Type: corev1.EventTypeWarning,
		Source: corev1.EventSource{Component: "kubelet", Host: "n"}, ReportingController: "kubelet", ReportingInstance: "n",
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: namespace, Name: "pod", UID: "u"},
		FirstTimestamp: metav1.NewTime(first), LastTimestamp: metav1.NewTime(first.Add(time.Hour)),
	}
	e.CreationTimestamp = metav1.NewTime(first)
	return e
}

// failingPod returns a pod on node n that waits for the volume of the claim.
func failingPod(namespace, claim string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "pod", UID: "u", CreationTimestamp: metav1.NewTime(noon.Add(-24 * time.Hour))},
		Spec: corev1.PodSpec{NodeName: "n", Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}}},
		Status: corev1.PodStatus{Phase: corev1.PodPending, StartTime: ptr.To(metav1.NewTime(noon.Add(-24 * time.Hour))), ContainerStatuses: []corev1.ContainerStatus{
			{Name: "main", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}}}},
	}
}

func nodeN() *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{BootID: "boot"}}}
}

// mountedBy returns the StorageClientNode of node n, with a mount of volume a by a Pod.
func mountedBy(pod string) *v1alpha1.StorageClientNode {
	return &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: v1alpha1.StorageClientNodeStatus{
		BootID: "boot", Mounts: []v1alpha1.MountStatus{{MountPoint: "/x", Volume: "a", PodUIDs: []string{"v", pod}}}}}
}

const (
	namesVolume = `MountVolume.SetUp failed for volume "a" : mount failed: exit status 32`
	namesNone   = `Unable to attach or mount volumes: unmounted volumes=[data], unattached volumes=[data token]: volumes did not mount`
)

func TestFailedMounts(t *testing.T) {
	since := noon.Add(-time.Minute)
	event := func(message string, after time.Duration, change ...func(*corev1.Event)) *corev1.Event {
		e := kubeletEvent("e", "eda", message, since.Add(after))
		for _, c := range change {
			c(e)
		}
		return e
	}
	pod := func(change ...func(*corev1.Pod)) *corev1.Pod {
		p := failingPod("eda", "web-data")
		for _, c := range change {
			c(p)
		}
		return p
	}
	named := func(change ...func(*corev1.Event)) *corev1.Event { return event(namesVolume, time.Second, change...) }
	unnamed := func(change ...func(*corev1.Event)) *corev1.Event { return event(namesNone, time.Second, change...) }
	uses := func(name, claim string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Volumes[0].Name, p.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = name, claim
		}
	}
	running := func(after time.Duration) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status.Phase = corev1.PodRunning
			p.Status.ContainerStatuses[0].State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(since.Add(after))}}
		}
	}
	of := func(directory string) string {
		return strings.Replace(namesVolume, "32", "32 /pods/"+directory+"-1111-2222-3333-444455556666/x", 1)
	}
	earlier := event(of("0b0e3f0a"), -time.Hour, func(e *corev1.Event) { e.Name, e.InvolvedObject.UID = "earlier", "gone" })
	tests := map[string]struct {
		objects []client.Object
		want    bool
	}{
		"an event that names the volume":                  {[]client.Object{named(), pod(), nodeN()}, true},
		"an event in the same second as the write":        {[]client.Object{event(namesVolume, 0), pod(), nodeN()}, true},
		"an event from before the write":                  {[]client.Object{event(namesVolume, -time.Second), pod(), nodeN()}, false},
		"the same text before the write, for another pod": {[]client.Object{earlier, event(of("9b0e3f0a"), time.Second), pod(), nodeN()}, false},
		"an event with an earlier time that was created after the write": {[]client.Object{
			event(of("0b0e3f0a"), -time.Hour, func(e *corev1.Event) {
				e.Name, e.CreationTimestamp = "predated", metav1.NewTime(since.Add(2*time.Second))
			}), event(of("9b0e3f0a"), time.Second), pod(), nodeN()}, true},
		"the same text before the write, from another source": {[]client.Object{
			event(of("0b0e3f0a"), -time.Hour, func(e *corev1.Event) {
				e.Name, e.Source.Component, e.ReportingController = "forged", "mallory", "mallory"
			}),
			event(of("9b0e3f0a"), time.Second), pod(), nodeN()}, true},
		"the same text before the write, without a pod": {[]client.Object{
			event(of("0b0e3f0a"), -time.Hour, func(e *corev1.Event) { e.Name, e.InvolvedObject.UID = "forged", "" }),
			event(of("9b0e3f0a"), time.Second), pod(), nodeN()}, true},
		"the same text before the write, without a node": {[]client.Object{
			event(of("0b0e3f0a"), -time.Hour, func(e *corev1.Event) { e.Name, e.Source.Host, e.ReportingInstance = "forged", "", "" }),
			event(of("9b0e3f0a"), time.Second), pod(), nodeN()}, true},
		"another text than before the write": {[]client.Object{earlier, named(), pod(), nodeN()}, true},
		"an event that names another volume": {[]client.Object{event(strings.Replace(namesVolume, `"a"`, `"kube-api-access"`, 1), time.Second), pod(), nodeN()}, false},
		"an event in another namespace": {[]client.Object{named(func(e *corev1.Event) { e.Namespace, e.InvolvedObject.Namespace = "b", "b" }),
			failingPod("b", "web-data"), nodeN()}, false},
		"an event about a Node":        {[]client.Object{named(func(e *corev1.Event) { e.InvolvedObject.Kind = "Node" }), pod(), nodeN()}, false},
		"an event with another reason": {[]client.Object{named(func(e *corev1.Event) { e.Reason = "FailedAttachVolume" }), pod(), nodeN()}, false},
		"an event of the events.k8s.io API": {[]client.Object{event(namesVolume, 0, func(e *corev1.Event) {
			e.FirstTimestamp, e.LastTimestamp, e.EventTime, e.Source = metav1.Time{}, metav1.Time{}, metav1.NewMicroTime(since), corev1.EventSource{}
		}), pod(), nodeN()}, true},
		"an event without the volume's name, about a pod that uses the volume": {[]client.Object{unnamed(), pod(), nodeN()}, true},
		"an event about another volume of such a pod":                          {[]client.Object{unnamed(), pod(uses("other", "web-data")), nodeN()}, false},
		"a pod that does not use the volume":                                   {[]client.Object{unnamed(), pod(uses("data", "scratch")), nodeN()}, false},
		"a pod with an ephemeral volume": {[]client.Object{
			event("volumes did not mount", time.Second, func(e *corev1.Event) { e.InvolvedObject.Name = "web" }),
			pod(func(p *corev1.Pod) {
				p.Name = "web"
				p.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}
			}), nodeN(),
		}, true},

		"the volume's name, but a pod that is gone":                     {[]client.Object{named(), nodeN()}, false},
		"the volume's name, but a pod that does not use it":             {[]client.Object{named(), pod(uses("data", "scratch")), nodeN()}, false},
		"an event about an earlier pod of the same name":                {[]client.Object{named(func(e *corev1.Event) { e.InvolvedObject.UID = "v" }), pod(), nodeN()}, false},
		"an event without the UID of the pod":                           {[]client.Object{named(func(e *corev1.Event) { e.InvolvedObject.UID = "" }), pod(), nodeN()}, false},
		"a pod that no node runs":                                       {[]client.Object{named(func(e *corev1.Event) { e.Source.Host, e.ReportingInstance = "", "" }), pod(func(p *corev1.Pod) { p.Spec.NodeName = "" }), nodeN()}, false},
		"a pod on a node that does not exist":                           {[]client.Object{named(), pod()}, false},
		"an event from a node other than the pod's":                     {[]client.Object{named(func(e *corev1.Event) { e.Source.Host = "m" }), pod(), nodeN()}, false},
		"an event without a node":                                       {[]client.Object{named(func(e *corev1.Event) { e.Source.Host, e.ReportingInstance = "", "" }), pod(), nodeN()}, false},
		"an event that no kubelet sent":                                 {[]client.Object{named(func(e *corev1.Event) { e.Source.Component, e.ReportingController = "mallory", "mallory" }), pod(), nodeN()}, false},
		"an event with an impossible pod name":                          {[]client.Object{named(func(e *corev1.Event) { e.InvolvedObject.Name = "a/b" }), pod(), nodeN()}, false},
		"a pod whose container started before, in this boot or another": {[]client.Object{named(), pod(running(-time.Hour)), nodeN()}, true},
		"a pod whose container started before it was last seen":         {[]client.Object{named(), pod(running(30 * time.Minute)), nodeN()}, true},
		"a pod whose container started since it was last seen":          {[]client.Object{named(), pod(running(2 * time.Hour)), nodeN()}, false},
		"a pod whose container has finished since and will start again": {[]client.Object{named(), pod(func(p *corev1.Pod) {
			p.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{StartedAt: metav1.NewTime(since.Add(2 * time.Hour))}}
		}), nodeN()}, false},
		"a pod whose init container started since": {[]client.Object{named(), pod(func(p *corev1.Pod) {
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(since.Add(2 * time.Hour))}}}}
		}), nodeN()}, false},
		"a pod whose container started in the middle of a series": {[]client.Object{named(func(e *corev1.Event) {
			e.LastTimestamp, e.Series = metav1.Time{}, &corev1.EventSeries{LastObservedTime: metav1.NewMicroTime(since.Add(3 * time.Hour))}
		}), pod(running(2 * time.Hour)), nodeN()}, true},
		"a pod that has another volume mounted": {[]client.Object{named(), pod(), nodeN(), func() client.Object {
			report := mountedBy("u")
			report.Status.Mounts[0].Volume = "b"
			return report
		}()}, true},
		"a pod whose mount the agent of its node reports":          {[]client.Object{named(), pod(), nodeN(), mountedBy("u")}, false},
		"a pod without the mount that other pods on its node have": {[]client.Object{named(), pod(), nodeN(), mountedBy("w")}, true},
		"a pod that had the mount before a boot": {[]client.Object{named(), pod(), nodeN(), func() client.Object {
			report := mountedBy("u")
			report.Status.BootID = "boot before"
			return report
		}()}, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r, _ := newReconciler(t, refusePathsAsNames, test.objects...)
			pv := created("a", 0)
			pv.Spec.ClaimRef.Name = "web-data"
			got, err := inspectFailedMounts(context.Background(), r.Client, []plan.Watched{{Volume: pv, Since: since}})
			if err != nil {
				t.Fatal(err)
			}
			if _, failed := got["a"]; failed != test.want {
				t.Errorf("got %+v, want a failure: %t", got, test.want)
			}
		})
	}
}

// A failure from before a write counts only if the volume had failed with earlier options of the operator, and long enough after the write.
func TestAFailureThatExistedBeforeASecondWrite(t *testing.T) {
	written := noon.Add(-time.Hour)
	event := func(name string, first, last time.Duration) *corev1.Event {
		e := kubeletEvent(name, "eda", namesVolume, written.Add(first))
		e.LastTimestamp = metav1.NewTime(written.Add(last))
		return e
	}
	replaced := event("replaced", -10*time.Minute, -5*time.Minute)
	replaced.InvolvedObject.Name, replaced.InvolvedObject.UID = "replaced", "r"
	for name, test := range map[string]struct {
		events      []*corev1.Event
		once, again bool
	}{
		"a pod keeps failing":                    {[]*corev1.Event{event("e", -10*time.Minute, 6*time.Minute)}, false, true},
		"a pod fails, maybe with earlier ones":   {[]*corev1.Event{event("e", -10*time.Minute, 4*time.Minute)}, false, false},
		"its replacement keeps failing":          {[]*corev1.Event{replaced, event("e", time.Second, 6*time.Minute)}, false, true},
		"its replacement fails, soon after":      {[]*corev1.Event{replaced, event("e", time.Second, 4*time.Minute)}, false, false},
		"a pod fails for the first time":         {[]*corev1.Event{event("e", time.Second, 4*time.Minute)}, true, true},
		"a pod stopped failing before the write": {[]*corev1.Event{event("e", -10*time.Minute, -time.Minute)}, false, false},
	} {
		objects := []client.Object{failingPod("eda", "data"), nodeN()}
		for _, e := range test.events {
			objects = append(objects, e)
		}
		r, _ := newReconciler(t, refusePathsAsNames, objects...)
		for rewritten, want := range map[time.Time]bool{{}: test.once, written: test.again} {
			got, err := inspectFailedMounts(context.Background(), r.Client, []plan.Watched{{Volume: created("a", 0), Since: written, Rewritten: rewritten}})
			if err != nil || (len(got) == 1) != want {
				t.Errorf("%s, written again at %s: got %+v, error %v; want a failure: %t", name, rewritten, got, err, want)
			}
		}
	}
}

// A failed mount counts if its text names the options as the cause, or if the text leaves the cause open. All texts are real ones.
func TestCauseOfAFailedMount(t *testing.T) {
	since := noon.Add(-time.Minute)
	const mount = `MountVolume.SetUp failed for volume "a" : mount failed: exit status 32 Output: mount.nfs: `
	for name, test := range map[string]struct {
		messages        []string
		changesRequests bool
		want            *plan.Failure
	}{
		"the server": {[]string{mount + "Connection refused"}, false, nil},
		"unknown, a server that gets other requests": {[]string{mount + "Connection refused"}, true, &plan.Failure{Text: mount + "Connection refused"}},
		"the driver": {[]string{`MountVolume.SetUp failed for volume "a" : kubernetes.io/csi: mounter.SetUpAt failed to get CSI client: driver name nfs.csi.k8s.io not found in the list of registered CSI drivers`}, true, nil},
		"open":       {[]string{mount + "access denied by server while mounting filer:/data"}, false, &plan.Failure{Text: mount + "access denied by server while mounting filer:/data"}},
		"the options, with other texts": {
			[]string{mount + "access denied by server while mounting filer:/data", mount + "an incorrect mount option was specified", mount + "No route to host"},
			true, &plan.Failure{Text: mount + "an incorrect mount option was specified", NamesOptions: true},
		},
	} {
		objects := []client.Object{failingPod("eda", "data"), nodeN()}
		for i, message := range test.messages {
			objects = append(objects, kubeletEvent(fmt.Sprintf("e%d", i), "eda", message, since.Add(time.Second)))
		}
		r, _ := newReconciler(t, refusePathsAsNames, objects...)
		// The options of another volume change the requests to its server. For that volume, unreachable servers count as failures.
		another := created("b", 0)
		another.Spec.ClaimRef.Name = "another"
		got, err := inspectFailedMounts(context.Background(), r.Client, []plan.Watched{
			{Volume: created("a", 0), Since: since, ChangesRequests: test.changesRequests}, {Volume: another, Since: since, ChangesRequests: true},
		})
		if err != nil {
			t.Fatal(err)
		}
		failure, failed := got["a"]
		failure.Kind = ""
		if failed != (test.want != nil) || failed && failure != *test.want {
			t.Errorf("%s: got %+v, want %+v", name, got, test.want)
		}
	}
}

// One Pod uses two volumes of its namespace. Different batches wrote the volumes.
func TestAFailedMountIsAttributedToItsVolumeAndBatch(t *testing.T) {
	since := noon.Add(-time.Hour)
	watched := []plan.Watched{{Volume: created("b", 0), Since: since.Add(30 * time.Minute)}, {Volume: created("a", 0), Since: since}}
	pod := failingPod("eda", "data")
	for i, name := range []string{"b", "a"} {
		watched[i].Volume.Spec.ClaimRef.Name = "claim-" + name
		volume := *pod.Spec.Volumes[0].DeepCopy()
		volume.PersistentVolumeClaim.ClaimName = "claim-" + name
		pod.Spec.Volumes = append(pod.Spec.Volumes, volume)
	}
	for name, test := range map[string]struct {
		message string
		after   time.Duration
		want    []string
	}{
		"one names a":                            {namesVolume, 40 * time.Minute, []string{"a"}},
		"one may be of both":                     {namesNone, 40 * time.Minute, []string{"a", "b"}},
		"one may be of both, before b's batch":   {namesNone, 20 * time.Minute, []string{"a"}},
		"one may be of both, before any's batch": {namesNone, -time.Minute, nil},
	} {
		nodes := 0
		count := interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
			if _, node := object.(*corev1.Node); node {
				nodes++
			}
			return c.Get(ctx, key, object, opts...)
		}}
		// The API server received the event late.
		event := kubeletEvent("e", "eda", test.message, since.Add(test.after))
		event.CreationTimestamp = metav1.NewTime(since.Add(50 * time.Minute))
		r, _ := newReconciler(t, updatedAt(event.LastTimestamp.Time, count), pod.DeepCopy(), nodeN(), event)
		got, err := inspectFailedMounts(context.Background(), r.Client, watched)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(test.want, slices.Sorted(maps.Keys(got))); diff != "" {
			t.Errorf("%s: volumes with a failed mount (-want +got):\n%s", name, diff)
		}
		if nodes > 1 {
			t.Errorf("%s: got %d reads of one node, want at most 1", name, nodes)
		}
	}
}

// refusePathsAsNames returns an error for a name that is not a single path element, as a real client does without a request.
var refusePathsAsNames = interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
	if key.Name == "" || strings.Contains(key.Name, "/") {
		return fmt.Errorf("invalid resource name %q", key.Name)
	}
	return c.Get(ctx, key, object, opts...)
}}

// The API server accepts an event with an eventTime about a pod in another namespace (legacyValidateEvent of kubernetes
// pkg/apis/core/validation/events.go). If many namespaces are watched, the events of all namespaces are read.
func TestAnEventOfAnotherNamespaceThanThePodsIsForged(t *testing.T) {
	since := noon.Add(-time.Minute)
	for namespace, want := range map[string]bool{"eda": true, "mallory": false} {
		event := kubeletEvent("e", "eda", namesVolume, since.Add(time.Second))
		event.Namespace, event.FirstTimestamp, event.EventTime = namespace, metav1.Time{}, metav1.NewMicroTime(since.Add(time.Second))
		r, _ := newReconciler(t, refusePathsAsNames, event, failingPod("eda", "data"), nodeN())
		watched := []plan.Watched{{Volume: created("a", 0), Since: since}}
		for i := range maxNamespaces {
			pv := created(fmt.Sprintf("b%d", i), 0)
			pv.Spec.ClaimRef.Namespace = pv.Name
			watched = append(watched, plan.Watched{Volume: pv, Since: since})
		}
		got, err := inspectFailedMounts(context.Background(), r.Client, watched)
		if err != nil {
			t.Fatal(err)
		}
		if (len(got) == 1) != want {
			t.Errorf("in namespace %s: got %+v, want a failure: %t", namespace, got, want)
		}
	}
}

// An attacker with the right to write events in a namespace can write thousands.
func TestForgedEventsHideNoFailedMount(t *testing.T) {
	since := noon.Add(-time.Minute)
	objects := []client.Object{failingPod("eda", "web-data"), nodeN(), kubeletEvent("zz-real", "eda", namesNone, since.Add(time.Minute))}
	for i := range 4 * maxPodLookups {
		for kind, message := range []string{namesVolume, namesNone} {
			forged := kubeletEvent(fmt.Sprintf("forged-%04d-%d", i, kind), "eda", message, since.Add(time.Second))
			forged.InvolvedObject.Name = fmt.Sprintf("missing-%d", i)
			objects = append(objects, forged)
		}
	}
	requests := 0
	count := refusePathsAsNames
	count.Get = func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
		requests++
		return refusePathsAsNames.Get(ctx, c, key, object, opts...)
	}
	// The first page of each list is empty.
	count.List = func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		requests++
		if (&client.ListOptions{}).ApplyOptions(opts).Continue == "" {
			list.SetContinue("next")
			return nil
		}
		defer list.SetContinue("")
		return c.List(ctx, list, opts...)
	}
	r, _ := newReconciler(t, count, objects...)
	pv := created("a", 0)
	pv.Spec.ClaimRef.Name = "web-data"
	got, err := inspectFailedMounts(context.Background(), r.Client, []plan.Watched{{Volume: pv, Since: since}})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(got["a"].Text, "Unable to attach") {
		t.Errorf("got %+v, want the real failure", got)
	}
	if requests != 6 {
		t.Errorf("got %d requests, want 6: two pages of events and two of pods, the Node and its StorageClientNode", requests)
	}
}

// The number of pods that are read one by one is limited, for any number of namespaces. After that, each request reads a namespace.
func TestPodsOfManyNamespacesAreReadWithFewRequests(t *testing.T) {
	since, gets := noon.Add(-time.Minute), 0
	count := interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
		gets++
		return c.Get(ctx, key, object, opts...)
	}}
	var objects []client.Object
	var watched []plan.Watched
	for n := range 4 {
		pv := created(fmt.Sprintf("pv%d", n), 0)
		pv.Spec.ClaimRef.Namespace = fmt.Sprintf("n%d", n)
		watched = append(watched, plan.Watched{Volume: pv, Since: since})
		for i := range maxPodLookups / 2 {
			e := kubeletEvent(fmt.Sprintf("e%d", i), pv.Spec.ClaimRef.Namespace, namesNone, since.Add(time.Second))
			e.InvolvedObject.Name = fmt.Sprintf("pod-%d", i)
			objects = append(objects, e)
		}
	}
	r, _ := newReconciler(t, count, objects...)
	if _, err := inspectFailedMounts(context.Background(), r.Client, watched); err != nil || gets != maxPodLookups {
		t.Errorf("got %d pods read one by one, error %v; want %d", gets, err, maxPodLookups)
	}
}

// An event that cannot be about a watched volume causes no request.
func TestOnlyPodsThatMayUseAWatchedVolumeAreLookedUp(t *testing.T) {
	since := noon.Add(-time.Minute)
	var requested []string
	count := interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
		requested = append(requested, key.String())
		return c.Get(ctx, key, object, opts...)
	}, List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		if _, pods := list.(*corev1.PodList); pods {
			requested = append(requested, "all pods")
		}
		return c.List(ctx, list, opts...)
	}}
	old := kubeletEvent("old", "eda", namesNone, since.Add(-time.Second))
	config := kubeletEvent("config", "eda", strings.Replace(namesVolume, `"a"`, `"config"`, 1), since.Add(time.Second))
	foreign := kubeletEvent("elsewhere", "other", namesNone, since.Add(time.Second))
	recent := kubeletEvent("recent", "eda", namesNone, since.Add(time.Second))
	for i, e := range []*corev1.Event{old, config, foreign, recent} {
		e.InvolvedObject.Name = fmt.Sprintf("pod-%d", i)
	}
	r, _ := newReconciler(t, count, old, config, foreign, recent)
	watched := []plan.Watched{{Volume: created("a", 0), Since: since}}
	for i := range maxNamespaces {
		pv := created(fmt.Sprintf("b%d", i), 0)
		pv.Spec.ClaimRef.Namespace = pv.Name
		watched = append(watched, plan.Watched{Volume: pv, Since: since})
	}
	if _, err := inspectFailedMounts(context.Background(), r.Client, watched); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"eda/pod-3"}, requested); diff != "" {
		t.Errorf("requested pods (-want +got):\n%s", diff)
	}
}

func TestOneFailureHasManyTexts(t *testing.T) {
	const text = `MountVolume.MountDevice failed for volume "a" : local: failed to mount device /dev/sdb at /var/lib/kubelet/plugins/kubernetes.io/local-volume/mounts/a (fstype: xfs), error mount failed: exit status 32
Mounting command: systemd-run
Mounting arguments: --description=Kubernetes transient mount for /var/lib/kubelet/pods/POD/a --scope -- mount -t xfs -o noatime,defaults /dev/sdb /m
Output: Running scope as unit: UNIT.scope
mount: /m: wrong fs type, bad option, bad superblock on /dev/sdb, missing codepage or helper program, or other error.
       dmesg(1) may have more information afte`
	reported := func(prefix, pod, unit string) *failedMount {
		f, ok := readFailedMount(kubeletEvent("e", "eda", prefix+strings.NewReplacer("POD", pod, "UNIT", unit).Replace(text), time.Now()))
		if !ok {
			t.Fatal("got no failed mount, want one")
		}
		return f
	}
	list := func(list string) *failedMount {
		f := reported("", "74da6948-5643-4340-9a19-8080424ab025", "run-r74da6948564343409a198080424ab025")
		other, _ := readFailedMount(kubeletEvent("e", "eda", strings.Replace(f.message, "-t xfs -o noatime,defaults", list, 1), time.Now()))
		return other
	}
	cut := func(pod, unit string) *failedMount {
		f := reported("", pod, unit)
		other, _ := readFailedMount(kubeletEvent("e", "eda", strings.TrimSuffix(f.message, "more information afte"), time.Now()))
		return other
	}
	first := reported("", "74da6948-5643-4340-9a19-8080424ab025", "run-r74da6948564343409a198080424ab025")
	for name, other := range map[string]*failedMount{
		"another pod":          reported("", "8056dae0-f341-4304-bcc2-165ede513223", "run-r74da6948564343409a198080424ab025"),
		"another list":         list("-t xfs -o defaults"),
		"another unit":         reported("", "74da6948-5643-4340-9a19-8080424ab025", "run-r8056dae0f3414304bcc2165ede513223"),
		"a newer systemd's":    reported("", "74da6948-5643-4340-9a19-8080424ab025", "run-p1742-i2042"),
		"a shorter text":       cut("74da6948-5643-4340-9a19-8080424ab025", "run-r2ae4a2883afd45e5857b506283bf0302"),
		"a count of the texts": reported("(combined from similar events): ", "74da6948-5643-4340-9a19-8080424ab025", "run-r2ae4a2883afd45e5857b506283bf0302"),
	} {
		pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
		if other.kindOn(pv) != first.kindOn(pv) || other.failure != first.failure {
			t.Errorf("%s: got another failure:\n%s\nwant\n%s", name, other.failure, first.failure)
		}
	}
}

func TestFailureTextIsOneShortPrintableLine(t *testing.T) {
	for message, want := range map[string]string{
		"exit status 32\nOutput: mount.nfs:\tno":    "exit status 32 Output: mount.nfs: no",
		"a\x1b[31mred\x07\x00b":                     "ared b",
		"right \u202eto left\u2028and a line\u200b": "right to left and a line",
		strings.Repeat("é", 1000):                   strings.Repeat("é", 126) + "…",
	} {
		if got := failureText(message); got != want {
			t.Errorf("text of %q: got %q, want %q", message, got, want)
		}
	}
}

func TestManyNamespacesAreReadWithOneRequest(t *testing.T) {
	var requested []string
	r, _ := newReconciler(t, interceptor.Funcs{List: func(_ context.Context, _ client.WithWatch, _ client.ObjectList, opts ...client.ListOption) error {
		requested = append(requested, (&client.ListOptions{}).ApplyOptions(opts).Namespace)
		return nil
	}})
	var volumes []plan.Watched
	for i := range maxNamespaces + 1 {
		pv := created("a", 0)
		pv.Spec.ClaimRef.Namespace = fmt.Sprintf("n%d", i)
		volumes = append(volumes, plan.Watched{Volume: pv})
	}
	for _, some := range [][]plan.Watched{volumes[:2], volumes, nil} {
		if _, err := inspectFailedMounts(context.Background(), r.Client, some); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"n0", "n1", ""}, requested); diff != "" {
		t.Errorf("namespaces (-want +got):\n%s", diff)
	}
}
