//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
)

// moment is one change of a Node or of its rollout from a watch.
type moment struct {
	at   time.Time
	node string
	// state is set for a change of the Node, rollout for one of its StorageClientNode.
	state   *nodeState
	rollout string
}

type nodeState struct {
	bootID                     string
	ready, cordoned, disrupted bool
}

func (s nodeState) available() bool { return s.ready && !s.cordoned }

func (s nodeState) String() string {
	words := []string{"boot " + s.bootID[:min(8, len(s.bootID))]}
	for _, word := range []struct {
		text string
		said bool
	}{{"NotReady", !s.ready}, {"cordoned", s.cordoned}, {"marked as disrupted by us", s.disrupted}} {
		if word.said {
			words = append(words, word.text)
		}
	}
	return strings.Join(words, ", ")
}

// timeline records every change of the nodes' state and of their rollout, in the order of the watch events.
type timeline struct {
	informers cache.Cache
	mu        sync.Mutex
	moments   []moment
}

// watchNodes starts a timeline. The returned function stops it.
func watchNodes(config *rest.Config) (*timeline, func()) {
	GinkgoHelper()
	informers, err := cache.New(config, cache.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
	t := &timeline{informers: informers}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- informers.Start(ctx) }()
	t.on(&corev1.Node{}, func(object any) {
		if node, ok := object.(*corev1.Node); ok {
			t.add(moment{node: node.Name, state: ptr.To(stateOf(node))})
		}
	})
	return t, func() {
		cancel()
		Expect(<-done).To(Succeed())
	}
}

// watchRollouts also records the rollouts of StorageClientNodes, once the API server serves their kind.
func (t *timeline) watchRollouts() {
	GinkgoHelper()
	t.on(&v1alpha1.StorageClientNode{}, func(object any) {
		if scn, ok := object.(*v1alpha1.StorageClientNode); ok && scn.Status.Rollout != nil {
			r := scn.Status.Rollout
			t.add(moment{node: scn.Name, rollout: fmt.Sprintf("%s %s %s", r.Phase, r.Reason, r.Message)})
		}
	})
}

// on calls record with each version of the objects of a kind. It returns after it has seen the existing objects.
func (t *timeline) on(kind client.Object, record func(object any)) {
	GinkgoHelper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	informer, err := t.informers.GetInformer(ctx, kind)
	Expect(err).NotTo(HaveOccurred())
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    record,
		UpdateFunc: func(_, object any) { record(object) },
	})
	Expect(err).NotTo(HaveOccurred())
}

func stateOf(node *corev1.Node) nodeState {
	ready := slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
	_, disrupted := node.Annotations[v1alpha1.DisruptionAnnotation]
	return nodeState{bootID: node.Status.NodeInfo.BootID, ready: ready, cordoned: node.Spec.Unschedulable, disrupted: disrupted}
}

// add appends a moment if it differs from the node's last one of its kind.
func (t *timeline) add(m moment) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, last := range slices.Backward(t.moments) {
		if last.node != m.node || (last.state == nil) != (m.state == nil) {
			continue
		}
		if m.state == nil && last.rollout == m.rollout || m.state != nil && *last.state == *m.state {
			return
		}
		break
	}
	m.at = time.Now()
	t.moments = append(t.moments, m)
}

func (t *timeline) all() []moment {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.moments)
}

// boots returns the boot IDs of a node, in order.
func (t *timeline) boots(node string) []string {
	var ids []string
	for _, m := range t.all() {
		if m.node == node && m.state != nil && !slices.Contains(ids, m.state.bootID) {
			ids = append(ids, m.state.bootID)
		}
	}
	return ids
}

// rollouts returns the phases, reasons and messages of all nodes' rollouts.
func (t *timeline) rollouts() []string {
	var texts []string
	for _, m := range t.all() {
		if m.state == nil {
			texts = append(texts, m.rollout)
		}
	}
	return texts
}

// unavailableTogether returns the moments in which more than one node was cordoned or not Ready.
func (t *timeline) unavailableTogether() []string {
	out := map[string]bool{}
	var found []string
	for _, m := range t.all() {
		if m.state == nil {
			continue
		}
		if m.state.available() {
			delete(out, m.node)
		} else {
			out[m.node] = true
		}
		if len(out) > 1 {
			found = append(found, fmt.Sprintf("%s: %s", m.at.Format(time.TimeOnly), strings.Join(slices.Sorted(maps.Keys(out)), " and ")))
		}
	}
	return found
}

// outOfService returns the states of a node since a moment in which it was cordoned or not Ready.
func (t *timeline) outOfService(node string, since time.Time) []string {
	var found []string
	for _, m := range t.all() {
		if m.node == node && m.state != nil && !m.state.available() && !m.at.Before(since) {
			found = append(found, fmt.Sprintf("%s: %s", m.at.Format(time.TimeOnly), m.state))
		}
	}
	return found
}

func (t *timeline) String() string {
	var text strings.Builder
	all := t.all()
	for _, m := range all {
		what := m.rollout
		if m.state != nil {
			what = m.state.String()
		}
		fmt.Fprintf(&text, "%8.0f  %s  %s\n", m.at.Sub(all[0].at).Seconds(), m.node, what)
	}
	return text.String()
}
