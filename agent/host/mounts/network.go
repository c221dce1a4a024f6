package mounts

import "github.com/storageclient/operator/tuning/counters"

// Log reads the log counters of an XFS mount. ok is false if the kernel does not report them. The lines are "log WRITES BLOCKS NOICLOGS FORCES
// FORCE_SLEEPS" and "push_ail TRY_LOGSPACE SLEEP_LOGSPACE ...".
func (r Reader) Log(m Mount) (l counters.Log, ok bool) {
	counted := r.readXFSStats(m.Device)
	log, tail := counted["log"], counted["push_ail"]
	if ok = len(log) > 2; ok {
		l.Writes, l.NoBuffer = log[0], log[2]
	}
	if len(tail) > 2 {
		l.NoSpace = tail[1]
	}
	return l, ok
}
