package judge

import (
	"maps"
	"slices"

	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/match"
	"github.com/storageclient/operator/controllers/store"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/lists"
)

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

// Compile is the function Compile with a cache. classes maps each StorageClass to its mount options.
func (c *Compiler) Compile(
	profiles []v1alpha1.StorageClientProfile, allow catalogue.AllowList, pausedAll bool, classes map[string][]string,
) *Profiles {
	c.compiled.Limit(len(profiles))
	compiled := lists.Each(lists.Pointers(profiles), func(profile *v1alpha1.StorageClientProfile) *Profile {
		return c.compiled.Get(profile.Name, declaration{ptr.To(*profile)}, func() *Profile { return compileProfile(profile, allow) })
	})
	next := newProfiles(compiled, pausedAll, followedClasses(compiled, classes))
	return c.all.Get("", next, func() *Profiles { return next })
}
