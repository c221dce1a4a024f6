package mountoptions

import "strings"

// NeedsNodeNetwork says why a mount of NFS with these options cannot be tried in a network namespace other than the node's; empty
// where it can. Daemons of the node that the kernel asks are looked for in the mount's own network namespace (rpc_pipefs for
// rpc.gssd, the handshake family of netlink for tlshd), and so are devices for RDMA.
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
