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

// Network reads what TCP has counted.
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

// parseNetwork reads pairs of lines, "Tcp: A B" and below it "Tcp: 1 2".
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
			// Some are negative (MaxConn), and none of those is read here.
			if n, ok := parseCounts(fields[i : i+1]); ok {
				counts[names[0]+names[i]] = n[0]
			}
		}
		names = nil
	}
}

// Log reads what the log of an XFS mount has counted; ok is false where the kernel does not tell.
func (r Reader) Log(m Mount) (l counters.Log, ok bool) { return parseLog(r.readXFSStats(m.Device)) }

// parseLog reads "log WRITES BLOCKS NOICLOGS FORCES FORCE_SLEEPS" and "push_ail TRY_LOGSPACE SLEEP_LOGSPACE ...".
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
