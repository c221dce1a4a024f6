package mountwatch

import (
	"slices"
	"time"

	"github.com/storageclient/operator/agent/host/mounts"
)

// clockSlack is the tolerance for the age of a mount, in seconds, because the age is rounded down.
const clockSlack = 2

// sightings contains the mount time of superblocks. The reported time of a superblock stays the same until it is mounted again.
type sightings struct {
	byDevice map[string]sighting
	// readAt is the time of the last full read. seenAt is the last time that the mount points of the volumes were unchanged. Zero if
	// never.
	readAt, seenAt time.Time
}

type sighting struct {
	// mountedAt is the mount time, zero if unknown. used is true if an operation on the superblock has completed since then.
	mountedAt time.Time
	used      bool
	// ids and points identify its mounts. age is the age from the kernel in seconds, -1 if unknown. before is the counter at the first
	// sighting.
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

func (s *sightings) noteUnchanged(now time.Time) { s.seenAt = now }

func (s *sightings) sightingOf(same []mounts.Mount, now time.Time) sighting {
	m := same[0]
	current := sighting{age: m.Age}
	for _, one := range same {
		current.ids, current.points = append(current.ids, one.ID), append(current.points, one.MountPoint)
	}
	previous, known := s.byDevice[m.Device]
	if m.CountsShare {
		current.before = m.Operations
	}
	switch {
	case known && previous.isStill(current, now.Sub(s.readAt)):
		current.mountedAt, current.used, current.before = previous.mountedAt, previous.used, previous.before
	case m.Age >= 0:
		current.mountedAt = now.Add(-time.Duration(m.Age) * time.Second)
	default:
		current.mountedAt = s.lastWithout(same, previous)
	}
	current.used = current.used || m.Operations > current.before
	return current
}

// isStill reports whether a superblock is the same as before. It compares the age or, if unknown, the mount IDs.
func (s sighting) isStill(now sighting, elapsed time.Duration) bool {
	if s.age >= 0 && now.age >= 0 {
		return now.age+clockSlack >= s.age+int(elapsed.Seconds())
	}
	return slices.ContainsFunc(now.ids, func(id string) bool { return slices.Contains(s.ids, id) })
}

// lastWithout returns the last time at which the superblock was certainly not mounted. The mount points of volumes are checked more often
// than all mounts are read.
func (s *sightings) lastWithout(same []mounts.Mount, previous sighting) time.Time {
	for _, m := range same {
		if m.Volume != "" && !slices.Contains(previous.points, m.MountPoint) {
			return s.seenAt
		}
	}
	return s.readAt
}
