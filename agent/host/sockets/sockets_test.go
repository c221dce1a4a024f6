package sockets

import (
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
)

func TestReadFindsAConnection(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
		if err != nil {
			t.Skipf("no %s here: %v", address, err)
		}
		defer listener.Close()
		connection, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer connection.Close()
		all, err := Read()
		if err != nil {
			t.Fatal(err)
		}
		want := Socket{Local: portOf(connection.LocalAddr()), Remote: netip.MustParseAddrPort(listener.Addr().String())}
		found := slices.ContainsFunc(all, func(s Socket) bool {
			known := s.MinRoundTrip > 0
			s.MinRoundTrip = 0
			return known && s == want
		})
		if !found {
			t.Errorf("no %+v with a round trip among %d", want, len(all))
		}
	}
}

func portOf(address net.Addr) int { return address.(*net.TCPAddr).Port }

func TestSocketOf(t *testing.T) {
	id := netlink.SocketID{SourcePort: 812, DestinationPort: 2049, Destination: net.ParseIP("::ffff:10.0.0.1")}
	got, ok := socketOf(&netlink.InetDiagTCPInfoResp{
		InetDiagMsg: &netlink.Socket{ID: id}, TCPInfo: &netlink.TCPInfo{Unacked: 3, Retransmits: 7, Backoff: 9, Min_rtt: 1400},
	})
	want := Socket{Local: 812, Remote: netip.MustParseAddrPort("10.0.0.1:2049"), Unacknowledged: 3, Repeats: 7, MinRoundTrip: 1400 * time.Microsecond}
	if !ok || got != want {
		t.Errorf("%+v, %v; want %+v", got, ok, want)
	}
	if _, ok := socketOf(&netlink.InetDiagTCPInfoResp{InetDiagMsg: &netlink.Socket{ID: id}}); ok {
		t.Error("a socket that tells nothing, as in TIME_WAIT, is listed")
	}
}
