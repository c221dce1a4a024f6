//go:build e2e

package e2e

import (
	"slices"
	"strings"

	"github.com/storageclient/operator/tuning/mountoptions"
)

// optionCase is one option of the engine with one value.
type optionCase struct {
	protocol mountoptions.Protocol
	// option is the requested option, without the options that it requires.
	option string
	needs  []string
	// other contains the options of a mount that must not count as a mount with the option: none, or another value.
	other []string
	// versus is the full list of that mount if replacing the option by other is not enough. The engine then compares only the option with
	// it.
	versus []string
	// noOther is the reason why no mount without the option is possible. Empty if one is.
	noOther string
}

func (c optionCase) wanted() []string { return append(slices.Clone(c.needs), c.option) }

// without returns the list of a mount without the option.
func (c optionCase) without() []string {
	if c.versus != nil {
		return c.versus
	}
	return append(slices.Clone(c.needs), c.other...)
}

// claimed returns the list that the engine must not find on a mount without the option.
func (c optionCase) claimed() []string {
	if c.versus != nil {
		return []string{c.option}
	}
	return c.wanted()
}

func (c optionCase) name() string {
	name, _, _ := strings.Cut(c.option, "=")
	return name
}

// clashes reports whether two options conflict, so that no list may contain both.
func (c optionCase) clashes(other optionCase) bool {
	if c.key() == other.key() {
		return true
	}
	all, one := []string{"actimeo", "ac"}, []string{"actimeo", "ac", "acregmin", "acregmax", "acdirmin", "acdirmax", "sync"}
	return slices.Contains(all, c.key()) && slices.Contains(one, other.key()) || slices.Contains(all, other.key()) && slices.Contains(one, c.key())
}

// key identifies the subject of the option.
func (c optionCase) key() string {
	for _, known := range c.protocol.Known() {
		if known.Name == c.name() {
			return known.Key
		}
	}
	return ""
}

var (
	v3 = []string{"vers=3", "nolock"}
	v4 = []string{"vers=4.2"}
	// trunk limits version 4.1 to mounts with max_connect. The first mount of a server and version sets it for all.
	trunk = []string{"max_connect=4"}
)

// nfsCases contains values of every option of the engine for NFS. No number is a default of a kernel or server.
var nfsCases = slices.Concat(
	cases(mountoptions.NFS, v4, "acregmin=7", "acregmax=77", "acdirmin=17", "acdirmax=177", "actimeo=30", "actimeo=60", "actimeo=600", "actimeo=0",
		"noac", "nocto", "softreval", "soft", "softerr", "sync", "ro", "nosuid", "nodev", "noexec", "_netdev", "nofail",
		"timeo=100", "timeo=7000", "retrans=5", "retry=1", "lookupcache=none", "lookupcache=pos", "lookupcache=positive",
		"rsize=65536", "wsize=65536", "rsize=300000", "wsize=300000", "rsize=8650752", "sec=krb5", "sec=krb5i", "sec=krb5p", "sec=none", "xprtsec=none", "xprtsec=tls", "xprtsec=mtls",
		"nosharecache", "nordirplus", "fsc", "write=eager", "write=wait", "noalignwrite", "alignwrite", "fatal_neterrors=none", "fatal_neterrors=ENETDOWN:ENETUNREACH",
		"trunkdiscovery", "notrunkdiscovery", "intr", "nointr", "atime", "noatime", "relatime", "strictatime", "diratime", "nodiratime",
		"proto=udp", "udp", "proto=tcp6", "proto=udp6", "proto=rdma6", "rdma"),
	// Kernel defaults, compared with a mount with the opposite option.
	[]optionCase{
		{option: "ac", needs: v4, other: []string{"noac"}}, {option: "cto", needs: v4, other: []string{"nocto"}},
		{option: "hard", needs: v4, other: []string{"soft"}}, {option: "nosoftreval", needs: v4, other: []string{"softreval"}},
		{option: "async", needs: v4, other: []string{"sync"}}, {option: "rw", needs: v4, other: []string{"ro"}},
		{option: "lookupcache=all", needs: v4, other: []string{"lookupcache=none"}}, {option: "write=lazy", needs: v4, other: []string{"write=eager"}},
		{option: "sharecache", needs: v4, other: []string{"nosharecache"}}, {option: "rdirplus", needs: v4, other: []string{"nordirplus"}},
		{option: "nofsc", needs: v4, other: []string{"fsc"}}, {option: "sec=sys", needs: v4, other: []string{"sec=none"}}, {option: "rsize=1048576", needs: v4, other: []string{"rsize=65536"}},
		{option: "proto=tcp", needs: v4, noOther: "a kernel without UDP and RDMA"}, {option: "tcp", needs: v4, noOther: "a kernel without UDP and RDMA"},
	},
	// Only NFSv3.
	cases(mountoptions.NFS, v3, "noacl"),
	cases(mountoptions.NFS, []string{"vers=3"}, "local_lock=all", "local_lock=flock", "local_lock=posix"),
	[]optionCase{
		{option: "acl", needs: v3, other: []string{"noacl"}}, {option: "local_lock=none", needs: []string{"vers=3"}, other: []string{"local_lock=all"}},
		{option: "nolock", needs: []string{"vers=3"}}, {option: "lock", needs: []string{"vers=3"}, other: []string{"nolock"}},
	},
	// Options that add up, reset each other or include each other.
	[]optionCase{
		{option: "local_lock=posix", needs: []string{"vers=3", "local_lock=flock"}}, {option: "nolock", needs: []string{"vers=3", "local_lock=flock"}},
		{option: "acdirmax=177", needs: []string{"vers=4.2", "actimeo=30"}}, {option: "actimeo=30", needs: []string{"vers=4.2", "acdirmax=177"}}, {option: "noac", needs: []string{"vers=4.2", "async"}},
	},
	[]optionCase{
		{option: "vers=3", needs: []string{"nolock"}, other: v4}, {option: "nfsvers=3", needs: []string{"nolock"}, other: v4}, {option: "v3", needs: []string{"nolock"}, other: v4},
		{option: "vers=4", other: v3}, {option: "v4", other: v3}, {option: "v4.2", other: v3}, {option: "vers=4.2", other: v3}, {option: "nfsvers=4.2", other: []string{"vers=4.0"}},
		{option: "vers=4.0", other: v4}, {option: "v4.0", other: v4}, {option: "vers=4.1", needs: trunk, versus: v4}, {option: "v4.1", needs: trunk, versus: v4},
		{option: "minorversion=1", needs: []string{"max_connect=4", "vers=4"}, versus: v4},
	},
	// Options that the first mount of a server's address fixes. All addresses of one server are the same server for 4.1 and later.
	[]optionCase{
		{option: "nconnect=2", needs: v3}, {option: "nconnect=16", needs: v3}, {option: "nconnect=1", needs: v3, other: []string{"nconnect=2"}},
		{option: "noresvport", needs: v3}, {option: "resvport", needs: v3, other: []string{"noresvport"}},
		{option: "max_connect=4", needs: []string{"vers=4.1"}, versus: v4},
	},
)

// xfsCases contains values of every option of the engine for XFS.
var xfsCases = slices.Concat(
	cases(mountoptions.XFS, nil, "logbufs=4", "logbsize=256k", "logbsize=262144", "logbsize=64k", "allocsize=64k", "allocsize=1m", "inode32", "largeio", "discard",
		"swalloc", "filestreams", "wsync", "nouuid", "dax=always", "dax=never", "ikeep", "noikeep", "attr2", "noatime", "nodiratime", "strictatime", "lazytime", "sync", "ro",
		"nosuid", "nodev", "noexec", "_netdev", "nofail", "lifetime", "nolifetime", "max_atomic_write=4096", "max_open_zones=64"),
	[]optionCase{
		{option: "logbufs=8", other: []string{"logbufs=4"}}, {option: "logbsize=32k", other: []string{"logbsize=256k"}},
		{option: "inode64", other: []string{"inode32"}}, {option: "nolargeio", other: []string{"largeio"}}, {option: "nodiscard", other: []string{"discard"}},
		{option: "relatime", other: []string{"noatime"}}, {option: "diratime", other: []string{"nodiratime"}},
		{option: "dax=inode", other: []string{"dax=never"}}, {option: "noquota", other: []string{"quota"}}, {option: "async", other: []string{"sync"}}, {option: "rw", other: []string{"ro"}},
	},
)

// smbCases contains values of every option of the engine for SMB.
var smbCases = slices.Concat(
	cases(mountoptions.SMB, nil, "actimeo=30", "acregmax=7", "acdirmax=17", "closetimeo=5", "cache=none", "cache=loose", "cache=ro", "cache=singleclient",
		"max_channels=2", "multichannel", "rsize=1048576", "wsize=1048576", "rsize=65536", "wsize=65536", "rasize=1048576", "max_cached_dirs=8", "echo_interval=10", "handletimeout=30000",
		"retrans=3", "max_credits=1000", "esize=65536", "seal", "noserverino", "nostrictsync", "nohandlecache", "persistenthandles", "nopersistenthandles", "resilienthandles",
		"noresilienthandles", "fsc", "nodfs", "nosharesock", "mfsymlinks", "nobrl", "nolease", "hard", "sync", "ro", "nosuid", "nodev", "noexec", "_netdev", "nofail",
		"vers=2.1", "vers=3.0", "vers=3.02", "atime", "noatime", "relatime", "diratime", "nodiratime", "bsize=65536", "compress", "lease", "min_enc_offload=65536",
		"noautotune", "noblocksend", "nodelete", "nosparse", "notcpnodelay", "tcpnodelay", "sign"),
	[]optionCase{
		{option: "cache=strict", other: []string{"cache=none"}}, {option: "max_channels=1", other: []string{"max_channels=2"}}, {option: "nomultichannel", other: []string{"multichannel"}},
		{option: "serverino", other: []string{"noserverino"}}, {option: "strictsync", other: []string{"nostrictsync"}}, {option: "handlecache", other: []string{"nohandlecache"}},
		{option: "brl", other: []string{"nobrl"}}, {option: "soft", other: []string{"hard"}}, {option: "async", other: []string{"sync"}}, {option: "rw", other: []string{"ro"}},
		{option: "vers=3.1.1", other: []string{"vers=2.1"}}, {option: "vers=3", other: []string{"vers=2.1"}}, {option: "vers=default", other: []string{"vers=2.1"}},
		{option: "esize=0", other: []string{"esize=65536"}},
	},
)

// cases returns options that are compared with a mount without them.
func cases(p mountoptions.Protocol, needs []string, options ...string) []optionCase {
	var out []optionCase
	for _, option := range options {
		out = append(out, optionCase{protocol: p, option: option, needs: needs})
	}
	return out
}

// casesOf returns the cases of a protocol and sets their protocol.
func casesOf(p mountoptions.Protocol) []optionCase {
	all := slices.Clone(map[mountoptions.Protocol][]optionCase{mountoptions.NFS: nfsCases, mountoptions.XFS: xfsCases, mountoptions.SMB: smbCases}[p])
	for i := range all {
		all[i].protocol = p
	}
	return all
}
