package volume

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/match"
	"github.com/storageclient/operator/controllers/internal/pause"
	"github.com/storageclient/operator/tuning/catalogue"
)

// pausedAllMessage names the one pause that no profile shows.
const pausedAllMessage = "everything is paused by the annotation on the manager's namespace"

// hold says why a profile begins nothing.
type hold struct {
	// wouldAct is true where the profile itself is sound: paused, in mode Plan, or brand new.
	wouldAct bool
	message  string
}

type profile struct {
	name    string
	spec    v1alpha1.StorageClientProfileSpec
	leaving bool
	hold    *hold
	// rulesHash tells one version of the volume rules from another.
	rulesHash string
}

// rule is one volume rule of a profile, by precedence.
type rule struct {
	*v1alpha1.VolumeRule
	profile *profile
}

func (r rule) options() []string {
	options := make([]string, len(r.MountOptions))
	for i, o := range r.MountOptions {
		options[i] = string(o)
	}
	return options
}

// Profiles are all profiles of the cluster, judged once: which may act, and why the others may not. They are good for
// any number of volumes, and for one goroutine.
type Profiles struct {
	// pausedAll holds everything, also volumes whose profiles are gone.
	pausedAll bool
	// byPrecedence is sorted by descending priority, then by name.
	byPrecedence []*profile
	memory       memory
}

// Compile judges profiles. pausedAll says whether the manager's namespace carries the pause annotation.
func Compile(profiles []v1alpha1.StorageClientProfile, allow catalogue.AllowList, pausedAll bool) Profiles {
	return compile(profiles, pausedAll, func(p *v1alpha1.StorageClientProfile) *profile { return judge(p, allow) })
}

func compile(profiles []v1alpha1.StorageClientProfile, pausedAll bool, judge func(*v1alpha1.StorageClientProfile) *profile) Profiles {
	out := Profiles{pausedAll: pausedAll, memory: memory{}}
	for i := range profiles {
		out.byPrecedence = append(out.byPrecedence, judge(&profiles[i]))
	}
	slices.SortFunc(out.byPrecedence, func(a, b *profile) int {
		return cmp.Or(cmp.Compare(b.spec.Priority, a.spec.Priority), cmp.Compare(a.name, b.name))
	})
	return out
}

// judge returns what is never changed afterwards.
func judge(p *v1alpha1.StorageClientProfile, allow catalogue.AllowList) *profile {
	standing := match.StandingOf(p, allow)
	return &profile{name: p.Name, spec: p.Spec.WithDefaults(), leaving: standing == match.Leaving, hold: holdOf(p, standing, allow),
		rulesHash: hashOfRules(p.Spec.Volumes)}
}

// holdOf finds what keeps a profile from acting. One that is being deleted is only held by a pause: mode Plan or an
// invalid spec must not keep what it wrote earlier from being put back. With Retain it lets go at once.
func holdOf(p *v1alpha1.StorageClientProfile, standing match.Standing, allow catalogue.AllowList) *hold {
	if standing == match.Leaving && p.Spec.DeletionPolicy == v1alpha1.DeletionRetain {
		return nil
	}
	if pause.Profile(p) {
		return &hold{wouldAct: true, message: fmt.Sprintf("profile %s is paused", p.Name)}
	}
	if standing != match.Held {
		return nil
	}
	if reason, _ := match.Check(p, allow); reason != "" {
		return &hold{message: fmt.Sprintf("profile %s is stalled: %s", p.Name, reason)}
	}
	if p.Spec.Mode == v1alpha1.ModePlan {
		return &hold{wouldAct: true, message: fmt.Sprintf("profile %s is in mode Plan", p.Name)}
	}
	return &hold{wouldAct: true, message: fmt.Sprintf("profile %s has no finalizer yet", p.Name)}
}

// selecting returns the rules of acting profiles that select the volume and declare something, by precedence.
func (ps Profiles) selecting(pv *corev1.PersistentVolume, claim *metav1.PartialObjectMetadata) []rule {
	var rules []rule
	for _, p := range ps.byPrecedence {
		if p.hold == nil && !p.leaving {
			rules = append(rules, p.selecting(pv, claim)...)
		}
	}
	return rules
}

func (p *profile) selecting(pv *corev1.PersistentVolume, claim *metav1.PartialObjectMetadata) []rule {
	var rules []rule
	for i := range p.spec.Volumes {
		r := &p.spec.Volumes[i]
		if (len(r.MountOptions) > 0 || r.ReadAheadKiB != nil) && selects(&r.Selector, pv, claim) {
			rules = append(rules, rule{VolumeRule: r, profile: p})
		}
	}
	return rules
}

// get returns nil for a profile that is gone.
func (ps Profiles) get(name string) *profile {
	i := slices.IndexFunc(ps.byPrecedence, func(p *profile) bool { return p.name == name })
	if i < 0 {
		return nil
	}
	return ps.byPrecedence[i]
}

// holding returns what keeps a volume that carries the named profiles as it is, "" if nothing does.
func (ps Profiles) holding(carried []string) string {
	if ps.pausedAll {
		return pausedAllMessage
	}
	for _, name := range carried {
		if p := ps.get(name); p != nil && p.hold != nil {
			return p.hold.message
		}
	}
	return ""
}

// retained says whether one of the named profiles wants its options left where they are. A profile that is gone
// cannot be asked: the default, Restore, stands for it.
func (ps Profiles) retained(carried []string) bool {
	return slices.ContainsFunc(carried, func(name string) bool {
		p := ps.get(name)
		return p != nil && p.spec.DeletionPolicy == v1alpha1.DeletionRetain
	})
}

// patchesDeclared says whether a rule of one of the named profiles writes volumes that are declared elsewhere. Whether
// the rule still selects the volume does not matter: it once did.
func (ps Profiles) patchesDeclared(carried []string) bool {
	return slices.ContainsFunc(carried, func(name string) bool {
		p := ps.get(name)
		return p != nil && slices.ContainsFunc(p.spec.Volumes, func(r v1alpha1.VolumeRule) bool { return r.GitOpsOwned == v1alpha1.GitOpsPatch })
	})
}

// acting returns the profiles as if the named one were neither paused nor in mode Plan, and whether that differs.
func (ps Profiles) acting(name string) (Profiles, bool) {
	out := Profiles{byPrecedence: slices.Clone(ps.byPrecedence), memory: ps.memory}
	differs := ps.pausedAll
	for i, p := range out.byPrecedence {
		if p.name == name && p.hold != nil && p.hold.wouldAct {
			free := *p
			free.hold = nil
			out.byPrecedence[i] = &free
			differs = true
		}
	}
	return out, differs
}

func profileNames(rules []rule) []string {
	var names []string
	for _, r := range rules {
		names = append(names, r.profile.name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}
