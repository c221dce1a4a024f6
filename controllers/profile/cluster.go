package profile

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/fleet"
	"github.com/storageclient/operator/controllers/internal/match"
	"github.com/storageclient/operator/controllers/internal/read"
	volumeplan "github.com/storageclient/operator/controllers/volume/plan"
	volumesnapshot "github.com/storageclient/operator/controllers/volume/snapshot"
)

const (
	// readEvery is the shortest time between two readings of the cluster where it goes on changing.
	readEvery = time.Second
	// readingLasts is how long a reading serves while no watch tells of a change: of some things that it holds there is no watch.
	readingLasts = 2 * time.Second
)

// cluster is nodes and volumes as all profiles are judged by them.
type cluster struct {
	profiles []v1alpha1.StorageClientProfile
	fleet    fleet.Snapshot
	volumes  *volumeplan.View
	// paused is whether the manager's namespace is.
	paused bool
}

// clusterReader reads the cluster once for the passes over many profiles. It is for one goroutine, but for the count of changes.
type clusterReader struct {
	// changes counts what the watches tell of. A watch counts before it asks for a pass, so that this finds the change. isWatching is
	// false where there is no watch: each pass reads anew.
	changes    atomic.Int64
	isWatching bool

	profileSets fleet.ProfileSets
	volumes     *volumesnapshot.Reader
	// last is the last reading, at which time, and how many changes there were before it.
	last        *cluster
	lastAt      time.Time
	lastChanges int64
}

// readCluster returns the cluster for a pass over a profile, with that as it was just read or written. It returns how long to wait
// where the last reading is too old for the pass and too young for another.
func (r *Reconciler) readCluster(ctx context.Context, profile *v1alpha1.StorageClientProfile) (*cluster, time.Duration, error) {
	c, now := &r.cluster, r.Clock.Now()
	changes, age := c.changes.Load(), now.Sub(c.lastAt)
	isKnown := c.isWatching && c.last != nil && age >= 0
	switch {
	case isKnown && changes == c.lastChanges && age < readingLasts && c.last.declares(profile):
	case isKnown && age < readEvery:
		return nil, readEvery - age, nil
	default:
		next, err := r.readAnew(ctx, now)
		if err != nil {
			return nil, 0, err
		}
		c.last, c.lastAt, c.lastChanges = next, now, changes
	}
	own := *c.last
	own.fleet.Profiles = c.profileSets.Of(withCurrent(own.profiles, profile), r.Allow)
	return &own, 0, nil
}

func (r *Reconciler) readAnew(ctx context.Context, now time.Time) (*cluster, error) {
	c := &r.cluster
	if c.volumes == nil {
		c.volumes = &volumesnapshot.Reader{Reader: r, Allow: r.Allow, ManagerNamespace: r.ManagerNamespace, Probes: r.Probes, Memory: cmp.Or(r.Volumes, volumesnapshot.NewMemory())}
	}
	var profiles v1alpha1.StorageClientProfileList
	if err := r.List(ctx, &profiles); err != nil {
		return nil, fmt.Errorf("list StorageClientProfiles: %w", err)
	}
	next := &cluster{profiles: profiles.Items}
	var err error
	if next.fleet, err = read.FleetSnapshot(ctx, r, nil, r.AgentNamespace); err != nil {
		return nil, err
	}
	volumes, err := c.volumes.Read(ctx)
	if err != nil {
		return nil, err
	}
	volumes.Now, volumes.ClientNodes = now, clientNodesOf(next.fleet)
	next.volumes = volumeplan.NewView(volumes)
	next.paused, err = read.IsEverythingPaused(ctx, r, r.ManagerNamespace)
	return next, err
}

func clientNodesOf(all fleet.Snapshot) []v1alpha1.StorageClientNode {
	clientNodes := make([]v1alpha1.StorageClientNode, 0, len(all.ClientNodes))
	for _, clientNode := range all.ClientNodes {
		clientNodes = append(clientNodes, *clientNode)
	}
	return clientNodes
}

// declares reports whether the cluster was read with the profile as it is: what it asks of volumes is compiled there.
func (c *cluster) declares(profile *v1alpha1.StorageClientProfile) bool {
	return slices.ContainsFunc(c.profiles, func(p v1alpha1.StorageClientProfile) bool { return match.IsSameDeclaration(&p, profile) })
}

// withCurrent puts the profile as it was just written in the place of what the list holds of it.
func withCurrent(profiles []v1alpha1.StorageClientProfile, current *v1alpha1.StorageClientProfile) []v1alpha1.StorageClientProfile {
	out := make([]v1alpha1.StorageClientProfile, 0, len(profiles)+1)
	found := false
	for i := range profiles {
		if profiles[i].Name == current.Name {
			found = true
			out = append(out, *current)
			continue
		}
		out = append(out, profiles[i])
	}
	if !found {
		out = append(out, *current)
	}
	return out
}
