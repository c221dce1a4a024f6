package mounts

import (
	"fmt"
	"strings"

	"github.com/storageclient/operator/tuning/counters"
)

const (
	snmpFile    = "/proc/1/net/snmp"
	netstatFile = "/proc/1/net/netstat"
)

// Network reads the counters of TCP.
func (r Reader) Network() (counters.Network, error) {
	counts := map[string]uint64{}
	for _, file := range []string{snmpFile, netstatFile} {
		data, err := r.fs.ReadFile(file)
		if err != nil {
			return counters.Network{}, fmt.Errorf("read counters of TCP: %w", err)
		}
		parseNetwork(string(data), counts)
	}
	return counters.Network{
		InSegments: counts["Tcp:InSegs"], OutSegments: counts["Tcp:OutSegs"], Retransmitted: counts["Tcp:RetransSegs"],
		OutOfOrder: counts["TcpExt:TCPOFOQueue"],
	}, nil
}

// parseNetwork parses pairs of lines: "Tcp: A B", followed by "Tcp: 1 2".
func parseNetwork(data string, counts map[string]uint64) {
	var names []string
	for text := range strings.Lines(data) {
		fields := strings.Fields(text)
		if len(fields) == 0 {
			continue
		}
		if len(names) != len(fields) || names[0] != fields[0] {
			names = fields
			continue
		}
		for i := 1; i < len(fields); i++ {
			// Some values are negative (MaxConn). They are not needed here.
			if n, ok := parseCounts(fields[i : i+1]); ok {
				counts[names[0]+names[i]] = n[0]
			}
		}
		names = nil
	}
}

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
