package overview

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/standing"
)

// Difference is a setting whose value on a node differs from the value that a profile declares.
type Difference struct {
	Key string `json:"key"`
	// Desired is the declared value. It is empty for a setting that the profile no longer declares: OnRemoval is then the policy for its removal.
	Desired   string                  `json:"wanted"`
	OnRemoval v1alpha1.DeletionPolicy `json:"onRemoval,omitempty"`
	// Effective is the current value, as in SettingChange. It is empty, and Read is false, if the node does not report it.
	Effective   string                 `json:"inForce"`
	Read        bool                   `json:"read"`
	TakesEffect v1alpha1.SettingEffect `json:"takesEffect"`
	// State and Message come from the agent's report. State is empty if the report is about another desired value. Without a current value, Message
	// is the reason.
	State   v1alpha1.SettingState `json:"state,omitempty"`
	Message string                `json:"message,omitempty"`
}

// DiffGroup contains nodes with the same differences.
type DiffGroup struct {
	// Nodes are sorted.
	Nodes    []string     `json:"nodes"`
	Settings []Difference `json:"settings"`
}

// Diff compares the settings that a profile declares for its nodes with the current values.
type Diff struct {
	// Refused is the reason why the profile may not be applied, empty if it may.
	Refused string      `json:"refused,omitempty"`
	Groups  []DiffGroup `json:"groups,omitempty"`
	// Same are the nodes that have all values that the profile declares, sorted.
	Same []string `json:"same,omitempty"`
}

// DiffNodes compares a profile with its nodes, whether or not the profile is active. It covers the settings that come from the profile, including
// settings in node specs that the profile no longer declares. The group with the most nodes comes first.
func DiffNodes(profile *v1alpha1.StorageClientProfile, c Cluster) Diff {
	preview := Plan(profile, c)
	if preview.Refused != "" {
		return Diff{Refused: preview.Refused}
	}
	wanted := map[string][]v1alpha1.NodeSetting{}
	for _, g := range preview.Groups {
		for _, node := range g.Nodes {
			wanted[node] = g.Settings
		}
	}
	var out Diff
	for _, m := range membersOf(profile, c) {
		differences := differencesOn(m, profile.Name, wanted[m.node.Name])
		if len(differences) == 0 {
			out.Same = append(out.Same, m.node.Name)
			continue
		}
		isSame := func(g DiffGroup) bool { return slices.Equal(g.Settings, differences) }
		group := lists.FindOrAdd(&out.Groups, isSame, DiffGroup{Settings: differences})
		group.Nodes = append(group.Nodes, m.node.Name)
	}
	slices.SortStableFunc(out.Groups, func(a, b DiffGroup) int { return cmp.Compare(len(b.Nodes), len(a.Nodes)) })
	return out
}

func differencesOn(m member, profile string, wanted []v1alpha1.NodeSetting) []Difference {
	var out []Difference
	declared := map[string]bool{}
	for _, s := range wanted {
		declared[s.Key] = true
		status, _ := statusIn(m.clientNode, s.Key)
		isEffective := standing.Of(status, false) == standing.Effective && (status.Desired == s.Value || status.Observed == s.Value)
		if s.Profile == profile && !isEffective {
			out = append(out, differenceOf(s, status, m))
		}
	}
	for _, s := range ptr.Deref(m.clientNode, v1alpha1.StorageClientNode{}).Spec.Settings {
		if s.Profile == profile && !declared[s.Key] {
			d := differenceOf(s, v1alpha1.SettingStatus{}, m)
			d.Desired, d.OnRemoval = "", s.OnRemoval
			out = append(out, d)
		}
	}
	slices.SortFunc(out, func(a, b Difference) int { return strings.Compare(a.Key, b.Key) })
	return out
}

func differenceOf(s v1alpha1.NodeSetting, status v1alpha1.SettingStatus, m member) Difference {
	d := Difference{Key: s.Key, Desired: s.Value, TakesEffect: catalogue.Effect(s.Key)}
	d.Effective, d.Message = currentValue(s.Key, m.node, m.clientNode)
	d.Read = d.Message == ""
	if status.Key != "" && status.Desired == s.Value {
		d.State, d.Message = status.State, cmp.Or(status.Message, d.Message)
	}
	return d
}
