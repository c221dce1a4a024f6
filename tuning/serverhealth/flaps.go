package serverhealth

import "time"

const (
	// flapWindow is the time span in which losses of the client state are counted, flapLimit the number that is too high. After a restart of a
	// server, a client identifies itself once; after a failover, twice.
	flapWindow = 10 * time.Minute
	flapLimit  = 3
)

// flaps contains the times at which an NFSv4 client had to identify itself again. Two clients with the same client ID keep removing each other's
// state. Locks are lost and writes fail with EIO, without a message in either kernel log.
type flaps struct {
	identified, rejectedSessions uint64
	at                           []time.Time
}

// note records the counters. The first reading only sets the baseline.
func (f *flaps) note(now time.Time, reading Reading, first bool) {
	if !first && (reading.Identified > f.identified || reading.RejectedSessions > f.rejectedSessions) {
		f.at = append(f.at, now)
	}
	f.identified, f.rejectedSessions = reading.Identified, reading.RejectedSessions
	for len(f.at) > 0 && now.Sub(f.at[0]) > flapWindow {
		f.at = f.at[1:]
	}
}

func (f *flaps) isFlapping(now time.Time) bool {
	return len(f.at) >= flapLimit && now.Sub(f.at[len(f.at)-1]) <= flapWindow
}
