package rollout

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/parallel"
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
	outcome
	// workers is the number of nodes that are handled concurrently.
	workers int
	session *plan.Session
	plan    plan.Plan
	// live are the nodes that have been read live; nil: all of them.
	live sets.Set[string]
	// unrecorded is true if failures could not be recorded: no new disruption starts then. unfinished is true if the next pass must start at
	// once.
	unrecorded, unfinished bool
	// errs are the errors that do not concern a node.
	errs []error
}

// outcome contains the results of the workers of a pass.
type outcome struct {
	mutex sync.Mutex
	// notes are the notes of the latest plan, including the results of first drains.
	notes map[string]v1alpha1.RolloutStatus
	// skipped are the nodes of which a step was not applied: they are left to the next pass. rejections are the errors of some of them.
	skipped    sets.Set[string]
	rejections map[string]error
}

// skip leaves a node to the next pass, which starts at once unless the API server has rejected a write.
func (o *outcome) skip(node string, refusal error) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	o.skipped.Insert(node)
	if refusal != nil && o.rejections[node] == nil {
		o.rejections[node] = refusal
	}
}

func (o *outcome) isSkipped(node string) bool {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	return o.skipped.Has(node)
}

// finish reports whether a step was applied, and skips the node if it was not. A conflict with another client is no error.
func (o *outcome) finish(node string, err error) bool {
	switch {
	case err == nil:
		return true
	case apierrors.IsConflict(err), apierrors.IsNotFound(err), apierrors.IsAlreadyExists(err):
		err = nil
	}
	o.skip(node, err)
	return false
}

func (o *outcome) noteOf(node string) (note v1alpha1.RolloutStatus, found bool) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	note, found = o.notes[node]
	return note, found
}

// noteFirstDrain adds the result of a node's first drain to its note.
func (o *outcome) noteFirstDrain(node string, progress plan.DrainProgress) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	if note, found := o.notes[node]; found && !progress.Gone && note.Phase == v1alpha1.RolloutDraining {
		note.Reason, note.Message = progress.Reason, text.Cut(progress.Message, plan.MaxMessage)
		o.notes[node] = note
	}
}

func newPass(c cluster, workers int, session *plan.Session) *pass {
	return &pass{cluster: c, workers: workers, session: session, outcome: outcome{
		notes: map[string]v1alpha1.RolloutStatus{}, skipped: sets.New[string](), rejections: map[string]error{},
	}}
}

// runPass makes a pass. It returns the time of the next one, zero if it only depends on changes of objects, and whether work is left to do at once.
func runPass(ctx context.Context, c cluster, workers int) (next time.Time, unfinished bool, err error) {
	snapshot, err := c.readSnapshot(ctx)
	if err != nil {
		return time.Time{}, false, err
	}
	p := newPass(c, workers, plan.NewSession(snapshot))
	// A node that only waits for its pods to terminate need not be read.
	p.observeDrains(func(step plan.Drain) { p.inspectPods(ctx, step) })
	p.decide()
	limit := maxNotes
	if len(p.plan.Steps) > 0 || p.plan.Failures != nil {
		limit = maxNotesWithSteps
		if err := p.runSteps(ctx); err != nil {
			return time.Time{}, false, err
		}
	}
	p.writeNotes(ctx, limit)
	next = p.plan.Next
	if p.noteRefusals(ctx) {
		next = earlierOf(next, p.session.Now.Add(maxBackOff))
	}
	for node := range p.skipped {
		p.unfinished = p.unfinished || p.rejections[node] == nil
	}
	return next, p.unfinished, errors.Join(p.errs...)
}

func (p *pass) runSteps(ctx context.Context) error {
	p.live = p.nodesToRead()
	if err := p.refreshNodes(ctx, p.live); err != nil {
		return err
	}
	p.update()
	p.observeDrains(func(step plan.Drain) {
		if p.isLive(step.Node) {
			p.drainNode(ctx, step)
		}
	})
	p.decide()
	p.recordFailures(ctx, p.plan.Failures)
	p.applySteps(ctx, p.plan.Steps)
	p.claimNodes(ctx)
	return nil
}

func (p *pass) update() {
	p.session.Update(p.news())
	p.shadow(p.session)
}

// decide plans, and stops the drains that the plan no longer contains.
func (p *pass) decide() {
	p.plan = p.session.Plan()
	p.notes = p.plan.Notes
	p.keepDrains(p.plan.Draining)
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
	if p.live == nil && slices.ContainsFunc(p.plan.Steps, isRelease) && p.planAgain() {
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

// planAgain makes a new plan after the writes so far, and reports whether other steps come before claims. Nodes to which steps were applied keep
// their notes, because their agents are about to respond. Nodes with steps other than claims are left to the next pass. So are failures that are
// not recorded yet; no new disruption starts before them.
func (p *pass) planAgain() (hasOtherSteps bool) {
	before, behind := p.plan, p.skipped.Clone()
	p.update()
	p.decide()
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
		hasOtherSteps = hasOtherSteps || !(isDrain && !drain.AfterCordon) && !behind.Has(step.NodeName())
		p.skip(step.NodeName(), nil)
	}
	if p.plan.Failures != nil {
		p.unrecorded, p.unfinished = true, true
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

// applyChain applies the steps of one node, and stops after a step that was not applied.
func (p *pass) applyChain(ctx context.Context, node string, steps []plan.Step) {
	if !p.isLive(node) {
		p.skip(node, nil)
	}
	for _, step := range steps {
		if p.isSkipped(node) {
			return
		}
		switch step := step.(type) {
		case plan.Drain:
			if step.AfterCordon {
				p.noteFirstDrain(node, p.drainNode(ctx, step))
			}
		case plan.AddClaim:
			p.finish(node, p.addClaims(ctx, []plan.AddClaim{step}))
		case plan.WriteNote:
			p.publishNote(ctx, node, step.Note)
		case plan.Cordon, plan.GivePermit:
			if areAllowed(ctx, p, step) {
				p.finish(node, p.applyStep(ctx, step))
			}
		case plan.ClearPermit:
			// A conflict of the note shows that the permit may be gone or used: the next pass reads it first.
			if !p.finish(node, p.applyStep(ctx, step)) && step.Cordon != nil && !apierrors.IsConflict(p.writeNote(ctx, node, step.Note)) {
				p.finish(node, p.applyStep(ctx, *step.Cordon))
			}
		default:
			p.finish(node, p.applyStep(ctx, step))
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
			p.finish(step.NodeName(), err)
		} else if reason, _ := p.session.Recheck(rules, step); reason != "" {
			p.skip(step.NodeName(), nil)
			allowed = false
		}
	}
	return allowed
}

// writeLastNote writes the note of a node as soon as all its steps are applied. Its agent responds to them, so a later note would meet a conflict.
// Agents do not respond to a drain: steps of other nodes come before its note.
func (p *pass) writeLastNote(ctx context.Context, node string) {
	note, found := p.noteOf(node)
	if found && note.Phase != v1alpha1.RolloutDraining && !p.isSkipped(node) && !plan.SameNote(p.currentNote(node), note) {
		p.publishNote(ctx, node, note)
	}
}

// applyClaims adds the new claims among the steps, and returns the nodes. Only a plan based on live nodes may add claims.
func (p *pass) applyClaims(ctx context.Context) sets.Set[string] {
	var claims []plan.AddClaim
	for _, step := range p.plan.Steps {
		switch {
		case !isNewClaim(step) || p.isSkipped(step.NodeName()):
		case p.live != nil, p.unrecorded, len(claims) == maxLookAheads:
			p.skip(step.NodeName(), nil)
		default:
			claims = append(claims, step.(plan.AddClaim))
		}
	}
	isSkipped := func(c plan.AddClaim) bool { return p.isSkipped(c.Node) }
	// No pod is evicted for a drain that would not finish.
	parallel.ForEach(p.workers, claims, func(claim plan.AddClaim) {
		if note, skipped := p.session.SkipNode(claim.Node, claim.Claim, p.lookAhead(ctx, claim)); skipped {
			p.publishNote(ctx, claim.Node, note)
			p.skip(claim.Node, nil)
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
		if p.finish(claim.Node, err) {
			claimed.Insert(claim.Node)
		}
	}
	return claimed
}

func (p *pass) publishNote(ctx context.Context, node string, note v1alpha1.RolloutStatus) {
	p.finish(node, p.writeNote(ctx, node, note))
}

// noteRefusals adds the errors of the API server to the notes of nodes. An error that the note already contains is not returned again, so that it
// is not logged repeatedly: the write is only retried, as needsRetry requests.
func (p *pass) noteRefusals(ctx context.Context) (needsRetry bool) {
	for _, node := range slices.Sorted(maps.Keys(p.rejections)) {
		err := p.rejections[node]
		before := p.currentNote(node)
		note := plan.WithRefusal(before, err)
		switch {
		case before.Phase == "":
		case plan.SameNote(before, note):
			needsRetry = true
			continue
		default:
			err = errors.Join(err, p.writeNote(ctx, node, note))
		}
		if !slices.ContainsFunc(p.errs, func(known error) bool { return known.Error() == err.Error() }) {
			p.errs = append(p.errs, err)
		}
	}
	return needsRetry
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
func (p *pass) writeNotes(ctx context.Context, limit int) {
	var outOfService, canaries, inService []string
	isCanary := p.session.Names(func(n *plan.Node) bool { return n.ClientNode != nil && n.ClientNode.Spec.Canary })
	for _, node := range slices.Sorted(maps.Keys(p.notes)) {
		note := p.notes[node]
		switch {
		case p.skipped.Has(node) || plan.SameNote(p.currentNote(node), note):
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
	p.unfinished = p.unfinished || len(inService) > limit
	nodes := slices.Concat(outOfService, inService[:min(len(inService), limit)])
	parallel.ForEach(p.workers, nodes, func(node string) { p.publishNote(ctx, node, p.notes[node]) })
}
