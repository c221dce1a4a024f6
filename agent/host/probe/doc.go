// Package probe mounts an NFS volume once with the full mount options, next to all mounts of the node and without changing them. It uses a network
// namespace that is not the node's, and a mount namespace that ends with the process. Within a network namespace, mounts of one server share
// connections and the client's identity (nfs_match_client in the kernel's fs/nfs/client.c). Anywhere else, the mount would therefore change the
// users' mounts, or would be no proof.
//
// It calls mount(2), as mount.nfs finally does, and processes the options like mount.nfs (nfs-utils, utils/mount/stropts.c and mount.c). It does not
// run mount.nfs itself, because that is a program of the host. It would run in the host's network namespace, read the host's nfsmount.conf, and
// report less than the kernel does.
package probe

import (
	"slices"
	"time"

	"github.com/storageclient/operator/agent/host/workload"
)

// Order describes the mount to make.
type Order struct {
	// ID is the ID of the order.
	ID string `json:"id"`
	// Server and Path are the source of the mount. Server is a host name or an address.
	Server string `json:"server"`
	Path   string `json:"path"`
	// FSType is nfs or nfs4.
	FSType string `json:"fsType"`
	// Options are the full mount options to try. If that fails and OwnOptions differ, the probe mounts with OwnOptions, because the cause may be
	// another.
	Options    []string `json:"options"`
	OwnOptions []string `json:"ownOptions"`
	// User reads the root of the mount, with the group of the same number.
	User int `json:"user"`
	// Timeout limits the whole order.
	Timeout time.Duration `json:"timeout"`
	// HostNetwork is the node's network namespace, in the format of a link in /proc/PID/ns. The probe must not mount there.
	HostNetwork string `json:"hostNetwork"`
	// Passes, if there are any, replace the single mount. They run one after the other, each with Work on a separate mount.
	Passes []OrderedPass `json:"passes,omitempty"`
	Work   Work          `json:"work"`
	// Sysctls are set in the network namespace for the passes. Empty if the passes have the namespace's own values.
	Sysctls []Sysctl `json:"sysctls,omitempty"`
}

// Sysctl is a sysctl of a network namespace. Before is its value on the node, for Before and Again. After is its value for After.
type Sysctl struct {
	Name   string `json:"name"`
	Before string `json:"before"`
	After  string `json:"after"`
}

// Arm selects the options of a pass, named as in the API.
type Arm string

// Arms. Before and Again use OwnOptions, After uses Options.
const (
	Before Arm = "Before"
	Again  Arm = "Again"
	After  Arm = "After"
)

// OrderedPass is one requested pass.
type OrderedPass struct {
	Round int `json:"round"`
	Arm   Arm `json:"arm"`
	// ReadAheadKiB is the read-ahead window of the mount. Zero for the kernel's default.
	ReadAheadKiB int `json:"readAheadKiB,omitempty"`
}

// MountOnly is the name of a Work that mounts, reads the root and unmounts.
const MountOnly = "Mount"

// Work is the work of each pass.
type Work struct {
	workload.Load
	// Name is MountOnly or the name of a workload.
	Name string `json:"name"`
	// Path is the directory of the work, relative to the root of the mount.
	Path string `json:"path"`
	// AllowWrites allows workloads that write. Without it, the mount is read-only for the work.
	AllowWrites bool `json:"allowWrites"`
	// Pause is the time before the work is repeated on the same mount.
	Pause time.Duration `json:"pause"`
	// MaxEntries and MaxBytes limit the work.
	MaxEntries int    `json:"maxEntries"`
	MaxBytes   uint64 `json:"maxBytes"`
}

// Pass contains the measurements of one pass, on a mount with all proofs.
type Pass struct {
	Round  int     `json:"round"`
	Arm    Arm     `json:"arm"`
	Phases []Phase `json:"phases"`
	// ReadAheadKiB is the window that was read back. Zero if the order has none.
	ReadAheadKiB int `json:"readAheadKiB,omitempty"`
}

// Names of phases.
const (
	First    = "First"
	Repeated = "Repeated"
)

// Phase is the first run of the work on a fresh mount, or the repeated run.
type Phase struct {
	Name string `json:"name"`
	// Duration is the time that the work took. Units is the amount of work.
	Duration time.Duration `json:"duration"`
	Units    uint64        `json:"units"`
	// BytesSent and BytesReceived are the bytes on the wire, including headers.
	BytesSent     uint64 `json:"bytesSent"`
	BytesReceived uint64 `json:"bytesReceived"`
	// Operations are the requests, the most frequent first.
	Operations []Operation `json:"operations"`
}

// Operation counts one kind of request.
type Operation struct {
	Name  string `json:"name"`
	Count uint64 `json:"count"`
}

// ProofType names a proof, as in the API.
type ProofType string

// Proofs. The result is invalid unless all of them hold.
const (
	OwnNetwork   ProofType = "OwnNetwork"
	Identifier   ProofType = "Identifier"
	NoOtherMount ProofType = "NoOtherMount"
	OwnDevice    ProofType = "OwnDevice"
	Transports   ProofType = "Transports"
	Sysctls      ProofType = "Sysctls"
)

// Proof is one condition for a valid result.
type Proof struct {
	Type    ProofType `json:"type"`
	Holds   bool      `json:"holds"`
	Message string    `json:"message"`
}

// Mount is the result of one mount.
type Mount struct {
	Succeeded bool   `json:"succeeded"`
	Message   string `json:"message"`
}

// Result is the result of an order.
type Result struct {
	// Tried is true if a mount with Options was tried. Otherwise, Message explains why it was not.
	Tried bool `json:"tried"`
	// Mount is the result of that mount. If Succeeded, the mount was made and the server responded. It is valid only if all Proofs hold.
	Mount
	// Observed are the effective options. Transports is the number of connections.
	Observed   []string `json:"observed"`
	Transports int      `json:"transports"`
	// Identifier is the client ID that was set for the NFSv4 client.
	Identifier string  `json:"identifier"`
	Proofs     []Proof `json:"proofs"`
	// Own is the result of the mount with OwnOptions. Nil if it was not made.
	Own *Mount `json:"own"`
	// Passes are the passes that ran on a mount with all proofs.
	Passes []Pass `json:"passes,omitempty"`
}

// Missing returns the first proof that does not hold, or nil.
func (r Result) Missing() *Proof {
	if i := slices.IndexFunc(r.Proofs, func(p Proof) bool { return !p.Holds }); i >= 0 {
		return &r.Proofs[i]
	}
	return nil
}
