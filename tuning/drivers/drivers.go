// Package drivers knows the drivers of PersistentVolumes: which protocol a volume speaks, where it names its server, and what the driver
// makes of the volume's mount options before mount sees them. It is pure: no cluster, no host, no clock.
//
// The knowledge is one table of rows, each with what was read of the driver's source. What was not read there is not known, and is
// treated so.
package drivers

import (
	"slices"
	"strings"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/mountoptions"
)

const fsTypeXFS = "xfs"

// Volume is what a PersistentVolume tells of its source.
type Volume struct {
	// Driver is the CSI driver's name, or the in-tree plugin's, e.g. kubernetes.io/nfs. Empty where neither is known.
	Driver string
	// Handle and Attributes are those of a CSI volume.
	Handle     string
	Attributes map[string]string
	// Host is the host that an in-tree volume names, and Path what of it is mounted.
	Host, Path string
	// FSType is the file system type as the volume names it, e.g. xfs.
	FSType string
	// StageSecret is true where the driver gets a secret to stage the volume.
	StageSecret bool
	// ReadOnly is true where the volume itself says so, rather than a pod's claim. The kubelet mounts it no differently: it goes by the
	// claim in the pod alone (NewSpecFromPersistentVolume in pkg/volume/plugins.go of Kubernetes 1.36).
	ReadOnly bool
}

// Client is who makes the mount.
type Client string

const (
	// ClientKernel is the Linux kernel's own client. Zero stands for it.
	ClientKernel Client = ""
	// ClientEFS is amazon-efs-utils: the kernel's client, through a tunnel on 127.0.0.1.
	ClientEFS Client = "efs-utils"
	// ClientAZNFS is mount.aznfs: the kernel's client, through an address of the node's own.
	ClientAZNFS Client = "aznfs"
	// ClientVAST is VAST's client where a node has it, and the kernel's otherwise.
	ClientVAST Client = "VAST"
)

// Source is where a volume's data comes from.
type Source struct {
	// Driver is that of the Volume.
	Driver string
	// Protocol is empty where the driver is not in the table, and where it is none of ours.
	Protocol v1alpha1.VolumeProtocol
	// Server is the host name or address as the volume names it. Empty where the volume does not.
	Server string
	// FSType is the file system type that a block volume is formatted with, e.g. xfs.
	FSType string
	// Client is who mounts it.
	Client Client
}

// Options is the family of the volume's mount options, empty where the driver is not known. Of file systems on block
// devices, XFS has one of its own; of the others only what every file system takes is known.
func (s Source) Options() mountoptions.Protocol {
	switch {
	case s.Protocol == v1alpha1.ProtocolNFS:
		return s.Client.options()
	case s.Protocol == v1alpha1.ProtocolSMB:
		return mountoptions.SMB
	case s.Protocol == v1alpha1.ProtocolBlock && s.FSType == fsTypeXFS:
		return mountoptions.XFS
	case s.Protocol == v1alpha1.ProtocolBlock:
		return mountoptions.Generic
	}
	return ""
}

// options are those of NFS that a client takes.
func (c Client) options() mountoptions.Protocol {
	switch c {
	case ClientEFS:
		return mountoptions.EFS
	case ClientVAST:
		return mountoptions.VAST
	}
	return mountoptions.NFS
}

// step is where a driver reads a volume's mount options.
type step string

const (
	// atPublish is the mount of each pod: a new pod has what the volume says when it starts.
	atPublish step = "each pod"
	// atStage is the mount of a node, which its pods share.
	atStage step = "once a node"
	// atAttach is before any mount: what was read then counts until the volume is detached from the node.
	atAttach step = "once a node, when the volume is attached"
)

// row is what is known of one kind of volumes of a driver.
type row struct {
	// driver is its name; "*.name" stands for all names that end so, and "name.*" for all that begin so.
	driver string
	// protocol is empty where volumes are neither NFS nor SMB nor a disk.
	protocol v1alpha1.VolumeProtocol
	// told says which volumes of the driver the row is for; zero: those that no row before it is for.
	told tell
	// server is where the volume names its server, path what of that is mounted; zero: nowhere, or it is not known. That of a row
	// with a path may be mounted without the driver.
	server, path place
	// fsType is where a block volume says how it is formatted; zero: in the volume's own field.
	fsType place
	client Client
	reads  step
	// hands is what the driver makes of the list; zero: nothing, in the order as it is.
	hands habit
	// own is where the volume has options beside its list, which the driver puts last.
	own place
	// refuses says why the volume's mount options do not matter; empty where they do.
	refuses string
	// empty is what the driver mounts with where the list is empty, and drops as soon as it is not; zero: nothing.
	empty backend
	// rare is true of volumes that a rule has to look for by protocols or fsTypes: one that names the driver alone does not mean them.
	rare bool
	// freeHandle is true where nothing that mounts the volume reads its handle: it may then be any name.
	freeHandle bool
}

// backend is a list that takes the place of an empty one.
type backend struct {
	// text says where it stands.
	text string
	// needs are options that a list which takes its place has to have, by family: without one the mount may become another.
	needs map[mountoptions.Protocol]string
	// attribute of the volume that holds it, where it is there.
	attribute string
}

// tell tells volumes of one kind from others of the driver.
type tell struct {
	text string
	is   func(Volume) bool
}

// place is where something stands in a volume.
type place struct {
	text string
	of   func(Volume) string
}

func (p place) in(v Volume) string {
	if p.of == nil {
		return ""
	}
	return p.of(v)
}

// habit is what a driver makes of a list.
type habit struct {
	text string
	of   func(Volume, []string) []string
}

const (
	nfs   = v1alpha1.ProtocolNFS
	smb   = v1alpha1.ProtocolSMB
	block = v1alpha1.ProtocolBlock
)

// rowsByDriver are the rows of each driver, in the order of the table.
var rowsByDriver = func() map[string][]*row {
	out := map[string][]*row{}
	for i := range table {
		out[table[i].driver] = append(out[table[i].driver], &table[i])
	}
	return out
}()

// nothing is the row of a volume that the table does not have.
var nothing = &row{}

// rowsOf are the rows of a driver by its name, none for one that is not known.
func rowsOf(name string) []*row {
	if rows, known := rowsByDriver[name]; known || name == "" {
		return rows
	}
	if rows, known := rowsByDriver["*."+name]; known {
		return rows
	}
	for i := range name {
		if name[i] != '.' {
			continue
		}
		for _, pattern := range []string{"*" + name[i:], name[:i+1] + "*"} {
			if rows, known := rowsByDriver[pattern]; known {
				return rows
			}
		}
	}
	return nil
}

// row is that of the volume; nobody changes it.
func (v Volume) row() *row {
	for _, r := range rowsOf(v.Driver) {
		if r.told.is == nil || r.told.is(v) {
			return r
		}
	}
	return nothing
}

// Protocols are those that a rule can mean which names a driver, none for one that is not known.
func Protocols(name string) []v1alpha1.VolumeProtocol {
	var all []v1alpha1.VolumeProtocol
	for _, r := range rowsOf(name) {
		if r.protocol != "" && !r.rare && !slices.Contains(all, r.protocol) {
			all = append(all, r.protocol)
		}
	}
	slices.SortFunc(all, func(a, b v1alpha1.VolumeProtocol) int { return slices.Index(inOrder, a) - slices.Index(inOrder, b) })
	return all
}

// Families are the families of options of the volumes of NFS that a driver makes; none where it makes none.
func Families(name string) []mountoptions.Protocol {
	var all []mountoptions.Protocol
	for _, r := range rowsOf(name) {
		if family := r.client.options(); r.protocol == nfs && !slices.Contains(all, family) {
			all = append(all, family)
		}
	}
	return all
}

// inOrder is the order in which protocols are spoken of.
var inOrder = []v1alpha1.VolumeProtocol{nfs, smb, block}

// Source reads protocol and server of a volume.
func (v Volume) Source() Source {
	r := v.row()
	source := Source{Driver: v.Driver, FSType: v.FSType, Protocol: r.protocol, Server: r.server.in(v), Client: r.client}
	if r.fsType.of != nil && source.Protocol == block {
		source.FSType = r.fsType.in(v)
	}
	return source
}

// IsKnown says whether the table has the volume: what it does not have may be anything.
func (v Volume) IsKnown() bool { return v.row().driver != "" }

// MountedPath is what is mounted from the server of an NFS volume; empty where the volume does not tell.
func (v Volume) MountedPath() string { return v.row().path.in(v) }

// MayBeCloned says whether a second volume of the same source, under another handle, is mounted beside the first one and touches no
// mount of it: the driver takes the handle for a name.
func (v Volume) MayBeCloned() bool { return v.row().freeHandle }

// HandleOfClone is the handle of such a second volume.
func (v Volume) HandleOfClone(suffix string) string {
	if !v.MayBeCloned() {
		return v.Handle
	}
	return v.Handle + suffix
}

// Refuses says why the volume takes no mount options, empty where it does or the driver is not known.
func (v Volume) Refuses() string { return v.row().refuses }

// MissingForBackend is the option that a list lacks which is to take the place of the backend's own: of a volume that has no
// options, the driver mounts with those of its backend, and with none of them once it has. Empty where nothing is lost.
func (v Volume) MissingForBackend(p mountoptions.Protocol, own, list []string) string {
	if len(own) > 0 || len(list) == 0 {
		return ""
	}
	empty := v.row().empty
	needed := mountoptions.TakeApart([]string{v.attribute(empty.attribute)})
	if option := empty.needs[p]; option != "" {
		needed = append(needed, option)
	}
	for _, option := range needed {
		if name, _, _ := strings.Cut(option, "="); !p.Says(list, name) {
			return option
		}
	}
	return ""
}

// MountsPerPod says whether every new pod has a new mount. Otherwise a node has one mount for all pods of the volume,
// and a changed option arrives once all of them have left the node.
func (v Volume) MountsPerPod() bool { return v.row().reads == atPublish }

// Hands is the list that mount gets for a volume with these options.
func (v Volume) Hands(options []string) []string {
	r, list := v.row(), options
	if r.hands.of != nil {
		list = r.hands.of(v, options)
	}
	if own := r.own.in(v); own != "" {
		list = append(slices.Clone(list), own)
	}
	return list
}

// Given is what no list may make weaker: the driver's own options, and the read-only mount that the volume asks for. That the kubelet
// takes no notice of the latter does not mean that nobody relies on it.
func (v Volume) Given() []string {
	if v.ReadOnly {
		return append([]string{"ro"}, v.Hands(nil)...)
	}
	return v.Hands(nil)
}

// Check says which options of a volume do not mean to mount what they say in the list: the driver adds options of its
// own, or puts them into another order. Every problem is one with which the option is better not written.
func (v Volume) Check(p mountoptions.Protocol, options []string) []mountoptions.Problem {
	problems := p.Altered(options, v.Hands(options))
	if v.ReadOnly && slices.Contains(options, "rw") {
		problems = append(problems, mountoptions.Problem{Option: "rw", Message: "would contradict the volume's readOnly: leave it out, it is the default"})
	}
	return problems
}

// attribute ignores case: the drivers lower the keys before they look.
func (v Volume) attribute(name string) string {
	for key, value := range v.Attributes {
		if strings.EqualFold(key, name) {
			return value
		}
	}
	return ""
}
