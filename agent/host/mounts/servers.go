package mounts

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/storageclient/operator/agent/host/connect"
)

// smbPort is the server's port unless the option port= sets another.
const smbPort = 445

// Servers returns the servers of network mounts over TCP, each address once, in the order of the mount table. It reads the mount table only.
func (r Reader) Servers() ([]connect.Server, error) {
	lines, _, err := r.readMountinfo()
	if err != nil {
		return nil, err
	}
	var servers []connect.Server
	seen := map[string]bool{}
	for _, line := range lines {
		server, ok := serverOf(line)
		if ok && !seen[server.Address] {
			seen[server.Address] = true
			servers = append(servers, server)
		}
	}
	return servers, nil
}

func serverOf(line Entry) (connect.Server, bool) {
	name, _ := splitSource(line)
	address := cmp.Or(OptionValue(line.Super, "addr"), name)
	server := connect.Server{Name: serverName(line)}
	port := smbPort
	switch {
	case isNFS(line.FSType) && slices.Contains([]string{"tcp", "tcp6"}, OptionValue(line.Super, "proto")):
		server.Protocol, server.Version, port = connect.NFS, 4, nfsPort
		if OptionValue(line.Super, "vers") == "3" {
			server.Version = 3
		}
	case isSMB(line.FSType) && !slices.Contains(line.Super, "rdma"):
		server.Protocol = connect.SMB
	default:
		return connect.Server{}, false
	}
	server.Address = net.JoinHostPort(address, strconv.Itoa(portOf(line, port)))
	return server, address != ""
}

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

const (
	hostNameFile   = "/proc/sys/kernel/hostname"
	identifierFile = "/sys/fs/nfs/net/nfs_client/identifier"
	uniqueIDFile   = "/sys/module/nfs/parameters/nfs4_unique_id"
	// unsetIdentifier is the kernel's output if no identifier was written.
	unsetIdentifier = "(null)"
)

// ClientName returns the name by which the host's NFSv4 client identifies itself to every server, next to the protocol's version. Empty if the host
// has no NFSv4 mount. Source: nfs4_init_uniform_client_string and nfs4_get_uniquifier in fs/nfs/nfs4proc.c.
func (r Reader) ClientName() string {
	lines, _, err := r.readMountinfo()
	if err != nil || !hasNFSv4(lines) {
		return ""
	}
	name, err := r.fs.ReadValue(hostNameFile)
	if err != nil || name == "" {
		return ""
	}
	for _, file := range []string{identifierFile, uniqueIDFile} {
		if id, err := r.fs.ReadValue(file); err == nil && id != "" && id != unsetIdentifier {
			return id + "/" + name
		}
	}
	return name
}

func hasNFSv4(lines []Entry) bool {
	return slices.ContainsFunc(lines, func(line Entry) bool {
		return isNFS(line.FSType) && strings.HasPrefix(OptionValue(line.Super, "vers"), "4")
	})
}
