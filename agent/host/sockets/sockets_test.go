package sockets

import (
	"net"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/tuning/counters"
)

func TestReadFindsAConnection(t *testing.T) {
	for name, address := range map[string]string{"IPv4": "127.0.0.1:0", "IPv6": "[::1]:0"} {
		t.Run(name, func(t *testing.T) {
			listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
			if err != nil {
				t.Skipf("%s is not available here: %v", address, err)
			}
			defer listener.Close()
			connection, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", listener.Addr().String())
			check.NoError(t, err)
			defer connection.Close()
			all, err := Read()
			check.NoError(t, err)
			want := Socket{Local: portOf(connection.LocalAddr()), Remote: netip.MustParseAddrPort(listener.Addr().String())}
			found := slices.ContainsFunc(all, func(s Socket) bool {
				known := s.MinRoundTrip > 0
				known = known && s.Segments.OutSegments > 0
				s.MinRoundTrip, s.Segments, s.Timestamps, s.SACK, s.WindowScale = 0, counters.Network{}, false, false, 0
				return known && s == want
			})
			if !found {
				t.Errorf("no socket %+v with a round trip time among %d sockets", want, len(all))
			}
		})
	}
}

func portOf(address net.Addr) int { return address.(*net.TCPAddr).Port }

func TestSocketOf(t *testing.T) {
	id := netlink.SocketID{SourcePort: 812, DestinationPort: 2049, Destination: net.ParseIP("::ffff:10.0.0.1")}
	for name, info := range map[string]netlink.TCPInfo{
		"no sent data arrives":     {Unacked: 3, Retransmits: 7, Backoff: 9, Min_rtt: 1400, Segs_in: 5, Segs_out: 6, Total_retrans: 7, Rcv_ooopack: 8},
		"no data leaves this host": {Probes: 7, Backoff: 9, Min_rtt: 1400, Segs_in: 5, Segs_out: 6, Total_retrans: 7, Rcv_ooopack: 8},
	} {
		got, ok := socketOf(&netlink.InetDiagTCPInfoResp{InetDiagMsg: &netlink.Socket{ID: id, State: netlink.TCP_ESTABLISHED}, TCPInfo: &info})
		want := Socket{Local: 812, Remote: netip.MustParseAddrPort("10.0.0.1:2049"), Repeats: 7, MinRoundTrip: 1400 * time.Microsecond, WindowScale: -1}
		want.Segments = counters.Network{InSegments: 5, OutSegments: 6, Retransmitted: 7, OutOfOrder: 8}
		if !ok || got != want {
			t.Errorf("%s: %+v, %v; want %+v", name, got, ok, want)
		}
	}
	for name, answer := range map[string]netlink.InetDiagTCPInfoResp{
		"has no data":             {InetDiagMsg: &netlink.Socket{ID: id, State: netlink.TCP_ESTABLISHED}},
		"was closed on this host": {InetDiagMsg: &netlink.Socket{ID: id, State: netlink.TCP_FIN_WAIT1}, TCPInfo: &netlink.TCPInfo{Retransmits: 9}},
		"has no addresses":        {TCPInfo: &netlink.TCPInfo{Retransmits: 9}},
	} {
		if _, ok := socketOf(&answer); ok {
			t.Errorf("a socket that %s is in the list", name)
		}
	}
}

// The client has a smaller window than the server: the scales of both ends differ, and each socket shows its own.
func TestTheScaleOfASocketIsThatOfItsOwnWindow(t *testing.T) {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	check.NoError(t, err)
	defer listener.Close()
	small := net.Dialer{Control: func(_, _ string, c syscall.RawConn) (err error) {
		_ = c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_WINDOW_CLAMP, 65536) })
		return err
	}}
	connection, err := small.DialContext(t.Context(), "tcp", listener.Addr().String())
	check.NoError(t, err)
	defer connection.Close()
	all, err := Read()
	check.NoError(t, err)
	scaleOf := func(local net.Addr) int {
		for _, s := range all {
			if s.Local == portOf(local) {
				return s.WindowScale
			}
		}
		t.Fatalf("no socket of %s", local)
		return 0
	}
	if client, server := scaleOf(connection.LocalAddr()), scaleOf(listener.Addr()); client != 1 || server <= client {
		t.Errorf("got scales %d of the client and %d of the server, want 1 and more", client, server)
	}
}
