package rollout

import (
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/controllers/internal/agentpod"
	"github.com/storageclient/operator/controllers/rollout/plan"
	"github.com/storageclient/operator/tuning/embedded"
)

//go:embed leaving.yaml
var leavingYAML []byte

// leavingMark is a mark by which others announce that a node will be removed.
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
	marks := slices.Clone(leavingMarks)
	for _, mark := range additional {
		key, value, _ := strings.Cut(mark, "=")
		marks = append(marks, leavingMark{Taint: key, Value: value}, leavingMark{Annotation: key, Value: value}, leavingMark{Label: key, Value: value})
	}
	for _, mark := range marks {
		if found := mark.find(node, untunedTaint); found.key != "" {
			found.inService = mark.InService
			return found
		}
	}
	return leaving{}
}

func (m leavingMark) find(node *corev1.Node, untunedTaint string) leaving {
	for i := range node.Spec.Taints {
		if t := &node.Spec.Taints[i]; m.Taint == t.Key && (m.Value == "" || m.Value == t.Value) && t.Key != untunedTaint {
			return leaving{key: t.Key, time: timeOfTaint(t)}
		}
	}
	for _, c := range node.Status.Conditions {
		if m.Condition == string(c.Type) && c.Status == corev1.ConditionTrue {
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
		at := time.Unix(seconds, 0)
		return &at
	}
	return nil
}

// sighting is the first sight of a state of a node, by the API server's clock.
type sighting struct {
	state string
	at    time.Time
}

// sightingKey names one of the states of a node: Ready, cordoned or marked.
type sightingKey struct {
	node   types.UID
	aspect string
}

// firstSight returns the time since which a node has had a state, by the API server's clock. It is the time at which this process first saw
// the state. If this process did not see the node before, it is the time that another clock reported plus plan.MaxSkew, if that is earlier.
func (s *scope) firstSight(node *corev1.Node, aspect, state string, reported time.Time) time.Time {
	key := sightingKey{node.UID, aspect}
	seen, isKnown := s.sightings[key]
	if isKnown && seen.state == state {
		return seen.at
	}
	seen = sighting{state, s.Clock.Now()}
	if latest := reported.Add(plan.MaxSkew); !isKnown && !reported.IsZero() && latest.Before(seen.at) {
		seen.at = latest
	}
	s.sightings[key] = seen
	return seen.at
}

// readySince returns the time since which the Node has had its condition Ready with this status; zero without the condition.
func (s *scope) readySince(node *corev1.Node) time.Time {
	reported := agentpod.ReadySince(node)
	state := fmt.Sprintf("%t since %d", agentpod.IsNodeReady(node), reported.Unix())
	if at := s.firstSight(node, "Ready", state, reported); !reported.IsZero() {
		return at
	}
	return time.Time{}
}

// unavailableSince returns the time since which a node has been out of service; nil if it is in service, or only cordoned by a client that
// records no time.
func (s *scope) unavailableSince(node *corev1.Node, mark leaving) *time.Time {
	readySince := s.readySince(node)
	cordon, cordonedAt := "", time.Time{}
	for i := range node.Spec.Taints {
		if taint := &node.Spec.Taints[i]; taint.Key == corev1.TaintNodeUnschedulable && taint.TimeAdded != nil {
			cordon, cordonedAt = "cordoned at "+taint.TimeAdded.String(), taint.TimeAdded.Time
		}
	}
	cordonedSince := s.firstSight(node, "cordoned", cordon, cordonedAt)
	marked, markedAt := mark.key, ptr.Deref(mark.time, time.Time{})
	if mark.inService {
		marked = ""
	}
	markedSince := s.firstSight(node, "marked", marked, markedAt)
	switch {
	case node.DeletionTimestamp != nil:
		return &node.DeletionTimestamp.Time
	case !agentpod.IsNodeReady(node) && readySince.IsZero():
		return &node.CreationTimestamp.Time
	case !agentpod.IsNodeReady(node):
		return &readySince
	case cordon != "":
		return &cordonedSince
	case marked != "":
		return &markedSince
	}
	return nil
}

// forgetSightings removes the sightings of Nodes that are gone.
func (s *scope) forgetSightings() {
	known := sets.New[types.UID]()
	for _, node := range s.nodes {
		known.Insert(node.UID)
	}
	maps.DeleteFunc(s.sightings, func(key sightingKey, _ sighting) bool { return !known.Has(key.node) })
}
