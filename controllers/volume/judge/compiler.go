package judge

import (
	"maps"
	"slices"
	"sync"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/match"
	"github.com/storageclient/operator/tuning/catalogue"
)

// Compiler compiles each version of a profile once, and returns the same Profiles as long as nothing has changed that a
// judgement goes by. The zero value is ready, for one allow-list and any number of goroutines.
type Compiler struct {
	mu   sync.Mutex
	last *Profiles
	// known are the profiles of the last call, by name.
	known map[string]compiledProfile
}

// compiledProfile is a profile with what it was compiled from.
type compiledProfile struct {
	*Profile
	from v1alpha1.StorageClientProfile
}

// Compile is the function Compile, but for what it knows. classes holds the mount options of each StorageClass.
func (c *Compiler) Compile(profiles []v1alpha1.StorageClientProfile, allow catalogue.AllowList, pausedAll bool, classes map[string][]string) *Profiles {
	c.mu.Lock()
	defer c.mu.Unlock()
	known, compiled := make(map[string]compiledProfile, len(profiles)), make([]*Profile, len(profiles))
	for i := range profiles {
		p, ok := c.known[profiles[i].Name]
		switch {
		case !ok || !match.IsSameDeclaration(&p.from, &profiles[i]):
			p = compiledProfile{compileProfile(&profiles[i], allow), profiles[i]}
		case p.from.ResourceVersion != profiles[i].ResourceVersion:
			p.from = profiles[i]
		}
		known[profiles[i].Name], compiled[i] = p, p.Profile
	}
	classes = followedClasses(compiled, classes)
	same := c.last != nil && c.last.pausedAll == pausedAll && maps.EqualFunc(c.last.classes, classes, slices.Equal) && len(compiled) == len(c.known) &&
		!slices.ContainsFunc(compiled, func(p *Profile) bool { return c.last.Get(p.Name) != p })
	c.known = known
	if !same {
		c.last = newProfiles(compiled, pausedAll, classes)
	}
	return c.last
}
