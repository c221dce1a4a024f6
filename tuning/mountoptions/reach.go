package mountoptions

// reaching contains the keys for the address, the protocol and the number of the server connections. A different value
// can make a server unreachable. Keys of NFS come first, then additional keys of SMB.
var reaching = []string{
	keyProto, "port", keyVersion, keyMinorVersion, keyNconnect, keyMaxConnect, keyResvPort, "xprtsec", "mountport", "mountproto", "mountvers", "mounthost",
	"multichannel", "max_channels", "rdma",
}

// AsksOtherwise reports whether two sets of options contact the server in different ways. A server that does not
// respond with one set may respond with the other.
func (p Protocol) AsksOtherwise(before, list []string) bool {
	t := tableOf(p)
	was, is := t.resolve(Parse(before)), t.resolve(Parse(list))
	for _, key := range reaching {
		if was[key] != is[key] {
			return true
		}
	}
	return false
}
