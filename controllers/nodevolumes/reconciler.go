// Package nodevolumes lists for every node the mounted volumes of profiles in spec.volumes of its StorageClientNode, with the desired options
// and read-ahead of their mounts. The node's agent evaluates and sets them. They are not part of a hash, and are not written while the rollout
// holds a node.
package nodevolumes

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/fleet"
	"github.com/storageclient/operator/controllers/internal/match"
	"github.com/storageclient/operator/controllers/internal/read"
	"github.com/storageclient/operator/controllers/internal/watch"
	"github.com/storageclient/operator/controllers/internal/write"
	"github.com/storageclient/operator/controllers/loop"
	"github.com/storageclient/operator/controllers/nodevolumes/plan"
	"github.com/storageclient/operator/controllers/store"
	"github.com/storageclient/operator/controllers/volume"
	"github.com/storageclient/operator/controllers/volume/snapshot"
	"github.com/storageclient/operator/tuning/catalogue"
)

const (
	// passEvery is the minimum time between two passes: a pass covers all nodes and volumes in the cache, and pods start and stop all the time.
	passEvery = 2 * time.Second
	// podsEvery is the minimum time between two reads of the pods of volumes: they are not in the cache.
	podsEvery = 10 * time.Second
)

// Reconciler writes spec.volumes of all StorageClientNodes, in one pass for all.
type Reconciler struct {
	client.Client
	// APIReader bypasses the cache, which does not contain pods of users. If nil, Client is used.
	APIReader client.Reader
	// Clock sets the times of passes and measures soaks.
	Clock clock.PassiveClock
	// Allow holds the parameters that are accepted beyond the catalogue.
	Allow catalogue.AllowList
	// Volumes caches earlier reads of the volumes, shared with other controllers. Nil disables the cache.
	Volumes *snapshot.Memory

	reader *snapshot.Reader
	pace   store.Pace
	// carried are the states of nodes with a read-ahead. After a restart of the manager, canaries soak again.
	carried map[plan.Carrier]plan.Carried
	// users are the nodes with a pod of a volume, as last read. isUnread is true if a node reports a mount without one.
	// isUnchecked is true if the last read of such pods failed.
	users                 map[string]sets.Set[string]
	usersPace             store.Pace
	isUnread, isUnchecked bool
	// last is the last plan, with its nodes with pods, for the status of profiles.
	last atomic.Pointer[state]
}

type state struct {
	reasons map[string][]string
	users   map[string]sets.Set[string]
}

// Waits returns the reasons for which nodes wait for a read-ahead of a profile. mayGet reports whether a node may get the read-ahead of a volume: the
// API server shows a pod there, or the last pass did not check. It is nil before the first pass. Waits is safe for concurrent use.
func (r *Reconciler) Waits(profile string) (reasons []string, mayGet func(volume, node string) bool) {
	last := r.last.Load()
	if last == nil {
		return nil, nil
	}
	return last.reasons[profile], func(volume, node string) bool {
		users, isKnown := last.users[volume]
		return !isKnown || users.Has(node)
	}
}

// +kubebuilder:rbac:groups="",resources=pods,verbs=list
// +kubebuilder:rbac:groups="",resources=nodes;persistentvolumes;persistentvolumeclaims,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=configmaps,verbs=list;watch,namespace=storage-client-system
// +kubebuilder:rbac:groups=tuning.storageclient.dev,resources=storageclientnodes,verbs=get;list;watch;patch

// Reconcile runs one pass. A failed write of one node does not block the others.
func (r *Reconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	return loop.Arm[plan.Snapshot, plan.Plan]{Read: r.readSnapshot, Plan: plan.For, Apply: r.apply}.Run(ctx, &r.pace, passEvery, r.Clock)
}

func (r *Reconciler) apply(ctx context.Context, s plan.Snapshot, next plan.Plan, out *loop.Outcome) {
	r.carried = next.Since
	last := &state{reasons: next.Waits}
	if !r.isUnchecked {
		last.users = s.Users
	}
	r.last.Store(last)
	out.WakeAfter(next.Next)
	if r.isUnread {
		out.WakeAfter(podsEvery)
	}
	for _, n := range s.Nodes {
		if list, ok := next.Lists[n.Node.Name]; ok {
			out.Finish(n.Node.Name, r.patchVolumes(ctx, n.ClientNode, list))
		}
	}
}

func (r *Reconciler) patchVolumes(ctx context.Context, clientNode *v1alpha1.StorageClientNode, list []v1alpha1.NodeVolume) error {
	if _, err := write.PatchSpec(ctx, r, clientNode, func(spec *v1alpha1.StorageClientNodeSpec) { spec.Volumes = list }); err != nil {
		return err
	}
	log.FromContext(ctx).V(1).Info("Listed the volumes of a node", "StorageClientNode", clientNode.Name, "volumes", len(list))
	return nil
}

func (r *Reconciler) readSnapshot(ctx context.Context) (plan.Snapshot, error) {
	s := plan.Snapshot{Rollouts: map[string]v1alpha1.Rollout{}, Now: r.Clock.Now(), Since: r.carried}
	all, writable, err := read.WritableNodes(ctx, r.Client, nil)
	if err != nil {
		return plan.Snapshot{}, err
	}
	pausedAll, _, err := read.IsEverythingPaused(ctx, r)
	if err != nil {
		return plan.Snapshot{}, err
	}
	for _, node := range all.Nodes {
		if clientNode := all.ClientNodes[node.Name]; clientNode != nil && fleet.Owns(node, clientNode) && !match.IsIgnored(node) {
			s.Nodes = append(s.Nodes, plan.Node{Node: node, ClientNode: clientNode, Writable: !pausedAll && writable[node.Name]})
		}
	}
	return s, r.readDeclared(ctx, &s)
}

// readDeclared reads the declarations of profiles for volumes. It skips the read if there is no node.
func (r *Reconciler) readDeclared(ctx context.Context, s *plan.Snapshot) error {
	if len(s.Nodes) == 0 {
		return nil
	}
	if r.reader == nil {
		r.reader = &snapshot.Reader{Reader: r.Client, Allow: r.Allow, Memory: r.Volumes}
	}
	volumes, err := r.reader.Read(ctx)
	if err != nil {
		return err
	}
	s.Mounted = volumes.Mounted()
	for _, profile := range volumes.Profiles.All() {
		s.Rollouts[profile.Name] = profile.Rollout
	}
	r.readUsers(ctx, s)
	return nil
}

// readUsers finds the nodes with a pod of a volume, among the nodes that wait for its read-ahead. It reads only the pods of volumes that nodes report
// without one, and not more often than podsEvery. A failed read delays only the read-ahead of the volumes whose pods are missing.
func (r *Reconciler) readUsers(ctx context.Context, s *plan.Snapshot) {
	s.Users = map[string]sets.Set[string]{}
	unread := map[string]types.NamespacedName{}
	for name, nodes := range s.Waiting() {
		if s.Users[name] = r.users[name]; !s.Users[name].IsSuperset(nodes) {
			if volumeClaim := s.Mounted[name].VolumeClaim; volumeClaim.Name != "" {
				unread[name] = volumeClaim
			}
		}
	}
	r.users, r.isUnread, r.isUnchecked = s.Users, len(unread) > 0, r.isUnchecked && len(unread) > 0
	if !r.isUnread || r.usersPace.Begin(podsEvery, s.Now) > 0 {
		return
	}
	nodes, err := volume.ClaimUsers(ctx, cmp.Or[client.Reader](r.APIReader, r.Client), slices.Collect(maps.Values(unread)))
	if err != nil {
		log.FromContext(ctx).Error(err, "Could not read the pods of volumes; nodes wait for their read-ahead")
	}
	for name, volumeClaim := range unread {
		s.Users[name] = s.Users[name].Union(nodes[volumeClaim])
	}
	r.isUnchecked = err != nil
}

// SetupWithManager registers the reconciler and its watches.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	one := watch.One("nodevolumes", 0)
	return ctrl.NewControllerManagedBy(mgr).
		Named("nodevolumes").
		Watches(&v1alpha1.StorageClientNode{}, one, builder.WithPredicates(watch.Changed(clientNodeChanged))).
		Watches(&v1alpha1.StorageClientProfile{}, one, builder.WithPredicates(watch.ProfileChanged())).
		Watches(&corev1.Node{}, one, builder.WithPredicates(watch.NodeChanged(func(*corev1.Node, *corev1.Node) bool { return true }))).
		Watches(&corev1.Pod{}, one, builder.WithPredicates(watch.AgentChanged())).
		Watches(&corev1.ConfigMap{}, one, builder.WithPredicates(watch.Named(v1alpha1.BudgetConfigMap))).
		Watches(&corev1.PersistentVolume{}, one).
		WatchesMetadata(snapshot.VolumeClaimMetadata(), one, builder.WithPredicates(watch.Described())).
		Watches(&storagev1.StorageClass{}, one).
		Watches(&corev1.Namespace{}, one, builder.WithPredicates(watch.Named(v1alpha1.ManagerNamespace), predicate.AnnotationChangedPredicate{})).
		Complete(r)
}

// clientNodeChanged filters out updates that change neither the mounted volumes nor a condition for a write.
func clientNodeChanged(before, after *v1alpha1.StorageClientNode) bool {
	return !equality.Semantic.DeepEqual(digestOf(before), digestOf(after))
}

// digest is the part of a StorageClientNode that a pass uses.
type digest struct {
	Told     []v1alpha1.NodeVolume
	Release  bool
	Seen     bool
	BootID   string
	Held     bool
	ReadKiBs map[string][]int32
}

func digestOf(clientNode *v1alpha1.StorageClientNode) digest {
	d := digest{
		Told: clientNode.Spec.Volumes, Release: clientNode.Spec.Release, BootID: clientNode.Status.BootID,
		Seen: clientNode.Status.ObservedGeneration >= clientNode.Generation,
		Held: fleet.IsDisrupted(&corev1.Node{}, clientNode), ReadKiBs: map[string][]int32{},
	}
	for _, m := range clientNode.Status.Mounts {
		if m.Volume != "" {
			key := m.Volume + " " + string(m.ReadAheadState)
			d.ReadKiBs[key] = append(d.ReadKiBs[key], m.ReadAheadKiB)
		}
	}
	return d
}
