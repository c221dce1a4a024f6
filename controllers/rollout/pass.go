package rollout

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
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

// maxNotes is how many notes of nodes in service one pass writes.
const maxNotes = 50

// again is how soon a pass is made again that met a conflict, or had to leave something for the next.
const again = 200 * time.Millisecond

// pass is one look at the cluster and what follows from it.
type pass struct {
	cluster
	// fresh are the nodes that have been read live; nil: all of them.
	fresh sets.Set[string]
	// behind are the nodes of which a step was not taken.
	behind sets.Set[string]
	// written is what was recorded ahead of a step.
	written map[string]v1alpha1.RolloutStatus
	// unfinished is set when the next pass has something to do at once.
	unfinished bool
	errs       []error
}

// run makes a pass, and tells when to make the next one; zero: when something changes.
func run(ctx context.Context, c cluster) (time.Time, bool, error) {
	snapshot, err := c.snapshot(ctx)
	if err != nil {
		return time.Time{}, false, err
	}
	p := &pass{cluster: c, fresh: sets.New[string](), behind: sets.New[string](), written: map[string]v1alpha1.RolloutStatus{}}
	next := plan.For(snapshot)
	if len(next.Steps) > 0 {
		p.fresh = touched(next)
		if snapshot, err = c.refresh(ctx, p.fresh); err != nil {
			return time.Time{}, false, err
		}
		next = p.drainAll(ctx, snapshot, plan.For(snapshot))
		p.take(ctx, next.Steps)
	}
	p.notes(ctx, snapshot, next)
	return next.Next, p.unfinished, errors.Join(p.errs...)
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

// drainAll takes one pass over the pods of every node that is being drained, and plans with what was found.
func (p *pass) drainAll(ctx context.Context, snapshot plan.Snapshot, next plan.Plan) plan.Plan {
	found := map[string]*plan.Drained{}
	for _, step := range next.Steps {
		step, ok := step.(plan.Drain)
		if !ok || !p.isFresh(step.Node) {
			continue
		}
		drained, err := p.drain(ctx, step)
		if err != nil {
			p.failed(step.Node, fmt.Errorf("drain Node %s: %w", step.Node, err))
			continue
		}
		found[step.Node] = &drained
	}
	if len(found) == 0 {
		return next
	}
	for i := range snapshot.Nodes {
		snapshot.Nodes[i].Drain = found[snapshot.Nodes[i].Name]
	}
	return plan.For(snapshot)
}

// take takes the steps in order. A node of which a step was not taken is left for the next pass.
func (p *pass) take(ctx context.Context, steps []plan.Step) {
	var claims []plan.AddClaim
	for _, step := range steps {
		node := step.NodeName()
		if !p.isFresh(node) {
			p.behind.Insert(node)
			p.unfinished = true
			continue
		}
		if p.behind.Has(node) {
			continue
		}
		switch step := step.(type) {
		case plan.Drain:
			// The node's pods could not be looked at.
		case plan.AddClaim:
			if !step.Held {
				claims = append(claims, step)
				continue
			}
			p.after(node, p.claim(ctx, []plan.AddClaim{step}))
		case plan.Record:
			if p.after(node, p.note(ctx, node, step.Status)) {
				p.written[node] = step.Status
			}
		default:
			p.after(node, p.apply(ctx, step))
		}
	}
	p.takeClaims(ctx, claims)
}

// takeClaims adds claims, which only a plan made of live nodes may.
func (p *pass) takeClaims(ctx context.Context, claims []plan.AddClaim) {
	if len(claims) == 0 {
		return
	}
	var err error
	if p.fresh == nil {
		err = p.claim(ctx, claims)
	}
	for _, claim := range claims {
		if p.fresh != nil {
			p.behind.Insert(claim.Node)
			p.unfinished = true
			continue
		}
		p.after(claim.Node, err)
	}
}

// after holds a node back whose step was not taken, and tells whether it was. That somebody else was faster is nothing
// to report.
func (p *pass) after(node string, err error) bool {
	switch {
	case err == nil:
		return true
	case apierrors.IsConflict(err), apierrors.IsNotFound(err), apierrors.IsAlreadyExists(err):
		p.behind.Insert(node)
		p.unfinished = true
	default:
		p.failed(node, err)
	}
	return false
}

func (p *pass) failed(node string, err error) {
	p.behind.Insert(node)
	if !slices.ContainsFunc(p.errs, func(known error) bool { return known.Error() == err.Error() }) {
		p.errs = append(p.errs, err)
	}
}

// notes writes status.rollout where it says something new: of nodes that are out of service at once, of the others a few
// in each pass, so that a thousand that wait do not keep the next step waiting.
func (p *pass) notes(ctx context.Context, snapshot plan.Snapshot, next plan.Plan) {
	before := make(map[string]v1alpha1.RolloutStatus, len(snapshot.Nodes))
	for i := range snapshot.Nodes {
		if client := snapshot.Nodes[i].Client; client != nil && client.Status.Rollout != nil {
			before[snapshot.Nodes[i].Name] = *client.Status.Rollout
		}
	}
	maps.Copy(before, p.written)
	var inService []string
	for _, node := range slices.Sorted(maps.Keys(next.Rollout)) {
		status := next.Rollout[node]
		switch {
		case p.behind.Has(node) || plan.SameStatus(before[node], status):
		case slices.Contains(phasesInService, status.Phase):
			inService = append(inService, node)
		default:
			p.after(node, p.note(ctx, node, status))
		}
	}
	for _, node := range inService[:min(len(inService), maxNotes)] {
		p.after(node, p.note(ctx, node, next.Rollout[node]))
	}
	p.unfinished = p.unfinished || len(inService) > maxNotes
}
