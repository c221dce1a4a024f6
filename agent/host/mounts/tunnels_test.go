package mounts

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

const socketHead = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"

// socketLine returns a line of /proc/net/tcp or tcp6, as this machine's kernel writes it.
func socketLine(local, state string, uid int) string {
	at := netip.MustParseAddrPort(local)
	var words strings.Builder
	for bytes := at.Addr().AsSlice(); len(bytes) > 0; bytes = bytes[4:] {
		fmt.Fprintf(&words, "%08X", binary.NativeEndian.Uint32(bytes))
	}
	return fmt.Sprintf("   0: %s:%04X 00000000:0000 %s 00000000:00000000 00:00000000 00000000 %5d        0 1076 1 000000001f710c1c 100 0 0 10 0\n",
		words.String(), at.Port(), state, uid)
}

func TestATunnelNeedsItsListener(t *testing.T) {
	const port = "127.0.0.1:20049"
	for name, c := range map[string]struct {
		address     string
		tcp, tcp6   string
		gone, taken bool
	}{
		"stunnel listens":                      {tcp: socketLine("0.0.0.0:22", "0A", 0) + socketLine(port, "0A", 0)},
		"no process listens":                   {tcp: socketLine("127.0.0.1:20050", "0A", 0), gone: true},
		"a process listens on another address": {tcp: socketLine("10.0.0.5:20049", "0A", 0), gone: true},
		"a process listens on all addresses":   {tcp: socketLine("0.0.0.0:20049", "0A", 0)},
		"a process listens on all addresses of IPv6": {
			tcp6: socketLine("[::]:20049", "0A", 0),
		},
		"a process listens on the IPv4 address by IPv6": {tcp6: socketLine("[::ffff:127.0.0.1]:20049", "0A", 0)},
		"the tunnel is on IPv6":                         {address: "::1", tcp6: socketLine("[::1]:20049", "0A", 0)},
		"the tunnel is on IPv6 and gone":                {address: "::1", tcp: socketLine(port, "0A", 0), gone: true},
		"a process of another user listens":             {tcp: socketLine(port, "0A", 1000), taken: true},
		"root listens too":                              {tcp: socketLine(port, "0A", 1000) + socketLine("0.0.0.0:20049", "0A", 0)},
		"only a connection has the port":                {tcp: socketLine(port, "01", 0), gone: true},
		"a line is too short":                           {tcp: socketLine("0.0.0.0:22", "0A", 0) + "  7: 0\n", gone: true},
	} {
		t.Run(name, func(t *testing.T) {
			address := c.address
			if address == "" {
				address = "127.0.0.1"
			}
			counted, err := reader(t, map[string]string{
				"/proc/1/mountinfo": "30 1 0:52 / /m rw - nfs4 " + strings.Trim("["+address+"]", "[]") + ":/ rw,vers=4.1,proto=tcp,port=20049,addr=" + address + "\n" +
					"31 1 0:53 / /n rw - nfs4 filer:/ rw,vers=4.1,proto=tcp,addr=10.0.0.1\n",
				"/proc/1/net/tcp": socketHead + c.tcp, "/proc/1/net/tcp6": socketHead + c.tcp6,
			}).Counters()
			if err != nil || len(counted) != 2 {
				t.Fatalf("got %+v, error %v", counted, err)
			}
			for _, server := range counted {
				if want := server.Tunnel && c.gone; server.Gone != want {
					t.Errorf("%s: gone: got %t, want %t", server.Address, server.Gone, want)
				}
				if want := server.Tunnel && c.taken; server.Taken != want {
					t.Errorf("%s: taken: got %t, want %t", server.Address, server.Taken, want)
				}
			}
		})
	}
}

func TestAnUnreadableSocketTableAccusesNoTunnel(t *testing.T) {
	table := map[string]string{"/proc/1/mountinfo": "30 1 0:52 / /m rw - nfs4 127.0.0.1:/ rw,vers=4.1,proto=tcp,port=20049,addr=127.0.0.1\n"}
	for name, c := range map[string]struct {
		files map[string]string
		gone  bool
	}{
		"no table":               {nil, false},
		"only that of IPv6":      {map[string]string{"/proc/1/net/tcp6": socketHead}, false},
		"a host without IPv6":    {map[string]string{"/proc/1/net/tcp": socketHead}, true},
		"the table is too large": {map[string]string{"/proc/1/net/tcp": socketHead + strings.Repeat("a", 17<<20)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{"/proc/1/mountinfo": table["/proc/1/mountinfo"]}
			for name, data := range c.files {
				files[name] = data
			}
			counted, err := reader(t, files).Counters()
			if err != nil || len(counted) != 1 || counted[0].Gone != c.gone || counted[0].Taken {
				t.Errorf("got %+v, error %v; want gone %t", counted, err, c.gone)
			}
		})
	}
}
