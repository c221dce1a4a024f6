package plan

import (
	"maps"
	"reflect"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/lists"
)

// Session contains the data of one pass. It derives the state of each node once, and again when the node has changed. Decisions use copies.
type Session struct {
	// Snapshot is everything that was read, except the nodes. Its time is in whole seconds, as in the API.
	Snapshot
	// exactNow is Now with its fraction of a second, for values that are not written.
	exactNow time.Time
	profiles map[string]*Profile
	// retries are the retries that have not been honored, boots the failures that count, both by profile.
	retries map[string]retry
	boots   map[string][]v1alpha1.BootFailures
	// nodes are in the order of the rollout; index contains their positions.
	nodes []*nodeState
	index map[string]int
}

// NewSession derives the states of all nodes. It keeps the snapshot's nodes unchanged.
func NewSession(s Snapshot) *Session {
	out := &Session{nodes: make([]*nodeState, len(s.Nodes))}
	out.setRules(s)
	for i := range s.Nodes {
		out.nodes[i] = out.stateOf(&s.Nodes[i])
	}
	out.sortNodes()
	return out
}

// Update replaces everything that was read or written since: the nodes of the snapshot, and all other data. Nodes that the snapshot does not
// contain are derived again only if their claim, the profiles or the failures have changed.
func (s *Session) Update(news Snapshot) {
	before := s.Snapshot
	s.setRules(news)
	moved := len(news.Gone) > 0
	for i := range news.Nodes {
		n := s.stateOf(&news.Nodes[i])
		at, known := s.index[n.Name]
		if !known {
			at = len(s.nodes)
			s.nodes, s.index[n.Name] = append(s.nodes, n), at
		}
		moved = moved || !known || s.nodes[at].rolloutTurn().Compare(n.rolloutTurn()) != 0
		s.nodes[at] = n
	}
	if moved {
		s.nodes = slices.DeleteFunc(s.nodes, func(n *nodeState) bool { return slices.Contains(news.Gone, n.Name) })
		s.sortNodes()
	}
	if reflect.DeepEqual([]any{before.Profiles, before.Failures, before.UnreadFailures}, []any{s.Profiles, s.Failures, s.UnreadFailures}) {
		s.rederiveClaimed(before)
		return
	}
	for i, n := range s.nodes {
		s.nodes[i] = s.stateOf(n.Node)
	}
}

// rederiveClaimed derives the nodes whose claims have changed again.
func (s *Session) rederiveClaimed(before Snapshot) {
	for name := range sets.KeySet(before.Claims).Union(sets.KeySet(s.Claims)) {
		old, hadClaim := before.Claims[name]
		claim, hasClaim := s.Claims[name]
		if at, known := s.index[name]; known && (hadClaim != hasClaim || old.Encode() != claim.Encode()) {
			s.nodes[at] = s.stateOf(s.nodes[at].Node)
		}
	}
}

func (s *Session) setRules(news Snapshot) {
	s.exactNow = news.Now
	news.Now, news.Nodes, news.Gone = news.Now.Truncate(time.Second), nil, nil
	s.Snapshot = news
	s.profiles = lists.Map(lists.Pointers(s.Profiles), func(profile *Profile) (string, *Profile) { return profile.Name, profile })
	s.loadFailures()
}

func (s *Session) sortNodes() {
	slices.SortFunc(s.nodes, func(a, b *nodeState) int { return a.rolloutTurn().Compare(b.rolloutTurn()) })
	s.index = make(map[string]int, len(s.nodes))
	for i, n := range s.nodes {
		s.index[n.Name] = i
	}
}

func (s *Session) find(name string) *nodeState {
	if at, known := s.index[name]; known {
		return s.nodes[at]
	}
	return nil
}

// Names returns the names of the nodes for which predicate returns true.
func (s *Session) Names(predicate func(*Node) bool) sets.Set[string] {
	return sets.New(lists.Pick(s.nodes, func(n *nodeState) (string, bool) { return n.Name, predicate(n.Node) })...)
}

// Plan decides the next steps, and notes the reason for every node.
func (s *Session) Plan() Plan {
	p := newPlanner(s)
	for _, name := range slices.Sorted(maps.Keys(s.Claims)) {
		if p.find(name) == nil && !p.isLossUnrecorded(name) {
			p.addStep(ReleaseClaim{OnNode{name}})
		}
	}
	var idle []*nodeState
	for _, n := range p.states {
		switch {
		case n.isReplaced && p.isLossUnrecorded(n.Name):
			p.describeIdle(n)
		case n.isReplaced:
			// The claim was made for a former Node of the same name. The next pass may claim the new Node.
			p.addStep(ReleaseClaim{OnNode{n.Name}})
			p.describeIdle(n)
			p.wakeAt(p.Now)
		case n.isDisrupted():
			p.advance(n)
		default:
			// The node has booted since the permit, and the permit is the last trace of the disruption.
			if n.permit != nil {
				p.clearPermit(n, v1alpha1.RolloutReasonAccepted)
			}
			p.removeGuards(n)
			p.updateMaintenance(n)
			idle = append(idle, n)
		}
	}
	for _, n := range idle {
		if n.Untuned && !n.Deleting && n.isTuned() {
			p.addStep(RemoveTaint{OnNode{n.Name}})
		}
	}
	p.countNewFailures()
	p.claimNext(idle)
	p.recordFailures()
	return p.plan
}

// FirstSteps returns the first steps on nodes whose claims the API server has accepted, and their notes.
func (s *Session) FirstSteps(claimed sets.Set[string]) Plan {
	p := newPlanner(s)
	for _, n := range p.states {
		if claimed.Has(n.Name) && n.claim != nil {
			p.advance(n)
		}
	}
	return p.plan
}

// Rules are the rules that users set, and the time: all inputs that can change between a plan and a write without making the write a conflict.
type Rules struct {
	Now time.Time
	// Paused is true while the manager's namespace has the paused annotation.
	Paused   bool
	Profiles []Profile
	// DesiredBootHashes are the desired boot hashes by node, merged from the profiles.
	DesiredBootHashes map[string]string
}

// Recheck returns the reason why a planned step is no longer allowed, empty if it is. It checks pauses, modes, policies, approvals and windows
// again, and whether the boot hash of the node has changed. A node with a permit is cordoned again regardless: it may go down.
func (s *Session) Recheck(rules Rules, step Step) (reason string) {
	known := s.find(step.NodeName())
	if known == nil || known.ClientNode == nil {
		return v1alpha1.RolloutReasonNothingToDo
	}
	if _, cordon := step.(Cordon); cordon && known.permit != nil {
		return ""
	}
	current := &Session{}
	current.setRules(Snapshot{Now: rules.Now, Paused: rules.Paused, Profiles: rules.Profiles})
	n := *known
	n.need = current.needOf(&n)
	if reason, _ = current.checkStops(&n); reason != "" {
		return reason
	}
	profiles, sets := current.windowsOf(&n)
	if reason, _ = meet(sets, current.Now).obstacle(profiles); reason != "" {
		return reason
	}
	if n.changesTo(rules.DesiredBootHashes[n.Name]) {
		reason, _ = n.unknownNeedReason()
	}
	return reason
}
