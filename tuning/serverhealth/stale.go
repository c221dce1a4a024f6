package serverhealth

import (
	"slices"
	"time"

	"github.com/storageclient/operator/tuning/counters"
)

const (
	// staleAfter is for how long all requests by handle must have failed, and staleRequests how many. A file that somebody else has
	// removed fails a few; the kubelet asks for the space of each volume once a minute, which only the root's handle fails.
	staleAfter    = SilentAfter
	staleRequests = 3
	// staleFor is how long it counts after the last one: a mount that is asked nothing is not said to be stale for ever.
	staleFor = 10 * time.Minute
)

// staleMount is one mount whose requests by handle fail.
type staleMount struct {
	was counters.HandleRequests
	// since is when the first of them failed that no success has followed, lastAt when the last one did, failed how many did.
	since, lastAt time.Time
	failed        uint64
}

// noteHandles takes in the counters of requests by handle. At first they tell what was, not what is.
func (m *memory) noteHandles(now time.Time, reading Reading) {
	found := map[string]staleMount{}
	for _, is := range reading.Handles {
		s, known := m.stale[is.MountPoint]
		ended, inErrors := is.Ended-s.was.Ended, is.InErrors-s.was.InErrors
		switch {
		// A count that is lower is of another mount at the same place.
		case !known, is.Ended < s.was.Ended, is.InErrors < s.was.InErrors, inErrors < ended:
			s = staleMount{}
		case inErrors > 0:
			if s.since.IsZero() {
				s.since = now
			}
			s.lastAt, s.failed = now, s.failed+inErrors
		}
		s.was = is
		found[is.MountPoint] = s
	}
	m.stale = found
}

// staleMounts are the mount points whose files the server does not know any more, sorted.
func (m *memory) staleMounts(now time.Time) []string {
	var points []string
	for point, s := range m.stale {
		if s.failed >= staleRequests && s.lastAt.Sub(s.since) >= staleAfter && now.Sub(s.lastAt) < staleFor {
			points = append(points, point)
		}
	}
	slices.Sort(points)
	return points
}
