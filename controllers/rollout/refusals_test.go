package rollout

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/rollout/plan"
)

// forbidding is a cluster that rejects the cordon of a node, as an admission policy may do.
type forbidding struct {
	*manager
	on bool
}

func (f *forbidding) applyStep(ctx context.Context, step plan.Step) error {
	if _, cordon := step.(plan.Cordon); cordon && f.on {
		return apierrors.NewForbidden(corev1.Resource("nodes"), step.NodeName(), context.Canceled)
	}
	return f.manager.applyStep(ctx, step)
}

// TestARejectedWriteIsReportedOnTheNodeOnce expects the error in the note of the node, one event and one log line.
func TestARejectedWriteIsReportedOnTheNodeOnce(t *testing.T) {
	w := newWorld(1)
	w.quiet, w.deterministic = true, true
	n := w.addNode("a")
	w.addProfile("eda", nil, "a")
	w.followProfiles(n)
	w.runAgent(n)
	n.ClientNode.Status.Rollout = &v1alpha1.RolloutStatus{Phase: v1alpha1.RolloutWaiting, Reason: "x", Message: "Waiting for its turn"}
	f := &forbidding{manager: &manager{world: w, name: "m"}, on: true}
	errs, writes := 0, 0
	for range 5 {
		before := n.clientNodeRV
		next, unfinished, err := runPass(t.Context(), f, 1)
		if err != nil {
			errs++
		}
		if unfinished {
			t.Error("the pass is unfinished, so the next one starts at once; want it to wait")
		}
		if n.clientNodeRV != before {
			writes++
		}
		if err == nil && (next.IsZero() || next.After(w.now.Add(maxBackOff))) {
			t.Errorf("next attempt at %s is too late", next)
		}
		w.passTime(time.Second)
	}
	note := *n.ClientNode.Status.Rollout
	if errs != 1 || writes != 1 || !strings.Contains(note.Refusal, "forbidden") || note.Message != "Waiting for its turn" {
		t.Errorf("got %d errors, %d writes, %s: %s, rejection %s; want one error and write", errs, writes, note.Reason, note.Message, note.Refusal)
	}
	f.on = false
	w.playUntil(10 * time.Second)
	if note := *n.ClientNode.Status.Rollout; note.Refusal != "" || !n.Unschedulable {
		t.Errorf("got cordoned %t, message %s; want a cordon and no rejection", n.Unschedulable, note.Message)
	}
	if w.broken != nil {
		t.Error(w.broken)
	}
}

func TestImmutableConfigMapsAreNamed(t *testing.T) {
	for _, name := range []string{v1alpha1.BudgetConfigMap, v1alpha1.FailuresConfigMap} {
		object := failuresConfigMap(nil)
		object.Name, object.Immutable = name, ptr.To(true)
		snapshot, err := scopeOf(t, object).readSnapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{v1alpha1.ManagerNamespace + "/" + name}, snapshot.Immutable); diff != "" {
			t.Error(diff)
		}
	}
}

// A Node has been replaced, and the StorageClientNode still belongs to the former one: its note is not that of the new Node.
func TestTheNoteOfAFormerNodeIsNoNoteOfTheNewOne(t *testing.T) {
	clientNode := &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: "a", OwnerReferences: []metav1.OwnerReference{{Kind: "Node", UID: "former"}}}}
	clientNode.Status.Rollout = &v1alpha1.RolloutStatus{Phase: v1alpha1.RolloutReleasing}
	for uid, want := range map[types.UID]v1alpha1.RolloutPhase{"former": v1alpha1.RolloutReleasing, "new": ""} {
		s := &scope{
			nodes:       map[string]*corev1.Node{"a": {ObjectMeta: metav1.ObjectMeta{Name: "a", UID: uid}}},
			clientNodes: map[string]*v1alpha1.StorageClientNode{"a": clientNode},
		}
		if got := s.currentNote("a").Phase; got != want {
			t.Errorf("Node with UID %s: got a note with phase %q, want %q", uid, got, want)
		}
	}
}
