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
	"github.com/storageclient/operator/controllers/rollout/plan"
)

// cluster is what a pass reads and writes.
type cluster interface {
	// snapshot reads the claims live and everything else from the cache.
	snapshot(ctx context.Context) (plan.Snapshot, error)
	// refresh reads the claims, the profiles and some nodes live, or all nodes where names is nil.
	refresh(ctx context.Context, names sets.Set[string]) (plan.Snapshot, error)
	// current is what has been read in this pass, and what the API server made of its writes.
	current() plan.Snapshot
	// look tells how far the drain of a node is on which nothing is to be done; nil where something is.
	look(ctx context.Context, step plan.Drain) (*plan.Drained, error)
	// drain takes one pass over a node's pods.
	drain(ctx context.Context, step plan.Drain) (plan.Drained, error)
	// claim enters nodes in the ConfigMap, all or none.
	claim(ctx context.Context, steps []plan.AddClaim) error
	// apply takes any other step that writes.
	apply(ctx context.Context, step plan.Step) error
	// note writes status.rollout.
	note(ctx context.Context, node string, status v1alpha1.RolloutStatus) error
}

// phasesInService are those of nodes that nothing is done to.
var phasesInService = []v1alpha1.RolloutPhase{v1alpha1.RolloutWaiting, v1alpha1.RolloutApplying, v1alpha1.RolloutUpToDate}

// maxNotes is how many notes of nodes in service one pass writes, maxNotesBeside where it has taken steps: the next ones
// wait for it.
const (
	maxNotes       = 50
	maxNotesBeside = 5
)

// again is how soon a pass is made again that met a conflict, or had to leave something for the next.
const again = 200 * time.Millisecond

// pass is one look at the cluster and what follows from it.
type pass struct {
	cluster
	// workers is how many nodes are dealt with at a time.
	workers int
	// fresh are the nodes that have been read live; nil: all of them.
	fresh sets.Set[string]
	// rollout are the notes of the plan that is carried out.
	rollout map[string]v1alpha1.RolloutStatus
	// claimed are the nodes that have been claimed in this pass.
	claimed sets.Set[string]

	// mutex guards what follows, which all workers write to.
	mutex sync.Mutex
	// found is how far drains are, as seen in this pass.
	found map[string]*plan.Drained
	// behind are the nodes of which a step was not taken.
	behind sets.Set[string]
	// noted is status.rollout as it is.
	noted map[string]v1alpha1.RolloutStatus
	// unfinished is set when the next pass has something to do at once.
	unfinished bool
	errs       []error
}

func newPass(c cluster, workers int) *pass {
	return &pass{
		cluster: c, workers: workers, claimed: sets.New[string](), behind: sets.New[string](),
		found: map[string]*plan.Drained{}, noted: map[string]v1alpha1.RolloutStatus{},
	}
}

// run makes a pass, and tells when to make the next one; zero: when something changes.
func run(ctx context.Context, c cluster, workers int) (time.Time, bool, error) {
	snapshot, err := c.snapshot(ctx)
	if err != nil {
		return time.Time{}, false, err
	}
	p := newPass(c, workers)
	next := p.lookAll(ctx, snapshot, plan.For(snapshot))
	most := maxNotes
	stepped := len(next.Steps) > 0
	if stepped {
		most = maxNotesBeside
		p.fresh = touched(next)
		if snapshot, err = c.refresh(ctx, p.fresh); err != nil {
			return time.Time{}, false, err
		}
		next = p.drainAll(ctx, snapshot, p.decide(snapshot))
	}
	p.rollout, p.noted = next.Rollout, notesOf(snapshot)
	if stepped {
		p.take(ctx, next.Steps)
	}
	if p.claimed.Len() > 0 {
		next = p.begin(ctx)
	}
	p.notes(ctx, most)
	return next.Next, p.unfinished, errors.Join(p.errs...)
}

// decide plans with what has been seen of drains.
func (p *pass) decide(snapshot plan.Snapshot) plan.Plan {
	for i := range snapshot.Nodes {
		snapshot.Nodes[i].Drain = p.found[snapshot.Nodes[i].Name]
	}
	return plan.For(snapshot)
}

// begin takes the first steps on nodes that have just been claimed: the API server has taken the claims, and all nodes
// were read live in this pass.
func (p *pass) begin(ctx context.Context) plan.Plan {
	next := p.decide(p.current())
	p.rollout = next.Rollout
	var steps []plan.Step
	for _, step := range next.Steps {
		if p.claimed.Has(step.NodeName()) {
			steps = append(steps, step)
		} else if claim, ok := step.(plan.AddClaim); !ok || claim.Held {
			p.leave(step.NodeName())
		}
	}
	p.take(ctx, steps)
	return next
}

// touched are the nodes that a plan changes; nil, for all, where it adds a claim: what others do counts then too.
func touched(p plan.Plan) sets.Set[string] {
	names := sets.New[string]()
	for _, step := range p.Steps {
		if claim, ok := step.(plan.AddClaim); ok && !claim.Held {
			return nil
		}
		names.Insert(step.NodeName())
	}
	return names
}

func (p *pass) isFresh(node string) bool {
	return p.fresh == nil || p.fresh.Has(node)
}

// lookAll looks at drains that go on. Where pods only have to end, nothing is to be done: the node itself need not be read.
func (p *pass) lookAll(ctx context.Context, snapshot plan.Snapshot, next plan.Plan) plan.Plan {
	var drains []plan.Drain
	for _, step := range next.Steps {
		if step, ok := step.(plan.Drain); ok && !step.Begins {
			drains = append(drains, step)
		}
	}
	return p.find(snapshot, next, drains, func(step plan.Drain) (*plan.Drained, error) {
		drained, err := p.look(ctx, step)
		if err != nil {
			return nil, nil //nolint:nilerr // the pass over the same pods, which is due then, meets it too
		}
		return drained, nil
	})
}

// drainAll takes one pass over the pods of every node that is being drained, and plans with what was found.
func (p *pass) drainAll(ctx context.Context, snapshot plan.Snapshot, next plan.Plan) plan.Plan {
	var drains []plan.Drain
	for _, step := range next.Steps {
		if step, ok := step.(plan.Drain); ok && !step.Begins && p.isFresh(step.Node) {
			drains = append(drains, step)
		}
	}
	return p.find(snapshot, next, drains, func(step plan.Drain) (*plan.Drained, error) {
		drained, err := p.drain(ctx, step)
		return &drained, err
	})
}

// find looks at drains, and plans with what it found.
func (p *pass) find(snapshot plan.Snapshot, next plan.Plan, drains []plan.Drain, look func(plan.Drain) (*plan.Drained, error)) plan.Plan {
	before := len(p.found)
	inParallel(p.workers, drains, func(step plan.Drain) {
		drained, err := look(step)
		p.mutex.Lock()
		defer p.mutex.Unlock()
		switch {
		case err != nil:
			p.failed(step.Node, err)
		case drained != nil:
			p.found[step.Node] = drained
		}
	})
	if len(p.found) == before {
		return next
	}
	return p.decide(snapshot)
}

// take takes the steps: those of a node strictly in order, several nodes at a time, and new claims when all else is done.
// A node of which a step was not taken is left for the next pass.
func (p *pass) take(ctx context.Context, steps []plan.Step) {
	var order []string
	chains := map[string][]plan.Step{}
	var claims []plan.AddClaim
	claiming := sets.New[string]()
	for _, step := range steps {
		node := step.NodeName()
		if claim, ok := step.(plan.AddClaim); ok && !claim.Held {
			claims = append(claims, claim)
			claiming.Insert(node)
			continue
		}
		if chains[node] == nil {
			order = append(order, node)
		}
		chains[node] = append(chains[node], step)
	}
	inParallel(p.workers, order, func(node string) {
		p.takeChain(ctx, node, chains[node])
		if !claiming.Has(node) {
			p.closing(ctx, node)
		}
	})
	p.takeClaims(ctx, slices.DeleteFunc(claims, func(c plan.AddClaim) bool { return p.behind.Has(c.Node) }))
}

// takeChain takes the steps of one node. No two of it are under way at once, and none is taken after one that was not.
func (p *pass) takeChain(ctx context.Context, node string, steps []plan.Step) {
	if !p.isFresh(node) {
		p.leave(node)
		return
	}
	for _, step := range steps {
		if p.isBehind(node) {
			return
		}
		switch step := step.(type) {
		case plan.Drain:
			if !step.Begins {
				break // The node's pods could not be looked at.
			}
			found, err := p.drain(ctx, step)
			if p.after(node, err) {
				p.begun(node, found)
			}
		case plan.AddClaim:
			p.after(node, p.claim(ctx, []plan.AddClaim{step}))
		case plan.Record:
			p.say(ctx, node, step.Status)
		default:
			p.after(node, p.apply(ctx, step))
		}
	}
}

// begun has the note of a node tell already what its first look at pods has found.
func (p *pass) begun(node string, found plan.Drained) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if status, noted := p.rollout[node]; noted && !found.Gone {
		status.Reason, status.Message = found.Reason, plan.Clip(found.Message)
		p.rollout[node] = status
	}
}

// closing writes the note of a node whose steps are all taken at once: its agent answers to them, which would make the
// note a conflict. A drain is nothing that the agent answers to: other nodes' steps come before its note.
func (p *pass) closing(ctx context.Context, node string) {
	p.mutex.Lock()
	status, found := p.rollout[node]
	due := found && status.Phase != v1alpha1.RolloutDraining && !p.behind.Has(node) && !plan.SameStatus(p.noted[node], status)
	p.mutex.Unlock()
	if due {
		p.say(ctx, node, status)
	}
}

// takeClaims adds claims, which only a plan made of live nodes may.
func (p *pass) takeClaims(ctx context.Context, claims []plan.AddClaim) {
	if len(claims) == 0 {
		return
	}
	if p.fresh != nil {
		for _, claim := range claims {
			p.leave(claim.Node)
		}
		return
	}
	err := p.claim(ctx, claims)
	for _, claim := range claims {
		if p.after(claim.Node, err) {
			p.claimed.Insert(claim.Node)
		}
	}
}

// say writes status.rollout.
func (p *pass) say(ctx context.Context, node string, status v1alpha1.RolloutStatus) {
	if !p.after(node, p.note(ctx, node, status)) {
		return
	}
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.noted[node] = status
}

// after holds a node back whose step was not taken, and tells whether it was. That somebody else was faster is nothing
// to report.
func (p *pass) after(node string, err error) bool {
	switch {
	case err == nil:
		return true
	case apierrors.IsConflict(err), apierrors.IsNotFound(err), apierrors.IsAlreadyExists(err):
		p.leave(node)
	default:
		p.mutex.Lock()
		defer p.mutex.Unlock()
		p.failed(node, err)
	}
	return false
}

// leave leaves a node for the next pass, which comes at once.
func (p *pass) leave(node string) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.behind.Insert(node)
	p.unfinished = true
}

func (p *pass) isBehind(node string) bool {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return p.behind.Has(node)
}

// failed is called with the mutex held.
func (p *pass) failed(node string, err error) {
	p.behind.Insert(node)
	if !slices.ContainsFunc(p.errs, func(known error) bool { return known.Error() == err.Error() }) {
		p.errs = append(p.errs, err)
	}
}

func notesOf(snapshot plan.Snapshot) map[string]v1alpha1.RolloutStatus {
	out := make(map[string]v1alpha1.RolloutStatus, len(snapshot.Nodes))
	for i := range snapshot.Nodes {
		if client := snapshot.Nodes[i].Client; client != nil && client.Status.Rollout != nil {
			out[snapshot.Nodes[i].Name] = *client.Status.Rollout
		}
	}
	return out
}

// notes writes status.rollout where it says something new: of nodes that are out of service at once, of the others no
// more than most in a pass, so that a thousand that wait do not keep the next step waiting.
func (p *pass) notes(ctx context.Context, most int) {
	var outOfService, inService []string
	for _, node := range slices.Sorted(maps.Keys(p.rollout)) {
		status := p.rollout[node]
		switch {
		case p.behind.Has(node) || plan.SameStatus(p.noted[node], status):
		case status.Phase == v1alpha1.RolloutClaimed:
			// The next pass comes at once and has more to say.
		case slices.Contains(phasesInService, status.Phase):
			inService = append(inService, node)
		default:
			outOfService = append(outOfService, node)
		}
	}
	p.unfinished = p.unfinished || len(inService) > most
	due := slices.Concat(outOfService, inService[:min(len(inService), most)])
	inParallel(p.workers, due, func(node string) { p.say(ctx, node, p.rollout[node]) })
}
