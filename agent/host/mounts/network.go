package mounts

import (
	"strings"

	"github.com/storageclient/operator/tuning/counters"
)

// Log reads the log counters of an XFS mount. ok is false if the kernel does not report them.
func (r Reader) Log(m Mount) (l counters.Log, ok bool) { return parseLog(r.readXFSStats(m.Device)) }

// parseLog parses "log WRITES BLOCKS NOICLOGS FORCES FORCE_SLEEPS" and "push_ail TRY_LOGSPACE SLEEP_LOGSPACE ...".
func parseLog(data string) (l counters.Log, ok bool) {
	for text := range strings.Lines(data) {
		fields := strings.Fields(text)
		if len(fields) < 4 {
			continue
		}
		numbers, counted := parseCounts(fields[1:])
		switch {
		case !counted:
		case fields[0] == "log":
			l.Writes, l.NoBuffer, ok = numbers[0], numbers[2], true
		case fields[0] == "push_ail":
			l.NoSpace = numbers[1]
		}
	}
	return l, ok
}
