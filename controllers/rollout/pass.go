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
	"github.com/storageclient/operator/tuning/text"
)

// cluster is what a pass reads and writes.
type cluster interface {
	// readSnapshot reads the claims live and everything else from the cache.
	readSnapshot(ctx context.Context) (plan.Snapshot, error)
	// refreshNodes reads the claims, the profiles and some nodes live, or all nodes if names is nil.
	refreshNodes(ctx context.Context, names sets.Set[string]) error
	// news returns what has been read, inspected or written since the last snapshot.
	news() plan.Snapshot
	// shadow has tests compare a session with a new one of the same cluster.
	shadow(session *plan.Session)
	// inspectPods finds how far a node's drain is, if it only has to wait. drainNode evicts what may leave the node in the background, and
	// returns how far its drain is. keepDrains ends the drains of all other nodes.
	inspectPods(ctx context.Context, step plan.Drain)
	drainNode(ctx context.Context, step plan.Drain) plan.DrainProgress
	keepDrains(nodes sets.Set[string])
	// lookAhead returns what would keep a drain from ending.
	lookAhead(ctx context.Context, step plan.AddClaim) plan.DrainProgress
	// readRules reads live what people have written down, and the clock, for some nodes.
	readRules(ctx context.Context, nodes []string) (plan.Rules, error)
	// addClaims enters nodes in the ConfigMap, all or none; applyStep carries out any other step.
	addClaims(ctx context.Context, steps []plan.AddClaim) error
	applyStep(ctx context.Context, step plan.Step) error
	writeFailures(ctx context.Context, failures map[string]v1alpha1.ProfileFailures) error
	currentNote(node string) v1alpha1.RolloutStatus
	writeNote(ctx context.Context, node string, note v1alpha1.RolloutStatus) error
}

// phasesInService are those of nodes that the rollout does nothing to.
var phasesInService = []v1alpha1.RolloutPhase{v1alpha1.RolloutWaiting, v1alpha1.RolloutApplying, v1alpha1.RolloutUpToDate}

const (
	// maxNotes is how many notes of nodes in service one pass writes, maxNotesBeside if it has applied steps: the next ones wait for it.
	maxNotes       = 50
	maxNotesBeside = 5
	// retryDelay is the pause after a pass that met a conflict, or left something for the next.
	retryDelay = 200 * time.Millisecond
	// maxLooks is how many nodes are looked at before they are claimed in one pass: two for each of the usual workers.
	maxLooks = 24
)

// DefaultWorkers is how many nodes are read, drained and written to at a time. More requests at once would be felt by others.
const DefaultWorkers = 12

// pass is one round of reading, planning and writing.
type pass struct {
	cluster
	outcome
	// workers is how many nodes are dealt with at a time.
	workers int
	session *plan.Session
	// plan is the last decision.
	plan plan.Plan
	// live are the nodes that have been read live; nil: all of them.
	live sets.Set[string]
	// unremembered is set if failures could not be recorded: nothing new starts then. unfinished is set if the next pass must come at once.
	unremembered, unfinished bool
	// errs are about no node.
	errs []error
}

// outcome is what the workers of a pass write to.
type outcome struct {
	mutex sync.Mutex
	// notes are those of the last decision, with what first drains have found.
	notes map[string]v1alpha1.RolloutStatus
	// skipped are the nodes of which a step was not applied: they are left to the next pass. refused are the errors of some of them.
	skipped sets.Set[string]
	refused map[string]error
}

// skip leaves a node to the next pass, which comes at once unless the API server has refused a write.
func (o *outcome) skip(node string, refusal error) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	o.skipped.Insert(node)
	if refusal != nil {
		o.refused[node] = refusal
	}
}

func (o *outcome) isSkipped(node string) bool {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	return o.skipped.Has(node)
}

// finish reports whether a step was applied, and skips the node if it was not. That another client was faster is no error.
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

func (o *outcome) noteOf(node string) (note v1alpha1.RolloutStatus, noted bool) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	note, noted = o.notes[node]
	return note, noted
}

// noteFirstDrain adds to the note of a node what its first drain has found.
func (o *outcome) noteFirstDrain(node string, progress plan.DrainProgress) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	if note, noted := o.notes[node]; noted && !progress.Gone && note.Phase == v1alpha1.RolloutDraining {
		note.Reason, note.Message = progress.Reason, text.Cut(progress.Message, plan.MaxMessage)
		o.notes[node] = note
	}
}

func newPass(c cluster, workers int, session *plan.Session) *pass {
	return &pass{cluster: c, workers: workers, session: session, outcome: outcome{
		notes: map[string]v1alpha1.RolloutStatus{}, skipped: sets.New[string](), refused: map[string]error{},
	}}
}

// runPass makes a pass. It returns when to make the next one, zero if nothing changes by itself, and whether something is left to do at once.
func runPass(ctx context.Context, c cluster, workers int) (next time.Time, unfinished bool, err error) {
	snapshot, err := c.readSnapshot(ctx)
	if err != nil {
		return time.Time{}, false, err
	}
	p := newPass(c, workers, plan.Begin(snapshot))
	// A node whose pods only have to end need not be read.
	p.observeDrains(func(step plan.Drain) { p.inspectPods(ctx, step) })
	p.decide()
	most := maxNotes
	if len(p.plan.Steps) > 0 || p.plan.Failures != nil {
		most = maxNotesBeside
		if err := p.takeSteps(ctx); err != nil {
			return time.Time{}, false, err
		}
	}
	p.writeNotes(ctx, most)
	next = p.plan.Next
	if p.noteRefusals(ctx) {
		next = earlierOf(next, p.session.Now.Add(maxBackOff))
	}
	for node := range p.skipped {
		p.unfinished = p.unfinished || p.refused[node] == nil
	}
	return next, p.unfinished, errors.Join(p.errs...)
}

func (p *pass) takeSteps(ctx context.Context) error {
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
	p.rememberFailures(ctx, p.plan.Failures)
	p.applySteps(ctx, p.plan.Steps)
	p.claimNodes(ctx)
	return nil
}

func (p *pass) update() {
	p.session.Update(p.news())
	p.shadow(p.session)
}

// decide plans, and ends the drains that the plan no longer contains.
func (p *pass) decide() {
	p.plan = p.session.Plan()
	p.notes = p.plan.Notes
	p.keepDrains(p.plan.Draining)
}

// observeDrains observes the drains of nodes that are cordoned already, and ends all others.
func (p *pass) observeDrains(observe func(plan.Drain)) {
	due, draining := p.session.Drains()
	p.keepDrains(draining)
	if len(due) > 0 {
		parallel.ForEach(p.workers, due, observe)
		p.update()
	}
}

// claimNodes claims nodes when everything else is done, also those that have room now that others have left their places, and takes the
// first steps on them: the API server has accepted the claims, and all nodes were read live in this pass.
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

// planAgain plans with what has been written so far, and reports whether other steps come before claims. Nodes that steps were applied to keep
// their notes: their agents are about to respond. Nodes with other steps than claims are left to the next pass, as are failures that are not
// recorded yet, before which nothing new starts.
func (p *pass) planAgain() (others bool) {
	before, behind := p.plan, p.skipped.Clone()
	p.update()
	p.decide()
	for _, step := range before.Steps {
		if note, noted := before.Notes[step.NodeName()]; noted && !isNewClaim(step) {
			p.notes[step.NodeName()] = note
		}
	}
	for _, step := range p.plan.Steps {
		if isNewClaim(step) {
			continue
		}
		drain, isDrain := step.(plan.Drain)
		others = others || !(isDrain && !drain.AfterCordon) && !behind.Has(step.NodeName())
		p.skip(step.NodeName(), nil)
	}
	if p.plan.Failures != nil {
		p.unremembered, p.unfinished = true, true
	}
	return others
}

func isRelease(step plan.Step) bool {
	_, releases := step.(plan.ReleaseClaim)
	return releases
}

func isNewClaim(step plan.Step) bool {
	claim, ok := step.(plan.AddClaim)
	return ok && !claim.Missing
}

// nodesToRead returns the nodes that the plan changes; nil, for all, if it adds a claim, or makes room for one: what others do counts then too.
// With one node of the control plane the others of it are read: etcd would not survive two that are out.
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

// applySteps applies the steps except new claims: those of a node strictly in order, several nodes at a time.
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

// applyChain applies the steps of one node, none after one that was not applied.
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
			if p.areAllowed(ctx, step) {
				p.finish(node, p.applyStep(ctx, step))
			}
		default:
			p.finish(node, p.applyStep(ctx, step))
		}
	}
}

// areAllowed asks pauses, profiles and the clock again right before nodes are disrupted or permitted to reboot: the pass may have taken its
// time. Nodes that may not be any more are left to the next pass, which says why.
func (p *pass) areAllowed(ctx context.Context, steps ...plan.Step) bool {
	nodes := make([]string, 0, len(steps))
	for _, step := range steps {
		nodes = append(nodes, step.NodeName())
	}
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

// writeLastNote writes the note of a node at once when its steps are all applied: its agent responds to them, which would make the
// note a conflict. Agents do not respond to a drain: other nodes' steps come before its note.
func (p *pass) writeLastNote(ctx context.Context, node string) {
	note, noted := p.noteOf(node)
	if noted && note.Phase != v1alpha1.RolloutDraining && !p.isSkipped(node) && !plan.SameNote(p.currentNote(node), note) {
		p.publishNote(ctx, node, note)
	}
}

// applyClaims adds the new claims among the steps, which only a plan made of live nodes may, and returns the nodes.
func (p *pass) applyClaims(ctx context.Context) sets.Set[string] {
	var claims []plan.AddClaim
	for _, step := range p.plan.Steps {
		switch {
		case !isNewClaim(step) || p.isSkipped(step.NodeName()):
		case p.live != nil, p.unremembered, len(claims) == maxLooks:
			p.skip(step.NodeName(), nil)
		default:
			claims = append(claims, step.(plan.AddClaim))
		}
	}
	isSkipped := func(c plan.AddClaim) bool { return p.isSkipped(c.Node) }
	// No pod is evicted for a drain that would not end.
	parallel.ForEach(p.workers, claims, func(claim plan.AddClaim) {
		if note, passed := p.session.PassOver(claim.Node, p.lookAhead(ctx, claim)); passed {
			p.publishNote(ctx, claim.Node, note)
			p.skip(claim.Node, nil)
		}
	})
	claims = slices.DeleteFunc(claims, isSkipped)
	asSteps := make([]plan.Step, 0, len(claims))
	for _, claim := range claims {
		asSteps = append(asSteps, claim)
	}
	if len(claims) > 0 && !p.areAllowed(ctx, asSteps...) {
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

// noteRefusals adds to the notes of nodes what the API server answered. What a note contains already is not returned again, to be logged over
// and over: it is only tried again, as the result asks for.
func (p *pass) noteRefusals(ctx context.Context) (again bool) {
	for _, node := range slices.Sorted(maps.Keys(p.refused)) {
		err := p.refused[node]
		before := p.currentNote(node)
		note := plan.WithRefusal(before, err)
		switch {
		case before.Phase == "":
		case plan.SameNote(before, note):
			again = true
			continue
		default:
			err = errors.Join(err, p.writeNote(ctx, node, note))
		}
		if !slices.ContainsFunc(p.errs, func(known error) bool { return known.Error() == err.Error() }) {
			p.errs = append(p.errs, err)
		}
	}
	return again
}

// earlierOf returns the earlier of two times, each of which may be never.
func earlierOf(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// writeNotes writes the notes that say something new: of nodes that are out of service at once, of the others no
// more than most in a pass, so that a thousand that wait do not keep the next step waiting. Canaries come first: their soak starts with the note.
func (p *pass) writeNotes(ctx context.Context, most int) {
	var outOfService, canaries, inService []string
	isCanary := p.session.Names(func(n *plan.Node) bool { return n.ClientNode != nil && n.ClientNode.Spec.Canary })
	for _, node := range slices.Sorted(maps.Keys(p.notes)) {
		note := p.notes[node]
		switch {
		case p.skipped.Has(node) || plan.SameNote(p.currentNote(node), note):
		case note.Phase == v1alpha1.RolloutClaimed:
			// The next pass comes at once and has more to say.
		case !slices.Contains(phasesInService, note.Phase):
			outOfService = append(outOfService, node)
		case isCanary.Has(node):
			canaries = append(canaries, node)
		default:
			inService = append(inService, node)
		}
	}
	inService = slices.Concat(canaries, inService)
	p.unfinished = p.unfinished || len(inService) > most
	due := slices.Concat(outOfService, inService[:min(len(inService), most)])
	parallel.ForEach(p.workers, due, func(node string) { p.publishNote(ctx, node, p.notes[node]) })
}
