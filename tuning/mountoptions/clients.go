package mountoptions

import (
	"maps"
	"slices"
)

// NFS clients that accept options other than the options of the kernel's client.
const (
	// EFS is amazon-efs-utils, which mounts through a tunnel on the node.
	EFS Protocol = "EFS"
	// VAST is the client of VAST. A node that has this client uses it for all NFS mounts.
	VAST Protocol = "VAST"
)

const (
	sourceEFS  = "aws/efs-utils 3.2.0, src/efs_utils_common/constants.py and mount_options.py"
	sourceVAST = "vastnfs.vastdata.com/docs/4.0/usage/mount-params.html; not run"

	refuseTunnel = "sets how the tunnel is created, and its user; only the volume itself may set that"
)

// maxVASTConnections is the limit that users of the client report; its source is not public.
const maxVASTConnections = 64

// efs is the table of amazon-efs-utils, which removes its options from the list and passes the other options to the kernel's client.
var efs = overNFS(sourceEFS, map[string]spec{
	"tls":  {key: "tls", value: "tls", note: "The driver adds it, except for volumes with encryptInTransit: false, for which it rejects the option."},
	"iam":  {key: "iam", value: "iam", note: "The node plug-in's identity must have access to the file system."},
	"ocsp": {key: "ocsp", value: "ocsp"},
}, map[string]string{
	"notls": refuseProtection, "noocsp": refuseProtection, "verify": refuseProtection, "cafile": refuseProtection, "capath": refuseTunnel,
	"stunnel":     refuseTunnel,
	"accesspoint": refuseAddress, "az": refuseAddress, "azid": refuseAddress, "mounttargetip": refuseAddress, "region": refuseAddress,
	"crossaccount": refuseAddress, "tlsport": refuseAddress, "netns": refuseTunnel, "awsprofile": refuseTunnel, "awscredsuri": refuseTunnel,
	"rolearn": refuseTunnel, "jwtpath": refuseTunnel,
})

var vast = overNFS(sourceVAST, map[string]spec{
	"nconnect": {key: keyNconnect, kind: count, min: 1, max: maxVASTConnections, unit: "connections",
		note: "The kernel's client accepts at most 16: on a node without VAST's client, a mount with more fails."},
	"remoteports": {key: "remoteports", kind: word, words: []string{"dns"}, note: "Addresses determine which servers are mounted: only the " +
		"volume itself may set them."},
	"spread_reads":  {key: "spread_reads", value: "spread_reads"},
	"spread_writes": {key: "spread_writes", value: "spread_writes"},
}, map[string]string{"localports": refuseAddress})

// overNFS returns the NFS table with additional options of one client. The kernel does not show these options.
func overNFS(source string, specs map[string]spec, rejected map[string]string) *table {
	out := *nfs
	out.source, out.specs, out.rejected = source, overlay(nfs.specs, specs), rejected
	out.never = maps.Clone(nfs.never)
	for _, s := range specs {
		if s.key != keyNconnect {
			out.never[s.key] = true
		}
	}
	return &out
}

// Kernel returns the protocol whose options the kernel's client accepts: NFS for EFS and VAST, otherwise p.
func (p Protocol) Kernel() Protocol {
	if p == EFS || p == VAST {
		return NFS
	}
	return p
}

// AdditionalKnown returns the Known options without the options that the kernel's client accepts or rejects in the same way.
func (p Protocol) AdditionalKnown() []Known {
	if p.Kernel() == p {
		return p.Known()
	}
	kernels := p.Kernel().Known()
	return slices.DeleteFunc(p.Known(), func(k Known) bool {
		return slices.ContainsFunc(kernels, func(other Known) bool {
			return other.Name == k.Name && other.Values == k.Values && other.Rejected == k.Rejected
		})
	})
}

// driverOf maps a client to the CSI driver whose volumes it mounts.
var driverOf = map[Protocol]string{EFS: "efs.csi.aws.com", VAST: "csi.vastdata.com"}

// explainOtherClient names, after a semicolon, another client that accepts an option that NFS rejects. Empty if there is none.
func (t *table) explainOtherClient(o Option) string {
	if t != nfs {
		return ""
	}
	for _, p := range []Protocol{EFS, VAST} {
		if other := tables[p]; other.validateOption(o.String(), o) == "" {
			return "; " + string(p) + "'s client accepts it: use a separate rule whose selector.drivers is [" + driverOf[p] + "]"
		}
	}
	return ""
}
