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
	"github.com/storageclient/operator/tuning/advice"
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
	selector := match.SelectorOf(profile, c.Allow)
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

func statusOf(m member) Node {
	if m.clientNode != nil && m.clientNode.Status.Rollout != nil && m.clientNode.Status.Rollout.Phase != "" {
		r := m.clientNode.Status.Rollout
		if mark, err := v1alpha1.DecodeDisruption(m.node.Annotations[v1alpha1.DisruptionAnnotation]); err == nil && r.Phase.IsInService() {
			// A drain that has only just started is not in the note yet.
			return Node{
				Name:    m.node.Name,
				Phase:   string(v1alpha1.RolloutDraining),
				Reason:  v1alpha1.RolloutReasonDraining,
				Message: "Draining the node",
				Since:   mark.Since.DeepCopy(),
			}
		}
		return Node{Name: m.node.Name, Phase: string(r.Phase), Reason: r.Reason, Message: NoteText(r), Since: r.Since}
	}
	if condition := fleet.FindTuned(m.node); condition != nil {
		return Node{
			Name:    m.node.Name,
			Phase:   noPhase,
			Reason:  condition.Reason,
			Message: condition.Message,
			Since:   condition.LastTransitionTime.DeepCopy(),
		}
	}
	return Node{Name: m.node.Name, Phase: noPhase, Reason: "NotManaged"}
}

// AdviceInput returns the input about a profile for the rules of package advice. It contains the selected nodes with the reports of their agents,
// the servers of the matched volumes, and the volumes that are left out.
func AdviceInput(profile *v1alpha1.StorageClientProfile, c Cluster, servers []advice.Server, leftOut []advice.LeftOut) advice.Input {
	selector := match.SelectorOf(profile, c.Allow)
	selected := lists.Filter(lists.Pointers(c.Nodes), selector.Matches)
	return AdviceAbout(profile, selected, c.clientNodes(), servers, leftOut)
}

// AdviceAbout is AdviceInput for a known list of selected nodes.
func AdviceAbout(profile *v1alpha1.StorageClientProfile, selected []*corev1.Node, clientNodes map[string]*v1alpha1.StorageClientNode,
	servers []advice.Server, leftOut []advice.LeftOut,
) advice.Input {
	in := advice.Input{Profile: profile, Servers: servers, LeftOut: leftOut}
	for _, node := range selected {
		if match.IsIgnored(node) {
			continue
		}
		// The kubelet reports MemTotal as the memory's capacity.
		known := advice.Node{Name: node.Name, Kernel: node.Status.NodeInfo.KernelVersion, Memory: node.Status.Capacity.Memory().Value()}
		if clientNode := clientNodes[node.Name]; clientNode != nil {
			status := &clientNode.Status
			known.Settings, known.Build, known.Mounts, known.Signs = status.Settings, status.KernelBuild, status.Mounts, status.Signs
		}
		in.Nodes = append(in.Nodes, known)
	}
	return in
}

// Progress is the progress of one node toward the declarations of a profile.
type Progress struct {
	Node
	// Zone is the zone of the node, empty if it has none or its Node may not be read.
	Zone string `json:"zone,omitempty"`
	// Done is true if no work is left on the node.
	Done bool `json:"done"`
}

// ProgressOf returns the nodes of a profile as Nodes does, with their zones. A node is done if the rollout's note or the Node's condition Tuned
// reports this, and the other does not contradict. The condition counts only once the agent has verified every value.
func ProgressOf(profile *v1alpha1.StorageClientProfile, c Cluster) []Progress {
	var out []Progress
	for _, m := range membersOf(profile, c) {
		s := Progress{Node: statusOf(m), Zone: m.node.Labels[corev1.LabelTopologyZone]}
		tuned := fleet.FindTuned(m.node)
		// The condition omits states that last only seconds. The agent's report shows them.
		isTuned := tuned != nil && tuned.Status == corev1.ConditionTrue &&
			(m.clientNode == nil || fleet.ReportOf(m.node, m.clientNode, true, "").IsSettled())
		switch {
		case s.Phase != string(v1alpha1.RolloutUpToDate):
			s.Done = s.Phase == noPhase && isTuned
		case tuned != nil && tuned.Status == corev1.ConditionTrue && !isTuned:
			s.Phase, s.Reason, s.Message = noPhase, v1alpha1.NodeReasonApplying, "Waiting for the agent to report the settings"
		case tuned != nil && !isTuned:
			s.Phase, s.Reason, s.Message, s.Since = noPhase, tuned.Reason, tuned.Message, tuned.LastTransitionTime.DeepCopy()
		default:
			s.Done = true
		}
		out = append(out, s)
	}
	return out
}

// NodesOf returns Nodes for StorageClientNodes, for users who may not list Nodes. The returned Nodes only have names.
func NodesOf(clientNodes []v1alpha1.StorageClientNode) []corev1.Node {
	out := make([]corev1.Node, len(clientNodes))
	for i := range clientNodes {
		out[i].Name = clientNodes[i].Name
	}
	return out
}
