// Package sockets reads the state of TCP connections from the kernel (inet_diag), including connections of the kernel's NFS and SMB clients. It
// queries only the kernel and never a mount.
package sockets

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/storageclient/operator/tuning/counters"
	"github.com/storageclient/operator/tuning/lists"
)

const timeout = 5 * time.Second

// Socket is one TCP connection of this network namespace.
type Socket struct {
	// Local is its local port. Remote is its destination.
	Local  int
	Remote netip.AddrPort
	// Repeats is the number of consecutive retransmissions of a segment, or of a probe for one, that the other end has not acknowledged. An end with
	// a full window acknowledges probes.
	Repeats int
	// MinRoundTrip is the shortest round trip that TCP has measured on it.
	MinRoundTrip time.Duration
	// Timestamps and SACK report whether both ends have agreed on these options. WindowScale is the scale of its own window, as an exponent of 2.
	// It is -1 if the windows are not scaled.
	Timestamps, SACK bool
	WindowScale      int
	// Segments are its counters since it was connected.
	Segments counters.Network
}

// Read lists all connections of IPv4 and IPv6. The cost grows with their number, so call it only if the result is needed.
func Read() ([]Socket, error) {
	handle, err := netlink.NewHandle(unix.NETLINK_INET_DIAG)
	if err != nil {
		return nil, fmt.Errorf("open socket diagnostics: %w", err)
	}
	defer handle.Close()
	if err := handle.SetSocketTimeout(timeout); err != nil {
		return nil, fmt.Errorf("limit socket diagnostics: %w", err)
	}
	var all []Socket
	var failed error
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		answers, err := handle.SocketDiagTCPInfo(family)
		// If the dump was interrupted, connections came and went in the meantime. All others are listed.
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
			failed = errors.Join(failed, fmt.Errorf("read socket diagnostics: %w", err))
			continue
		}
		all = append(all, lists.Pick(answers, socketOf)...)
	}
	if len(all) > 0 {
		// A host without IPv6 still lists IPv4.
		return all, nil
	}
	return nil, failed
}

// inUse are the states of connections on which a program still sends. In other states, the kernel only waits for the last acknowledgment.
var inUse = []uint8{netlink.TCP_ESTABLISHED, netlink.TCP_SYN_SENT, netlink.TCP_CLOSE_WAIT}

func socketOf(answer *netlink.InetDiagTCPInfoResp) (Socket, bool) {
	if answer.InetDiagMsg == nil || answer.TCPInfo == nil || !slices.Contains(inUse, answer.InetDiagMsg.State) {
		return Socket{}, false
	}
	id := answer.InetDiagMsg.ID
	remote, ok := netip.AddrFromSlice(id.Destination)
	if !ok {
		return Socket{}, false
	}
	// The options of struct tcp_info are 1: timestamps, 2: SACK, 4: scaled windows.
	options, scale := answer.TCPInfo.Options, -1
	if options&4 != 0 {
		// The library swaps the two scales on little-endian machines, where the first bit field has the low bits.
		scale = int(answer.TCPInfo.Snd_wscale)
	}
	return Socket{
		Timestamps: options&1 != 0, SACK: options&2 != 0, WindowScale: scale,
		Local: int(id.SourcePort), Remote: netip.AddrPortFrom(remote.Unmap(), id.DestinationPort),
		// If this host itself drops the packets that it sends, no segment counts as sent, and only probes are counted.
		Repeats:      int(max(answer.TCPInfo.Retransmits, answer.TCPInfo.Probes)),
		MinRoundTrip: time.Duration(answer.TCPInfo.Min_rtt) * time.Microsecond,
		Segments: counters.Network{
			InSegments: uint64(answer.TCPInfo.Segs_in), OutSegments: uint64(answer.TCPInfo.Segs_out),
			Retransmitted: uint64(answer.TCPInfo.Total_retrans), OutOfOrder: uint64(answer.TCPInfo.Rcv_ooopack),
		},
	}, true
}
