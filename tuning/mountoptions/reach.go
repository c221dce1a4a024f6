package mountoptions

// reaching are the keys that say where a server is asked, how, and over how many connections: with another value, one that could be
// reached may not be. Those of NFS come first, then what SMB has beside them.
var reaching = []string{
	keyProto, "port", keyVersion, keyMinorVersion, keyNconnect, keyMaxConnect, keyResvPort, "xprtsec", "mountport", "mountproto", "mountvers", "mounthost",
	"multichannel", "max_channels", "rdma",
}

// AsksOtherwise says whether one list has the server asked in another way than a list of before: a server that does not answer it may
// have answered that one.
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
