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
	// readEvery is the shortest time between two reads of the cluster while it keeps changing. After a slow read there is a pause of restShare
	// times its duration, at most maxRest.
	readEvery = time.Second
	restShare = 5
	maxRest   = 10 * time.Second
	// readingLasts is the time for which a read is used while no watch reports a change: some of its data has no watch.
	readingLasts = 2 * time.Second
)

// cluster contains the nodes and volumes on which the status of all profiles is based.
type cluster struct {
	fleet   fleet.Snapshot
	volumes *volumeplan.View
	// paused is true if the manager's namespace is paused.
	paused bool
	// oddPause is OddStop of the manager's namespace.
	oddPause string
	// served are the profiles that have had a pass with this read.
	served map[string]bool
}

// clusterReader reads the cluster once for the passes over many profiles. Only the count of changes may be used by several goroutines.
type clusterReader struct {
	// changes counts the events of the watches. A watch counts an event before it requests a pass, so that the pass sees the change. isWatching is
	// false if there is no watch: then each pass reads again.
	changes    atomic.Int64
	isWatching bool

	profileSets fleet.ProfileSets
	volumes     *volumesnapshot.Reader
	// last is the last read, lastAt the time of its end, lastRest the pause after it, and lastChanges the number of changes before it.
	last        *cluster
	lastAt      time.Time
	lastRest    time.Duration
	lastChanges int64
}

// readCluster returns the cluster for a pass over a profile, with the current version of that profile. again is the time until another pass,
// because the cluster has changed since it was read. If the cluster is nil, the pass must wait for that time.
//
// While the cluster keeps changing, each profile has one pass with each read. Otherwise hundreds of profiles would wait for as many reads. A
// profile that is being deleted needs a read that includes all reported changes, because its finalizer depends on it.
func (r *Reconciler) readCluster(ctx context.Context, profile *v1alpha1.StorageClientProfile) (all *cluster, requeueAfter time.Duration, err error) {
	c, now := &r.cluster, r.Clock.Now()
	age := now.Sub(c.lastAt)
	isKnown := c.isWatching && c.last != nil && age >= 0
	isCurrent := isKnown && c.changes.Load() == c.lastChanges && age < max(readingLasts, c.lastRest) && c.last.declares(profile)
	switch mayServe := isKnown && profile.DeletionTimestamp.IsZero() && !c.last.served[profile.Name] && c.last.declares(profile); {
	case isCurrent:
	case isKnown && age < c.lastRest && mayServe:
		requeueAfter = c.lastRest - age
	case isKnown && age < c.lastRest:
		return nil, c.lastRest - age, nil
	default:
		if err := r.refreshCluster(ctx, now); err != nil {
			return nil, 0, err
		}
	}
	c.last.served[profile.Name] = true
	view := *c.last
	view.fleet.Profiles = view.fleet.Profiles.With(profile, r.Allow)
	return &view, requeueAfter, nil
}

func (r *Reconciler) refreshCluster(ctx context.Context, now time.Time) error {
	c := &r.cluster
	if c.volumes == nil {
		c.volumes = &volumesnapshot.Reader{
			Reader: r.Client, Allow: r.Allow, Probes: r.Probes,
			Memory: cmp.Or(r.Volumes, volumesnapshot.NewMemory()),
		}
	}
	changes := c.changes.Load()
	profiles, err := read.Profiles(ctx, r)
	if err != nil {
		return err
	}
	next := &cluster{served: map[string]bool{}}
	all, err := read.FleetSnapshot(ctx, r.Client, nil)
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
	if next.paused, next.oddPause, err = read.IsEverythingPaused(ctx, r); err != nil {
		return err
	}
	c.last, c.lastAt, c.lastChanges = next, r.Clock.Now(), changes
	c.lastRest = max(readEvery, min(restShare*c.lastAt.Sub(now), maxRest))
	return nil
}

// declares reports whether the cluster was read with the current declaration of the profile, which determines its options for volumes.
func (c *cluster) declares(profile *v1alpha1.StorageClientProfile) bool {
	known := c.fleet.Profiles.ByName(profile.Name)
	return known != nil && match.IsSameDeclaration(known.StorageClientProfile, profile)
}
