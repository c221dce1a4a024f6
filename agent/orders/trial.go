// Package orders runs the one-time orders of a StorageClientNode: a trial, whose mounts the trial runner makes, and a sample of the mounts.
// Both run in the background.
package orders

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/storageclient/operator/agent/bounds"
	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/probe"
	"github.com/storageclient/operator/agent/trialrunner"
	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/mountfailures"
	"github.com/storageclient/operator/tuning/mountoptions"
	"github.com/storageclient/operator/tuning/text"
)

// Limits of status.trial. They keep its total size below 16 KiB.
const (
	maxTrialMessage    = 4096
	maxOriginalMessage = 1024
	maxProofMessage    = 512
	maxTrialOption     = 64
	maxIdentifier      = 128
	// maxPassesMessage is the limit for the message of a result with passes, in bytes.
	maxPassesMessage = 1024
)

// runnerRetry is the pause before another call to a trial runner that is missing or busy.
const runnerRetry = 2 * time.Second

// Runner sends an order to the trial runner of the node and waits for the result.
type Runner func(ctx context.Context, order probe.Order) (probe.Result, error)

// NoRunner is the Runner of a machine without a trial runner.
func NoRunner(context.Context, probe.Order) (probe.Result, error) {
	return probe.Result{}, errors.New("this node's agent has no trial runner")
}

// Trial runs at most one trial on a node.
type Trial struct {
	// Start runs work in the background and triggers a pass when it is done. A trial takes long, and other work must not wait for it.
	Start func(func())

	runner Runner
	// sysctl returns the live value of a sysctl of the node.
	sysctl func(ctx context.Context, name string) (host.Original, error)
	clock  clock.Clock
	status *v1alpha1.NodeTrialStatus
	// cancel stops the current order, whose result arrives on results. Nil if there is none.
	cancel  context.CancelFunc
	results chan trialResult
	// changesRequests is true if the options of the order query the server differently than the original options of the volume.
	changesRequests bool
}

type trialResult struct {
	result probe.Result
	err    error
}

// NewTrial returns a Trial without an order.
func NewTrial(runner Runner, sysctl func(context.Context, string) (host.Original, error), clock clock.Clock, start func(func())) *Trial {
	return &Trial{Start: start, runner: runner, sysctl: sysctl, clock: clock}
}

// Report sets the trial field of the status.
func (t *Trial) Report(status *v1alpha1.StorageClientNodeStatus) { status.Trial = t.status.DeepCopy() }

// Run starts a new order once and clears an order that was removed. It restarts an order that the previous agent did not finish: a trial
// leaves no traces.
func (t *Trial) Run(ctx context.Context, clientNode *v1alpha1.StorageClientNode) {
	select {
	case answer := <-t.results:
		t.handleResult(answer)
	default:
	}
	order := clientNode.Spec.Trial
	switch {
	case order == nil:
		t.End()
		return
	case hasPriorWork(&clientNode.Spec):
		t.End()
		t.status = &v1alpha1.NodeTrialStatus{ID: order.ID, Phase: v1alpha1.TrialVoid, Message: "the node must be rebooted or released first"}
		return
	case t.status != nil && t.status.ID == order.ID:
		return
	}
	t.End()
	if reported := clientNode.Status.Trial; reported != nil && reported.ID == order.ID && reported.Phase != v1alpha1.TrialRunning {
		t.status = reported.DeepCopy()
		return
	}
	t.status = &v1alpha1.NodeTrialStatus{ID: order.ID, Phase: v1alpha1.TrialRunning, Work: order.Work.DeepCopy()}
	if reason := validateTrial(*order); reason != "" {
		t.status.Phase, t.status.Message = v1alpha1.TrialRefused, text.Cut("rejected by this node's agent: "+reason, maxTrialMessage)
		return
	}
	t.begin(ctx, *order)
}

// hasPriorWork reports whether the node must be rebooted or released, which takes precedence over a trial.
func hasPriorWork(spec *v1alpha1.StorageClientNodeSpec) bool {
	return spec.Trial.Kind == v1alpha1.TrialTrial && (spec.RebootPermit != nil || spec.Release)
}

// End stops and clears the current order.
func (t *Trial) End() {
	if t.cancel != nil {
		t.cancel()
	}
	t.status, t.cancel, t.results = nil, nil, nil
}

func (t *Trial) begin(ctx context.Context, order v1alpha1.NodeTrial) {
	logr.FromContextOrDiscard(ctx).Info("Sending a trial to the runner", "trial", order.ID, "volume", order.Volume)
	sysctls, err := t.sysctlsOf(ctx, order)
	if err != nil {
		t.status = &v1alpha1.NodeTrialStatus{ID: order.ID, Phase: v1alpha1.TrialVoid, Message: text.Cut(err.Error(), maxTrialMessage)}
		return
	}
	t.changesRequests = mountoptions.NFS.ChangesTransport(order.OwnMountOptions, order.MountOptions)
	ctx, t.cancel = context.WithCancel(ctx)
	answers := make(chan trialResult, 1)
	t.results = answers
	t.Start(func() {
		result, err := t.callRunner(ctx, order, sysctls)
		answers <- trialResult{result, err}
	})
}

func (t *Trial) callRunner(ctx context.Context, order v1alpha1.NodeTrial, sysctls []probe.Sysctl) (probe.Result, error) {
	network, err := trialrunner.NetworkNamespace()
	if err != nil {
		return probe.Result{}, err
	}
	deadline := t.clock.Now().Add(time.Duration(order.TimeoutSeconds) * time.Second)
	for {
		result, err := t.runner(ctx, runnerOrder(order, sysctls, deadline.Sub(t.clock.Now()), network))
		if !trialrunner.IsTemporary(err) || !t.clock.Now().Add(runnerRetry).Before(deadline) {
			return result, err
		}
		select {
		case <-ctx.Done():
			return probe.Result{}, ctx.Err()
		case <-t.clock.After(runnerRetry):
		}
	}
}

// handleResult sets the status from the result of the current order. A result is only valid with all of its proofs.
func (t *Trial) handleResult(answer trialResult) {
	t.cancel()
	t.cancel, t.results = nil, nil
	status, r := t.status, answer.result
	status.Transports, status.Identifier = int32(max(r.Transports, 0)), text.Cut(r.Identifier, maxIdentifier)
	status.Passes = trialPasses(r.Passes)
	// After several passes, the observed options are only the options of the last mount.
	if len(status.Passes) == 0 {
		status.ObservedOptions = lists.Each(bounds.First(r.Observed, bounds.Options), func(o string) string { return text.Cut(o, maxTrialOption) })
	}
	status.Proofs = trialProofs(r.Proofs)
	if r.Own != nil {
		status.Own = &v1alpha1.TrialMount{Succeeded: r.Own.Succeeded, Message: text.Cut(r.Own.Message, maxOriginalMessage)}
	}
	missing := r.Missing()
	switch {
	case answer.err != nil:
		status.Phase, status.Message = v1alpha1.TrialVoid, answer.err.Error()
	case !r.Tried:
		status.Phase, status.Message = v1alpha1.TrialVoid, r.Message
	case missing != nil:
		status.Phase, status.Message = v1alpha1.TrialVoid, "no proof of "+string(missing.Type)+": "+missing.Message
	default:
		status.Phase, status.Succeeded, status.Message = v1alpha1.TrialFinished, r.Succeeded, r.Message
		t.nameCauses(r)
	}
	status.Message = text.Cut(status.Message, maxTrialMessage)
	if len(status.Passes) > 0 {
		status.Message = text.CutBytes(status.Message, maxPassesMessage)
	}
}

// nameCauses sets the causes of failed mounts from the error messages of the kernel and the server.
func (t *Trial) nameCauses(r probe.Result) {
	if r.Succeeded {
		return
	}
	t.status.Cause = v1alpha1.MountFailureCause(mountfailures.CauseOf(r.Message, t.changesRequests))
	if original := t.status.Own; original != nil && !original.Succeeded {
		original.Cause = v1alpha1.MountFailureCause(mountfailures.CauseOf(r.Own.Message, false))
		original.SameFailure = r.Own.Message == r.Message
	}
}

var trialProofTypes = []v1alpha1.TrialProofType{
	v1alpha1.ProofOwnNetwork, v1alpha1.ProofIdentifier, v1alpha1.ProofNoOtherMount, v1alpha1.ProofOwnDevice, v1alpha1.ProofTransports,
	v1alpha1.ProofSysctls,
}

// trialProofs drops proof types that the API does not define, because the runner is a separate process.
func trialProofs(proofs []probe.Proof) (list []v1alpha1.TrialProof) {
	seen := map[v1alpha1.TrialProofType]bool{}
	for _, p := range proofs {
		if kind := v1alpha1.TrialProofType(p.Type); slices.Contains(trialProofTypes, kind) && !seen[kind] {
			seen[kind] = true
			list = append(list, v1alpha1.TrialProof{Type: kind, Holds: p.Holds, Message: text.Cut(p.Message, maxProofMessage)})
		}
	}
	return list
}

// Valid names in an order, as in the API.
var (
	orderID     = regexp.MustCompile(`\A[A-Za-z0-9-]{1,64}\z`)
	trialServer = regexp.MustCompile(`\A([A-Za-z0-9]([A-Za-z0-9._:-]{0,251}[A-Za-z0-9])?|[0-9A-Fa-f:]{2,39})\z`)
	trialPath   = regexp.MustCompile(`\A/[A-Za-z0-9_.,:=/@+-]*\z`)
)

const (
	minTrialTimeout = 5
	maxTrialTimeout = 600
	maxTrialPath    = 1024
	maxUserID       = 1<<31 - 1
)

// validateTrial returns the reason for rejecting an order, regardless of its author. Empty if it is valid. The options must be valid
// according to this agent's tables, as in a profile.
func validateTrial(order v1alpha1.NodeTrial) string {
	switch {
	case order.Kind != v1alpha1.TrialProbe && order.Kind != v1alpha1.TrialTrial:
		return "unknown kind " + string(order.Kind)
	case !orderID.MatchString(order.ID):
		return "invalid id"
	case !trialServer.MatchString(order.Server):
		return "invalid server"
	case len(order.Path) > maxTrialPath || !trialPath.MatchString(order.Path):
		return "invalid path"
	case order.FSType != "nfs" && order.FSType != "nfs4":
		return "fsType must be nfs or nfs4"
	case order.RunAsUser < 0 || order.RunAsUser > maxUserID:
		return "invalid runAsUser"
	case order.TimeoutSeconds < minTrialTimeout || order.TimeoutSeconds > maxTrialTimeout:
		return "invalid timeoutSeconds"
	}
	for _, list := range [][]string{order.MountOptions, order.OwnMountOptions} {
		if reason := validateTrialOptions(list); reason != "" {
			return reason
		}
	}
	return validateWork(order)
}

func validateTrialOptions(options []string) string {
	if len(options) > bounds.Options {
		return "too many mount options"
	}
	for _, problem := range mountoptions.Errors(mountoptions.NFS, options) {
		return "mount option " + problem.Option + " " + problem.Message
	}
	return mountoptions.NeedsNodeNetwork(options)
}
