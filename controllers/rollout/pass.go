package rollout

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/parallel"
	"github.com/storageclient/operator/controllers/loop"
	"github.com/storageclient/operator/controllers/rollout/plan"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/text"
)

// cluster is the interface through which a pass reads and writes.
type cluster interface {
	// readSnapshot reads the claims live and everything else from the cache.
	readSnapshot(ctx context.Context) (plan.Snapshot, error)
	// refreshNodes reads the claims, the profiles and some nodes live, or all nodes if names is nil.
	refreshNodes(ctx context.Context, names sets.Set[string]) error
	// news returns the objects that have been read, inspected or written since the last snapshot.
	news() plan.Snapshot
	// shadow lets tests compare a session with a new session of the same cluster.
	shadow(session *plan.Session)
	// inspectPods records the progress of a node's drain if the drain only has to wait. drainNode evicts pods of the node in the background, and
	// returns the progress of its drain. keepDrains stops the drains of all other nodes.
	inspectPods(ctx context.Context, step plan.Drain)
	drainNode(ctx context.Context, step plan.Drain) plan.DrainProgress
	keepDrains(nodes sets.Set[string])
	// lookAhead returns the obstacles to a drain.
	lookAhead(ctx context.Context, step plan.AddClaim) plan.DrainProgress
	// readRules reads live the rules that users set, and the time, for some nodes.
	readRules(ctx context.Context, nodes []string) (plan.Rules, error)
	// addClaims adds nodes to the ConfigMap, all or none; applyStep applies any other step.
	addClaims(ctx context.Context, steps []plan.AddClaim) error
	applyStep(ctx context.Context, step plan.Step) error
	writeFailures(ctx context.Context, failures map[string]v1alpha1.ProfileFailures) error
	currentNote(node string) v1alpha1.RolloutStatus
	writeNote(ctx context.Context, node string, note v1alpha1.RolloutStatus) error
}

const (
	// maxNotes is the number of notes for nodes in service that one pass writes. If the pass has applied steps, the number is maxNotesWithSteps,
	// because the next steps wait for it.
	maxNotes          = 200
	maxNotesWithSteps = 5
	// retryDelay is the pause after a pass that met a conflict, or left work for the next pass.
	retryDelay = 200 * time.Millisecond
	// maxLookAheads is the number of nodes that one pass checks before it claims them: two for each of the default workers.
	maxLookAheads = 24
)

// DefaultWorkers is the number of nodes that are read, drained and written concurrently. More concurrent requests would affect other clients.
const DefaultWorkers = 12

// pass is one round of reading, planning and writing.
type pass struct {
	cluster
	*loop.Outcome

	// workers is the number of nodes that are handled concurrently.
	workers int
	session *plan.Session
	started time.Time
	plan    plan.Plan
	// live are the nodes that have been read live; nil: all of them.
	live sets.Set[string]
	// maxNotes is the number of notes for nodes in service that the pass may write.
	maxNotes int
	// unrecorded is true if failures could not be recorded: no new disruption starts then.
	unrecorded bool
	// notes are the notes of the latest plan, including the results of first drains. mutex guards them.
	notes map[string]v1alpha1.RolloutStatus
	mutex sync.Mutex
}

func (p *pass) noteOf(node string) (note v1alpha1.RolloutStatus, found bool) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	note, found = p.notes[node]
	return note, found
}

// noteFirstDrain adds the result of a node's first drain to its note.
func (p *pass) noteFirstDrain(node string, progress plan.DrainProgress) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if note, found := p.notes[node]; found && !progress.Gone && note.Phase == v1alpha1.RolloutDraining {
		note.Reason, note.Message = progress.Reason, text.Cut(progress.Message, plan.MaxMessage)
		p.notes[node] = note
	}
}

func newPass(c cluster, workers int, out *loop.Outcome) *pass {
	return &pass{cluster: c, Outcome: out, workers: workers, maxNotes: maxNotes, notes: map[string]v1alpha1.RolloutStatus{}}
}

func (p *pass) arm() loop.Arm[*plan.Session, plan.Plan] {
	return loop.Arm[*plan.Session, plan.Plan]{Read: p.read, Plan: p.decide, Refresh: p.refresh, Apply: p.apply}
}

func (p *pass) read(ctx context.Context) (*plan.Session, error) {
	snapshot, err := p.readSnapshot(ctx)
	if err != nil {
		return nil, err
	}
	p.session, p.started = plan.NewSession(snapshot), snapshot.Now
	// A node that only waits for its pods to terminate need not be read.
	p.observeDrains(func(step plan.Drain) { p.inspectPods(ctx, step) })
	return p.session, nil
}

// decide plans, and stops the drains that the plan no longer contains.
func (p *pass) decide(session *plan.Session) plan.Plan {
	p.plan = session.Plan()
	p.notes = p.plan.Notes
	p.keepDrains(p.plan.Draining)
	return p.plan
}

// refresh reads the nodes of steps live, and runs their drains.
func (p *pass) refresh(ctx context.Context, session *plan.Session, planned plan.Plan) (fresh *plan.Session, newer bool, err error) {
	if len(planned.Steps) == 0 && planned.Failures == nil {
		return session, false, nil
	}
	p.live, p.maxNotes = p.nodesToRead(), maxNotesWithSteps
	if err := p.refreshNodes(ctx, p.live); err != nil {
		return session, false, err
	}
	p.update()
	p.observeDrains(func(step plan.Drain) {
		if p.isLive(step.Node) {
			p.drainNode(ctx, step)
		}
	})
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
		p.Wake(next)
	case !isRefused:
		p.WakeAfter(time.Millisecond)
	}
}

func (p *pass) update() {
	p.session.Update(p.news())
	p.shadow(p.session)
}

// observeDrains observes the drains of nodes that are already cordoned, and stops all others.
func (p *pass) observeDrains(observe func(plan.Drain)) {
	drains, draining := p.session.Drains()
	p.keepDrains(draining)
	if len(drains) > 0 {
		parallel.ForEach(p.workers, drains, observe)
		p.update()
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
	p.update()
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
	before, behind := p.plan, p.Skipped()
	p.update()
	p.decide(p.session)
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
		p.Skip(step.NodeName(), nil)
	}
	if p.plan.Failures != nil {
		p.unrecorded = true
		p.Skip("", nil)
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
	parallel.ForEach(p.workers, order, func(node string) {
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
		p.Skip(node, nil)
	}
	for i, step := range steps {
		if _, clears := step.(plan.ClearPermit); p.IsSkipped(node) && !(clears && i == 0 && p.isLive(node)) {
			return
		}
		switch step := step.(type) {
		case plan.Drain:
			if step.AfterCordon {
				p.noteFirstDrain(node, p.drainNode(ctx, step))
			}
		case plan.AddClaim:
			p.Finish(node, p.addClaims(ctx, []plan.AddClaim{step}))
		case plan.WriteNote:
			p.publishNote(ctx, node, step.Note)
		case plan.Cordon, plan.GivePermit:
			if areAllowed(ctx, p, step) {
				p.Finish(node, p.applyStep(ctx, step))
			}
		case plan.ClearPermit:
			// A conflict of the note shows that the permit may be gone or used: the next pass reads it first.
			if !p.Finish(node, p.applyStep(ctx, step)) && step.Cordon != nil && !loop.IsOvertaken(p.writeNote(ctx, node, step.Note)) {
				p.Finish(node, p.applyStep(ctx, *step.Cordon))
			}
		default:
			p.Finish(node, p.applyStep(ctx, step))
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
			p.Finish(step.NodeName(), err)
		} else if reason, _ := p.session.Recheck(rules, step); reason != "" {
			p.Skip(step.NodeName(), nil)
			allowed = false
		}
	}
	return allowed
}

// writeLastNote writes the note of a node as soon as all its steps are applied. Its agent responds to them, so a later note would meet a conflict.
// Agents do not respond to a drain: steps of other nodes come before its note.
func (p *pass) writeLastNote(ctx context.Context, node string) {
	note, found := p.noteOf(node)
	if found && note.Phase != v1alpha1.RolloutDraining && !p.IsSkipped(node) && !plan.SameNote(p.currentNote(node), note) {
		p.publishNote(ctx, node, note)
	}
}

// applyClaims adds the new claims among the steps, and returns the nodes. Only a plan based on live nodes may add claims.
func (p *pass) applyClaims(ctx context.Context) sets.Set[string] {
	var claims []plan.AddClaim
	for _, step := range p.plan.Steps {
		switch {
		case !isNewClaim(step) || p.IsSkipped(step.NodeName()):
		case p.live != nil, p.unrecorded, len(claims) == maxLookAheads:
			p.Skip(step.NodeName(), nil)
		default:
			claims = append(claims, step.(plan.AddClaim))
		}
	}
	isSkipped := func(c plan.AddClaim) bool { return p.IsSkipped(c.Node) }
	// No pod is evicted for a drain that would not finish.
	parallel.ForEach(p.workers, claims, func(claim plan.AddClaim) {
		if note, skipped := p.session.SkipNode(claim.Node, claim.Claim, p.lookAhead(ctx, claim)); skipped {
			p.publishNote(ctx, claim.Node, note)
			p.Skip(claim.Node, nil)
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
	err := p.addClaims(ctx, claims)
	for _, claim := range claims {
		if p.Finish(claim.Node, err) {
			claimed.Insert(claim.Node)
		}
	}
	return claimed
}

func (p *pass) publishNote(ctx context.Context, node string, note v1alpha1.RolloutStatus) {
	p.Finish(node, p.writeNote(ctx, node, note))
}

// noteRefusals adds the errors of the API server to the notes of nodes. An error that the note already contains is not returned again, so that it
// is not logged repeatedly: the write is only retried.
func (p *pass) noteRefusals(ctx context.Context) (isRefused bool) {
	refusals := p.Skipped()
	for _, node := range slices.Sorted(maps.Keys(refusals)) {
		before := p.currentNote(node)
		if refusals[node] == nil || before.Phase == "" {
			continue
		}
		note := plan.WithRefusal(before, refusals[node])
		if plan.SameNote(before, note) {
			p.Forget(node)
			p.Wake(p.session.Now.Add(maxBackOff))
			isRefused = true
		} else if err := p.writeNote(ctx, node, note); err != nil {
			p.Skip(node, err)
		}
	}
	return isRefused
}

// earlierOf returns the earlier of two times. Zero means never.
func earlierOf(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// writeNotes writes the notes that have changed. It writes notes of nodes that are out of service at once, and at most the given number of other
// notes in a pass. So a thousand waiting nodes do not delay the next step. Canaries come first: their soak starts with the note.
func (p *pass) writeNotes(ctx context.Context) {
	var outOfService, canaries, inService []string
	isCanary := p.session.Names(func(n *plan.Node) bool { return n.ClientNode != nil && n.ClientNode.Spec.Canary })
	for _, node := range slices.Sorted(maps.Keys(p.notes)) {
		note := p.notes[node]
		switch {
		case p.IsSkipped(node) || plan.SameNote(p.currentNote(node), note):
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
		p.Skip("", nil)
	}
	nodes := slices.Concat(outOfService, inService)
	parallel.ForEach(p.workers, nodes, func(node string) { p.publishNote(ctx, node, p.notes[node]) })
}
