package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/cluster/controlplane"
	"github.com/storageclient/operator/test/cluster/history"
	"github.com/storageclient/operator/test/cluster/sandbox"
)

const (
	// drain is how long a pod with the label stops=slowly takes to end (stages.yaml of package controlplane).
	drain = 10 * time.Second
	// timeout bounds each part of a measurement.
	timeout      = 30 * time.Minute
	pollInterval = time.Second
	// podsPerApp keeps evictions of a wave from meeting at one PodDisruptionBudget: each time two do, the API server itself
	// waits for half a second (EvictionsRetry in its pod storage), and a wave of hundreds would measure that.
	podsPerApp = 10
)

// bench is one measurement under way.
type bench struct {
	*sandbox.Sandbox
	run
	profile  *v1alpha1.StorageClientProfile
	recorder *history.Recorder
	manager  *controlplane.Process
}

// measureRollout starts a cluster, lets the agents stage a boot argument on all nodes, and takes the time from the approval of
// the reboots to the return of the last node.
func measureRollout(ctx context.Context, options sandbox.Options, next run) (r result, err error) {
	r = result{run: next, load: loadAverage()}
	if options.Dir, err = os.MkdirTemp("", "storage-client-bench-"); err != nil {
		return r, err
	}
	defer os.RemoveAll(options.Dir)
	began := time.Now()
	options.Nodes, options.Zones, options.BootTime = next.nodes, next.zones, next.boot
	options.Progress = func(format string, args ...any) {
		fmt.Printf("%4.0f s  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
	}
	b := &bench{run: next}
	if b.Sandbox, err = sandbox.Start(ctx, options); err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, b.Stop()) }()
	if err := b.prepareCluster(ctx); err != nil {
		return r, fmt.Errorf("%w\nthe end of the manager's log:\n%s", err, b.ManagerLog())
	}
	defer b.recorder.Stop()
	options.Progress("the boot argument is staged on %d nodes; approving the reboots, %d at a time", next.nodes, next.budget)
	if err := b.rollOut(ctx, &r); err != nil {
		return r, fmt.Errorf("%w\nthe end of the manager's log:\n%s", err, b.ManagerLog())
	}
	options.Progress("all nodes are back")
	return r, b.collectResult(&r)
}

// prepareCluster brings the cluster to where only the approval is missing.
func (b *bench) prepareCluster(ctx context.Context) error {
	for _, object := range b.applicationObjects() {
		if err := b.Client.Create(ctx, object); err != nil {
			return err
		}
	}
	if err := b.awaitCondition(ctx, "the applications to run", b.applicationsRun); err != nil {
		return err
	}
	var err error
	if b.manager, err = b.StartManager(ctx, fmt.Sprintf("--max-unavailable=%d", b.budget), "--pprof-bind-address="+b.pprof); err != nil {
		return err
	}
	b.profile = profileOf(b.budget)
	if err := b.Client.Create(ctx, b.profile); err != nil {
		return err
	}
	if err := b.awaitCondition(ctx, "the boot argument to be staged", func(ctx context.Context) (bool, error) {
		err := b.Client.Get(ctx, client.ObjectKeyFromObject(b.profile), b.profile)
		return int(b.profile.Status.Plan.NodesToReboot) == b.nodes && b.profile.Status.Plan.Hash != "", err
	}); err != nil {
		return err
	}
	b.recorder, err = history.Record(ctx, b.Client)
	return err
}

func (b *bench) awaitCondition(ctx context.Context, what string, done wait.ConditionWithContextFunc) error {
	if err := wait.PollUntilContextTimeout(ctx, pollInterval, timeout, true, done); err != nil {
		return fmt.Errorf("waiting for %s: %w", what, err)
	}
	return nil
}

// rollOut approves the reboots and waits for the last node.
func (b *bench) rollOut(ctx context.Context, r *result) error {
	before, err := b.manager.Usage()
	if err != nil {
		return err
	}
	r.approved = time.Now()
	patch := client.MergeFrom(b.profile.DeepCopy())
	b.profile.Annotations = map[string]string{v1alpha1.ApprovedPlanAnnotation: b.profile.Status.Plan.Hash}
	if err := b.Client.Patch(ctx, b.profile, patch); err != nil {
		return err
	}
	if err := b.awaitCondition(ctx, "the last node to return", func(ctx context.Context) (bool, error) {
		err := b.Client.Get(ctx, client.ObjectKeyFromObject(b.profile), b.profile)
		status := b.profile.Status
		if stalled := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionStalled); stalled != nil && stalled.Status == metav1.ConditionTrue {
			return false, fmt.Errorf("the profile is stalled: %s", stalled.Message)
		}
		return meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionReady) && int(status.Nodes.UpToDate) == b.nodes &&
			status.Nodes.Disrupted == 0, err
	}); err != nil {
		return err
	}
	after, err := b.manager.Usage()
	if err != nil {
		return err
	}
	r.cpu, r.peakBytes, r.totalCPU = after.CPU-before.CPU, after.PeakBytes, after.CPU
	return nil
}

// collectResult judges what was recorded.
func (b *bench) collectResult(r *result) error {
	// The audit log is written in batches, a second and more later.
	time.Sleep(5 * time.Second)
	r.verdict = b.recorder.Judge(history.Rules{Budget: b.budget, Replicas: b.podsByApp()})
	for _, disruption := range r.verdict.Completed() {
		if disruption.Unclaimed.After(r.returned) {
			r.returned = disruption.Unclaimed
		}
	}
	var err error
	if r.writes, err = b.Plane.Writes(); err != nil {
		return err
	}
	if len(r.verdict.Problems) > 0 || len(r.verdict.Boots) != b.nodes || len(r.verdict.Completed()) != b.nodes {
		return fmt.Errorf("not a clean rollout: %d nodes booted, %d disruptions: %v",
			len(r.verdict.Boots), len(r.verdict.Completed()), r.verdict.Problems)
	}
	return nil
}

// podsByApp are the names of the applications, which have about one pod on every node in all, with the pods of each.
func (b *bench) podsByApp() map[string]int {
	out := map[string]int{}
	for i := range b.nodes {
		out[fmt.Sprintf("batch-%d", i/podsPerApp+1)]++
	}
	return out
}

// applicationObjects have about one pod on every node in all. Every eviction is counted by a PodDisruptionBudget, and none has to wait
// for another: the end of a wave holds all pods of some applications. They are bare ReplicaSets: a Deployment over each would
// have the controller manager write as much again, on processors that all share.
func (b *bench) applicationObjects() []client.Object {
	var out []client.Object
	for app, pods := range b.podsByApp() {
		labels := map[string]string{history.AppLabel: app, "stops": "slowly"}
		selector := &metav1.LabelSelector{MatchLabels: map[string]string{history.AppLabel: app}}
		object := metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: app}
		out = append(out, &policyv1.PodDisruptionBudget{ObjectMeta: object, Spec: policyv1.PodDisruptionBudgetSpec{
			MaxUnavailable: ptr.To(intstr.FromString("100%")), Selector: selector,
		}}, &appsv1.ReplicaSet{ObjectMeta: object, Spec: appsv1.ReplicaSetSpec{
			Replicas: ptr.To(int32(pods)), Selector: selector,
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
				Containers: []corev1.Container{{Name: "batch", Image: "example/batch:1"}},
				TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{
					MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.ScheduleAnyway,
					LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"stops": "slowly"}},
				}},
			}},
		}})
	}
	return out
}

func (b *bench) applicationsRun(ctx context.Context) (bool, error) {
	sets := &appsv1.ReplicaSetList{}
	err := b.Client.List(ctx, sets, client.InNamespace(metav1.NamespaceDefault))
	running := 0
	for i := range sets.Items {
		running += int(sets.Items[i].Status.AvailableReplicas)
	}
	return running == b.nodes, err
}

// profileOf reboots each node once. Nothing soaks or settles, so that the bound is that of drains and boots.
func profileOf(budget int) *v1alpha1.StorageClientProfile {
	return &v1alpha1.StorageClientProfile{
		ObjectMeta: metav1.ObjectMeta{Name: "bench"},
		Spec: v1alpha1.StorageClientProfileSpec{
			NodeSelector: metav1.LabelSelector{MatchLabels: map[string]string{sandbox.PoolLabel: sandbox.Pool}},
			Node:         &v1alpha1.NodeTuning{KernelArguments: []v1alpha1.KernelArgument{"ihash_entries=16777216"}},
			Rollout: v1alpha1.Rollout{
				MaxUnavailable:    ptr.To(intstr.FromInt32(int32(budget))),
				MaxConcurrentLive: ptr.To(intstr.FromString("100%")),
				Canary:            &v1alpha1.Canary{SoakSeconds: ptr.To[int32](soakSeconds)},
				SettleSeconds:     ptr.To[int32](settleSeconds),
				Reboot:            v1alpha1.Reboot{Policy: v1alpha1.RebootOnApproval},
			},
		},
	}
}
