package rollout

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/fleet"
	"github.com/storageclient/operator/controllers/internal/parallel"
	"github.com/storageclient/operator/controllers/internal/write"
	"github.com/storageclient/operator/controllers/loop"
	"github.com/storageclient/operator/controllers/rollout/drain"
	"github.com/storageclient/operator/controllers/rollout/plan"
	"github.com/storageclient/operator/controllers/store"
	"github.com/storageclient/operator/tuning/catalogue"
)

// Reconciler rolls reboots out over all nodes. There is one request for the whole cluster.
type Reconciler struct {
	// Client reads from the cache and writes.
	client.Client
	// APIReader reads from the API server.
	APIReader client.Reader
	// Recorder reports events on Nodes.
	Recorder events.EventRecorder
	// Clock measures drains, boots and soaks.
	Clock clock.PassiveClock
	// Allow contains the parameters that are accepted in addition to the catalogue.
	Allow catalogue.AllowList
	// MaxUnavailable is the cluster-wide budget: nodes, or a percentage of all Nodes, rounded down and never under 1.
	MaxUnavailable intstr.IntOrString
	// UnmanagedCountFor is the time for which an unavailable node without a profile uses up the cluster's budget; 0: until it is back.
	UnmanagedCountFor time.Duration
	// ManagerNode is the node that runs the manager's Pod, empty outside the cluster. It goes last.
	ManagerNode string
	// LeavingMarks are additional marks by which others announce the removal of a node: key, or key=value, of taints, annotations and labels.
	LeavingMarks []string
	// UntunedTaint is the key of the taint that is removed once a node is tuned.
	UntunedTaint string
	// Drains evicts in the background. It runs alongside the reconciler, and stops with it.
	Drains *drain.Runner
	// Workers is the number of nodes that are handled concurrently; 0: DefaultWorkers. With 1, the same responses lead to the same pass.
	Workers int

	profileSets fleet.ProfileSets
	// planned are the profiles of the set plannedOf in the form that the planner uses.
	planned   []plan.Profile
	plannedOf *fleet.ProfileSet
	// etcdNodes run a member of etcd as a static pod. managers are the manager's Pods. Both are from a recent read.
	etcdNodes              sets.Set[string]
	managers               []corev1.Pod
	etcdPace, managersPace store.Pace
	// inspected contains the time of the last inspection of the pods of each draining node. The one request is never handled twice concurrently.
	inspected map[string]time.Time
	// applying contains the time since which each agent has been applying settings that it has not reported yet.
	applying map[string]time.Time
	// behind contains the time since which each StorageClientNode does not have the desired boot hash.
	behind map[string]time.Time
	// sightings are the first sights of the states of nodes by this process. Only one goroutine uses them.
	sightings map[sightingKey]*sighting
	// progress is the progress that has not been reported in events yet.
	progress map[string]*profileProgress
	// dropped are the fields of notes that the API server drops.
	dropped write.Dropped
	// pace and rest space passes: the next one starts at once after a pass that took steps, because nodes wait for it.
	pace store.Pace
	rest time.Duration
}

// DefaultWorkers is the number of nodes that are read, drained and written concurrently. More concurrent requests would affect other clients.
const DefaultWorkers = 12

func (r *Reconciler) workers() int { return cmp.Or(r.Workers, DefaultWorkers) }

// pass is one round of reading, planning and writing. It contains the objects of the decision in their current version, for the writes that follow.
type pass struct {
	*Reconciler

	out     *loop.Outcome
	session *plan.Session
	started time.Time
	plan    plan.Plan
	// live are the nodes that have been read live; nil: all of them.
	live sets.Set[string]
	// maxNotes is the number of notes for nodes in service that the pass may write.
	maxNotes int
	// unrecorded is true if failures could not be recorded: no new disruption starts then.
	unrecorded bool
	// readDuration is the time that it took to read the cluster; stepping is true once nodes are read for steps.
	readDuration     time.Duration
	stepping, paused bool
	profiles         *fleet.ProfileSet
	ready            map[string]bool
	claims, failures *corev1.ConfigMap
	// changes combines changes of claims; rulings combines reads of the rules for some nodes. Workers share them.
	changes parallel.Joint[[]claimChange, struct{}]
	rulings parallel.Joint[[]string, plan.Rules]
	// mutex guards the maps that follow, which workers read and write. No two workers handle the same node.
	mutex       sync.Mutex
	nodes       map[string]*corev1.Node
	clientNodes map[string]*v1alpha1.StorageClientNode
	// notes are the notes of the latest plan, including the results of first drains.
	notes map[string]v1alpha1.RolloutStatus
	// changed are the nodes that may have changed since the last input to the planner; drains is the progress of their drains.
	changed sets.Set[string]
	drains  map[string]*plan.DrainProgress
	// occupied are the nodes with the untuned taint that have pods which a drain would have to remove.
	occupied sets.Set[string]
}

const fieldOwner = client.FieldOwner(v1alpha1.ManagerFieldManager)

// claimChange is the new claim of a node, empty if the claim is released.
type claimChange struct{ node, claim string }

// sighting is the knowledge of this process about a state of a node, by the API server's clock.
type sighting struct {
	state sightedState
	// earliest and latest are the limits of the time at which the state began; seen is the time of the last pass that saw it.
	earliest, latest, seen time.Time
	// out is the earliest time at which the node went out of Ready for the last time; zero if unknown.
	out time.Time
	// former is the state before; nil if unknown.
	former *sighting
}

// sightedState is a state of a node, and the time that the Node shows for it, in seconds since 1970.
type sightedState struct {
	text string
	time int64
}

// sightingKey names one of the states of a node: Ready, cordoned, marked or maintained.
type sightingKey struct {
	node   types.UID
	aspect string
}

// profileProgress contains the nodes of one profile since its last event, by the action on them. Unreported progress is lost when the manager
// stops.
type profileProgress struct {
	reported time.Time
	nodes    [3][]string
}

// writeConfigMap writes a ConfigMap that was read before the decision.
func (p *pass) writeConfigMap(ctx context.Context, object *corev1.ConfigMap) error {
	write := func() error { return p.Update(ctx, object, fieldOwner) }
	if object.ResourceVersion == "" {
		write = func() error { return p.Create(ctx, object, fieldOwner) }
	}
	if err := write(); err != nil {
		return fmt.Errorf("write ConfigMap %s: %w", client.ObjectKeyFromObject(object), err)
	}
	return nil
}

// current returns the object on which the decision was based, or its version after later writes; nil if there is none.
func current[T any](p *pass, objects map[string]T, name string) T {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return objects[name]
}

func keep[T client.Object](p *pass, objects map[string]T, object T) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	objects[object.GetName()] = object
	p.changed.Insert(object.GetName())
}

// readDisruption decodes a claim or an annotation. If it cannot be read, the result is empty and still counts.
func readDisruption(value string) v1alpha1.Disruption {
	disruption, _ := v1alpha1.DecodeDisruption(value)
	return disruption
}

// earlierOf returns the earlier of two times. Zero means never.
func earlierOf(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
