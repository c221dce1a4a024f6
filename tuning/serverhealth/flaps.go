package serverhealth

import "time"

const (
	// flapWindow is the time in which a server is watched for forgetting this client, and flapLimit how many times in it are too many. A
	// server that restarts makes its clients introduce themselves once, or twice where it fails over.
	flapWindow = 10 * time.Minute
	flapLimit  = 3
)

// flaps are the times at which an NFSv4 client has had to introduce itself anew. Two clients of one name take each other's state
// away, over and over: locks are lost and writes end with EIO, and neither's kernel log says a word.
type flaps struct {
	identified, refused uint64
	at                  []time.Time
}

// note takes in the counters. At first they tell what was, not what is.
func (f *flaps) note(now time.Time, reading Reading, first bool) {
	if !first && (reading.Identified > f.identified || reading.Refused > f.refused) {
		f.at = append(f.at, now)
	}
	f.identified, f.refused = reading.Identified, reading.Refused
	for len(f.at) > 0 && now.Sub(f.at[0]) > flapWindow {
		f.at = f.at[1:]
	}
}

func (f *flaps) isFlapping(now time.Time) bool {
	return len(f.at) >= flapLimit && now.Sub(f.at[len(f.at)-1]) <= flapWindow
}
