package rollout

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/tuning/lists"
)

// etcdPods are the labels of kubeadm's and RKE2's static pods of etcd (cmd/kubeadm/app/util/staticpod, ComponentPod).
var etcdPods = client.MatchingLabels{"component": "etcd", "tier": "control-plane"}

// etcdAge is the time for which the list of etcd nodes is cached: members rarely change, and finding them requires a list of kube-system.
const etcdAge = time.Minute

// etcdMembers are the nodes that run a member of etcd as a static pod, according to a recent read.
type etcdMembers struct {
	nodes sets.Set[string]
	at    time.Time
}

// readEtcdMembers finds the nodes whose loss would cost etcd a vote although they have no label for it.
func (s *scope) readEtcdMembers(ctx context.Context) error {
	if age := s.Clock.Now().Sub(s.etcd.at); s.etcd.nodes != nil && age >= 0 && age < etcdAge {
		return nil
	}
	var pods corev1.PodList
	// Read from the cache of the API server: a new member has no vote yet.
	fromMemory := &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: "0"}}
	if err := s.APIReader.List(ctx, &pods, client.InNamespace(metav1.NamespaceSystem), etcdPods, fromMemory); err != nil {
		return fmt.Errorf("list Pods of etcd: %w", err)
	}
	nodes := lists.Pick(lists.Pointers(pods.Items), func(pod *corev1.Pod) (string, bool) {
		return pod.Spec.NodeName, metav1.HasAnnotation(pod.ObjectMeta, corev1.MirrorPodAnnotationKey)
	})
	s.etcd = etcdMembers{nodes: sets.New(nodes...), at: s.Clock.Now()}
	return nil
}
