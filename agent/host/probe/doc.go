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
	// Passes, where there are any, are run one after the other, each with Work on a mount of its own, in place of the one mount.
	Passes []OrderedPass `json:"passes,omitempty"`
	Work   Work          `json:"work"`
}

// Arm is the list of a pass, in the words of the API.
type Arm string

// Arms. Before and Again have OwnOptions, After has Options.
const (
	Before Arm = "Before"
	Again  Arm = "Again"
	After  Arm = "After"
)

// OrderedPass is one pass that is asked for.
type OrderedPass struct {
	Round int `json:"round"`
	Arm   Arm `json:"arm"`
}

// MountOnly as the name of a Work mounts, reads the root and unmounts.
const MountOnly = "Mount"

// Work is what is done in each pass.
type Work struct {
	// Name is MountOnly or that of a workload.
	Name string `json:"name"`
	// Path is where, relative to the root of the mount.
	Path string `json:"path"`
	// AllowWrites allows workloads that write. Without it, the mount is read-only to the work.
	AllowWrites bool `json:"allowWrites"`
	// Pause is how long to wait before the work is done a second time on the same mount.
	Pause time.Duration `json:"pause"`
	// MaxEntries and MaxBytes bound it.
	MaxEntries int    `json:"maxEntries"`
	MaxBytes   uint64 `json:"maxBytes"`
}

// Pass is what was measured in one, on a mount with all proofs.
type Pass struct {
	Round  int     `json:"round"`
	Arm    Arm     `json:"arm"`
	Phases []Phase `json:"phases"`
}

// Names of phases.
const (
	First    = "First"
	Repeated = "Repeated"
)

// Phase is the work for the first time on a fresh mount, or repeated.
type Phase struct {
	Name string `json:"name"`
	// Duration is how long the work took, Units how much there was of it.
	Duration time.Duration `json:"duration"`
	Units    uint64        `json:"units"`
	// BytesSent and BytesReceived went over the wire, headers included.
	BytesSent     uint64 `json:"bytesSent"`
	BytesReceived uint64 `json:"bytesReceived"`
	// Operations are the requests that were made, the most frequent first.
	Operations []Operation `json:"operations"`
}

// Operation counts one kind of request.
type Operation struct {
	Name  string `json:"name"`
	Count uint64 `json:"count"`
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
	// Passes are those that were run on a mount with all proofs.
	Passes []Pass `json:"passes,omitempty"`
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
