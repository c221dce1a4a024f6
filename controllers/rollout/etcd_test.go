package rollout

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/storageclient/operator/test/check"
)

// Only node "labelled" has the label of a control-plane node.
func TestAnEtcdMemberIsAControlPlaneNode(t *testing.T) {
	pod := func(name, namespace, node string, static bool, labels map[string]string) *corev1.Pod {
		out := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: labels}, Spec: corev1.PodSpec{NodeName: node}}
		if static {
			out.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
		}
		return out
	}
	etcd := map[string]string{"component": "etcd", "tier": "control-plane"}
	s := passOf(t,
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "static"}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "labelled", Labels: map[string]string{"node-role.kubernetes.io/etcd": "true"}}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker"}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "tenant"}},
		pod("etcd-static", metav1.NamespaceSystem, "static", true, etcd),
		pod("proxy", metav1.NamespaceSystem, "worker", true, map[string]string{"component": "kube-proxy"}),
		pod("etcd-backup", metav1.NamespaceSystem, "worker", false, etcd),
		pod("etcd", "tenant", "tenant", true, etcd),
	)
	lists := 0
	s.APIReader = interceptor.NewClient(s.Client.(client.WithWatch), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if _, pods := list.(*corev1.PodList); pods {
				lists++
			}
			return c.List(ctx, list, options...)
		},
	})
	refresh := func() map[string]bool {
		t.Helper()
		if _, err := s.readSnapshot(t.Context()); err != nil {
			t.Fatal(err)
		}
		check.NoError(t, s.refreshNodes(t.Context()))
		snapshot := whole(s)
		out := map[string]bool{}
		for i := range snapshot.Nodes {
			out[snapshot.Nodes[i].Name] = snapshot.Nodes[i].ControlPlane
		}
		return out
	}
	for name, want := range map[string]bool{"static": true, "labelled": true, "worker": false, "tenant": false} {
		if got := refresh()[name]; got != want {
			t.Errorf("%s: got control plane %t, want %t", name, got, want)
		}
	}
	if lists != 1 {
		t.Errorf("listed pods %d times within a moment, want once", lists)
	}
	check.NoError(t, s.Create(t.Context(), pod("etcd-worker", metav1.NamespaceSystem, "worker", true, etcd)))
	s.Clock = testingclock.NewFakePassiveClock(s.Clock.Now().Add(podsAge))
	if s.etcdPace.Remaining(time.Minute, s.Clock.Now()) > 0 || !refresh()["worker"] {
		t.Error("new member not detected after a minute")
	}
}
