// Package overview computes the effect of a profile on nodes for users: the current state and the planned changes. It is pure. The plugin and the
// manager share it.
package overview

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/fleet"
	"github.com/storageclient/operator/controllers/internal/match"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/standing"
)

// Cluster is a snapshot of the cluster, with the options of the manager.
type Cluster struct {
	Profiles           []v1alpha1.StorageClientProfile
	Nodes              []corev1.Node
	StorageClientNodes []v1alpha1.StorageClientNode
	// Allow is the manager's allow-list.
	Allow catalogue.AllowList
	// MaxUnavailable is the cluster's budget, as set for the manager.
	MaxUnavailable intstr.IntOrString
	// ManagerNode is the node that runs the manager's Pod, empty if there is none or it is unknown.
	ManagerNode string
	// Now is the start time of forecasts.
	Now time.Time
}

// noPhase stands for the phase of a node without a rollout note.
const noPhase = "-"

// Node is the state of one node.
type Node struct {
	Name string `json:"name"`
	// Phase, Reason and Message come from the rollout's note, or from the Node's condition Tuned if there is no note.
	Phase   string       `json:"phase"`
	Reason  string       `json:"reason,omitempty"`
	Message string       `json:"message,omitempty"`
	Since   *metav1.Time `json:"since,omitempty"`
}

// Deviation is a setting that some nodes do not have as declared.
type Deviation struct {
	Key      string                `json:"key"`
	Desired  string                `json:"desired"`
	Observed string                `json:"observed"`
	State    v1alpha1.SettingState `json:"state"`
	Message  string                `json:"message,omitempty"`
	// Nodes are sorted.
	Nodes []string `json:"nodes"`
}

// Nodes returns the nodes that a profile selects, and the nodes that still have its settings, sorted by name.
func Nodes(profile *v1alpha1.StorageClientProfile, c Cluster) []Node {
	return lists.Each(membersOf(profile, c), statusOf)
}

// Deviations returns the profile's settings that failed, drifted, are no longer staged or are exceptions, sorted by key.
func Deviations(profile *v1alpha1.StorageClientProfile, c Cluster) []Deviation {
	var out []Deviation
	for _, m := range membersOf(profile, c) {
		if m.clientNode == nil {
			continue
		}
		report := fleet.ReportOf(m.node, m.clientNode, true, profile.Name)
		keys := slices.Concat(report.Keys(standing.Failed, standing.Drifted, standing.Unstaged), report.Exceptions())
		for _, s := range m.clientNode.Status.Settings {
			if slices.Contains(keys, s.Key) {
				d := lists.FindOrAdd(&out, func(d Deviation) bool {
					return d.Key == s.Key && d.Desired == s.Desired && d.Observed == s.Observed && d.State == s.State && d.Message == s.Message
				}, Deviation{Key: s.Key, Desired: s.Desired, Observed: s.Observed, State: s.State, Message: s.Message})
				d.Nodes = append(d.Nodes, m.node.Name)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b Deviation) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.State, b.State), cmp.Compare(a.Nodes[0], b.Nodes[0]))
	})
	return out
}

type member struct {
	node       *corev1.Node
	clientNode *v1alpha1.StorageClientNode
	selected   bool
}

func (c Cluster) clientNodes() map[string]*v1alpha1.StorageClientNode {
	return lists.Map(lists.Pointers(c.StorageClientNodes), func(n *v1alpha1.StorageClientNode) (string, *v1alpha1.StorageClientNode) { return n.Name, n })
}

func membersOf(profile *v1alpha1.StorageClientProfile, c Cluster) []member {
	clientNodes := c.clientNodes()
	selector := match.SelectorOf(profile).For(c.Allow)
	var out []member
	for i := range c.Nodes {
		node := &c.Nodes[i]
		m := member{node: node, clientNode: clientNodes[node.Name], selected: selector.Matches(node) && !match.IsIgnored(node)}
		if m.selected || fleet.CarriesSettingsOf(profile.Name, m.clientNode) {
			out = append(out, m)
		}
	}
	slices.SortFunc(out, func(a, b member) int { return strings.Compare(a.node.Name, b.node.Name) })
	return out
}

// NoteText returns the text of a note, with the error of the API server if it rejected a write.
func NoteText(r *v1alpha1.RolloutStatus) string {
	if r.Refusal == "" {
		return r.Message
	}
	return fmt.Sprintf("%s [retrying: %s]", r.Message, r.Refusal)
}

func isInService(phase v1alpha1.RolloutPhase) bool {
	return phase == v1alpha1.RolloutWaiting || phase == v1alpha1.RolloutApplying || phase == v1alpha1.RolloutUpToDate
}

func statusOf(m member) Node {
	if m.clientNode != nil && m.clientNode.Status.Rollout != nil && m.clientNode.Status.Rollout.Phase != "" {
		r := m.clientNode.Status.Rollout
		if mark, err := v1alpha1.DecodeDisruption(m.node.Annotations[v1alpha1.DisruptionAnnotation]); err == nil && isInService(r.Phase) {
			// A drain that has only just started is not in the note yet.
			return Node{
				Name: m.node.Name, Phase: string(v1alpha1.RolloutDraining), Reason: v1alpha1.RolloutReasonDraining, Message: "Draining the node",
				Since: mark.Since.DeepCopy(),
			}
		}
		return Node{Name: m.node.Name, Phase: string(r.Phase), Reason: r.Reason, Message: NoteText(r), Since: r.Since}
	}
	if condition := fleet.FindTuned(m.node); condition != nil {
		return Node{Name: m.node.Name, Phase: noPhase, Reason: condition.Reason, Message: condition.Message, Since: condition.LastTransitionTime.DeepCopy()}
	}
	return Node{Name: m.node.Name, Phase: noPhase, Reason: "NotManaged"}
}
