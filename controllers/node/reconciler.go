// Package node keeps one StorageClientNode for each managed Node, which contains the instructions for the node's agent. It also keeps the label
// that schedules the agent there, and the Node's conditions Tuned and StorageReachable. It writes all of spec except the reboot permit.
package node

import (
	"context"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/fence"
	"github.com/storageclient/operator/controllers/internal/fleet"
	"github.com/storageclient/operator/controllers/internal/match"
	"github.com/storageclient/operator/controllers/internal/read"
	"github.com/storageclient/operator/controllers/loop"
	"github.com/storageclient/operator/controllers/node/plan"
	"github.com/storageclient/operator/tuning/catalogue"
)

// retryAfter is the pause before a write that met a newer object is tried again.
const retryAfter = time.Second

// Reconciler keeps a Node's StorageClientNode, its label and its conditions Tuned and StorageReachable.
type Reconciler struct {
	// Client reads its own writes: the live gate counts the StorageClientNodes that have just been written.
	client.Client
	// Clock dates the condition and measures soaks.
	Clock clock.PassiveClock
	// Allow contains the parameters that are accepted in addition to the catalogue.
	Allow catalogue.AllowList
	// Fence reports whether the node may get its agent.
	Fence fence.Checker
	// Limits are the limits of live changes for all profiles.
	Limits plan.Limits
	// Gate caches the evaluation of all nodes, which are reconciled one after the other.
	Gate plan.Gate
	// Patience delays conditions about temporary states; the zero Patience delays none.
	Patience plan.Patience

	profileSets fleet.ProfileSets
	// profiles are the profiles listed last. profilesChanged counts the events of the profile watch, before it requests a node.
	profiles        *fleet.ProfileSet
	profilesAt      int64
	profilesChanged atomic.Int64
	isWatching      bool
}

// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups="",resources=nodes/status,verbs=patch
// +kubebuilder:rbac:groups=tuning.storageclient.dev,resources=storageclientnodes,verbs=get;list;watch;create;patch;delete

// Reconcile updates the StorageClientNode, the label and the conditions of one Node to the declarations of the profiles.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var node corev1.Node
	if err := r.Get(ctx, req.NamespacedName, &node, client.UnsafeDisableDeepCopy); err != nil {
		// The owner reference removes the StorageClientNode of a Node that is gone.
		r.Patience.Forget(req.Name)
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if match.IsIgnored(&node) {
		return reconcile.Result{}, nil
	}
	clientNode, err := r.getClientNode(ctx, node.Name)
	if err != nil {
		return reconcile.Result{}, err
	}
	if clientNode != nil && !fleet.Owns(&node, clientNode) {
		// It belongs to another machine. It is deleted without waiting for the garbage collector.
		log.FromContext(ctx).Info("Deleting the StorageClientNode of a deleted Node", "StorageClientNode", clientNode.Name)
		if err := r.deleteClientNode(ctx, clientNode); err != nil {
			return reconcile.Result{}, err
		}
		clientNode = nil
	}
	snapshot, err := r.readSnapshot(ctx, &node, clientNode)
	// A Node may exist for long after its deletion was requested. It gets no further settings, but a restore.
	if err != nil || !node.DeletionTimestamp.IsZero() && !snapshot.HasRestore() {
		return reconcile.Result{}, err
	}
	next, err := r.passGate(ctx, snapshot, plan.For(snapshot))
	if err != nil {
		return reconcile.Result{}, err
	}
	out := &loop.Outcome{Pause: retryAfter}
	if out.Finish(node.Name, r.apply(ctx, &snapshot, next, out)) && snapshot.Unfenced != "" {
		out.WakeAfter(fence.RecheckAfter)
	}
	return out.Result()
}

// passGate reads all nodes only if the gate needs them.
func (r *Reconciler) passGate(ctx context.Context, snapshot plan.Snapshot, next plan.Step) (plan.Step, error) {
	write, writes := next.(plan.Write)
	if !writes {
		return next, nil
	}
	return r.Gate.Evaluate(snapshot, write, r.Clock.Now, func() (fleet.Snapshot, error) {
		return read.FleetSnapshot(ctx, r.Client, snapshot.Profiles)
	})
}

func (r *Reconciler) readSnapshot(ctx context.Context, node *corev1.Node, clientNode *v1alpha1.StorageClientNode) (plan.Snapshot, error) {
	s := plan.Snapshot{Node: node, ClientNode: clientNode, Limits: r.Limits}
	var err error
	if s.Paused, _, err = read.IsEverythingPaused(ctx, r); err != nil {
		return s, err
	}
	s.Paused = s.Paused || match.IsPaused(node)
	if s.Profiles, err = r.readProfiles(ctx); err != nil {
		return s, err
	}
	s.Desired = s.Profiles.Desired(node, s.ClientNode)
	if s.ClientNode == nil {
		return s, nil
	}
	if s.AgentReady, err = read.IsAgentReady(ctx, r, node.Name); err != nil {
		return s, err
	}
	s.Report = fleet.ReportOf(node, s.ClientNode, s.AgentReady, "")
	return s, nil
}

// readProfiles lists profiles only if the watch has reported a change, because thousands of nodes need them.
func (r *Reconciler) readProfiles(ctx context.Context) (*fleet.ProfileSet, error) {
	changes := r.profilesChanged.Load()
	if r.isWatching && r.profiles != nil && r.profilesAt == changes {
		return r.profiles, nil
	}
	profiles, err := read.Profiles(ctx, r)
	if err != nil {
		return nil, err
	}
	r.profiles, r.profilesAt = r.profileSets.Of(profiles, r.Allow), changes
	return r.profiles, nil
}

func (r *Reconciler) getClientNode(ctx context.Context, name string) (*v1alpha1.StorageClientNode, error) {
	var clientNode v1alpha1.StorageClientNode
	if found, err := read.Find(ctx, r, client.ObjectKey{Name: name}, &clientNode, client.UnsafeDisableDeepCopy); !found {
		return nil, err
	}
	return &clientNode, nil
}
