package mountoptions

import "strings"

// transportKeys contains the keys for the address, the protocol, the security and the number of the server connections. A different
// value can make a server, or a path on it, unreachable. Keys of NFS come first, then additional keys of SMB.
var transportKeys = []string{
	keyProto, "port", keyVersion, keyMinorVersion, keyNconnect, keyMaxConnect, keyResvPort, "xprtsec", "mountport", "mountproto", "mountvers",
	"mounthost", keySec,
	keyChannels, "rdma", "seal", keySign,
}

// ChangesTransport reports whether two sets of options contact the server in different ways. A server that does not
// respond with one set may respond with the other.
func (p Protocol) ChangesTransport(before, list []string) bool {
	t := tableOf(p)
	previous, current := t.resolve(Parse(before)), t.resolve(Parse(list))
	for _, key := range transportKeys {
		from, wasSet := previous[key]
		if to, isSet := current[key]; from != to || wasSet != isSet {
			return true
		}
	}
	return false
}

// NeedsNodeNetwork explains why an NFS mount with these options cannot be tested outside the node's network namespace.
// Empty if it can. The kernel looks for node daemons in the network namespace of the mount: rpc.gssd through
// rpc_pipefs, tlshd through the netlink family handshake. The same applies to RDMA devices.
func NeedsNodeNetwork(options []string) string {
	state := nfs.resolve(Parse(options))
	switch {
	case strings.Contains(state[keySec], "krb5"):
		return "sec=" + state[keySec] + " needs the node's rpc.gssd"
	case state["xprtsec"] != "" && state["xprtsec"] != "none":
		return "xprtsec=" + state["xprtsec"] + " needs the node's tlshd"
	case strings.HasPrefix(state[keyProto], "rdma"):
		return "proto=" + state[keyProto] + " needs the node's RDMA device"
	}
	return ""
}
