package judge

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/match"
	"github.com/storageclient/operator/controllers/internal/pause"
	"github.com/storageclient/operator/controllers/store"
	"github.com/storageclient/operator/tuning/catalogue"
)

// pausedAllMessage names the one pause that no profile shows.
const pausedAllMessage = "the annotation on the manager's namespace pauses everything"

// hold says why a profile begins nothing.
type hold struct {
	// wouldAct is true where the profile itself is sound: paused, in mode Plan, or brand new.
	wouldAct bool
	message  string
}

// Profile is a compiled profile. It is never changed.
type Profile struct {
	// Name is the profile's name.
	Name string
	// Rollout says how changed options reach volumes, with defaults.
	Rollout v1alpha1.VolumeRollout
	// Deleting is true once the profile is being deleted.
	Deleting bool

	spec v1alpha1.StorageClientProfileSpec
	hold *hold
}

// Acts says whether the profile may begin something.
func (p *Profile) Acts() bool { return p.hold == nil && !p.Deleting }

// IsHeld says whether a pause, mode Plan or a flaw of its own keeps the profile from acting.
func (p *Profile) IsHeld() bool { return p.hold != nil }

// rule is one volume rule of a profile, by precedence.
type rule struct {
	*v1alpha1.VolumeRule
	profile *Profile
	// followed are the rule's options with those of a volume's class, nil where it takes none from there: see followClass.
	followed []string
}

// follows says whether the rule takes options from the StorageClass of a volume.
func (r rule) follows() bool { return r.MountOptionsFrom == v1alpha1.MountOptionsFromClass }

func (r rule) options() []string {
	if r.followed != nil {
		return r.followed
	}
	options := make([]string, len(r.MountOptions))
	for i, o := range r.MountOptions {
		options[i] = string(o)
	}
	return options
}

// Profiles are all profiles of the cluster, compiled: which may act, and why the others may not.
type Profiles struct {
	// pausedAll holds everything, also volumes whose profiles are gone.
	pausedAll bool
	// byPrecedence is sorted by descending priority, then by name.
	byPrecedence []*Profile
	byName       map[string]*Profile
	// classes holds the mount options of each StorageClass, where a rule follows them.
	classes map[string][]string
	// merges are the lists of volumes: see mergeOnce.
	merges *store.Pool[merged]
	// parts are the Profiles of a few of these, by their names: see among.
	parts store.Pool[*Profiles]
}

// Compile compiles profiles. pausedAll says whether the manager's namespace carries the pause annotation.
func Compile(profiles []v1alpha1.StorageClientProfile, allow catalogue.AllowList, pausedAll bool) *Profiles {
	compiled := make([]*Profile, len(profiles))
	for i := range profiles {
		compiled[i] = compileProfile(&profiles[i], allow)
	}
	return newProfiles(compiled, pausedAll, nil)
}

// WithClasses are the profiles where StorageClasses have these mount options.
func (ps *Profiles) WithClasses(classes map[string][]string) *Profiles {
	return newProfiles(ps.byPrecedence, ps.pausedAll, followedClasses(ps.byPrecedence, classes))
}

// followedClasses are classes, none where no rule follows them: nothing is to be judged again then where one changes.
func followedClasses(compiled []*Profile, classes map[string][]string) map[string][]string {
	for _, p := range compiled {
		for i := range p.spec.Volumes {
			if p.spec.Volumes[i].MountOptionsFrom == v1alpha1.MountOptionsFromClass {
				return classes
			}
		}
	}
	return nil
}

func newProfiles(compiled []*Profile, pausedAll bool, classes map[string][]string) *Profiles {
	out := &Profiles{pausedAll: pausedAll, byPrecedence: slices.Clone(compiled), byName: make(map[string]*Profile, len(compiled)), classes: classes}
	out.merges = store.NewPool[merged](maxMerged)
	slices.SortFunc(out.byPrecedence, func(a, b *Profile) int {
		return cmp.Or(cmp.Compare(b.spec.Priority, a.spec.Priority), cmp.Compare(a.Name, b.Name))
	})
	for _, p := range out.byPrecedence {
		out.byName[p.Name] = p
	}
	return out
}

func compileProfile(p *v1alpha1.StorageClientProfile, allow catalogue.AllowList) *Profile {
	standing, spec := match.StandingOf(p, allow), p.Spec.WithDefaults()
	return &Profile{
		Name: p.Name, Rollout: *spec.Rollout.Volumes, Deleting: standing == match.Leaving,
		spec: spec, hold: holdOf(p, standing, allow),
	}
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
	var rules []rule
	for i := range p.spec.Volumes {
		r := &p.spec.Volumes[i]
		if (len(r.MountOptions) > 0 || r.MountOptionsFrom != "" || r.ReadAheadKiB != nil) && Selects(&r.Selector, pv, volumeClaim) {
			rules = append(rules, rule{VolumeRule: r, profile: p})
		}
	}
	return rules
}

// among are those of the profiles that a volume was judged by, all of them where it remembers a failure.
func (ps *Profiles) among(j *Judged) *Profiles {
	if j.remembersFailure() {
		return ps
	}
	names := j.profilesOf()
	return ps.parts.Share(strings.Join(names, "\n"), func() *Profiles {
		var some []*Profile
		for _, name := range names {
			if p := ps.Get(name); p != nil {
				some = append(some, p)
			}
		}
		return newProfiles(some, ps.pausedAll, ps.classes)
	})
}

// Get returns nil for a profile that is gone.
func (ps *Profiles) Get(name string) *Profile { return ps.byName[name] }

// All are the profiles by descending priority, then by name. Nobody changes them.
func (ps *Profiles) All() []*Profile { return ps.byPrecedence }

// holdOn says what keeps a volume that carries the named profiles as it is, "" if nothing does.
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

// isRetained says whether one of the named profiles wants its options left where they are. A profile that is gone
// cannot be asked: the default, Restore, stands for it.
func (ps *Profiles) isRetained(carried []string) bool {
	return slices.ContainsFunc(carried, func(name string) bool {
		p := ps.Get(name)
		return p != nil && p.spec.DeletionPolicy == v1alpha1.DeletionRetain
	})
}

// Freed returns the profiles as if the named one were neither paused nor in mode Plan, nor everything paused, and whether that differs.
func (ps *Profiles) Freed(name string) (freed *Profiles, differs bool) {
	freed, differs = ps.WithoutGlobalPause()
	p := freed.Get(name)
	if p == nil || p.hold == nil || !p.hold.wouldAct {
		return freed, differs
	}
	free, compiled := *p, slices.Clone(freed.byPrecedence)
	free.hold = nil
	compiled[slices.Index(compiled, p)] = &free
	return newProfiles(compiled, false, ps.classes), true
}

// WithoutGlobalPause returns the profiles as if not everything were paused, and whether that differs.
func (ps *Profiles) WithoutGlobalPause() (free *Profiles, differs bool) {
	if !ps.pausedAll {
		return ps, false
	}
	return newProfiles(ps.byPrecedence, false, ps.classes), true
}

// Selects says whether a rule of the named profile selects a volume and declares something.
func (ps *Profiles) Selects(name string, pv *corev1.PersistentVolume, volumeClaim *metav1.PartialObjectMetadata) bool {
	p := ps.Get(name)
	if !isBoundTo(pv, volumeClaim) {
		volumeClaim = nil
	}
	return p != nil && len(p.rulesSelecting(pv, volumeClaim)) > 0
}

func profileNames(rules []rule) []string {
	var names []string
	for _, r := range rules {
		names = append(names, r.profile.Name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}
