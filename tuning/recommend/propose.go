package recommend

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/advice"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/mountoptions"
	"github.com/storageclient/operator/tuning/text"
)

// Target is the volume for which a change is proposed.
type Target struct {
	// Profile contains the rule that selects the volume. Nil if there is none.
	Profile *v1alpha1.StorageClientProfile
	Rule    string
	// Protocol is the family of the mount options.
	Protocol mountoptions.Protocol
	// Name, Selector and Priority are for a new profile with a rule for the volume.
	Name     string
	Selector v1alpha1.VolumeSelector
	Priority int32
	// Hostnames are the hostname labels of the nodes that mount the volume. Nodes are the known facts about these nodes.
	Hostnames []string
	Nodes     []advice.Node
}

// Proposal is the proposed change to profiles.
type Proposal struct {
	// Profiles are complete profiles that can be applied: the changed profile that selects the volume, and a new profile.
	Profiles []v1alpha1.StorageClientProfile `json:"profiles,omitempty"`
	// Changes describe the changes in Profiles.
	Changes []string `json:"changes,omitempty"`
	// LeftOut describes changes that would help but are not proposed, with the reason.
	LeftOut []string `json:"leftOut,omitempty"`
	// Advice is the advice on Profiles, by name. It includes the known problems of the nodes.
	Advice map[string][]v1alpha1.Advice `json:"advice,omitempty"`
}

// Propose converts the findings of all mounts of one volume to profiles.
func Propose(t Target, findings []Finding) Proposal {
	var p Proposal
	proposed := p.combine(findings)
	if t.Profile != nil && (len(proposed.MountOptions) > 0 || proposed.ReadAheadKiB > 0) {
		p.changeRule(t, proposed)
		proposed.MountOptions, proposed.ReadAheadKiB = nil, 0
	}
	if len(proposed.MountOptions) > 0 || proposed.ReadAheadKiB > 0 || proposed.Node != nil {
		p.addProfile(t, proposed)
	}
	p.Advice = lists.Map(lists.Pointers(p.Profiles), func(profile *v1alpha1.StorageClientProfile) (string, []v1alpha1.Advice) {
		return profile.Name, advice.For(advice.Input{Profile: profile, Nodes: t.Nodes})
	})
	return p
}

// combine combines all findings into one change. The mounts of a volume share its options, so conflicting values are left out.
func (p *Proposal) combine(findings []Finding) (all Change) {
	isDisputed := false
	for _, f := range findings {
		if f.ByHand {
			p.leaveOut(fmt.Sprintf("[%s] (%s): %s", strings.Join(f.Change.Texts(), ", "), f.Rule, f.Against))
			isDisputed = isDisputed || f.Change.ReadAheadKiB > 0
		}
		if isByHand(findings, f.Rule) {
			continue
		}
		all.MountOptions = lists.AddMissing(all.MountOptions, f.Change.MountOptions...)
		all.ReadAheadKiB = max(all.ReadAheadKiB, f.Change.ReadAheadKiB)
		all.Node = joinNodes(all.Node, f.Change.Node)
	}
	if isDisputed && all.ReadAheadKiB > 0 {
		p.leaveOut("readAheadKiB: some mounts of the volume read ahead too much and others too little, and they share one value")
		all.ReadAheadKiB = 0
	}
	return all
}

func (p *Proposal) leaveOut(reason string) { p.LeftOut = lists.AddMissing(p.LeftOut, reason) }

// joinNodes merges two sets of node settings. All findings of a rule propose the same values.
func joinNodes(a, b *v1alpha1.NodeTuning) *v1alpha1.NodeTuning {
	if a == nil || b == nil {
		return cmp.Or(a, b).DeepCopy()
	}
	out := a.DeepCopy()
	out.NFS4UniqueID = cmp.Or(out.NFS4UniqueID, b.NFS4UniqueID)
	if len(out.Sysctls) == 0 {
		out.Sysctls = b.Sysctls
	}
	if len(out.KernelModules) == 0 {
		out.KernelModules = b.KernelModules
	}
	return out
}

// changeRule adds volume settings to the rule that selects the volume.
func (p *Proposal) changeRule(t Target, proposed Change) {
	changed := newProfile(t.Profile.Name)
	changed.Labels, changed.Spec = t.Profile.Labels, *t.Profile.Spec.DeepCopy()
	i := slices.IndexFunc(changed.Spec.Volumes, func(r v1alpha1.VolumeRule) bool { return r.Name == t.Rule })
	if i < 0 {
		return
	}
	rule, change := &changed.Spec.Volumes[i], Change{MountOptions: proposed.MountOptions, ReadAheadKiB: proposed.ReadAheadKiB}
	if chosen := chosenOptions(optionTexts(rule.MountOptions)); len(chosen) > 0 {
		p.leaveOut(fmt.Sprintf("[%s]: find out first why rule %s has %s", strings.Join(change.Texts(), ", "), t.Rule, strings.Join(chosen, ", ")))
		return
	}
	prefix := fmt.Sprintf("profile %s, rule %s: ", t.Profile.Name, t.Rule)
	if len(proposed.MountOptions) > 0 {
		rule.MountOptions = joinOptions(t.Protocol, proposed.MountOptions, rule.MountOptions)
		p.Changes = append(p.Changes, prefix+"mountOptions ["+strings.Join(optionTexts(proposed.MountOptions), ", ")+"]")
		if rule.OnConflict == "" || rule.OnConflict == v1alpha1.ConflictKeepVolume {
			p.Changes = append(p.Changes, prefix+"onConflict stays KeepVolume, so a volume with another value keeps it")
		}
	}
	if proposed.ReadAheadKiB > 0 {
		rule.ReadAheadKiB = &proposed.ReadAheadKiB
		p.Changes = append(p.Changes, fmt.Sprintf("%sreadAheadKiB %d", prefix, proposed.ReadAheadKiB))
	}
	p.Changes = append(p.Changes, prefix+"all volumes that it selects get the same changes")
	p.Profiles = append(p.Profiles, changed)
}

// joinOptions puts new options before the existing options of a rule and removes their old values. It raises cache times of attributes, and
// keeps longer cache times.
func joinOptions(p mountoptions.Protocol, add, existing []v1alpha1.MountOption) []v1alpha1.MountOption {
	if proposed := timersOf(optionTexts(add)); len(proposed) > 0 {
		timers := timersOf(optionTexts(existing))
		for name := range proposed {
			timers[name] += 0
		}
		add = slices.DeleteFunc(slices.Clone(add), func(o v1alpha1.MountOption) bool { return len(timersOf([]string{string(o)})) > 0 })
		add = append(raised(timers), add...)
	}
	return asOptions(p.Join(optionTexts(add), optionTexts(existing)).Options)
}

// addProfile adds a profile for settings that no existing profile declares for the volume or its nodes.
func (p *Proposal) addProfile(t Target, proposed Change) {
	added := newProfile(t.Name)
	added.Spec.Priority, added.Spec.Node = t.Priority, proposed.Node
	added.Spec.NodeSelector.MatchExpressions = []metav1.LabelSelectorRequirement{
		{Key: "kubernetes.io/hostname", Operator: metav1.LabelSelectorOpIn, Values: slices.Clone(t.Hostnames)},
	}
	if len(proposed.MountOptions) > 0 || proposed.ReadAheadKiB > 0 {
		rule := v1alpha1.VolumeRule{Name: "recommended", Selector: t.Selector, MountOptions: proposed.MountOptions}
		if len(proposed.MountOptions) > 0 {
			// The findings are about the current options of the volume, so the profile replaces them.
			rule.OnConflict = v1alpha1.ConflictUseProfile
		}
		if proposed.ReadAheadKiB > 0 {
			rule.ReadAheadKiB = &proposed.ReadAheadKiB
		}
		added.Spec.Volumes = []v1alpha1.VolumeRule{rule}
	}
	p.Changes = append(p.Changes, "profile "+t.Name+" is new")
	if proposed.Node != nil {
		p.Changes = append(p.Changes, "profile "+t.Name+": spec.node applies to "+text.List(t.Hostnames)+
			", where the volume is mounted; set a nodeSelector for the whole pool if other nodes need it")
	}
	p.Profiles = append(p.Profiles, added)
}

func newProfile(name string) v1alpha1.StorageClientProfile {
	return v1alpha1.StorageClientProfile{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "StorageClientProfile"}, ObjectMeta: metav1.ObjectMeta{Name: name},
	}
}

func asOptions(texts []string) []v1alpha1.MountOption {
	return lists.Each(texts, func(o string) v1alpha1.MountOption { return v1alpha1.MountOption(o) })
}

func optionTexts(options []v1alpha1.MountOption) []string {
	return lists.Each(options, func(o v1alpha1.MountOption) string { return string(o) })
}
