package rollout

import (
	"context"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/parallel"
	"github.com/storageclient/operator/controllers/loop"
	"github.com/storageclient/operator/controllers/rollout/drain"
	"github.com/storageclient/operator/controllers/rollout/plan"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/text"
)

const (
	// maxNotes is the number of notes for nodes in service that one pass writes. If the pass has applied steps, the number is maxNotesWithSteps,
	// because the next steps wait for it.
	maxNotes          = 200
	maxNotesWithSteps = 5
	// retryDelay is the pause after a pass that met a conflict, or left work for the next pass.
	retryDelay = 200 * time.Millisecond
	// maxBackOff is the maximum delay after a pass with an error, because freed budget waits for it.
	maxBackOff = 10 * time.Second
	// maxLookAheads is the number of nodes that one pass checks before it claims them: two for each of the default workers.
	maxLookAheads = 24
)

func newPass(r *Reconciler) *pass {
	if r.inspected == nil {
		r.inspected, r.applying, r.behind = map[string]time.Time{}, map[string]time.Time{}, map[string]time.Time{}
		r.progress = map[string]*profileProgress{}
		r.sightings = map[sightingKey]*sighting{}
	}
	return &pass{
		Reconciler: r,
		out:        &loop.Outcome{Pause: retryDelay, Clock: r.Clock},
		maxNotes:   maxNotes,
		notes:      map[string]v1alpha1.RolloutStatus{},
		changed:    sets.New[string](),
		drains:     map[string]*plan.DrainProgress{},
	}
}

func (p *pass) read(ctx context.Context) (*plan.Session, error) {
	snapshot, err := p.readSnapshot(ctx)
	if err != nil {
		return nil, err
	}
	p.session = plan.NewSession(snapshot)
	p.started = snapshot.Now
	return p.session, nil
}

// decide plans, observes the drains of nodes that are already cordoned, and plans again if it has learned the progress of a drain. A drain with
// work to do has no progress before its node is read live.
func (p *pass) decide(ctx context.Context) plan.Plan {
	p.plan = p.makePlan()
	drains := lists.Pick(p.plan.Steps, func(step plan.Step) (plan.Drain, bool) {
		drain, isDrain := step.(plan.Drain)
		return drain, isDrain && !drain.AfterCordon && p.isLive(drain.Node)
	})
	parallel.ForEach(p.workers(), drains, func(step plan.Drain) {
		if p.stepping {
			p.drainNode(ctx, step)
		} else {
			// A node that only waits for its pods to terminate need not be read.
			p.inspectPods(ctx, step)
		}
	})
	if p.changed.Len() > 0 {
		p.session.Update(p.news())
		p.plan = p.makePlan()
	}
	p.notes = p.plan.Notes
	return p.plan
}

// makePlan plans, and stops the drains that the plan does not contain.
func (p *pass) makePlan() plan.Plan {
	planned := p.session.Plan()
	p.Drains.Keep(planned.Draining)
	return planned
}

// refresh reads the claims, the profiles and the nodes of steps live.
func (p *pass) refresh(ctx context.Context, session *plan.Session, planned plan.Plan) (fresh *plan.Session, newer bool, err error) {
	if len(planned.Steps) == 0 && planned.Failures == nil {
		return session, false, nil
	}
	p.stepping = true
	p.live, p.maxNotes = p.nodesToRead(), maxNotesWithSteps
	if err := p.refreshNodes(ctx); err != nil {
		return session, false, err
	}
	p.session.Update(p.news())
	return session, true, nil
}

func (p *pass) apply(ctx context.Context, _ *plan.Session, planned plan.Plan, _ *loop.Outcome) {
	p.recordFailures(ctx, planned.Failures)
	p.applySteps(ctx, planned.Steps)
	p.claimNodes(ctx)
	p.writeNotes(ctx)
	isRefused := p.noteRefusals(ctx)
	switch next := p.plan.Next; {
	case next.IsZero() || next.After(p.started):
		p.out.Wake(next)
	case !isRefused:
		p.out.WakeAfter(time.Millisecond)
	}
}

// claimNodes claims nodes after all other steps, including nodes for which other nodes have just freed budget. It then takes the first steps on
// them: the API server has accepted the claims, and all nodes were read live in this pass.
func (p *pass) claimNodes(ctx context.Context) {
	if p.live == nil && slices.ContainsFunc(p.plan.Steps, isRelease) && p.replan() {
		return
	}
	claimed := p.applyClaims(ctx)
	if claimed.Len() == 0 {
		return
	}
	p.session.Update(p.news())
	first := p.session.FirstSteps(claimed)
	maps.DeleteFunc(p.notes, func(node string, _ v1alpha1.RolloutStatus) bool { return claimed.Has(node) })
	maps.Copy(p.notes, first.Notes)
	p.plan.Next = earlierOf(p.plan.Next, first.Next)
	p.applySteps(ctx, first.Steps)
}

// replan makes a new plan after the writes so far, and reports whether other steps come before claims. Nodes to which steps were applied keep
// their notes, because their agents are about to respond. Nodes with steps other than claims are left to the next pass. So are failures that are
// not recorded yet; no new disruption starts before them.
func (p *pass) replan() (hasOtherSteps bool) {
	before, behind := p.plan, p.out.Skipped()
	p.session.Update(p.news())
	p.plan = p.makePlan()
	p.notes = p.plan.Notes
	for _, step := range before.Steps {
		if note, found := before.Notes[step.NodeName()]; found && !isNewClaim(step) {
			p.notes[step.NodeName()] = note
		}
	}
	for _, step := range p.plan.Steps {
		if isNewClaim(step) {
			continue
		}
		drain, isDrain := step.(plan.Drain)
		_, isBehind := behind[step.NodeName()]
		hasOtherSteps = hasOtherSteps || !(isDrain && !drain.AfterCordon) && !isBehind
		p.out.Skip(step.NodeName(), nil)
	}
	if p.plan.Failures != nil {
		p.unrecorded = true
		p.out.Skip("", nil)
	}
	return hasOtherSteps
}

func isRelease(step plan.Step) bool {
	_, releases := step.(plan.ReleaseClaim)
	return releases
}

func isNewClaim(step plan.Step) bool {
	claim, ok := step.(plan.AddClaim)
	return ok && !claim.Missing
}

// nodesToRead returns the nodes that the plan changes. It returns nil, for all nodes, if the plan adds a claim or frees budget for one, because
// changes by others then also count. If the plan changes a control-plane node, all control-plane nodes are read: etcd would not survive the loss of
// two.
func (p *pass) nodesToRead() sets.Set[string] {
	names := sets.New[string]()
	for _, step := range p.plan.Steps {
		if isNewClaim(step) || isRelease(step) && p.plan.Queued {
			return nil
		}
		names.Insert(step.NodeName())
	}
	if all := p.session.Names(func(n *plan.Node) bool { return n.ControlPlane }); all.HasAny(names.UnsortedList()...) {
		names = names.Union(all)
	}
	if change := p.plan.Failures; change != nil {
		if change.All {
			return nil
		}
		names.Insert(change.Nodes...)
	}
	return names
}

func (p *pass) isLive(node string) bool { return p.live == nil || p.live.Has(node) }

// applySteps applies the steps except new claims: the steps of one node strictly in order, several nodes concurrently.
func (p *pass) applySteps(ctx context.Context, steps []plan.Step) {
	var order []string
	chains := map[string][]plan.Step{}
	claiming := sets.New[string]()
	for _, step := range steps {
		node := step.NodeName()
		if isNewClaim(step) {
			claiming.Insert(node)
			continue
		}
		if chains[node] == nil {
			order = append(order, node)
		}
		chains[node] = append(chains[node], step)
	}
	parallel.ForEach(p.workers(), order, func(node string) {
		p.applyChain(ctx, node, chains[node])
		if !claiming.Has(node) {
			p.writeLastNote(ctx, node)
		}
	})
}

// applyChain applies the steps of one node, and stops after a step that was not applied. A permit that comes first is cleared even if a failure could
// not be recorded: claim and note still show the failure.
func (p *pass) applyChain(ctx context.Context, node string, steps []plan.Step) {
	if !p.isLive(node) {
		p.out.Skip(node, nil)
	}
	for i, step := range steps {
		if _, clears := step.(plan.ClearPermit); p.out.IsSkipped(node) && !(clears && i == 0 && p.isLive(node)) {
			return
		}
		switch step := step.(type) {
		case plan.Drain:
			if step.AfterCordon {
				p.noteFirstDrain(node, p.drainNode(ctx, step))
			}
		case plan.WriteNote:
			p.publishNote(ctx, node, step.Note)
		case plan.Cordon, plan.GivePermit:
			if areAllowed(ctx, p, step) {
				p.out.Finish(node, p.applyStep(ctx, step))
			}
		case plan.ClearPermit:
			// A conflict of the note shows that the permit may be gone or used: the next pass reads it first.
			if !p.out.Finish(node, p.applyStep(ctx, step)) && step.Cordon != nil && !loop.IsOvertaken(p.writeNote(ctx, node, step.Note)) {
				p.out.Finish(node, p.applyStep(ctx, *step.Cordon))
			}
		default:
			p.out.Finish(node, p.applyStep(ctx, step))
		}
	}
}

// areAllowed checks pauses, profiles and the time again immediately before nodes are disrupted or permitted to reboot, because the pass may have
// been slow. Nodes that are no longer allowed are left to the next pass, which reports the reason.
func areAllowed[S plan.Step](ctx context.Context, p *pass, steps ...S) bool {
	nodes := lists.Each(steps, func(step S) string { return step.NodeName() })
	rules, err := p.readRules(ctx, nodes)
	allowed := err == nil
	for _, step := range steps {
		if err != nil {
			p.out.Finish(step.NodeName(), err)
		} else if p.session.Recheck(rules, step) != "" {
			p.out.Skip(step.NodeName(), nil)
			allowed = false
		}
	}
	return allowed
}

// noteFirstDrain adds the result of a node's first drain to its note.
func (p *pass) noteFirstDrain(node string, progress plan.DrainProgress) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if note := p.notes[node]; !progress.Gone && note.Phase == v1alpha1.RolloutDraining {
		note.Reason = progress.Reason
		note.Message = text.Cut(progress.Message, plan.MaxMessage)
		p.notes[node] = note
	}
}

// writeLastNote writes the note of a node as soon as all its steps are applied. Its agent responds to them, so a later note would meet a conflict.
// Agents do not respond to a drain: steps of other nodes come before its note.
func (p *pass) writeLastNote(ctx context.Context, node string) {
	note := current(p, p.notes, node)
	if note.Phase != "" && note.Phase != v1alpha1.RolloutDraining && !p.out.IsSkipped(node) && !p.isStored(p.currentNote(node), note) {
		p.publishNote(ctx, node, note)
	}
}

// applyClaims adds the new claims among the steps, and returns the nodes. Only a plan based on live nodes may add claims.
func (p *pass) applyClaims(ctx context.Context) sets.Set[string] {
	var claims []plan.AddClaim
	for _, step := range p.plan.Steps {
		switch {
		case !isNewClaim(step) || p.out.IsSkipped(step.NodeName()):
		case p.live != nil, p.unrecorded, len(claims) == maxLookAheads:
			p.out.Skip(step.NodeName(), nil)
		default:
			claims = append(claims, step.(plan.AddClaim))
		}
	}
	isSkipped := func(c plan.AddClaim) bool { return p.out.IsSkipped(c.Node) }
	// No pod is evicted for a drain that would not finish.
	parallel.ForEach(p.workers(), claims, func(claim plan.AddClaim) {
		if note, skipped := p.session.SkipNode(claim.Node, claim.Claim, p.lookAhead(ctx, claim)); skipped {
			p.publishNote(ctx, claim.Node, note)
			p.out.Skip(claim.Node, nil)
		}
	})
	claims = slices.DeleteFunc(claims, isSkipped)
	if len(claims) > 0 && !areAllowed(ctx, p, claims...) {
		claims = slices.DeleteFunc(claims, isSkipped)
	}
	claimed := sets.New[string]()
	if len(claims) == 0 {
		return claimed
	}
	err := p.changeClaims(ctx, lists.Each(claims, func(c plan.AddClaim) claimChange { return claimChange{c.Node, c.Claim.Encode()} })...)
	for _, claim := range claims {
		if p.out.Finish(claim.Node, err) {
			log.FromContext(ctx).Info("Claimed a node", "Node", claim.Node, "StorageClientProfile", claim.Claim.Profile)
			claimed.Insert(claim.Node)
		}
	}
	return claimed
}

func (p *pass) publishNote(ctx context.Context, node string, note v1alpha1.RolloutStatus) {
	p.out.Finish(node, p.writeNote(ctx, node, note))
}

// noteRefusals adds the errors of the API server to the notes of nodes. An error that the note already contains is not returned again, so that it
// is not logged repeatedly: the write is only retried.
func (p *pass) noteRefusals(ctx context.Context) (isRefused bool) {
	refusals := p.out.Skipped()
	for _, node := range slices.Sorted(maps.Keys(refusals)) {
		before := p.currentNote(node)
		if refusals[node] == nil || before.Phase == "" {
			continue
		}
		note := plan.WithRefusal(before, refusals[node])
		if plan.SameNote(before, note) {
			p.out.Forget(node)
			p.out.Wake(p.session.Now.Add(maxBackOff))
			isRefused = true
		} else if err := p.writeNote(ctx, node, note); err != nil {
			p.out.Skip(node, err)
		}
	}
	return isRefused
}

// writeNotes writes the notes that have changed. It writes notes of nodes that are out of service at once, and at most the given number of other
// notes in a pass. So a thousand waiting nodes do not delay the next step. Canaries come first: their soak starts with the note.
func (p *pass) writeNotes(ctx context.Context) {
	var outOfService, canaries, inService []string
	isCanary := p.session.Names(func(n *plan.Node) bool { return n.ClientNode != nil && n.ClientNode.Spec.Canary })
	for _, node := range slices.Sorted(maps.Keys(p.notes)) {
		note := p.notes[node]
		switch {
		case p.out.IsSkipped(node) || p.isStored(p.currentNote(node), note):
		case note.Phase == v1alpha1.RolloutClaimed:
			// The next pass starts at once and writes a newer note.
		case !note.Phase.IsInService():
			outOfService = append(outOfService, node)
		case isCanary.Has(node):
			canaries = append(canaries, node)
		default:
			inService = append(inService, node)
		}
	}
	inService = slices.Concat(canaries, inService)
	if len(inService) > p.maxNotes {
		inService = inService[:p.maxNotes]
		p.out.Skip("", nil)
	}
	nodes := slices.Concat(outOfService, inService)
	parallel.ForEach(p.workers(), nodes, func(node string) { p.publishNote(ctx, node, p.notes[node]) })
}

// drainNode evicts pods of a node in the background, and reports the progress of its drain.
func (p *pass) drainNode(ctx context.Context, step plan.Drain) plan.DrainProgress {
	progress := plan.DrainProgress{Reason: v1alpha1.RolloutReasonDrainError}
	result, err := p.Drains.Drain(ctx, step.Node, step.Options, drain.Start{Evicted: step.Evicted, TimeLeft: step.TimeLeft})
	if err != nil {
		progress.Message = "Cannot read the node's pods; trying again: " + err.Error()
	} else {
		progress = progressOf(result)
	}
	p.recordInspection(step.Node, progress)
	return progress
}

// inspectPods records the progress of a node's drain if the drain only has to wait. If Drain has work to do, or the pods cannot be read, drainNode
// records it.
func (p *pass) inspectPods(ctx context.Context, step plan.Drain) {
	if result, isDrainDue, err := p.Drains.Inspect(ctx, step.Node, step.Options); err == nil && !isDrainDue {
		p.recordInspection(step.Node, progressOf(result))
	}
}

// lookAhead checks the pods of a node that is about to be claimed. A failed read is no obstacle.
func (p *pass) lookAhead(ctx context.Context, step plan.AddClaim) plan.DrainProgress {
	result, err := p.Drains.LookAhead(ctx, step.Node, step.Options)
	if err != nil {
		return plan.DrainProgress{}
	}
	return progressOf(result)
}

func progressOf(result drain.Result) plan.DrainProgress {
	out := plan.DrainProgress{
		Gone: result.Done(), TooLate: result.TooLate, Reason: v1alpha1.RolloutReasonDraining, Message: result.String(), Remarks: result.Remarks(),
		HeldByBudgets: result.IsHeldByBudgets(), IgnoredPodUIDs: result.IgnoredPodUIDs, Names: result.Names,
		Left:         lists.Map(result.Left, func(pod drain.Blocker) (uid, phrase string) { return pod.UID, pod.String() }),
		KeepsVolumes: result.KeepsVolumes, Budgets: map[string]plan.BudgetShare{},
	}
	for _, b := range result.Budgets {
		name := b.Namespace + "/" + b.Name
		out.Budgets[name] = plan.BudgetShare{Pods: out.Budgets[name].Pods + 1, Allowed: int(b.Status.DisruptionsAllowed)}
	}
	switch {
	case len(result.Blocked) > 0:
		out.Reason = v1alpha1.RolloutReasonDrainBlocked
	case len(result.WaitedFor) > 0:
		out.Reason = v1alpha1.RolloutReasonWaitingForPods
	}
	return out
}

func (p *pass) recordInspection(node string, progress plan.DrainProgress) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.inspected[node], p.drains[node] = p.Clock.Now(), &progress
	p.changed.Insert(node)
}
