// Package probe mounts an NFS volume once with an exact list of options, beside all mounts of the node and without touching them: in a
// network namespace that is not the node's, and in a mount namespace that dies with the process. Mounts of one server share
// connections and the client's identity within a network namespace (nfs_match_client in the kernel's fs/nfs/client.c), so anywhere
// else the mount would change the users' mounts or prove nothing.
//
// It calls mount(2), as mount.nfs does in the end, and makes of the list what mount.nfs makes of it (nfs-utils,
// utils/mount/stropts.c and mount.c): mount.nfs itself is a program of the host, which would run in the host's network namespace,
// read the host's nfsmount.conf, and report less than the kernel does.
package probe

import "time"

// Order is what is to be mounted.
type Order struct {
	// ID is the order's.
	ID string `json:"id"`
	// Server and Path are what is mounted; Server is a host name or an address.
	Server string `json:"server"`
	Path   string `json:"path"`
	// FSType is nfs or nfs4.
	FSType string `json:"fsType"`
	// Options are the exact list that is tried. OwnOptions, where they differ, are mounted where that fails: the
	// cause may be another.
	Options    []string `json:"options"`
	OwnOptions []string `json:"ownOptions"`
	// User reads the root of the mount, with the group of the same number.
	User int `json:"user"`
	// Timeout bounds the whole.
	Timeout time.Duration `json:"timeout"`
	// HostNetwork names the node's network namespace, as a link in /proc/PID/ns reads: nothing is mounted there.
	HostNetwork string `json:"hostNetwork"`
}

// ProofType names a proof, in the words of the API.
type ProofType string

// Proofs. The result is void unless all of them hold.
const (
	OwnNetwork   ProofType = "OwnNetwork"
	Identifier   ProofType = "Identifier"
	NoOtherMount ProofType = "NoOtherMount"
	OwnDevice    ProofType = "OwnDevice"
	Transports   ProofType = "Transports"
)

// Proof is one thing that makes a result valid.
type Proof struct {
	Type    ProofType `json:"type"`
	Holds   bool      `json:"holds"`
	Message string    `json:"message"`
}

// Mount is how one mount ended.
type Mount struct {
	Succeeded bool   `json:"succeeded"`
	Message   string `json:"message"`
}

// Result is what became of an order.
type Result struct {
	// Tried is true where a mount with Options was tried. Otherwise Message says why not.
	Tried bool `json:"tried"`
	// Mount is how it ended. Where Succeeded, the mount was made and answered; it counts only where all Proofs hold.
	Mount
	// Observed are the options in force, Transports the number of connections.
	Observed   []string `json:"observed"`
	Transports int      `json:"transports"`
	// Identifier is what the NFSv4 client was set to call itself.
	Identifier string  `json:"identifier"`
	Proofs     []Proof `json:"proofs"`
	// Own is how the mount with OwnOptions ended; nil where it was not made.
	Own *Mount `json:"own"`
}

// Missing is the first proof that does not hold, or nil.
func (r Result) Missing() *Proof {
	for i := range r.Proofs {
		if !r.Proofs[i].Holds {
			return &r.Proofs[i]
		}
	}
	return nil
}
