package rollout

import (
	_ "embed"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/storageclient/operator/controllers/internal/agentpod"
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
}

var leavingMarks = func() (out []leavingMark) {
	if err := yaml.Unmarshal(leavingYAML, &out); err != nil {
		panic(err) // It is part of the program.
	}
	return out
}()

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

// unavailableSince returns the time since which a node has been out of service. If the Node does not show it, it is the time at which this process
// first saw it.
func (s *scope) unavailableSince(node *corev1.Node, mark leaving) *time.Time {
	if mark.key == "" || mark.inService {
		delete(s.leavingSince, node.UID)
	}
	if node.DeletionTimestamp != nil {
		return &node.DeletionTimestamp.Time
	}
	if !agentpod.IsNodeReady(node) {
		if start := agentpod.ReadySince(node); !start.IsZero() {
			return &start
		}
		return &node.CreationTimestamp.Time
	}
	for i := range node.Spec.Taints {
		if taint := &node.Spec.Taints[i]; taint.Key == corev1.TaintNodeUnschedulable && taint.TimeAdded != nil {
			return &taint.TimeAdded.Time
		}
	}
	switch seen, known := s.leavingSince[node.UID]; {
	case mark.key == "" || mark.inService:
		return nil
	case mark.time != nil:
		return mark.time
	case known:
		return &seen
	}
	now := s.Clock.Now()
	s.leavingSince[node.UID] = now
	return &now
}
