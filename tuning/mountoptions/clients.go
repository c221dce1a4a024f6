package mountoptions

import (
	"maps"
	"slices"
)

// Clients of NFS that take options beside the kernel's, or others than it.
const (
	// EFS is amazon-efs-utils, which mounts through a tunnel on the node.
	EFS Protocol = "EFS"
	// VAST is VAST's client, of which a node that has it mounts all NFS.
	VAST Protocol = "VAST"
)

const (
	sourceEFS  = "aws/efs-utils 3.2.0, src/efs_utils_common/constants.py and mount_options.py"
	sourceVAST = "vastnfs.vastdata.com/docs/4.0/usage/mount-params.html; not run"

	refuseTunnel = "sets how the tunnel is made, and as whom; only the volume itself may set that"
)

// maxVASTConnections is what its documentation's readers report; the source is not public.
const maxVASTConnections = 64

// efs takes options of its own out of the list, and hands the others to the kernel's client.
var efs = overNFS(sourceEFS, map[string]spec{
	"tls":  {key: "tls", value: "tls", note: "The driver gives it unless the volume says encryptInTransit: false, with which it refuses the option."},
	"iam":  {key: "iam", value: "iam", note: "The node plug-in's identity has to be allowed on the file system."},
	"ocsp": {key: "ocsp", value: "ocsp"},
}, map[string]string{
	"notls": refuseProtection, "noocsp": refuseProtection, "verify": refuseProtection, "cafile": refuseProtection, "capath": refuseTunnel, "stunnel": refuseTunnel,
	"accesspoint": refuseAddress, "az": refuseAddress, "azid": refuseAddress, "mounttargetip": refuseAddress, "region": refuseAddress,
	"crossaccount": refuseAddress, "tlsport": refuseAddress, "netns": refuseTunnel, "awsprofile": refuseTunnel, "awscredsuri": refuseTunnel,
	"rolearn": refuseTunnel, "jwtpath": refuseTunnel,
})

var vast = overNFS(sourceVAST, map[string]spec{
	"nconnect": {key: keyNconnect, kind: count, min: 1, max: maxVASTConnections, unit: "connections",
		note: "The kernel's own client takes 16 at most: on a node without VAST's, a mount with more fails."},
	"remoteports":   {key: "remoteports", kind: word, words: []string{"dns"}, note: "Addresses say which servers are mounted: only the volume itself may have them."},
	"spread_reads":  {key: "spread_reads", value: "spread_reads"},
	"spread_writes": {key: "spread_writes", value: "spread_writes"},
}, map[string]string{"localports": refuseAddress})

// overNFS is NFS with options that one client knows. The kernel shows none of these.
func overNFS(source string, specs map[string]spec, refused map[string]string) *table {
	out := *nfs
	out.source, out.specs, out.refused = source, overlay(nfs.specs, specs), refused
	out.never = maps.Clone(nfs.never)
	for _, s := range specs {
		if s.key != keyNconnect {
			out.never[s.key] = true
		}
	}
	return &out
}

// Kernel is the family whose options the kernel's own client takes: NFS of EFS and VAST, else the family itself.
func (p Protocol) Kernel() Protocol {
	if p == EFS || p == VAST {
		return NFS
	}
	return p
}

// OwnKnown is Known without what the kernel's own client takes, or refuses, just so.
func (p Protocol) OwnKnown() []Known {
	if p.Kernel() == p {
		return p.Known()
	}
	kernels := p.Kernel().Known()
	return slices.DeleteFunc(p.Known(), func(k Known) bool {
		return slices.ContainsFunc(kernels, func(other Known) bool {
			return other.Name == k.Name && other.Values == k.Values && other.Refused == k.Refused
		})
	})
}

// driverOf names the driver whose volumes are mounted by a client.
var driverOf = map[Protocol]string{EFS: "efs.csi.aws.com", VAST: "csi.vastdata.com"}

// explainOtherClient says, after a semicolon, which other client takes an option that NFS refuses; empty where none does.
func (t *table) explainOtherClient(o Option) string {
	if t != nfs {
		return ""
	}
	for _, p := range []Protocol{EFS, VAST} {
		if other := tables[p]; other.refuseOption(o.String(), o) == "" {
			return "; " + string(p) + "'s client takes it: give it a rule of its own whose selector.drivers is [" + driverOf[p] + "]"
		}
	}
	return ""
}
