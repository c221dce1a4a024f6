package mountoptions

import (
	"cmp"
	"slices"
)

// NFS clients that accept options other than the options of the kernel's client.
const (
	// EFS is amazon-efs-utils, which mounts through a tunnel on the node.
	EFS Protocol = "EFS"
	// VAST is the client of VAST. A node that has this client uses it for all NFS mounts.
	VAST Protocol = "VAST"
)

var (
	// efs is the table of amazon-efs-utils, which removes its options from the list and passes the other options to the kernel's client.
	efs = overNFS("EFS")
	// vast accepts up to 64 connections: the limit that users of the client report; its source is not public.
	vast = overNFS("VAST")
)

// overNFS returns the NFS table with additional options of one client. The kernel does not show these options.
func overNFS(client string) *table {
	out := *nfs
	out.Never = slices.Clone(nfs.Never)
	for name, s := range documents[client].Options {
		if key := cmp.Or(s.Key, name); key != keyNconnect {
			out.Never = append(out.Never, key)
		}
	}
	return out.addOptions(client)
}

// Kernel returns the protocol whose options the kernel's client accepts: NFS for EFS and VAST, otherwise p.
func (p Protocol) Kernel() Protocol {
	if p == EFS || p == VAST {
		return NFS
	}
	return p
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
