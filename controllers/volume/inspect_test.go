package volume

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/storageclient/operator/controllers/volume/plan"
)

func kubeletEvent(name, namespace, message string, first time.Time) *corev1.Event {
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Reason: failedMountReason, Message: message, Type: corev1.EventTypeWarning,
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: namespace, Name: "pod"}, FirstTimestamp: metav1.NewTime(first), LastTimestamp: metav1.NewTime(first.Add(time.Hour)),
	}
}

func TestFailedMounts(t *testing.T) {
	since := noon.Add(-time.Minute)
	named := `MountVolume.SetUp failed for volume "a" : mount failed: exit status 32`
	unnamed := `Unable to attach or mount volumes: unmounted volumes=[data], unattached volumes=[data token]: timed out waiting for the condition`
	event := func(message string, after time.Duration, change ...func(*corev1.Event)) *corev1.Event {
		e := kubeletEvent("e", "eda", message, since.Add(after))
		for _, c := range change {
			c(e)
		}
		return e
	}
	pod := func(volume corev1.Volume) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "eda", Name: "pod", UID: "u"}, Spec: corev1.PodSpec{Volumes: []corev1.Volume{volume}}}
	}
	claimed := func(name, claim string) corev1.Volume {
		return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}
	}
	earlier := event(strings.Replace(named, "32", "32 /pods/0b0e3f0a-1111-2222-3333-444455556666/x", 1), -time.Hour, func(e *corev1.Event) { e.Name = "earlier" })
	tests := map[string]struct {
		objects []client.Object
		want    bool
	}{
		"one that names the volume":                         {[]client.Object{event(named, time.Second)}, true},
		"one of the second of the write":                    {[]client.Object{event(named, 0)}, true},
		"one from before the write":                         {[]client.Object{event(named, -time.Second)}, false},
		"one that was there before, for another pod":        {[]client.Object{earlier, event(strings.Replace(named, "32", "32 /pods/9b0e3f0a-1111-2222-3333-444455556666/x", 1), time.Second)}, false},
		"another failure than the one from before":          {[]client.Object{earlier, event(named, time.Second)}, true},
		"one that names another volume":                     {[]client.Object{event(strings.Replace(named, `"a"`, `"kube-api-access"`, 1), time.Second)}, false},
		"one of another namespace":                          {[]client.Object{event(named, time.Second, func(e *corev1.Event) { e.Namespace, e.InvolvedObject.Namespace = "b", "b" })}, false},
		"one that is not of a pod":                          {[]client.Object{event(named, time.Second, func(e *corev1.Event) { e.InvolvedObject.Kind = "Node" })}, false},
		"one of another reason":                             {[]client.Object{event(named, time.Second, func(e *corev1.Event) { e.Reason = "FailedAttachVolume" })}, false},
		"one in the form of the new API":                    {[]client.Object{event(named, 0, func(e *corev1.Event) { e.FirstTimestamp = metav1.Time{}; e.EventTime = metav1.NewMicroTime(since) })}, true},
		"one without a name, of a pod that uses the volume": {[]client.Object{event(unnamed, time.Second), pod(claimed("data", "web-data"))}, true},
		"one about another volume of such a pod":            {[]client.Object{event(unnamed, time.Second), pod(claimed("other", "web-data"))}, false},
		"one of a pod that does not use the volume":         {[]client.Object{event(unnamed, time.Second), pod(claimed("data", "scratch"))}, false},
		"one of a pod that is gone":                         {[]client.Object{event(unnamed, time.Second)}, false},
		"one of an earlier pod of the name":                 {[]client.Object{event(unnamed, time.Second, func(e *corev1.Event) { e.InvolvedObject.UID = "v" }), pod(claimed("data", "web-data"))}, false},
		"one of a pod with an ephemeral volume": {[]client.Object{
			event("timed out", time.Second, func(e *corev1.Event) { e.InvolvedObject.Name = "web" }),
			&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "eda", Name: "web"}, Spec: corev1.PodSpec{Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}}}},
		}, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r, _ := newReconciler(t, interceptor.Funcs{}, test.objects...)
			pv := created("a", 0)
			pv.Spec.ClaimRef.Name = "web-data"
			got, err := inspectFailedMounts(context.Background(), r.Client, []plan.Watched{{Volume: pv, Since: since}})
			if err != nil {
				t.Fatal(err)
			}
			if _, failed := got["a"]; failed != test.want {
				t.Errorf("found %q, want a failure: %v", got, test.want)
			}
		})
	}
}

func TestManyNamespacesAreAskedAtOnce(t *testing.T) {
	var asked []string
	r, _ := newReconciler(t, interceptor.Funcs{List: func(_ context.Context, _ client.WithWatch, _ client.ObjectList, opts ...client.ListOption) error {
		asked = append(asked, (&client.ListOptions{}).ApplyOptions(opts).Namespace)
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
	if diff := cmp.Diff([]string{"n0", "n1", ""}, asked); diff != "" {
		t.Errorf("namespaces (-want +got):\n%s", diff)
	}
}
