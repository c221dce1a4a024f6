// Package counters contains the kernel's counters of mounts and their servers. The host reads them, and the rules of tuning/recommend
// and tuning/serverhealth evaluate them. It does not import Kubernetes packages, so that the code on the host can use it.
package counters

import (
	"net/netip"
	"reflect"
	"strings"
	"time"
)

// IsTunnel reports whether a process on the node forwards the requests to a server. Only the name of a tunnel has a port.
func IsTunnel(server string) bool {
	ip, err := netip.ParseAddr(strings.Trim(server, "[]"))
	return err == nil && ip.Unmap().IsLoopback() || err != nil && strings.Contains(server, ":") || server == "localhost"
}

// Since returns the growth of a counter. Zero if it became smaller, for example after a reset.
func Since(previous, now uint64) uint64 {
	if now < previous {
		return 0
	}
	return now - previous
}

// Growth returns the growth of each counter and duration in a structure. All other fields have their values of now.
func Growth[T any](previous, now T) T {
	setGrowth(reflect.ValueOf(previous), reflect.ValueOf(&now).Elem())
	return now
}

func setGrowth(previous, now reflect.Value) {
	for i := range now.NumField() {
		switch before, field := previous.Field(i), now.Field(i); field.Kind() {
		case reflect.Uint64:
			field.SetUint(Since(before.Uint(), field.Uint()))
		case reflect.Int64:
			field.SetInt(max(0, field.Int()-before.Int()))
		case reflect.Struct:
			setGrowth(before, field)
		}
	}
}

// Bytes contains the bytes that programs requested on an NFS mount, and the bytes on the network. Source: nfs_show_stats in
// fs/nfs/super.c.
type Bytes struct {
	// Read and Written are bytes through the page cache. DirectRead and DirectWritten are bytes past it (O_DIRECT).
	Read          uint64 `json:"read,omitempty"`
	Written       uint64 `json:"written,omitempty"`
	DirectRead    uint64 `json:"directRead,omitempty"`
	DirectWritten uint64 `json:"directWritten,omitempty"`
	// WireRead and WireWritten are bytes on the network.
	WireRead    uint64 `json:"wireRead,omitempty"`
	WireWritten uint64 `json:"wireWritten,omitempty"`
}

// Events contains the event counters of an NFS mount. Source: enum nfs_stat_eventcounters in include/linux/nfs_iostat.h.
type Events struct {
	// Opens is the number of calls of open, Flushes of close after writes, and Syncs of fsync.
	Opens   uint64 `json:"opens,omitempty"`
	Flushes uint64 `json:"flushes,omitempty"`
	Syncs   uint64 `json:"syncs,omitempty"`
	// DataInvalidations is the number of files and directories whose cached content was dropped.
	DataInvalidations uint64 `json:"dataInvalidations,omitempty"`
	// AttributeInvalidations is the number of times that new attributes differed from the cached ones.
	AttributeInvalidations uint64 `json:"attributeInvalidations,omitempty"`
	// Listings is the number of calls of getdents.
	Listings uint64 `json:"listings,omitempty"`
}

// Network contains the TCP counters of connections. Source: struct tcp_info in include/uapi/linux/tcp.h.
type Network struct {
	InSegments    uint64 `json:"inSegments,omitempty"`
	OutSegments   uint64 `json:"outSegments,omitempty"`
	Retransmitted uint64 `json:"retransmitted,omitempty"`
	// OutOfOrder is the number of segments that arrived before a missing one (since Linux 5.4).
	OutOfOrder uint64 `json:"outOfOrder,omitempty"`
}

// Log contains the log counters of an XFS file system. Source: struct __xfsstats in fs/xfs/xfs_stats.h.
type Log struct {
	Writes uint64 `json:"writes,omitempty"`
	// NoBuffer is the number of writers that found all in-core log buffers full. NoSpace is the number of writers that waited for log
	// space.
	NoBuffer uint64 `json:"noBuffer,omitempty"`
	NoSpace  uint64 `json:"noSpace,omitempty"`
}

// Activity contains the kernel's counters and lists about one server from which the host mounts.
type Activity struct {
	// Address is the address and port of the connections. If mounts use several, it is the first one.
	Address string
	// Tunnel reports whether Address is the host itself: one of its processes forwards the requests of the mounts.
	Tunnel bool
	// Gone reports whether no socket listens at the address of a tunnel, Taken whether only sockets of users other than root do.
	Gone, Taken bool
	// Connections are the transports of NFS, or the sockets of SMB.
	Connections []Connection
	// Queues are the same transports in sysfs, which cannot be matched with Connections (since Linux 5.14, only while they are connected).
	Queues []Queue
	// Requests are the first 256 pending requests. RequestsKnown is false if the kernel does not list them.
	Requests      []Request
	RequestsKnown bool
	// Handles are the requests of each NFS mount that identify a file only by its handle.
	Handles []HandleRequests
	// Operations is the number of SMB requests, with or without a response. SMB does not count responses.
	Operations uint64
	// Identified is the number of times that the NFSv4 client identified itself (EXCHANGE_ID or SETCLIENTID). RejectedSessions is the number of
	// rejected sessions (errors of CREATE_SESSION); its JSON name is an older one, which recordings contain.
	Identified       uint64
	RejectedSessions uint64 `json:"Refused"`
}

// Connection is one NFS transport or one SMB socket.
type Connection struct {
	// ID is stable while the mounts of the connection exist.
	ID string
	// Sends and Responses are the numbers of requests and responses, including responses to abandoned requests. Connects is the number of
	// times that the connection was made. All three are zero for SMB.
	Sends, Connects uint64
	// The JSON name is an older name of the field, which recordings contain.
	Responses uint64 `json:"Answers"`
	// Idle is the time since the last request finished. Zero if the kernel does not report it.
	Idle time.Duration
	// Down reports whether the kernel shows no session (SMB).
	Down bool
}

// Queue is the request queue of one NFS transport, from sysfs.
type Queue struct {
	ID string
	// LastUsed is the kernel's timestamp of the last finished request. Pending is the number of requests without a response.
	LastUsed uint64
	Pending  int
}

// HandleRequests counts the requests of one mount that identify a file only by its handle (GETATTR, ACCESS and similar). InErrors counts
// the failed ones (0 before Linux 5.3). Missing permissions do not cause these errors.
type HandleRequests struct {
	MountPoint      string
	Ended, InErrors uint64
}

// Request is a request without a response.
type Request struct{ ID, Operation string }
