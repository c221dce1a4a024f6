package profile

import (
	"cmp"
	"context"
	"maps"
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
	// readEvery is the shortest time between two readings of the cluster where it goes on changing. A reading that took long is followed by
	// a rest of restShare times as long, maxRest at most.
	readEvery = time.Second
	restShare = 5
	maxRest   = 10 * time.Second
	// readingLasts is how long a reading serves while no watch tells of a change: of some things that it holds there is no watch.
	readingLasts = 2 * time.Second
)

// cluster is nodes and volumes as all profiles are judged by them.
type cluster struct {
	fleet   fleet.Snapshot
	volumes *volumeplan.View
	// paused is whether the manager's namespace is.
	paused bool
	// served are the profiles that have had a pass by it.
	served map[string]bool
}

// clusterReader reads the cluster once for the passes over many profiles. It is for one goroutine, but for the count of changes.
type clusterReader struct {
	// changes counts what the watches tell of. A watch counts before it asks for a pass, so that this finds the change. isWatching is
	// false where there is no watch: each pass reads anew.
	changes    atomic.Int64
	isWatching bool

	profileSets fleet.ProfileSets
	volumes     *volumesnapshot.Reader
	// last is the last reading, lastAt when it was done, lastRest for how long it rests after it, and lastChanges how many changes there
	// were before it.
	last        *cluster
	lastAt      time.Time
	lastRest    time.Duration
	lastChanges int64
}

// readCluster returns the cluster for a pass over a profile, with that as it was just read or written, and when to make another pass since
// the cluster has changed after it was read. Without a cluster the pass has to wait for that long.
//
// While the cluster goes on changing, each profile has a pass by each reading: hundreds of profiles would otherwise wait for as many
// readings. Only one that is being deleted goes by what has been read after all that it was told of: its finalizer hangs on it.
func (r *Reconciler) readCluster(ctx context.Context, profile *v1alpha1.StorageClientProfile) (all *cluster, again time.Duration, err error) {
	c, now := &r.cluster, r.Clock.Now()
	age := now.Sub(c.lastAt)
	isKnown := c.isWatching && c.last != nil && age >= 0
	isCurrent := isKnown && c.changes.Load() == c.lastChanges && age < max(readingLasts, c.lastRest) && c.last.declares(profile)
	switch mayServe := isKnown && profile.DeletionTimestamp.IsZero() && !c.last.served[profile.Name] && c.last.declares(profile); {
	case isCurrent:
	case isKnown && age < c.lastRest && mayServe:
		again = c.lastRest - age
	case isKnown && age < c.lastRest:
		return nil, c.lastRest - age, nil
	default:
		if err := r.readAnew(ctx, now); err != nil {
			return nil, 0, err
		}
	}
	c.last.served[profile.Name] = true
	own := *c.last
	own.fleet.Profiles = own.fleet.Profiles.With(profile, r.Allow)
	return &own, again, nil
}

func (r *Reconciler) readAnew(ctx context.Context, now time.Time) error {
	c := &r.cluster
	if c.volumes == nil {
		c.volumes = &volumesnapshot.Reader{Reader: r.Client, Allow: r.Allow, ManagerNamespace: r.ManagerNamespace, Probes: r.Probes, Memory: cmp.Or(r.Volumes, volumesnapshot.NewMemory())}
	}
	changes := c.changes.Load()
	profiles, err := read.Profiles(ctx, r)
	if err != nil {
		return err
	}
	next := &cluster{served: map[string]bool{}}
	all, err := read.FleetSnapshot(ctx, r.Client, nil, r.AgentNamespace)
	if err != nil {
		return err
	}
	next.fleet = all.ForAllProfiles(c.profileSets.Of(profiles, r.Allow))
	volumes, err := c.volumes.Read(ctx)
	if err != nil {
		return err
	}
	volumes.Now, volumes.ClientNodes = now, slices.Collect(maps.Values(next.fleet.ClientNodes))
	next.volumes = volumeplan.NewView(volumes)
	if next.paused, err = read.IsEverythingPaused(ctx, r, r.ManagerNamespace); err != nil {
		return err
	}
	c.last, c.lastAt, c.lastChanges = next, r.Clock.Now(), changes
	c.lastRest = max(readEvery, min(restShare*c.lastAt.Sub(now), maxRest))
	return nil
}

// declares reports whether the cluster was read with the profile as it is: what it asks of volumes is compiled there.
func (c *cluster) declares(profile *v1alpha1.StorageClientProfile) bool {
	known := c.fleet.Profiles.ByName(profile.Name)
	return known != nil && match.IsSameDeclaration(known.StorageClientProfile, profile)
}
