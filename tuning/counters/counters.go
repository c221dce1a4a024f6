// Package counters holds what the kernel counts of mounts and of their servers. The host reads it, and the rules of tuning/recommend and
// tuning/serverhealth judge it. It has no Kubernetes, so that the code on the host can use it.
package counters

import "time"

// Since returns by how much a counter has grown; 0 if it is smaller than before, as after a reset.
func Since(was, now uint64) uint64 {
	if now < was {
		return 0
	}
	return now - was
}

// Bytes are those that programs requested of an NFS mount, and those that went over the network for them. Source: nfs_show_stats in
// fs/nfs/super.c.
type Bytes struct {
	// Read and Written were requested through the page cache, DirectRead and DirectWritten past it (O_DIRECT).
	Read          uint64 `json:"read,omitempty"`
	Written       uint64 `json:"written,omitempty"`
	DirectRead    uint64 `json:"directRead,omitempty"`
	DirectWritten uint64 `json:"directWritten,omitempty"`
	// WireRead and WireWritten went over the network.
	WireRead    uint64 `json:"wireRead,omitempty"`
	WireWritten uint64 `json:"wireWritten,omitempty"`
}

// Since returns the growth since earlier counters of the same mount.
func (b Bytes) Since(was Bytes) Bytes {
	return Bytes{
		Read: Since(was.Read, b.Read), Written: Since(was.Written, b.Written),
		DirectRead: Since(was.DirectRead, b.DirectRead), DirectWritten: Since(was.DirectWritten, b.DirectWritten),
		WireRead: Since(was.WireRead, b.WireRead), WireWritten: Since(was.WireWritten, b.WireWritten),
	}
}

// Events are those of an NFS mount. Source: enum nfs_stat_eventcounters in include/linux/nfs_iostat.h.
type Events struct {
	// Opens are calls of open, Flushes those of close after writing, Syncs those of fsync.
	Opens   uint64 `json:"opens,omitempty"`
	Flushes uint64 `json:"flushes,omitempty"`
	Syncs   uint64 `json:"syncs,omitempty"`
	// DataInvalidations counts files and directories whose cached content was dropped.
	DataInvalidations uint64 `json:"dataInvalidations,omitempty"`
	// Listings are calls of getdents.
	Listings uint64 `json:"listings,omitempty"`
}

// Since returns the growth since earlier counters of the same mount.
func (e Events) Since(was Events) Events {
	return Events{
		Opens: Since(was.Opens, e.Opens), Flushes: Since(was.Flushes, e.Flushes), Syncs: Since(was.Syncs, e.Syncs),
		DataInvalidations: Since(was.DataInvalidations, e.DataInvalidations), Listings: Since(was.Listings, e.Listings),
	}
}

// Network holds the counters of TCP in one network namespace, over all connections. Source: snmp_counter.rst of the kernel.
type Network struct {
	InSegments    uint64 `json:"inSegments,omitempty"`
	OutSegments   uint64 `json:"outSegments,omitempty"`
	Retransmitted uint64 `json:"retransmitted,omitempty"`
	// OutOfOrder counts the segments that arrived before a missing one (TCPOFOQueue).
	OutOfOrder uint64 `json:"outOfOrder,omitempty"`
}

// Since returns the growth since earlier counters of the same namespace.
func (n Network) Since(was Network) Network {
	return Network{
		InSegments: Since(was.InSegments, n.InSegments), OutSegments: Since(was.OutSegments, n.OutSegments),
		Retransmitted: Since(was.Retransmitted, n.Retransmitted), OutOfOrder: Since(was.OutOfOrder, n.OutOfOrder),
	}
}

// Log holds the counters of the log of an XFS file system. Source: struct __xfsstats in fs/xfs/xfs_stats.h.
type Log struct {
	Writes uint64 `json:"writes,omitempty"`
	// NoBuffer counts writers that found all in-core log buffers full, NoSpace those that waited for space in the log.
	NoBuffer uint64 `json:"noBuffer,omitempty"`
	NoSpace  uint64 `json:"noSpace,omitempty"`
}

// Since returns the growth since earlier counters of the same file system.
func (l Log) Since(was Log) Log {
	return Log{Writes: Since(was.Writes, l.Writes), NoBuffer: Since(was.NoBuffer, l.NoBuffer), NoSpace: Since(was.NoSpace, l.NoSpace)}
}

// Connection is one transport of NFS, or one socket of SMB.
type Connection struct {
	// ID is the same for one connection as long as its mounts last.
	ID string
	// Sends and Answers count requests and replies, with replies to abandoned requests. Connects counts how often the connection was made.
	// SMB has none of these.
	Sends, Answers, Connects uint64
	// Idle is the time since the last request ended; 0 if the kernel does not report it.
	Idle time.Duration
	// Down is true if the kernel reports that there is no session (SMB).
	Down bool
}

// Queue is one transport as sysfs shows it.
type Queue struct {
	ID string
	// LastUsed is the kernel's mark of the last request that ended; Pending is the number of requests without a reply.
	LastUsed uint64
	Pending  int
}

// HandleRequests counts the requests of one mount that name a file by its handle alone (GETATTR, ACCESS and the like), and those of them
// that ended with an error (0 before Linux 5.3). Permissions make none of these fail.
type HandleRequests struct {
	MountPoint      string
	Ended, InErrors uint64
}

// Request is one without a reply.
type Request struct{ ID, Operation string }
