// Package sockets asks the kernel how TCP connections stand (inet_diag), those of its own NFS and SMB clients among them. It asks the
// kernel alone and never a mount.
package sockets

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// timeout bounds one answer of the kernel.
const timeout = 5 * time.Second

// Socket is one TCP connection of this network namespace.
type Socket struct {
	// Local is its local port, Remote where it goes to.
	Local  int
	Remote netip.AddrPort
	// Repeats is how often in a row a segment, or a probe for one, was sent again that the other end has not acknowledged. One whose
	// window is full acknowledges probes.
	Repeats int
	// MinRoundTrip is the shortest way there and back that TCP has seen on it.
	MinRoundTrip time.Duration
}

// Read lists all connections, of IPv4 and IPv6. It costs as much as there are, so ask only where it tells something.
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
		// Interrupted: connections came and went meanwhile, and the others are listed.
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
			failed = errors.Join(failed, fmt.Errorf("read socket diagnostics: %w", err))
			continue
		}
		for _, answer := range answers {
			if socket, ok := socketOf(answer); ok {
				all = append(all, socket)
			}
		}
	}
	if len(all) > 0 {
		// A host without IPv6 still tells of IPv4.
		return all, nil
	}
	return nil, failed
}

// inUse are the states of connections that somebody still sends over. Of others the kernel waits for the last acknowledgement alone.
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
	return Socket{
		Local: int(id.SourcePort), Remote: netip.AddrPortFrom(remote.Unmap(), id.DestinationPort),
		// Where this host itself drops what it sends, nothing counts as sent, and only probes do.
		Repeats:      int(max(answer.TCPInfo.Retransmits, answer.TCPInfo.Probes)),
		MinRoundTrip: time.Duration(answer.TCPInfo.Min_rtt) * time.Microsecond,
	}, true
}
