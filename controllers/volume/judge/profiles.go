package judge

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/match"
	"github.com/storageclient/operator/controllers/store"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/lists"
)

// pausedAllMessage reports the only pause that no profile shows.
const pausedAllMessage = "Everything is paused by the annotation on the manager's namespace"

type hold struct {
	// wouldAct is true if the profile is valid: paused, in mode Plan, or new.
	wouldAct bool
	message  string
}

// Profile is a compiled profile. It is immutable.
type Profile struct {
	// Name is the profile's name.
	Name string
	// Rollout contains the rollout settings, with defaults.
	Rollout v1alpha1.Rollout
	// Deleting is true once the profile is being deleted.
	Deleting bool

	spec v1alpha1.StorageClientProfileSpec
	hold *hold
}

// Acts reports whether the profile may start changes.
func (p *Profile) Acts() bool { return p.hold == nil && !p.Deleting }

// IsHeld reports whether the profile must not act because it is paused, in mode Plan, invalid or new.
func (p *Profile) IsHeld() bool { return p.hold != nil }

// Probes reports whether options of the profile's rules may be probed.
func (p *Profile) Probes() bool {
	return len(p.spec.Volumes) > 0 && p.Rollout.Volumes.Probe != v1alpha1.ProbeNever
}

type rule struct {
	*v1alpha1.VolumeRule
	profile *Profile
	// followed are the rule's options with the options of a volume's class. Nil if the rule does not use the class. See followClass.
	followed []string
}

// follows reports whether the rule uses options from the StorageClass of a volume.
func (r rule) follows() bool { return r.MountOptionsFrom == v1alpha1.MountOptionsFromClass }

func (r rule) options() []string {
	if r.followed != nil {
		return r.followed
	}
	return lists.Each(r.MountOptions, func(o v1alpha1.MountOption) string { return string(o) })
}

// Profiles are all profiles of the cluster, compiled, with the reasons why some may not act.
type Profiles struct {
	// pausedAll pauses everything, including volumes of deleted profiles.
	pausedAll bool
	// byPrecedence is sorted by descending priority, then by name.
	byPrecedence []*Profile
	byName       map[string]*Profile
	// classes are the mount options of each StorageClass, if a rule follows classes.
	classes map[string][]string
	// merges caches merge results. See mergeOnce.
	merges *store.Pool[merged]
	// parts caches subsets of the profiles, by their names. See among.
	parts store.Pool[*Profiles]
}

// followedClasses returns the classes if a rule follows any, otherwise nil. Then a change of a class causes no new evaluation.
func followedClasses(compiled []*Profile, classes map[string][]string) map[string][]string {
	follows := func(r v1alpha1.VolumeRule) bool { return r.MountOptionsFrom == v1alpha1.MountOptionsFromClass }
	if slices.ContainsFunc(compiled, func(p *Profile) bool { return slices.ContainsFunc(p.spec.Volumes, follows) }) {
		return classes
	}
	return nil
}

func newProfiles(compiled []*Profile, pausedAll bool, classes map[string][]string) *Profiles {
	return &Profiles{
		pausedAll: pausedAll, classes: classes, merges: store.NewPool[merged](maxMerged),
		byPrecedence: slices.SortedFunc(slices.Values(compiled), func(a, b *Profile) int {
			return cmp.Or(cmp.Compare(b.spec.Priority, a.spec.Priority), cmp.Compare(a.Name, b.Name))
		}),
		byName: lists.Map(compiled, func(p *Profile) (string, *Profile) { return p.Name, p }),
	}
}

func compileProfile(p *v1alpha1.StorageClientProfile, allow catalogue.AllowList) *Profile {
	standing, spec := match.PhaseOf(p, allow), p.Spec.WithDefaults()
	return &Profile{
		Name: p.Name, Rollout: spec.Rollout, Deleting: standing == match.Leaving,
		spec: spec, hold: holdOf(p, standing, allow),
	}
}

// holdOf returns the reason why a profile does not act. Only a pause holds a profile that is being deleted: mode Plan or an invalid spec must
// not prevent the restore of its earlier changes. With Retain, it releases its volumes at once.
func holdOf(p *v1alpha1.StorageClientProfile, standing match.Phase, allow catalogue.AllowList) *hold {
	if standing == match.Leaving && p.Spec.DeletionPolicy == v1alpha1.DeletionRetain {
		return nil
	}
	if match.IsProfilePaused(p) {
		return &hold{wouldAct: true, message: fmt.Sprintf("StorageClientProfile %s is paused", p.Name)}
	}
	if standing != match.Held {
		return nil
	}
	if reason, _ := match.Check(p, allow); reason != "" {
		return &hold{message: fmt.Sprintf("StorageClientProfile %s is stalled: %s", p.Name, reason)}
	}
	if p.Spec.Mode == v1alpha1.ModePlan {
		return &hold{wouldAct: true, message: fmt.Sprintf("StorageClientProfile %s is in mode Plan", p.Name)}
	}
	return &hold{wouldAct: true, message: fmt.Sprintf("StorageClientProfile %s has no finalizer yet", p.Name)}
}

// rulesSelecting returns the rules of acting profiles that select the volume and declare something, by precedence.
func (ps *Profiles) rulesSelecting(pv *corev1.PersistentVolume, volumeClaim *metav1.PartialObjectMetadata) []rule {
	var rules []rule
	for _, p := range ps.byPrecedence {
		if p.Acts() {
			rules = append(rules, p.rulesSelecting(pv, volumeClaim)...)
		}
	}
	return rules
}

func (p *Profile) rulesSelecting(pv *corev1.PersistentVolume, volumeClaim *metav1.PartialObjectMetadata) []rule {
	return lists.Pick(lists.Pointers(p.spec.Volumes), func(r *v1alpha1.VolumeRule) (rule, bool) {
		declares := len(r.MountOptions) > 0 || r.MountOptionsFrom != "" || r.ReadAheadKiB != nil
		return rule{VolumeRule: r, profile: p}, declares && Selects(&r.Selector, pv, volumeClaim)
	})
}

// among returns the profiles that affect a volume. If the volume records a failure, these are all profiles.
func (ps *Profiles) among(j *Evaluation) *Profiles {
	if j.hasRecordedFailure() {
		return ps
	}
	names := j.profilesOf()
	return ps.parts.Share(strings.Join(names, "\n"), func() *Profiles {
		some := lists.Filter(lists.Each(names, ps.Get), func(p *Profile) bool { return p != nil })
		return newProfiles(some, ps.pausedAll, ps.classes)
	})
}

// Get returns the named profile. Nil if it does not exist.
func (ps *Profiles) Get(name string) *Profile { return ps.byName[name] }

// All returns the profiles by descending priority, then by name. Callers must not change them.
func (ps *Profiles) All() []*Profile { return ps.byPrecedence }

// holdOn returns the reason why a volume with options of the named profiles stays unchanged. Empty if there is none.
func (ps *Profiles) holdOn(carried []string) string {
	if ps.pausedAll {
		return pausedAllMessage
	}
	for _, name := range carried {
		if p := ps.Get(name); p != nil && p.hold != nil {
			return p.hold.message
		}
	}
	return ""
}

// isRetained reports whether one of the named profiles has the deletion policy Retain. A deleted profile counts as Restore, the default.
func (ps *Profiles) isRetained(carried []string) bool {
	return slices.ContainsFunc(carried, func(name string) bool {
		p := ps.Get(name)
		return p != nil && p.spec.DeletionPolicy == v1alpha1.DeletionRetain
	})
}

// isPatching reports whether one of the named profiles writes volumes that Git manages. A GitOps tool then declares the options that the operator
// wrote: with RespectIgnoreDifferences, Argo CD copies them into the volume that it applies.
func (ps *Profiles) isPatching(carried []string) bool {
	patches := func(r v1alpha1.VolumeRule) bool { return r.GitOpsOwned == v1alpha1.GitOpsPatch }
	return slices.ContainsFunc(carried, func(name string) bool {
		p := ps.Get(name)
		return p != nil && slices.ContainsFunc(p.spec.Volumes, patches)
	})
}

// WithoutHold returns the profiles without the global pause, and the named profile as if it were not paused, in mode Plan or new. An invalid profile
// stays held. differs is true if this changes anything.
func (ps *Profiles) WithoutHold(name string) (acting *Profiles, differs bool) {
	acting, differs = ps.WithoutGlobalPause()
	p := acting.Get(name)
	if p == nil || p.hold == nil || !p.hold.wouldAct {
		return acting, differs
	}
	free, compiled := *p, slices.Clone(acting.byPrecedence)
	free.hold = nil
	compiled[slices.Index(compiled, p)] = &free
	return newProfiles(compiled, false, ps.classes), true
}

// WithoutGlobalPause returns the profiles without the global pause. differs is true if this changes anything.
func (ps *Profiles) WithoutGlobalPause() (free *Profiles, differs bool) {
	if !ps.pausedAll {
		return ps, false
	}
	return newProfiles(ps.byPrecedence, false, ps.classes), true
}

// Selects reports whether a rule of the named profile selects a volume and declares something.
func (ps *Profiles) Selects(name string, pv *corev1.PersistentVolume, volumeClaim *metav1.PartialObjectMetadata) bool {
	p := ps.Get(name)
	return p != nil && len(p.rulesSelecting(pv, onlyBound(pv, volumeClaim))) > 0
}

func profileNames(rules []rule) []string {
	return lists.Distinct(lists.Each(rules, func(r rule) string { return r.profile.Name }))
}

// Compiler compiles each version of a profile once. It returns the same Profiles until a change affects a verdict. The zero value is ready for
// use with one allow-list, from any number of goroutines.
type Compiler struct {
	compiled store.Memo[declaration, *Profile]
	all      store.Memo[*Profiles, *Profiles]
}

type declaration struct{ *v1alpha1.StorageClientProfile }

// IsSame implements the comparison of store.Memo.
func (d declaration) IsSame(newer declaration) bool {
	return match.IsSameDeclaration(d.StorageClientProfile, newer.StorageClientProfile)
}

// IsSame reports whether both result in the same verdicts.
func (ps *Profiles) IsSame(newer *Profiles) bool {
	return ps.pausedAll == newer.pausedAll && maps.EqualFunc(ps.classes, newer.classes, slices.Equal) &&
		slices.Equal(ps.byPrecedence, newer.byPrecedence)
}

// Compile compiles profiles. pausedAll is true if the manager's namespace has the pause annotation. classes maps each StorageClass to its mount options.
func (c *Compiler) Compile(
	profiles []*v1alpha1.StorageClientProfile, allow catalogue.AllowList, pausedAll bool, classes map[string][]string,
) *Profiles {
	c.compiled.Limit(len(profiles))
	compiled := lists.Each(profiles, func(profile *v1alpha1.StorageClientProfile) *Profile {
		return c.compiled.Get(profile.Name, declaration{ptr.To(*profile)}, func() *Profile { return compileProfile(profile, allow) })
	})
	next := newProfiles(compiled, pausedAll, followedClasses(compiled, classes))
	return c.all.Get("", next, func() *Profiles { return next })
}
