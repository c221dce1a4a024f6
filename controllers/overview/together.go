package overview

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/fleet"
	"github.com/storageclient/operator/controllers/internal/match"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/nodesettings"
	"github.com/storageclient/operator/tuning/text"
)

// SettingChange is a setting whose desired value on a node will change.
type SettingChange struct {
	Key string `json:"key"`
	// Old is the value in the current node spec, New the value in the new one; nil if the setting is absent. A kernel argument may have an empty
	// value.
	Old *string `json:"old"`
	New *string `json:"new"`
	// Effective is the value that the node reports: "not set" without one, "set" for a kernel argument without a value. It is empty if the node does
	// not report it; Unknown is then the reason.
	Effective string `json:"effective,omitempty"`
	Unknown   string `json:"unknown,omitempty"`
	// Profile is the source of the new value, or of the old value if there is no new one.
	Profile string `json:"profile"`
	// TakesEffect is the time at which a new value takes effect.
	TakesEffect v1alpha1.SettingEffect `json:"takesEffect"`
	// OnRemoval is the policy for a later removal of the setting; for a setting that is removed now, the policy that applies now.
	OnRemoval v1alpha1.DeletionPolicy `json:"onRemoval"`
}

// NodeChange contains nodes whose settings change in the same way.
type NodeChange struct {
	// Nodes are sorted.
	Nodes    []string        `json:"nodes"`
	Settings []SettingChange `json:"settings"`
}

// JointReboot is a node that would reboot, with its profiles.
type JointReboot struct {
	Reboot
	// Profiles are the profiles that need the boot, by descending priority: the drain options of the first one apply.
	Profiles []string `json:"profiles"`
}

// Dispute is a key about which profiles of equal priority disagree, with its nodes.
type Dispute struct {
	// Text names key, values and profiles.
	Text string `json:"text"`
	// Nodes are sorted.
	Nodes []string `json:"nodes"`
}

// Share is the part of one profile in the joint plan of several.
type Share struct {
	Profile string `json:"profile"`
	// Refused is the reason why the profile may not be applied, empty if it may.
	Refused string `json:"refused,omitempty"`
	// Matched is the number of nodes that the profile selects. Changed is the number of nodes whose settings it changes. Rebooted is the number of
	// nodes that reboot for it.
	Matched  int `json:"matched"`
	Changed  int `json:"changed"`
	Rebooted int `json:"rebooted"`
	// Earliest and EstimatedCompletion are the times of its reboots, see ForecastReboots.
	Earliest            *metav1.Time `json:"earliest,omitempty"`
	EstimatedCompletion *metav1.Time `json:"estimatedCompletion,omitempty"`
	// PlanHash is the hash that an approval must name; Approved is true if the plan is already approved.
	PlanHash string `json:"planHash,omitempty"`
	Approved bool   `json:"approved,omitempty"`
}

// Together contains the joint changes of several profiles to the nodes.
type Together struct {
	// Shares are in the order of the requested names.
	Shares []Share `json:"profiles"`
	// Changes are sorted by the number of their nodes, the largest first.
	Changes []NodeChange `json:"changes,omitempty"`
	// Reboots are sorted by the requested profile that selects the node, the highest priority first, then by the order of its rollout.
	Reboots []JointReboot `json:"reboots,omitempty"`
	// NotRebooted are nodes that lack a setting which requires a reboot, but that the rollout does not reboot for it; Held is the reason.
	NotRebooted []JointReboot `json:"notRebooted,omitempty"`
	// Conflicts are the conflicts in which the profiles take part, including conflicts with other profiles in the cluster.
	Conflicts []Dispute `json:"conflicts,omitempty"`
	// AtOnce is the number of nodes that the cluster's budget allows at a time.
	AtOnce int `json:"atOnce"`
	// EstimatedCompletion is the earliest time at which all reboots can be done. It is based on each profile's time and on the cluster's budget. Nil
	// if unknown.
	EstimatedCompletion *metav1.Time `json:"estimatedCompletion,omitempty"`
}

// PlanTogether returns the joint changes of the named profiles to the nodes, even if these profiles are in mode Plan or paused. The other profiles
// in c apply as well. It compares the current node specs with the new ones, and omits changes by other profiles.
func PlanTogether(names []string, c Cluster) Together {
	t := &together{
		Cluster:   c,
		all:       ActingTogether(names, c.Profiles),
		requested: map[string]*v1alpha1.StorageClientProfile{},
		shares:    map[string]*Share{},
		groups:    map[string]int{},
		turns:     map[string][]match.Turn{},
		reboots:   map[string]JointReboot{},
	}
	for i := range t.all {
		if p := &t.all[i]; slices.Contains(names, p.Name) {
			t.addProfile(p)
		}
	}
	t.view = fleet.NewProfileSet(t.all, c.Allow)
	clientNodes := c.clientNodes()
	t.nodes = lists.Pointers(c.Nodes)
	slices.SortFunc(t.nodes, func(a, b *corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	for _, node := range t.nodes {
		t.addNode(node, clientNodes[node.Name])
	}
	return t.result(names)
}

type together struct {
	Cluster
	// nodes are the nodes of the cluster by name.
	nodes []*corev1.Node
	all   []v1alpha1.StorageClientProfile
	view  *fleet.ProfileSet
	// requested are the requested profiles that may be applied.
	requested map[string]*v1alpha1.StorageClientProfile
	shares    map[string]*Share
	changes   []NodeChange
	// groups maps the content of a change to its index in changes.
	groups   map[string]int
	disputes []Dispute
	// turns are the places of each profile's nodes in the order of its rollout; reboots are the nodes that are due, by name.
	turns   map[string][]match.Turn
	reboots map[string]JointReboot
}

// ActingTogether returns all profiles, and the named ones as Acting returns them.
func ActingTogether(names []string, all []v1alpha1.StorageClientProfile) []v1alpha1.StorageClientProfile {
	out := slices.Clone(all)
	for i := range out {
		if slices.Contains(names, out[i].Name) {
			out[i] = Acting(&out[i])
		}
	}
	return out
}

func (t *together) addProfile(p *v1alpha1.StorageClientProfile) {
	share := &Share{Profile: p.Name, PlanHash: nodesettings.PlanHash(p), Approved: fleet.IsPlanApproved(p)}
	t.shares[p.Name] = share
	if reason, message := match.Check(p, t.Allow); reason != "" {
		share.Refused = reason + ": " + message
		return
	}
	t.requested[p.Name] = p
}

func (t *together) addNode(node *corev1.Node, clientNode *v1alpha1.StorageClientNode) {
	if match.IsIgnored(node) {
		return
	}
	wanted := t.view.Desired(node, clientNode)
	requested := slices.DeleteFunc(slices.Clone(wanted.Profiles), func(name string) bool { return t.requested[name] == nil })
	for _, name := range requested {
		t.shares[name].Matched++
		t.turns[name] = append(t.turns[name], TurnOf(node, wanted.BootHash, t.ManagerNode))
	}
	changes := t.changesOf(ptr.Deref(clientNode, v1alpha1.StorageClientNode{}).Spec.Settings, wanted.Settings)
	for i := range changes {
		changes[i].Effective, changes[i].Unknown = currentValue(changes[i].Key, node, clientNode)
	}
	t.addChange(node.Name, changes)
	for _, c := range wanted.Conflicts {
		if slices.ContainsFunc(c.Profiles, func(name string) bool { return t.requested[name] != nil }) {
			about := disputeText(c)
			dispute := lists.FindOrAdd(&t.disputes, func(d Dispute) bool { return d.Text == about }, Dispute{Text: about})
			dispute.Nodes = append(dispute.Nodes, node.Name)
		}
	}
	t.addReboot(node, clientNode, wanted)
}

// changesOf returns the changes from the current to the new settings of a node in which the requested profiles take part, sorted by key.
func (t *together) changesOf(current, wanted []v1alpha1.NodeSetting) []SettingChange {
	old, next := byKey(current), byKey(wanted)
	latest := maps.Clone(old)
	maps.Copy(latest, next)
	var out []SettingChange
	for _, key := range slices.Sorted(maps.Keys(latest)) {
		before, exists := old[key]
		after, stays := next[key]
		isSame := exists && stays && before.Value == after.Value && before.OnRemoval == after.OnRemoval
		if isSame || t.requested[before.Profile] == nil && t.requested[after.Profile] == nil {
			continue
		}
		change := SettingChange{Key: key, Profile: latest[key].Profile, TakesEffect: catalogue.Effect(key), OnRemoval: latest[key].OnRemoval}
		if exists {
			change.Old = &before.Value
		}
		if stays {
			change.New = &after.Value
		} else {
			// The policy of a removed setting is in the journal of the agent.
			change.OnRemoval = cmp.Or(before.OnRemoval, v1alpha1.DeletionRestore)
		}
		out = append(out, change)
	}
	return out
}

func byKey(settings []v1alpha1.NodeSetting) map[string]v1alpha1.NodeSetting {
	return lists.Map(settings, func(s v1alpha1.NodeSetting) (string, v1alpha1.NodeSetting) { return s.Key, s })
}

func (t *together) addChange(node string, settings []SettingChange) {
	if len(settings) == 0 {
		return
	}
	for name := range sets.New(lists.Each(settings, func(s SettingChange) string { return s.Profile })...) {
		if share := t.shares[name]; share != nil {
			share.Changed++
		}
	}
	key := text.JSON(settings)
	if i, found := t.groups[key]; found {
		t.changes[i].Nodes = append(t.changes[i].Nodes, node)
		return
	}
	t.groups[key] = len(t.changes)
	t.changes = append(t.changes, NodeChange{Nodes: []string{node}, Settings: settings})
}

func disputeText(c nodesettings.Conflict) string {
	return fmt.Sprintf("%s: %s (%s)", c.Key, strings.Join(c.Values, " against "), strings.Join(c.Profiles, ", "))
}

// addReboot records a node that must boot for a requested profile. It includes the needs of other profiles, because one boot serves all of them.
func (t *together) addReboot(node *corev1.Node, clientNode *v1alpha1.StorageClientNode, wanted fleet.Desired) {
	var joint JointReboot
	isRequested := false
	never := ""
	for _, name := range t.sourcesOf(clientNode, wanted.Settings) {
		reboot, isDue := RebootOf(t.view.ByName(name).StorageClientProfile, node, t.nodes, wanted.Result, clientNode)
		if !isDue {
			continue
		}
		reboot.Reasons = slices.Concat(joint.Reasons, reboot.Reasons)
		joint.Reboot, joint.Profiles = reboot, append(joint.Profiles, name)
		isRequested = isRequested || t.requested[name] != nil
		if t.rolloutOf(name).Reboot.Policy == v1alpha1.RebootNever {
			never = name
		}
	}
	if !isRequested {
		return
	}
	if never != "" && !joint.Refused {
		joint.Refused, joint.Held = true, fmt.Sprintf("profile %s has reboot policy Never; staged until the node reboots", never)
	}
	t.reboots[node.Name] = joint
}

// sourcesOf returns the profiles in the current or the new settings of a node, by descending priority. If the priority is equal, the longest drain
// comes first, as in the rollout.
func (t *together) sourcesOf(clientNode *v1alpha1.StorageClientNode, wanted []v1alpha1.NodeSetting) []string {
	names := map[string]bool{}
	if clientNode != nil {
		wanted = slices.Concat(wanted, clientNode.Spec.Settings)
	}
	for _, s := range wanted {
		if t.view.ByName(s.Profile) != nil {
			names[s.Profile] = true
		}
	}
	return slices.SortedFunc(maps.Keys(names), func(a, b string) int {
		return cmp.Or(
			cmp.Compare(t.priorityOf(b), t.priorityOf(a)),
			cmp.Compare(ptr.Deref(t.rolloutOf(b).Drain.TimeoutSeconds, 0), ptr.Deref(t.rolloutOf(a).Drain.TimeoutSeconds, 0)),
			strings.Compare(a, b),
		)
	})
}

func (t *together) priorityOf(name string) int32 { return t.view.ByName(name).Spec.Priority }

func (t *together) rolloutOf(name string) v1alpha1.Rollout {
	return t.view.ByName(name).Spec.WithDefaults().Rollout
}

func (t *together) result(names []string) Together {
	out := Together{Changes: t.changes, Conflicts: t.disputes, AtOnce: v1alpha1.ResolveShare(t.MaxUnavailable, len(t.Nodes))}
	slices.SortStableFunc(out.Changes, func(a, b NodeChange) int { return cmp.Compare(len(b.Nodes), len(a.Nodes)) })
	slices.SortFunc(out.Conflicts, func(a, b Dispute) int { return strings.Compare(a.Text, b.Text) })
	t.orderReboots(&out)
	last, known := t.clusterForecast(out.Reboots), true
	for _, name := range names {
		share := t.shares[name]
		if share == nil {
			continue
		}
		end := t.forecast(share)
		known = known && (share.Rebooted == 0 || !end.IsZero())
		if end.After(last) {
			last = end
		}
		out.Shares = append(out.Shares, *share)
	}
	if known {
		out.EstimatedCompletion = WhenKnown(last)
	}
	return out
}

// orderReboots lists each node once, under the first requested profile that selects it, in the order of that profile's rollout.
func (t *together) orderReboots(out *Together) {
	leading := slices.SortedFunc(maps.Keys(t.turns), func(a, b string) int {
		return cmp.Or(cmp.Compare(t.priorityOf(b), t.priorityOf(a)), strings.Compare(a, b))
	})
	for _, name := range leading {
		for i := range t.turns[name] {
			turn := &t.turns[name][i]
			turn.Blocked = turn.Blocked || t.reboots[turn.Name].Refused
		}
		for _, turn := range match.InTurn(t.turns[name], *t.rolloutOf(name).Canary) {
			t.listReboot(turn.Name, out)
		}
	}
	// Nodes that the requested profiles no longer select boot to remove their old settings.
	for _, node := range slices.Sorted(maps.Keys(t.reboots)) {
		t.listReboot(node, out)
	}
}

func (t *together) listReboot(node string, out *Together) {
	reboot, isDue := t.reboots[node]
	if !isDue {
		return
	}
	delete(t.reboots, node)
	if reboot.Refused {
		out.NotRebooted = append(out.NotRebooted, reboot)
		return
	}
	out.Reboots = append(out.Reboots, reboot)
	for _, name := range reboot.Profiles {
		if share := t.shares[name]; share != nil && reboot.Held == "" {
			share.Rebooted++
		}
	}
}

// forecast sets the times of a profile's reboots, and returns the end; zero if there are no reboots or the end is unknown.
func (t *together) forecast(share *Share) time.Time {
	p := t.requested[share.Profile]
	if p == nil || share.Rebooted == 0 {
		return time.Time{}
	}
	f := ForecastReboots(p, share.Rebooted, Fleet{Matched: share.Matched, All: len(t.Nodes), MaxUnavailable: t.MaxUnavailable}, t.Now)
	share.Earliest, share.EstimatedCompletion = WhenKnown(f.First), WhenKnown(f.Last)
	return f.Last
}

// clusterForecast returns the earliest time at which all reboots can be done within the cluster's budget, zero if there are none.
func (t *together) clusterForecast(reboots []JointReboot) time.Time {
	free := len(lists.Filter(reboots, func(r JointReboot) bool { return r.Held == "" }))
	unbounded := &v1alpha1.StorageClientProfile{}
	unbounded.Spec.Rollout.MaxUnavailable = ptr.To(intstr.FromString("100%"))
	unbounded.Spec.Rollout.SettleSeconds = new(int32)
	return ForecastReboots(unbounded, free, Fleet{Matched: len(t.Nodes), All: len(t.Nodes), MaxUnavailable: t.MaxUnavailable}, t.Now).Last
}
