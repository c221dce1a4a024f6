package mountoptions

import "strings"

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
