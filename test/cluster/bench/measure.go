package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/cluster/apps"
	"github.com/storageclient/operator/test/cluster/controlplane"
	"github.com/storageclient/operator/test/cluster/history"
	"github.com/storageclient/operator/test/cluster/measure"
	"github.com/storageclient/operator/test/cluster/sandbox"
)

const (
	// timeout is the maximum duration of each step of a measurement.
	timeout      = 30 * time.Minute
	pollInterval = time.Second
	// quietBefore is the time without writes before the approval of the reboots.
	quietBefore = 15 * time.Second
)

// bench is one measurement in progress.
type bench struct {
	*sandbox.Sandbox
	run
	profile  *v1alpha1.StorageClientProfile
	recorder *history.Recorder
	manager  *controlplane.Process
}

// measureRollout starts a cluster and lets the agents stage a kernel argument on all nodes. It measures the time from the approval of the
// reboots to the return of the last node.
func measureRollout(ctx context.Context, options sandbox.Options, next run) (r result, err error) {
	r = result{run: next, load: measure.LoadAverage()}
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
	options.Progress("the kernel argument is staged on %d nodes; approving the reboots, %d at a time", next.nodes, next.budget)
	if err := b.rollOut(ctx, &r); err != nil {
		return r, fmt.Errorf("%w\nthe end of the manager's log:\n%s", err, b.ManagerLog())
	}
	options.Progress("all nodes are back")
	return r, b.collectResult(ctx, &r)
}

// prepareCluster prepares everything except for the approval.
func (b *bench) prepareCluster(ctx context.Context) error {
	if err := apps.Add(ctx, b.Client, b.nodes); err != nil {
		return err
	}
	if err := b.awaitCondition(ctx, "the applications to run", func(ctx context.Context) (bool, error) {
		return apps.Running(ctx, b.Client, b.nodes)
	}); err != nil {
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
	if err := b.awaitCondition(ctx, "the kernel argument to be staged", func(ctx context.Context) (bool, error) {
		err := b.Client.Get(ctx, client.ObjectKeyFromObject(b.profile), b.profile)
		return int(b.profile.Status.Plan.NodesToReboot) == b.nodes && b.profile.Status.Plan.Hash != "", err
	}); err != nil {
		return err
	}
	// Before the measurement, the forecast must be staged, and reported for every node.
	if err := b.awaitCondition(ctx, "the last write before the approval", func(context.Context) (bool, error) {
		last, err := b.Plane.LastWrite(controlplane.Manager, controlplane.Agent)
		return time.Since(last) > quietBefore, err
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

// collectResult evaluates the recorded data.
func (b *bench) collectResult(ctx context.Context, r *result) error {
	if err := b.Plane.AwaitAudit(ctx); err != nil {
		return err
	}
	r.verdict = b.recorder.Evaluate(history.Rules{Budget: b.budget, Replicas: apps.PodsByApp(b.nodes)})
	for _, disruption := range r.verdict.Completed() {
		if disruption.Unclaimed.After(r.returned) {
			r.returned = disruption.Unclaimed
		}
	}
	requests, err := b.Plane.Requests()
	if err != nil {
		return err
	}
	r.manager = measure.Count(requests, controlplane.Manager, r.approved, r.returned)
	r.agents = measure.Count(requests, controlplane.Agent, r.approved, r.returned)
	if len(r.verdict.Problems) > 0 || len(r.verdict.Boots) != b.nodes || len(r.verdict.Completed()) != b.nodes {
		return fmt.Errorf("not a clean rollout: %d nodes booted, %d disruptions: %v",
			len(r.verdict.Boots), len(r.verdict.Completed()), r.verdict.Problems)
	}
	return nil
}

// profileOf returns a profile that reboots each node once. It has no soak or settle time, so that the bound consists of drains and boots.
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
