package mounts

import (
	"cmp"
	"net"
	"slices"
	"strconv"

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
