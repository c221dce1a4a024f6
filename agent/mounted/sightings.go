package mounted

import (
	"slices"
	"time"

	"github.com/storageclient/operator/agent/host/mounts"
)

// clockSlack is by how many seconds an age may lag behind: it is rounded down.
const clockSlack = 2

// sightings remember since when superblocks have been mounted, so that what is said of one changes only with it.
type sightings struct {
	byDevice map[string]sighting
	// readAt is when all mounts were read last, seenAt when the volumes' mount points were last the same as then; zero: never.
	readAt, seenAt time.Time
}

type sighting struct {
	// since is when it was mounted, zero where that is not known; used is whether an operation on it has ended since.
	since time.Time
	used  bool
	// ids and points are its mounts, age is the kernel's, -1 for none, and before what its counter stood at when it was seen first.
	ids, points []string
	age         int
	before      uint64
}

func (s *sightings) noteMounts(all []mounts.Mount, now time.Time) {
	grouped := map[string][]mounts.Mount{}
	for _, m := range all {
		grouped[m.Device] = append(grouped[m.Device], m)
	}
	found := make(map[string]sighting, len(grouped))
	for device, same := range grouped {
		found[device] = s.sightingOf(same, now)
	}
	s.byDevice, s.readAt, s.seenAt = found, now, now
}

// noteUnchanged says that the volumes are mounted where they were.
func (s *sightings) noteUnchanged(now time.Time) { s.seenAt = now }

func (s *sightings) sightingOf(same []mounts.Mount, now time.Time) sighting {
	m := same[0]
	is := sighting{age: m.Age}
	for _, one := range same {
		is.ids, is.points = append(is.ids, one.ID), append(is.points, one.MountPoint)
	}
	was, known := s.byDevice[m.Device]
	if m.CountsShare {
		is.before = m.Operations
	}
	switch {
	case known && was.isStill(is, now.Sub(s.readAt)):
		is.since, is.used, is.before = was.since, was.used, was.before
	case m.Age >= 0:
		is.since = now.Add(-time.Duration(m.Age) * time.Second)
	default:
		is.since = s.lastWithout(same, was)
	}
	is.used = is.used || m.Operations > is.before
	return is
}

// isStill says whether a superblock is the one that was there before, by its age or, where it has none, by its mounts.
func (s sighting) isStill(now sighting, elapsed time.Duration) bool {
	if s.age >= 0 && now.age >= 0 {
		return now.age+clockSlack >= s.age+int(elapsed.Seconds())
	}
	return slices.ContainsFunc(now.ids, func(id string) bool { return slices.Contains(s.ids, id) })
}

// lastWithout is when the superblock was certainly not mounted yet. Where volumes' mount points come and go is seen more often than
// all mounts are read.
func (s *sightings) lastWithout(same []mounts.Mount, was sighting) time.Time {
	for _, m := range same {
		if m.Volume != "" && !slices.Contains(was.points, m.MountPoint) {
			return s.seenAt
		}
	}
	return s.readAt
}
