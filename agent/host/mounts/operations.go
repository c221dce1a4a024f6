package mounts

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/storageclient/operator/tuning/counters"
	"github.com/storageclient/operator/tuning/lists"
)

// Operation contains the kernel's counters of one operation of a superblock since it was mounted. Source: rpc_print_iostats in net/sunrpc/stats.c.
type Operation struct {
	// Name is the name of the operation in the protocol, e.g. READ, GETATTR.
	Name string
	// Count is the number of completed requests.
	Count uint64
	// Transmissions is the number of sent requests, including repeated ones.
	Transmissions uint64
	// BytesSent and BytesReceived include the headers.
	BytesSent, BytesReceived uint64
	// MajorTimeouts is the number of requests without a response within timeo and all retransmissions.
	MajorTimeouts uint64
	// Queue is the time that requests waited before they were sent. RoundTrip is the time from there to the response. Execution is the total time.
	// The kernel counts milliseconds.
	Queue, RoundTrip, Execution time.Duration
	// Errors is the number of requests that failed. Zero before Linux 5.3, which does not report it.
	Errors uint64
}

const sessionSlotsFile = "/sys/module/nfs/parameters/max_session_slots"

// Superblock is one NFS file system in the kernel, with its statistics. Bind mounts, and volumes that share a superblock, share its counters.
type Superblock struct {
	// Mount is one of its mounts: the first by volume. Mounts without a volume come last.
	Mount
	// Volumes are the volumes of all of its mounts, sorted.
	Volumes []string
	// Nconnect is the number of transports that the mount requested. 1 if it requested none.
	Nconnect int
	// SessionSlots is the limit for the slots of new sessions (max_session_slots of the module nfs). Zero if the kernel does not report it.
	SessionSlots int
	// Bytes are the bytes that programs requested, and the bytes on the wire for them.
	Bytes counters.Bytes
	// Events are the requests of programs to the file system.
	Events counters.Events
	// Transports are the transports of its client. Mounts that share the client show the same transports.
	Transports []TransportCounters
	// Operations are the operations with at least one request, sorted by name.
	Operations []Operation
}

// Superblocks reads the NFS superblocks of the host, sorted by device. A mount whose statistics cannot be parsed has none.
func (r Reader) Superblocks() ([]Superblock, error) {
	table, err := r.Read()
	if err != nil {
		return nil, err
	}
	data, err := r.fs.ReadFile(mountstatsFile)
	if err != nil {
		return nil, fmt.Errorf("read statistics of mounts: %w", err)
	}
	counted := parseMountstats(string(data))
	found := map[string]Superblock{}
	for _, mount := range table.Mounts {
		if !isNFS(mount.FSType) {
			continue
		}
		block, known := found[mount.Device]
		connections := max(block.Connections, mount.Connections)
		if !known || compareMounts(mount, block.Mount) {
			block.Mount = mount
		}
		block.Connections = connections
		if mount.Volume != "" {
			block.Volumes = append(block.Volumes, mount.Volume)
		}
		if c, ok := counted[mount.MountPoint]; ok && len(block.Operations) == 0 {
			block.Bytes, block.Events, block.Transports, block.Operations = c.bytes, c.events, c.transports, byName(c.operations)
		}
		found[mount.Device] = block
	}
	blocks := sortedBlocks(found)
	if slots, err := r.fs.ReadValue(sessionSlotsFile); err == nil {
		for i := range blocks {
			blocks[i].SessionSlots, _ = strconv.Atoi(slots)
		}
	}
	return blocks, nil
}

func compareMounts(a, b Mount) bool {
	if (a.Volume == "") != (b.Volume == "") {
		return a.Volume != ""
	}
	return cmp.Or(strings.Compare(a.Volume, b.Volume), strings.Compare(a.MountPoint, b.MountPoint)) < 0
}

func sortedBlocks(found map[string]Superblock) []Superblock {
	for device, block := range found {
		block.Volumes = lists.Distinct(block.Volumes)
		block.Nconnect = 1
		if n, err := strconv.Atoi(OptionValue(block.Options, "nconnect")); err == nil {
			block.Nconnect = n
		}
		found[device] = block
	}
	return slices.SortedFunc(maps.Values(found), func(a, b Superblock) int { return strings.Compare(a.Device, b.Device) })
}

// CountsAt returns the operations of the mount at a point and of the mounts below it, sorted by name, from the text of a mountstats file. The client
// mounts a nested export of the server below the mount when a program enters it.
func CountsAt(mountstats, point string) []Operation {
	sums := map[string]Operation{}
	for at, c := range parseMountstats(mountstats) {
		if at != point && !strings.HasPrefix(at, point+"/") {
			continue
		}
		for _, o := range c.operations {
			sums[o.Name] = o.plus(sums[o.Name])
		}
	}
	return byName(sums)
}

func byName(operations map[string]Operation) []Operation {
	return slices.SortedFunc(maps.Values(operations), func(a, b Operation) int { return strings.Compare(a.Name, b.Name) })
}

func (o Operation) plus(other Operation) Operation {
	return Operation{
		Name: o.Name, Count: o.Count + other.Count, Transmissions: o.Transmissions + other.Transmissions, MajorTimeouts: o.MajorTimeouts + other.MajorTimeouts,
		BytesSent: o.BytesSent + other.BytesSent, BytesReceived: o.BytesReceived + other.BytesReceived,
		Queue: o.Queue + other.Queue, RoundTrip: o.RoundTrip + other.RoundTrip, Execution: o.Execution + other.Execution, Errors: o.Errors + other.Errors,
	}
}

// parseOperation parses "READ: 8 9 0 1288 8397700 1 22 24 0": count, transmissions, major timeouts, bytes sent and received, three times in
// milliseconds and, since Linux 5.3, errors.
func parseOperation(fields []string) (Operation, bool) {
	name, found := strings.CutSuffix(fields[0], ":")
	numbers, ok := parseCounts(fields[1:])
	if !found || name == "" || !ok || len(numbers) < 8 {
		return Operation{}, false
	}
	o := Operation{
		Name: name, Count: numbers[0], Transmissions: numbers[1], MajorTimeouts: numbers[2],
		BytesSent: numbers[3], BytesReceived: numbers[4],
		Queue: milliseconds(numbers[5]), RoundTrip: milliseconds(numbers[6]), Execution: milliseconds(numbers[7]),
	}
	if len(numbers) > 8 {
		o.Errors = numbers[8]
	}
	return o, true
}

func parseCounts(fields []string) ([]uint64, bool) {
	numbers := make([]uint64, 0, len(fields))
	for _, field := range fields {
		n, err := strconv.ParseUint(field, 10, 64)
		if err != nil {
			return nil, false
		}
		numbers = append(numbers, n)
	}
	return numbers, true
}

func milliseconds(n uint64) time.Duration { return time.Duration(n) * time.Millisecond }
