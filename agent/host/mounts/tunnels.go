package mounts

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
)

// socketFiles list the TCP sockets of the host's network namespace. A host without IPv6 has only the first one.
var socketFiles = []string{"/proc/1/net/tcp", "/proc/1/net/tcp6"}

// checkTunnels sets Gone and Taken of the tunnels. It reads the kernel's socket tables and makes no connection.
func (r Reader) checkTunnels(found map[string]*ServerCounters) {
	listeners := sync.OnceValue(r.readListeners)
	for _, server := range found {
		target, err := netip.ParseAddrPort(server.Address)
		if !server.Tunnel || err != nil || server.Ask.Address == "" {
			continue
		}
		var listening []string
		users := listeners()
		mapped := netip.AddrFrom16(target.Addr().As16())
		for _, at := range []netip.Addr{target.Addr(), mapped, netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
			listening = append(listening, users[socketAddress(at, target.Port())]...)
		}
		server.Gone = users != nil && len(listening) == 0
		server.Taken = len(listening) > 0 && !slices.Contains(listening, "0")
	}
}

// readListeners returns the users of the sockets that listen, by address as in the tables. Nil if a table cannot be read.
func (r Reader) readListeners() map[string][]string {
	users := map[string][]string{}
	for i, name := range socketFiles {
		data, err := r.fs.ReadIfThere(name)
		if err != nil || i == 0 && len(data) == 0 {
			return nil
		}
		for line := range bytes.Lines(data) {
			// Sockets in state 0A listen.
			if fields := strings.Fields(string(line)); len(fields) > 7 && fields[3] == "0A" {
				users[fields[1]] = append(users[fields[1]], fields[7])
			}
		}
	}
	return users
}

// socketAddress returns an address as "0100007F:4E51": words in the byte order of the machine. Source: get_tcp4_sock in net/ipv4/tcp_ipv4.c.
func socketAddress(at netip.Addr, port uint16) string {
	var words strings.Builder
	for word := range slices.Chunk(at.AsSlice(), 4) {
		fmt.Fprintf(&words, "%08X", binary.NativeEndian.Uint32(word))
	}
	return fmt.Sprintf("%s:%04X", words.String(), port)
}
