// Package trial probes option sets and runs StorageClientTrials. A probe is an isolated mount on a node. It shows whether mount options work
// before any volume has them. The node's agent and its trial runner make the mount. With Observe, agents count the operations of
// existing mounts. Package plan decides.
package trial

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/agentpod"
	"github.com/storageclient/operator/controllers/internal/fleet"
	"github.com/storageclient/operator/controllers/internal/read"
	"github.com/storageclient/operator/controllers/internal/watch"
	"github.com/storageclient/operator/controllers/internal/write"
	"github.com/storageclient/operator/controllers/loop"
	"github.com/storageclient/operator/controllers/objects"
	"github.com/storageclient/operator/controllers/store"
	"github.com/storageclient/operator/controllers/trial/plan"
	"github.com/storageclient/operator/controllers/volume/optionset"
	volumeplan "github.com/storageclient/operator/controllers/volume/plan"
	"github.com/storageclient/operator/controllers/volume/snapshot"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/text"
)

const (
	// passEvery is the minimum time between two passes, and the time to the next pass while a probe or trial is in progress.
	passEvery = 2 * time.Second
	// lookEvery is the time to the next pass otherwise. Writes wait for probes, so a change must not be missed for long.
	lookEvery = time.Minute
	// maxSilence is the time without a pass after which sets no longer wait for their probes. It exceeds the controller's delay after errors.
	maxSilence = 30 * time.Minute
	// component is the label value that distinguishes the trial runner's Pods from the agents' Pods.
	component = "trial-runner"
)

// Reconciler probes option sets and runs StorageClientTrials, in one pass for all.
type Reconciler struct {
	client.Client
	// Clock sets the times of passes and orders.
	Clock clock.PassiveClock
	// Allow holds the parameters that are accepted beyond the catalogue.
	Allow catalogue.AllowList
	// Results publishes the results of probes to other controllers.
	Results *Results
	// Volumes caches earlier reads of the volumes, shared with other controllers. Nil disables the cache.
	Volumes *snapshot.Memory

	pace   store.Pace
	memory plan.Memory
	// failure is the message of the writes that failed in the last pass, for the results of probes that they prevent.
	failure string
	reader  *snapshot.Reader
	// profileSets caches results that depend on the profiles alone.
	profileSets fleet.ProfileSets
}

// Results holds the results of probes for other controllers. A restart of the manager clears them: sets without other evidence are probed
// again.
type Results struct {
	// Clock limits the wait for passes.
	Clock clock.PassiveClock

	last atomic.Pointer[published]
}

// published are the results of the last pass, with its time. problem is the error of the passes since.
type published struct {
	probes  map[volumeplan.ProbeKey]volumeplan.Probe
	at      time.Time
	problem string
}

// All returns the current results, never nil: a set without a result waits for one, unless no pass has succeeded for too long. Callers must not
// change them.
func (r *Results) All() map[volumeplan.ProbeKey]volumeplan.Probe {
	r.last.CompareAndSwap(nil, &published{probes: map[volumeplan.ProbeKey]volumeplan.Probe{}, at: r.Clock.Now(), problem: "no pass has finished"})
	last := r.last.Load()
	if !r.Clock.Now().After(last.at.Add(maxSilence)) {
		return last.probes
	}
	probes := maps.Clone(last.probes)
	reason := fmt.Sprintf("the manager could make no probes for %s: %s", maxSilence, text.Line(last.problem))
	probes[volumeplan.AnySet] = volumeplan.Probe{Verdict: optionset.ProbeInconclusive, Text: reason}
	return probes
}

func (r *Results) set(results map[volumeplan.ProbeKey]plan.Result, now time.Time) {
	known := make(map[volumeplan.ProbeKey]volumeplan.Probe, len(results))
	for key, result := range results {
		known[key] = result.Probe
	}
	r.last.Store(&published{probes: known, at: now, problem: "no later pass has finished"})
}

func (r *Results) fail(err error) {
	r.All()
	next := *r.last.Load()
	next.problem = err.Error()
	r.last.Store(&next)
}

// +kubebuilder:rbac:groups="",resources=nodes,verbs=list;watch;patch
// +kubebuilder:rbac:groups="",resources=persistentvolumes,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=pods,verbs=list
// +kubebuilder:rbac:groups="",resources=configmaps,verbs=list;watch,namespace=storage-client-system
// +kubebuilder:rbac:groups=tuning.storageclient.dev,resources=storageclientnodes,verbs=list;watch;patch
// +kubebuilder:rbac:groups=tuning.storageclient.dev,resources=storageclienttrials,verbs=list;watch
// +kubebuilder:rbac:groups=tuning.storageclient.dev,resources=storageclienttrials/status,verbs=patch

// Reconcile runs a pass. A failed write of one node does not block the others.
func (r *Reconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	return loop.Arm[plan.Snapshot, plan.Plan]{Read: r.readSnapshot, Plan: plan.For, Apply: r.apply}.Run(ctx, &r.pace, passEvery, r.Clock)
}

func (r *Reconciler) apply(ctx context.Context, s plan.Snapshot, next plan.Plan, out *loop.Outcome) {
	r.logResults(ctx, next.Memory)
	r.memory = next.Memory
	// Results come before the removal of the order: a reader of the StorageClientNode then finds the result.
	r.Results.set(next.Memory.Results, s.Now)
	for _, step := range next.Steps {
		out.Finish(step.Subject(), r.applyStep(ctx, step))
	}
	r.failure = ""
	if err := out.Err(); err != nil {
		r.failure = err.Error()
	}
	out.WakeAfter(lookEvery)
	if next.Busy {
		out.WakeAfter(passEvery)
	}
}

func (r *Reconciler) logResults(ctx context.Context, next plan.Memory) {
	for key, result := range next.Results {
		if previous, known := r.memory.Results[key]; !known || previous != result {
			log.FromContext(ctx).Info("Probed options", "set", key.Set, "server", key.Server, "verdict", result.Verdict, "message", result.Text)
		}
	}
}

func (r *Reconciler) readSnapshot(ctx context.Context) (s plan.Snapshot, err error) {
	defer func() {
		if err != nil {
			r.Results.fail(err)
		}
	}()
	if r.reader == nil {
		r.reader = &snapshot.Reader{Reader: r.Client, Allow: r.Allow, Memory: cmp.Or(r.Volumes, snapshot.NewMemory())}
	}
	volumes, err := r.reader.Read(ctx)
	if err != nil {
		return plan.Snapshot{}, err
	}
	profiles, err := read.Profiles(ctx, r)
	if err != nil {
		return plan.Snapshot{}, err
	}
	s = plan.Snapshot{
		Candidates: volumeplan.ProbeCandidates(volumes),
		Failure:    r.failure,
		Profiles:   r.profileSets.Of(profiles, r.Allow),
		Memory:     r.memory,
		Now:        r.Clock.Now(),
	}
	if s.Trials, err = r.readTrials(ctx, volumes, profiles); err != nil {
		return plan.Snapshot{}, err
	}
	s.Nodes, err = r.readNodes(ctx, s.Profiles)
	return s, err
}

func (r *Reconciler) readNodes(ctx context.Context, profiles *fleet.ProfileSet) ([]plan.Node, error) {
	all, writable, err := read.WritableNodes(ctx, r.Client, profiles)
	if err != nil {
		return nil, err
	}
	runners, err := r.readRunners(ctx)
	if err != nil {
		return nil, err
	}
	nodes := make([]plan.Node, 0, len(all.Nodes))
	for _, node := range all.Nodes {
		n := plan.Node{Node: node, Runner: runners[node.Name]}
		if clientNode := all.ClientNodes[node.Name]; clientNode != nil && fleet.Owns(node, clientNode) {
			n.ClientNode, n.Writable = clientNode, writable[node.Name]
		}
		nodes = append(nodes, n)
	}
	return nodes, nil
}

// readRunners reads the trial runners of all nodes.
func (r *Reconciler) readRunners(ctx context.Context) (map[string]plan.Runner, error) {
	pods, err := objects.All[*corev1.Pod](
		ctx, r.Client, &corev1.PodList{}, client.InNamespace(v1alpha1.AgentNamespace), client.MatchingLabels{agentpod.ComponentLabel: component},
	)
	if err != nil {
		return nil, fmt.Errorf("list Pods in %s: %w", v1alpha1.AgentNamespace, err)
	}
	runners := map[string]plan.Runner{}
	for _, pod := range pods {
		name := nodeOf(pod)
		runners[name] = plan.Runner{Exists: true, Ready: runners[name].Ready || agentpod.IsReady(pod)}
	}
	return runners, nil
}

// nodeOf returns the node that a DaemonSet's Pod is on, or is meant for: a Pod that waits for capacity is not bound yet.
func nodeOf(pod *corev1.Pod) string {
	if pod.Spec.NodeName != "" || pod.Spec.Affinity == nil || pod.Spec.Affinity.NodeAffinity == nil ||
		pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return pod.Spec.NodeName
	}
	for _, term := range pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, field := range term.MatchFields {
			if field.Key == metav1.ObjectNameField && len(field.Values) == 1 {
				return field.Values[0]
			}
		}
	}
	return ""
}

func (r *Reconciler) applyStep(ctx context.Context, step plan.Step) error {
	log.FromContext(ctx).Info("Applying a step", "step", fmt.Sprintf("%T", step), "subject", step.Subject())
	switch step := step.(type) {
	case plan.SetLabel:
		var value *string
		if step.Labelled {
			value = ptr.To(v1alpha1.True)
		}
		return write.PatchLabel(ctx, r, step.Subject(), v1alpha1.TrialLabel, value)
	case plan.SetOrder:
		_, err := write.PatchSpec(ctx, r, step.ClientNode, func(spec *v1alpha1.StorageClientNodeSpec) { spec.Trial = step.Order })
		return err
	case plan.SetSample:
		_, err := write.PatchSpec(ctx, r, step.ClientNode, func(spec *v1alpha1.StorageClientNodeSpec) { spec.Sample = step.Sample })
		return err
	case plan.WriteStatus:
		return r.patchStatus(ctx, step)
	}
	return fmt.Errorf("apply step %T: unknown", step)
}

// readTrials returns all StorageClientTrials, oldest first. It ignores trials that are being deleted.
func (r *Reconciler) readTrials(ctx context.Context, volumes volumeplan.Snapshot, profiles []*v1alpha1.StorageClientProfile) ([]plan.Trial, error) {
	var list v1alpha1.StorageClientTrialList
	if err := r.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list StorageClientTrials: %w", err)
	}
	return plan.ResolveAll(list.Items, volumes, profiles, r.Allow), nil
}

// patchStatus changes the status of a trial, based on the version that was read. New passes are appended, and a newer list must not be lost.
func (r *Reconciler) patchStatus(ctx context.Context, step plan.WriteStatus) error {
	changed := step.Trial.DeepCopy()
	changed.Status = *step.Status
	patch := client.MergeFromWithOptions(step.Trial, client.MergeFromWithOptimisticLock{})
	if err := r.Status().Patch(ctx, changed, patch, client.FieldOwner(v1alpha1.ManagerFieldManager)); err != nil {
		return fmt.Errorf("patch status of StorageClientTrial %s: %w", client.ObjectKeyFromObject(step.Trial), err)
	}
	return nil
}

// SetupWithManager registers the reconciler and its watches, which start a pass. During a probe or trial, a pass runs every few seconds.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	one := watch.One("trial", 0)
	labelled := predicate.NewPredicateFuncs(func(o client.Object) bool {
		_, ok := o.GetLabels()[v1alpha1.TrialLabel]
		return ok
	})
	return ctrl.NewControllerManagedBy(mgr).
		Named("trial").
		Watches(&v1alpha1.StorageClientNode{}, one, builder.WithPredicates(watch.Changed(trialChanged))).
		Watches(&v1alpha1.StorageClientTrial{}, one).
		Watches(&v1alpha1.StorageClientProfile{}, one, builder.WithPredicates(watch.ProfileChanged())).
		Watches(&corev1.Node{}, one, builder.WithPredicates(labelled, predicate.LabelChangedPredicate{})).
		Watches(&corev1.PersistentVolume{}, one).
		WatchesMetadata(snapshot.VolumeClaimMetadata(), one, builder.WithPredicates(watch.Described())).
		Watches(&storagev1.StorageClass{}, one).
		Complete(r)
}

// trialChanged filters out updates that do not concern trials or samples.
func trialChanged(before, after *v1alpha1.StorageClientNode) bool {
	return !equality.Semantic.DeepEqual(before.Spec.Trial, after.Spec.Trial) ||
		!equality.Semantic.DeepEqual(before.Status.Trial, after.Status.Trial) ||
		!equality.Semantic.DeepEqual(before.Spec.Sample, after.Spec.Sample) || !equality.Semantic.DeepEqual(before.Status.Sample, after.Status.Sample)
}
