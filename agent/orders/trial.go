// Package orders carries out what a StorageClientNode orders of one node once: a trial, which its trial runner mounts, and a sample of what
// its mounts do. Both run beside the agent's loop.
package orders

import (
	"context"
	"errors"
	"regexp"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/storageclient/operator/agent/bounds"
	"github.com/storageclient/operator/agent/host/probe"
	"github.com/storageclient/operator/agent/trial"
	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/mountfailures"
	"github.com/storageclient/operator/tuning/mountoptions"
	"github.com/storageclient/operator/tuning/text"
)

// Bounds of status.trial: with them all of it stays below 16 KiB.
const (
	maxTrialMessage = 4096
	maxOwnMessage   = 1024
	maxProofMessage = 512
	maxTrialOption  = 64
	maxIdentifier   = 128
	// maxPassesMessage is that of a result with passes, in bytes.
	maxPassesMessage = 1024
)

// runnerRetry is the pause before a trial runner is asked again that is not there yet, or is busy.
const runnerRetry = 2 * time.Second

// Runner hands an order to the node's trial runner and waits for the result.
type Runner func(ctx context.Context, order probe.Order) (probe.Result, error)

// NoRunner is the Runner of a machine that has none.
func NoRunner(context.Context, probe.Order) (probe.Result, error) {
	return probe.Result{}, errors.New("this node's agent has no trial runner")
}

// Trial is the one trial that a node carries out.
type Trial struct {
	// Start runs something beside the loop, which makes a pass once it has ended: a trial takes long, and nothing else waits for it.
	Start func(func())

	runner Runner
	clock  clock.Clock
	// status is what is reported; nil where there is no order.
	status *v1alpha1.NodeTrialStatus
	// cancel ends the order that is being carried out, and its answer comes over answers; nil where none is.
	cancel  context.CancelFunc
	answers chan trialAnswer
	// asksOtherwise is true if the order's options query the server in another way than the volume's own do.
	asksOtherwise bool
}

type trialAnswer struct {
	result probe.Result
	err    error
}

// NewTrial returns the trial of a node that has no order yet.
func NewTrial(runner Runner, clock clock.Clock, start func(func())) *Trial {
	return &Trial{Start: start, runner: runner, clock: clock}
}

// Report sets what is reported of the trial.
func (t *Trial) Report(status *v1alpha1.StorageClientNodeStatus) { status.Trial = t.status.DeepCopy() }

// Run begins what is ordered, once, and forgets what is ordered no more. An order that an agent before this one has not brought to an end
// begins anew: it leaves nothing behind.
func (t *Trial) Run(ctx context.Context, clientNode *v1alpha1.StorageClientNode) {
	select {
	case answer := <-t.answers:
		t.takeAnswer(answer)
	default:
	}
	order := clientNode.Spec.Trial
	switch {
	case order == nil:
		t.End()
		return
	case isWantedElsewhere(&clientNode.Spec):
		t.End()
		t.status = voidTrial(order.ID, "the node is needed for something else: its reboot, or its release")
		return
	case t.status != nil && t.status.ID == order.ID:
		return
	}
	t.End()
	if reported := clientNode.Status.Trial; reported != nil && reported.ID == order.ID && reported.Phase != v1alpha1.TrialRunning {
		t.status = reported.DeepCopy()
		return
	}
	t.status = &v1alpha1.NodeTrialStatus{ID: order.ID, Phase: v1alpha1.TrialRunning}
	if why := refuseTrial(*order); why != "" {
		t.status.Phase, t.status.Message = v1alpha1.TrialRefused, text.Cut("refused by this node's agent: "+why, maxTrialMessage)
		return
	}
	t.begin(ctx, *order)
}

// isWantedElsewhere reports whether the node is to be rebooted or left: that does not wait for a trial.
func isWantedElsewhere(spec *v1alpha1.StorageClientNodeSpec) bool {
	return spec.Trial.Kind == v1alpha1.TrialTrial && (spec.RebootPermit != nil || spec.Release)
}

func voidTrial(id, message string) *v1alpha1.NodeTrialStatus {
	return &v1alpha1.NodeTrialStatus{ID: id, Phase: v1alpha1.TrialVoid, Message: message}
}

// End ends an order that is being carried out, and forgets it.
func (t *Trial) End() {
	if t.cancel != nil {
		t.cancel()
	}
	t.status, t.cancel, t.answers = nil, nil, nil
}

func (t *Trial) begin(ctx context.Context, order v1alpha1.NodeTrial) {
	logr.FromContextOrDiscard(ctx).Info("Handing a trial to the runner", "trial", order.ID, "volume", order.Volume)
	t.asksOtherwise = mountoptions.NFS.AsksOtherwise(order.OwnMountOptions, order.MountOptions)
	ctx, t.cancel = context.WithCancel(ctx)
	answers := make(chan trialAnswer, 1)
	t.answers = answers
	t.Start(func() {
		result, err := t.askRunner(ctx, order)
		answers <- trialAnswer{result, err}
	})
}

func (t *Trial) askRunner(ctx context.Context, order v1alpha1.NodeTrial) (probe.Result, error) {
	network, err := trial.NetworkNamespace()
	if err != nil {
		return probe.Result{}, err
	}
	until := t.clock.Now().Add(time.Duration(order.TimeoutSeconds) * time.Second)
	for {
		result, err := t.runner(ctx, runnerOrder(order, until.Sub(t.clock.Now()), network))
		if !trial.IsTemporary(err) || !t.clock.Now().Add(runnerRetry).Before(until) {
			return result, err
		}
		select {
		case <-ctx.Done():
			return probe.Result{}, ctx.Err()
		case <-t.clock.After(runnerRetry):
		}
	}
}

// takeAnswer takes the result of the order that is waited for. A result counts only with all of its proofs.
func (t *Trial) takeAnswer(answer trialAnswer) {
	t.cancel()
	t.cancel, t.answers = nil, nil
	status, r := t.status, answer.result
	status.Transports, status.Identifier = int32(max(r.Transports, 0)), text.Cut(r.Identifier, maxIdentifier)
	status.Passes = trialPasses(r.Passes)
	for _, option := range bounds.First(r.Observed, bounds.Options) {
		// Of several mounts, those of the last one tell nothing.
		if len(status.Passes) == 0 {
			status.ObservedOptions = append(status.ObservedOptions, text.Cut(option, maxTrialOption))
		}
	}
	status.Proofs = trialProofs(r.Proofs)
	if r.Own != nil {
		status.Own = &v1alpha1.TrialMount{Succeeded: r.Own.Succeeded, Message: text.Cut(r.Own.Message, maxOwnMessage)}
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

// nameCauses sets the causes of failed mounts, which the kernel's and the server's words tell.
func (t *Trial) nameCauses(r probe.Result) {
	if r.Succeeded {
		return
	}
	t.status.Cause = v1alpha1.MountFailureCause(mountfailures.CauseOf(r.Message, t.asksOtherwise))
	if own := t.status.Own; own != nil && !own.Succeeded {
		own.Cause = v1alpha1.MountFailureCause(mountfailures.CauseOf(r.Own.Message, false))
		own.SameFailure = r.Own.Message == r.Message
	}
}

// trialProofs leaves out what the API does not know: the runner is another process.
func trialProofs(proofs []probe.Proof) []v1alpha1.TrialProof {
	var list []v1alpha1.TrialProof
	seen := map[v1alpha1.TrialProofType]bool{}
	for _, p := range proofs {
		kind := v1alpha1.TrialProofType(p.Type)
		switch kind {
		case v1alpha1.ProofOwnNetwork, v1alpha1.ProofIdentifier, v1alpha1.ProofNoOtherMount, v1alpha1.ProofOwnDevice, v1alpha1.ProofTransports:
		default:
			continue
		}
		if !seen[kind] {
			seen[kind] = true
			list = append(list, v1alpha1.TrialProof{Type: kind, Holds: p.Holds, Message: text.Cut(p.Message, maxProofMessage)})
		}
	}
	return list
}

// What an order may name, as the API has it.
var (
	trialID     = regexp.MustCompile(`\A[A-Za-z0-9-]{1,64}\z`)
	trialServer = regexp.MustCompile(`\A([A-Za-z0-9]([A-Za-z0-9._:-]{0,251}[A-Za-z0-9])?|[0-9A-Fa-f:]{2,39})\z`)
	trialPath   = regexp.MustCompile(`\A/[A-Za-z0-9_.,:=/@+-]*\z`)
)

const (
	minTrialTimeout = 5
	maxTrialTimeout = 600
	maxTrialPath    = 1024
	maxUserID       = 1<<31 - 1
)

// refuseTrial says why an order is not carried out, whoever wrote it; empty where it is. Its options are held to what this agent's own
// tables accept, as those of a profile are.
func refuseTrial(order v1alpha1.NodeTrial) string {
	switch {
	case order.Kind != v1alpha1.TrialProbe && order.Kind != v1alpha1.TrialTrial:
		return "kind " + string(order.Kind) + " is not known"
	case !trialID.MatchString(order.ID):
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
		if why := refuseTrialOptions(list); why != "" {
			return why
		}
	}
	return refuseWork(order)
}

func refuseTrialOptions(options []string) string {
	if len(options) > bounds.Options {
		return "too many mount options"
	}
	for _, problem := range mountoptions.Validate(mountoptions.NFS, options) {
		if !problem.Warning {
			return "mount option " + problem.Option + " " + problem.Message
		}
	}
	return mountoptions.NeedsNodeNetwork(options)
}
