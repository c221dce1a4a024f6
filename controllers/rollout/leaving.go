package rollout

import (
	"cmp"
	_ "embed"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/controllers/internal/agentpod"
	"github.com/storageclient/operator/controllers/rollout/plan"
	"github.com/storageclient/operator/tuning/embedded"
	"github.com/storageclient/operator/tuning/lists"
)

//go:embed leaving.yaml
var leavingYAML []byte

// leavingMark is a mark by which others announce that a node will be removed: a taint, an annotation, a label or a condition.
type leavingMark struct {
	Taint, Annotation, Label, Condition string
	// Value is the value with this meaning; empty: any value.
	Value string
	// InService is true if the node still serves.
	InService bool
	Source    string
}

var leavingMarks = embedded.Parse[[]leavingMark]("marks of leaving nodes", leavingYAML)

// leaving describes the mark of a node, zero if it has none.
type leaving struct {
	// key is the key of a taint; for other marks, their kind and key.
	key       string
	inService bool
	// time is the time of the mark, nil if the Node does not show it.
	time *time.Time
}

// leavingOf finds the mark by which others announce the removal of a node. Additional marks are a key, or key=value, of taints, annotations and
// labels. It ignores the taint that the operator itself removes, even if a user configured one of these keys for it.
func leavingOf(node *corev1.Node, untunedTaint string, additional []string) leaving {
	marks := leavingMarks
	for _, mark := range additional {
		key, value, _ := strings.Cut(mark, "=")
		ofUser := []leavingMark{{Taint: key, Value: value}, {Annotation: key, Value: value}, {Label: key, Value: value}}
		marks = append(slices.Clip(marks), ofUser...)
	}
	for i := range marks {
		if found := marks[i].find(node, untunedTaint); found.key != "" {
			found.inService = marks[i].InService
			return found
		}
	}
	return leaving{}
}

func (m *leavingMark) find(node *corev1.Node, untunedTaint string) leaving {
	for i := range node.Spec.Taints {
		if t := &node.Spec.Taints[i]; m.Taint == t.Key && (m.Value == "" || m.Value == t.Value) && t.Key != untunedTaint {
			return leaving{key: t.Key, time: timeOfTaint(t)}
		}
	}
	if m.Taint != "" {
		return leaving{}
	}
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; m.Condition == string(c.Type) && c.Status == corev1.ConditionTrue {
			return leaving{key: "condition " + m.Condition, time: &c.LastTransitionTime.Time}
		}
	}
	if value, found := node.Annotations[m.Annotation]; found && (m.Value == "" || m.Value == value) {
		return leaving{key: "annotation " + m.Annotation}
	}
	if value, found := node.Labels[m.Label]; found && (m.Value == "" || m.Value == value) {
		return leaving{key: "label " + m.Label}
	}
	return leaving{}
}

const taintOfAutoscaler = "ToBeDeletedByClusterAutoscaler"

// timeOfTaint returns the time at which a taint was set. The Cluster Autoscaler writes it into the value of its taint, in seconds.
func timeOfTaint(t *corev1.Taint) *time.Time {
	if t.TimeAdded != nil {
		return &t.TimeAdded.Time
	}
	if seconds, err := strconv.ParseInt(t.Value, 10, 64); err == nil && seconds > 0 && t.Key == taintOfAutoscaler {
		return new(time.Unix(seconds, 0))
	}
	return nil
}

// sight records a state of a node. A change that this process sees began between two passes. For the first state that it sees, another clock has
// reported the time, which may differ from the API server's by plan.MaxSkew.
func (p *pass) sight(node *corev1.Node, aspect string, state sightedState, reported time.Time) *sighting {
	key, now := sightingKey{node.UID, aspect}, p.Clock.Now()
	current := p.sightings[key]
	switch {
	case current != nil && current.state == state:
	case current != nil && current.former != nil && current.former.state == state && !reported.IsZero():
		return current.former // a cache that is behind
	case current != nil:
		current.former = nil
		current = &sighting{state: state, earliest: current.seen, latest: now, former: current}
	case reported.IsZero():
		current = &sighting{state: state, latest: now}
	default:
		current = &sighting{state: state, earliest: reported.Add(-plan.MaxSkew), latest: reported.Add(plan.MaxSkew)}
		if current.latest.After(now) {
			current.latest = now
		}
	}
	p.sightings[key], current.seen = current, now
	return current
}

// sightReady records the condition Ready. A node that is Ready was out before, from the start of its former state or since it was last seen Ready.
func (p *pass) sightReady(node *corev1.Node) *sighting {
	reported, isReady := agentpod.ReadySince(node), agentpod.IsNodeReady(node)
	current := p.sight(node, "Ready", sightedState{strconv.FormatBool(isReady), reported.Unix()}, reported)
	if !isReady {
		current.out = current.earliest
	} else if current.former != nil && current.out.IsZero() {
		current.out = cmp.Or(current.former.out, current.earliest)
	}
	return current
}

// readySince returns the latest time since which the Node has had its condition Ready with this status; zero without the condition.
func (p *pass) readySince(node *corev1.Node) time.Time {
	if agentpod.ReadySince(node).IsZero() {
		return time.Time{}
	}
	return p.sightReady(node).latest
}

// unavailableSince returns the time since which a node has been out of service; nil if it is in service, or only cordoned by a client that
// records no time.
func (p *pass) unavailableSince(node *corev1.Node, mark leaving) *time.Time {
	readySince := p.sightReady(node).latest
	cordon, cordonedAt := sightedState{}, time.Time{}
	for i := range node.Spec.Taints {
		if taint := &node.Spec.Taints[i]; taint.Key == corev1.TaintNodeUnschedulable && taint.TimeAdded != nil {
			cordon, cordonedAt = sightedState{"cordoned", taint.TimeAdded.Unix()}, taint.TimeAdded.Time
		}
	}
	cordoned := p.sight(node, "cordoned", cordon, cordonedAt)
	marked, markedAt := mark.key, ptr.Deref(mark.time, time.Time{})
	if mark.inService {
		marked = ""
	}
	sinceMark := p.sight(node, "marked", sightedState{text: marked}, markedAt)
	maintainedState, maintainedAt := sightedState{}, time.Time{}
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Type == corev1.NodeMaintenanceInProgress && maintainerOf(node) != "" {
			maintainedState, maintainedAt = sightedState{"maintained", c.LastTransitionTime.Unix()}, c.LastTransitionTime.Time
		}
	}
	maintained := p.sight(node, "maintained", maintainedState, maintainedAt)
	switch {
	case node.DeletionTimestamp != nil:
		return &node.DeletionTimestamp.Time
	case !agentpod.IsNodeReady(node) && agentpod.ReadySince(node).IsZero():
		return &node.CreationTimestamp.Time
	case !agentpod.IsNodeReady(node):
		return &readySince
	case cordon.text != "":
		return &cordoned.latest
	case marked != "":
		return &sinceMark.latest
	case maintainedState.text != "":
		return &maintained.latest
	}
	return nil
}

func (p *pass) forgetSightings() {
	known := sets.New(lists.Each(slices.Collect(maps.Values(p.nodes)), (*corev1.Node).GetUID)...)
	isGone := func(name string, _ time.Time) bool { return p.nodes[name] == nil }
	maps.DeleteFunc(p.applying, isGone)
	maps.DeleteFunc(p.behind, isGone)
	maps.DeleteFunc(p.sightings, func(key sightingKey, _ *sighting) bool { return !known.Has(key.node) })
}
