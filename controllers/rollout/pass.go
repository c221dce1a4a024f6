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
	// refreshNodes reads the claims, the profiles and some nodes live, or all nodes where names is nil.
	refreshNodes(ctx context.Context, names sets.Set[string]) (plan.Snapshot, error)
	// currentSnapshot is what has been read in this pass, and what the API server made of its writes.
	currentSnapshot() plan.Snapshot
	// inspectPods reports how far a node's drain is where nothing is to be done but to wait; nil where there is.
	inspectPods(ctx context.Context, step plan.Drain) *plan.DrainProgress
	// drainNode has what may leave a node evicted in the background, and reports how far its drain is.
	drainNode(ctx context.Context, step plan.Drain) plan.DrainProgress
	// keepDrains ends the drains of all other nodes.
	keepDrains(nodes sets.Set[string])
	// lookAhead looks at the pods of a node that is to be claimed.
	lookAhead(ctx context.Context, step plan.AddClaim) plan.Outlook
	// readRules reads live what people have written down, and the clock, for some nodes.
	readRules(ctx context.Context, nodes []string) (plan.Rules, error)
	// addClaims enters nodes in the ConfigMap, all or none.
	addClaims(ctx context.Context, steps []plan.AddClaim) error
	// writeFailures writes what is to be remembered of failures.
	writeFailures(ctx context.Context, failures map[string]v1alpha1.ProfileFailures) error
	// applyStep carries out any other step.
	applyStep(ctx context.Context, step plan.Step) error
	// writeNote writes a node's note, status.rollout.
	writeNote(ctx context.Context, node string, note v1alpha1.RolloutStatus) error
}

// phasesInService are those of nodes that nothing is done to.
var phasesInService = []v1alpha1.RolloutPhase{v1alpha1.RolloutWaiting, v1alpha1.RolloutApplying, v1alpha1.RolloutUpToDate}

// maxNotes is how many notes of nodes in service one pass writes, maxNotesBeside where it has applied steps: the next ones
// wait for it.
const (
	maxNotes       = 50
	maxNotesBeside = 5
)

// retryDelay is how soon a pass is made again that met a conflict, or had to leave something for the next.
const retryDelay = 200 * time.Millisecond

// DefaultWorkers is how many nodes are read, drained and written to at a time. The answers of the API server are what takes
// time; more requests at once than this would be felt by others.
const DefaultWorkers = 12

// maxLooks is how many nodes are looked at before they are claimed, in one pass: two for each of the usual workers. The next ones wait
// for the next pass.
const maxLooks = 24

// pass is one round of snapshot, plan and apply.
type pass struct {
	cluster
	// workers is how many nodes are dealt with at a time.
	workers int
	// live are the nodes that have been read live; nil: all of them.
	live sets.Set[string]
	// snapshot is what was planned upon last.
	snapshot plan.Snapshot
	// notes are the notes of the plan that is applied.
	notes map[string]v1alpha1.RolloutStatus
	// claimed are the nodes that have been claimed in this pass.
	claimed sets.Set[string]
	// unremembered is set where failures could not be written down: nothing new begins then.
	unremembered bool

	// mutex guards what follows, which all workers write to.
	mutex sync.Mutex
	// drains is how far drains are, as seen in this pass.
	drains map[string]*plan.DrainProgress
	// released is set once a claim has been released in this pass.
	released bool
	// stepped are the nodes that steps were to be applied to.
	stepped sets.Set[string]
	// skipped are the nodes of which a step was not applied.
	skipped sets.Set[string]
	// written are the notes as they stand.
	written map[string]v1alpha1.RolloutStatus
	// unfinished is set when the next pass has something to do at once.
	unfinished bool
	// refused is what the API server answered to a write about a node, errs what is about none.
	refused map[string]error
	errs    []error
}

func newPass(c cluster, workers int) *pass {
	return &pass{
		cluster: c, workers: workers, claimed: sets.New[string](), skipped: sets.New[string](), stepped: sets.New[string](),
		drains: map[string]*plan.DrainProgress{}, written: map[string]v1alpha1.RolloutStatus{}, refused: map[string]error{},
	}
}

// runPass makes a pass, and returns when to make the next one, zero where nothing has to change by itself, and whether
// something is left to do at once.
func runPass(ctx context.Context, c cluster, workers int) (time.Time, bool, error) {
	snapshot, err := c.readSnapshot(ctx)
	if err != nil {
		return time.Time{}, false, err
	}
	p := newPass(c, workers)
	next := p.inspectDrains(ctx, snapshot, p.planFor(snapshot))
	most := maxNotes
	stepped := len(next.Steps) > 0 || next.Failures != nil
	if stepped {
		most = maxNotesBeside
		p.live = nodesToRead(snapshot, next)
		if snapshot, err = c.refreshNodes(ctx, p.live); err != nil {
			return time.Time{}, false, err
		}
		next = p.drainNodes(ctx, snapshot, p.planFor(snapshot))
	}
	p.notes, p.written = next.Notes, notesOf(snapshot)
	if stepped {
		p.rememberFailures(ctx, next.Failures)
		p.applySteps(ctx, next.Steps)
		next = p.claimNodes(ctx, next)
	}
	p.writeNotes(ctx, most)
	if p.noteRefusals(ctx) {
		next.Next = earlierOf(next.Next, snapshot.Now.Add(maxBackOff))
	}
	return next.Next, p.unfinished, errors.Join(p.errs...)
}

// planFor plans with what has been seen of drains, and ends those that the plan no longer wants.
func (p *pass) planFor(snapshot plan.Snapshot) plan.Plan {
	for i := range snapshot.Nodes {
		snapshot.Nodes[i].Drain = p.drains[snapshot.Nodes[i].Name]
	}
	p.snapshot = snapshot
	next := plan.For(snapshot)
	p.keepDrains(next.Draining)
	return next
}

// claimNodes claims nodes when all else is done, those too that have room now that others have left theirs, and takes the first steps on them.
func (p *pass) claimNodes(ctx context.Context, next plan.Plan) plan.Plan {
	if p.released && p.live == nil {
		behind := p.skipped.Clone()
		next = p.planAgain(isNewClaim)
		if slices.ContainsFunc(next.Steps, func(step plan.Step) bool { return !isNewClaim(step) && !isDrain(step) && !behind.Has(step.NodeName()) }) {
			// Somebody has changed the rules meanwhile: what follows from that comes first.
			return next
		}
	}
	p.applyClaims(ctx, next.Steps)
	if p.claimed.Len() == 0 {
		return next
	}
	return p.stepOnClaimed(ctx)
}

// stepOnClaimed applies the first steps on nodes that have just been claimed: the API server has taken the claims, and all
// nodes were read live in this pass.
func (p *pass) stepOnClaimed(ctx context.Context) plan.Plan {
	isOnClaimed := func(step plan.Step) bool { return p.claimed.Has(step.NodeName()) }
	next := p.planAgain(func(step plan.Step) bool { return isNewClaim(step) || isOnClaimed(step) })
	p.applySteps(ctx, slices.DeleteFunc(slices.Clone(next.Steps), func(step plan.Step) bool { return !isOnClaimed(step) }))
	return next
}

// planAgain plans with what has been written so far. Nodes with steps that are not wanted now are left to the next pass, as are failures that
// nobody remembers yet, before which nothing new begins. Of nodes that steps were applied to the notes stay: their agents are about to answer.
func (p *pass) planAgain(wanted func(plan.Step) bool) plan.Plan {
	next := p.planFor(p.currentSnapshot())
	for node := range p.stepped.Difference(p.claimed) {
		if note, noted := p.notes[node]; noted {
			next.Notes[node] = note
		}
	}
	p.notes = next.Notes
	for _, step := range next.Steps {
		if !wanted(step) {
			p.skipNode(step.NodeName())
		}
	}
	if next.Failures != nil {
		p.unremembered, p.unfinished = true, true
	}
	return next
}

func isDrain(step plan.Step) bool {
	drain, ok := step.(plan.Drain)
	return ok && !drain.AfterCordon
}

// isNewClaim tells a claim with which a disruption begins from one that is written again.
func isNewClaim(step plan.Step) bool {
	claim, ok := step.(plan.AddClaim)
	return ok && !claim.Missing
}

// nodesToRead are the nodes that a plan changes; nil, for all, where it adds a claim, or makes room for one: what others do counts then too.
// With one node of the control plane the others of it are read: etcd would not survive two that are out.
func nodesToRead(snapshot plan.Snapshot, p plan.Plan) sets.Set[string] {
	names := sets.New[string]()
	for _, step := range p.Steps {
		if _, releases := step.(plan.ReleaseClaim); isNewClaim(step) || releases && p.Queued {
			return nil
		}
		names.Insert(step.NodeName())
	}
	if all := controlPlaneOf(snapshot); all.HasAny(names.UnsortedList()...) {
		names = names.Union(all)
	}
	if p.Failures != nil {
		if p.Failures.All {
			return nil
		}
		names.Insert(p.Failures.Nodes...)
	}
	return names
}

func controlPlaneOf(snapshot plan.Snapshot) sets.Set[string] {
	names := sets.New[string]()
	for i := range snapshot.Nodes {
		if node := &snapshot.Nodes[i]; node.ControlPlane {
			names.Insert(node.Name)
		}
	}
	return names
}

func (p *pass) isLive(node string) bool {
	return p.live == nil || p.live.Has(node)
}

// inspectDrains inspects the pods of draining nodes. Where they only have to end, the node itself need not be read.
func (p *pass) inspectDrains(ctx context.Context, snapshot plan.Snapshot, next plan.Plan) plan.Plan {
	return p.observeDrains(snapshot, next, func(step plan.Drain) *plan.DrainProgress { return p.inspectPods(ctx, step) })
}

// drainNodes has evicted what may leave the draining nodes that were read live, and plans with what was found.
func (p *pass) drainNodes(ctx context.Context, snapshot plan.Snapshot, next plan.Plan) plan.Plan {
	return p.observeDrains(snapshot, next, func(step plan.Drain) *plan.DrainProgress {
		if !p.isLive(step.Node) {
			return nil
		}
		return new(p.drainNode(ctx, step))
	})
}

// observeDrains observes the drains of nodes that are cordoned already, and plans with what it found.
func (p *pass) observeDrains(snapshot plan.Snapshot, next plan.Plan, observe func(plan.Drain) *plan.DrainProgress) plan.Plan {
	var drains []plan.Drain
	for _, step := range next.Steps {
		if isDrain(step) {
			drains = append(drains, step.(plan.Drain))
		}
	}
	before := len(p.drains)
	parallel.ForEach(p.workers, drains, func(step plan.Drain) {
		if progress := observe(step); progress != nil {
			p.mutex.Lock()
			defer p.mutex.Unlock()
			p.drains[step.Node] = progress
		}
	})
	if len(p.drains) == before {
		return next
	}
	return p.planFor(snapshot)
}

// applySteps applies the steps but for new claims: those of a node strictly in order, several nodes at a time. A node of which a step was not
// applied is left for the next pass.
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
	p.stepped.Insert(order...)
	parallel.ForEach(p.workers, order, func(node string) {
		p.applyChain(ctx, node, chains[node])
		if !claiming.Has(node) {
			p.writeLastNote(ctx, node)
		}
	})
}

// applyChain applies the steps of one node. No two of it are under way at once, and none is applied after one that was not.
func (p *pass) applyChain(ctx context.Context, node string, steps []plan.Step) {
	if !p.isLive(node) {
		p.skipNode(node)
		return
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
			p.finishStep(node, p.addClaims(ctx, []plan.AddClaim{step}))
		case plan.WriteNote:
			p.publishNote(ctx, node, step.Note)
		case plan.Cordon, plan.GivePermit:
			if p.areAllowed(ctx, step) {
				p.finishStep(node, p.applyStep(ctx, step))
			}
		case plan.ReleaseClaim:
			if p.finishStep(node, p.applyStep(ctx, step)) {
				p.noteRelease()
			}
		default:
			p.finishStep(node, p.applyStep(ctx, step))
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
			p.finishStep(step.NodeName(), err)
		} else if reason, _ := plan.Recheck(p.snapshot, rules, step); reason != "" {
			p.skipNode(step.NodeName())
			allowed = false
		}
	}
	return allowed
}

// noteFirstDrain puts into the note of a node what its first drain has found.
func (p *pass) noteFirstDrain(node string, progress plan.DrainProgress) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if note, noted := p.notes[node]; noted && !progress.Gone && note.Phase == v1alpha1.RolloutDraining {
		note.Reason, note.Message = progress.Reason, text.Cut(progress.Message, plan.MaxMessage)
		p.notes[node] = note
	}
}

// writeLastNote writes the note of a node at once when its steps are all applied: its agent answers to them, which would make the
// note a conflict. A drain is nothing that the agent answers to: other nodes' steps come before its note.
func (p *pass) writeLastNote(ctx context.Context, node string) {
	p.mutex.Lock()
	note, noted := p.notes[node]
	due := noted && note.Phase != v1alpha1.RolloutDraining && !p.skipped.Has(node) && !plan.SameNote(p.written[node], note)
	p.mutex.Unlock()
	if due {
		p.publishNote(ctx, node, note)
	}
}

func (p *pass) noteRelease() {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.released = true
}

// applyClaims adds the new claims among the steps, which only a plan made of live nodes may.
func (p *pass) applyClaims(ctx context.Context, steps []plan.Step) {
	var claims []plan.AddClaim
	for _, step := range steps {
		if isNewClaim(step) && !p.isSkipped(step.NodeName()) {
			claims = append(claims, step.(plan.AddClaim))
		}
	}
	if len(claims) == 0 {
		return
	}
	if p.live != nil || p.unremembered {
		for _, claim := range claims {
			p.skipNode(claim.Node)
		}
		return
	}
	claims = p.lookAheadAt(ctx, claims)
	asSteps := make([]plan.Step, 0, len(claims))
	for _, claim := range claims {
		asSteps = append(asSteps, claim)
	}
	if !p.areAllowed(ctx, asSteps...) {
		claims = slices.DeleteFunc(claims, func(c plan.AddClaim) bool { return p.skipped.Has(c.Node) })
	}
	if len(claims) == 0 {
		return
	}
	err := p.addClaims(ctx, claims)
	for _, claim := range claims {
		if p.finishStep(claim.Node, err) {
			p.claimed.Insert(claim.Node)
		}
	}
}

// lookAheadAt looks at the nodes that are to be claimed, and passes those over whose drain would not end: no pod is evicted for that. Those
// that are left are claimed.
func (p *pass) lookAheadAt(ctx context.Context, claims []plan.AddClaim) []plan.AddClaim {
	for _, claim := range claims[min(maxLooks, len(claims)):] {
		p.skipNode(claim.Node)
	}
	claims = claims[:min(maxLooks, len(claims))]
	parallel.ForEach(p.workers, claims, func(claim plan.AddClaim) {
		if note, passed := plan.PassOver(p.snapshot, claim.Node, p.lookAhead(ctx, claim)); passed {
			p.publishNote(ctx, claim.Node, note)
			p.skipNode(claim.Node)
		}
	})
	return slices.DeleteFunc(claims, func(c plan.AddClaim) bool { return p.isSkipped(c.Node) })
}

// publishNote writes a note and remembers it as written.
func (p *pass) publishNote(ctx context.Context, node string, note v1alpha1.RolloutStatus) {
	if !p.finishStep(node, p.writeNote(ctx, node, note)) {
		return
	}
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.written[node] = note
}

// finishStep reports whether a step was applied, and skips the node if it was not. That somebody else was faster is no
// error.
func (p *pass) finishStep(node string, err error) bool {
	switch {
	case err == nil:
		return true
	case apierrors.IsConflict(err), apierrors.IsNotFound(err), apierrors.IsAlreadyExists(err):
		p.skipNode(node)
	default:
		p.mutex.Lock()
		defer p.mutex.Unlock()
		p.addError(node, err)
	}
	return false
}

// skipNode leaves a node for the next pass, which comes at once.
func (p *pass) skipNode(node string) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.skipped.Insert(node)
	p.unfinished = true
}

func (p *pass) isSkipped(node string) bool {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return p.skipped.Has(node)
}

// addError is called with the mutex held.
func (p *pass) addError(node string, err error) {
	p.skipped.Insert(node)
	p.refused[node] = err
}

// noteRefusals says in the notes of nodes what the API server answered. What is said already is not returned again, to be logged over and
// over: it is only tried again, as the result asks for.
func (p *pass) noteRefusals(ctx context.Context) (again bool) {
	for _, node := range slices.Sorted(maps.Keys(p.refused)) {
		err := p.refused[node]
		before, noted := p.written[node]
		note := plan.WithRefusal(before, err)
		if noted && plan.SameNote(before, note) {
			again = true
			continue
		}
		if noted && before.Phase != "" {
			err = errors.Join(err, p.writeNote(ctx, node, note))
		}
		if !slices.ContainsFunc(p.errs, func(known error) bool { return known.Error() == err.Error() }) {
			p.errs = append(p.errs, err)
		}
	}
	return again
}

// earlierOf is the earlier of two times, of which the first may be never.
func earlierOf(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

func notesOf(snapshot plan.Snapshot) map[string]v1alpha1.RolloutStatus {
	out := make(map[string]v1alpha1.RolloutStatus, len(snapshot.Nodes))
	for i := range snapshot.Nodes {
		if client := snapshot.Nodes[i].ClientNode; client != nil && client.Status.Rollout != nil {
			out[snapshot.Nodes[i].Name] = *client.Status.Rollout
		}
	}
	return out
}

// writeNotes writes the notes that say something new: of nodes that are out of service at once, of the others no
// more than most in a pass, so that a thousand that wait do not keep the next step waiting. Canaries come first: their soak starts with the note.
func (p *pass) writeNotes(ctx context.Context, most int) {
	var outOfService, canaries, inService []string
	isCanary := liveCanaries(p.snapshot)
	for _, node := range slices.Sorted(maps.Keys(p.notes)) {
		note := p.notes[node]
		switch {
		case p.skipped.Has(node) || plan.SameNote(p.written[node], note):
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

// liveCanaries returns the nodes that prove settings for others.
func liveCanaries(snapshot plan.Snapshot) sets.Set[string] {
	names := sets.New[string]()
	for i := range snapshot.Nodes {
		if node := &snapshot.Nodes[i]; node.ClientNode != nil && node.ClientNode.Spec.Canary {
			names.Insert(node.Name)
		}
	}
	return names
}
