// Package drivers describes the drivers of PersistentVolumes: the protocol of a volume, the place of its server, and the driver's
// changes to its mount options. All functions are pure: they do not access the cluster, the host or the clock.
//
// The package contains one table. Each row is based on the source of the driver; facts that are not in the source are treated as
// unknown.
package drivers

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/mountoptions"
)

const fsTypeXFS = "xfs"

// Volume describes the source of a PersistentVolume.
type Volume struct {
	// Driver is the name of the CSI driver or the in-tree plugin, for example kubernetes.io/nfs. Empty if both are unknown.
	Driver string
	// Handle and Attributes are the handle and the attributes of a CSI volume.
	Handle     string
	Attributes map[string]string
	// Host is the host of an in-tree volume. Path is its mounted path.
	Host, Path string
	// FSType is the file system type in the volume, for example xfs.
	FSType string
	// StageSecret reports whether the driver gets a secret to stage the volume.
	StageSecret bool
	// ReadOnly reports whether the PersistentVolume is read-only, regardless of the pod's claim. The kubelet ignores this field and only
	// uses the claim in the pod (NewSpecFromPersistentVolume in pkg/volume/plugins.go of Kubernetes 1.36).
	ReadOnly bool
}

// Client is the program that makes the mount.
type Client string

const (
	// ClientKernel is the Linux kernel's client, the default.
	ClientKernel Client = ""
	// ClientEFS is amazon-efs-utils: the kernel's client, through a tunnel on 127.0.0.1.
	ClientEFS Client = "efs-utils"
	// ClientAZNFS is mount.aznfs: the kernel's client, through a local address of the node.
	ClientAZNFS Client = "aznfs"
	// ClientVAST is the client of VAST on nodes that have it, and the kernel's client on other nodes.
	ClientVAST Client = "VAST"
)

// Source describes the storage of a volume.
type Source struct {
	// Driver is the driver of the Volume.
	Driver string
	// Protocol is empty if the table does not contain the driver, or if the operator does not support the protocol.
	Protocol v1alpha1.VolumeProtocol
	// Server is the host name or address in the volume, as ServerIdentity returns it. Empty if the volume does not contain it.
	Server string
	// FSType is the file system type of a block volume, for example xfs.
	FSType string
	// Client is the program that mounts the volume.
	Client Client
}

// ServerIdentity returns the same text for all spellings of a server's name or address: a name in lower case without a final dot, and an IPv6 address
// without brackets, in its short form.
func ServerIdentity(server string) string {
	bare := strings.TrimSuffix(strings.TrimPrefix(server, "["), "]")
	if address, err := netip.ParseAddr(bare); err == nil {
		return address.String()
	}
	return strings.TrimSuffix(strings.ToLower(server), ".")
}

// NconnectRejection explains why rules must not add nconnect: to mount.aznfs, or to Azure Blob without it. Empty if they may. Source: check_nconnect
// in src/nfsv3mountscript.sh of Azure/AZNFS-mount; Azure Blob, NFS 3.0 known issues; the endpoints of storage accounts in all clouds of Azure.
func (s Source) NconnectRejection() string {
	server := "." + s.Server
	if s.Client == ClientAZNFS || s.Protocol == nfs && (strings.Contains(server, ".blob.core.") || strings.Contains(server, ".blob.storage.azure.")) {
		return "mount.aznfs rejects nconnect on kernels without Azure's patch, and without mount.aznfs directory listings are wrong"
	}
	return ""
}

// Options returns the family of the volume's mount options. Empty if the driver is unknown. For block devices, XFS has its own family;
// Generic contains only options that all file systems support.
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

// options returns the family of NFS options that the client supports.
func (c Client) options() mountoptions.Protocol {
	switch c {
	case ClientEFS:
		return mountoptions.EFS
	case ClientVAST:
		return mountoptions.VAST
	}
	return mountoptions.NFS
}

// step is the time at which a driver reads the mount options of a volume.
type step string

const (
	// atPublish is the mount for each pod: a new pod gets the options that the volume has when it starts.
	atPublish step = "for each pod"
	// atStage is the mount on a node, which the pods of the node share.
	atStage step = "once per node"
	// atAttach is the attachment, before any mount: the options stay the same until the volume is detached from the node.
	atAttach step = "once per node, when the volume is attached"
)

// row describes one kind of volumes of a driver.
type row struct {
	// driver is the name of the driver. "*.name" matches name and all names that end with .name, and "name.*" all names that start with
	// name.
	driver string
	// protocol is empty for volumes other than NFS, SMB and disks.
	protocol v1alpha1.VolumeProtocol
	// selector selects the volumes of the driver that the row describes. Zero selects all volumes that no previous row matches.
	selector volumeSelector
	// server is the place of the server in the volume, and path the place of the mounted path. Zero if absent or unknown. Volumes of a
	// row with a path can be mounted without the driver.
	server, path place
	// fsType is the place of the file system type of a block volume. Zero: the field of the volume.
	fsType place
	client Client
	reads  step
	// changes applies the driver's changes to the mount options. Zero: unchanged, in the same order.
	changes optionChange
	// additional is the place of additional options in the volume. The driver appends them to the mount options.
	additional place
	// unsupported is the reason why the volume's mount options have no effect. Empty if they have an effect.
	unsupported string
	// empty contains the options that the driver uses only if the volume has no mount options. Zero if there are none.
	empty backend
	// rare marks volumes that a rule selects only by protocols or fsTypes. A rule that names only the driver does not select them.
	rare bool
}

// backend contains the options that a driver uses if the volume has no mount options.
type backend struct {
	// Text describes the place of the options.
	Text string
	// Needs maps a family to an option that the volume's mount options must repeat. Without it, the mount may change. Trident repeats nfsvers of
	// its backend (ControllerPublishVolume in frontend/csi/controller_server.go), and nouuid for XFS (PublishLUN in storage_drivers/ontap).
	Needs map[mountoptions.Protocol]string
	// Attribute is the attribute of the volume that contains the options, if any.
	Attribute string
}

type volumeSelector struct {
	text    string
	matches func(Volume) bool
}

type place struct {
	text string
	read func(Volume) string
}

func (p place) in(v Volume) string {
	if p.read == nil {
		return ""
	}
	return p.read(v)
}

type optionChange struct {
	text  string
	apply func(Volume, []string) []string
}

const (
	nfs   = v1alpha1.ProtocolNFS
	smb   = v1alpha1.ProtocolSMB
	block = v1alpha1.ProtocolBlock
)

var rowsByDriver = func() map[string][]*row {
	out := map[string][]*row{}
	for i := range table {
		out[table[i].driver] = append(out[table[i].driver], &table[i])
	}
	return out
}()

// emptyRow describes volumes that the table does not contain.
var emptyRow = &row{}

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

// AddName adds a name under which users deploy a driver of the table, as NAME=DRIVER. Call it before all other functions.
func AddName(text string) error {
	name, driver, _ := strings.Cut(text, "=")
	rows := rowsOf(driver)
	if existing := rowsOf(name); name == "" || strings.Contains(name, "*") || rows == nil || len(existing) > 0 && existing[0] != rows[0] {
		return fmt.Errorf("%q: must be NAME=DRIVER, with a DRIVER of the page on drivers and another NAME", text)
	}
	rowsByDriver[name] = rows
	return nil
}

// rows returns the rows of the volume's driver. Users choose the names of some drivers; then the attributes identify the driver. No other
// driver than democratic-csi sets node_attach_driver and provisioner_driver.
func (v Volume) rows() []*row {
	rows, name := rowsOf(v.Driver), ""
	isOfKubernetes := strings.HasSuffix(v.Driver, ".csi.k8s.io")
	switch isOfAzure := v.attribute("storageAccount") != "" || strings.Count(v.Handle, "#") > 1; {
	case rows != nil || v.Driver == "":
	case v.attribute("node_attach_driver") != "" && v.attribute("provisioner_driver") != "":
		name = "org.democratic-csi.*"
	case isOfKubernetes && v.attribute("server") != "" && v.attribute("share") != "":
		name = "nfs.csi.k8s.io"
	case isOfKubernetes && hostOfUNC(v) != "":
		name = "smb.csi.k8s.io"
	case isOfAzure && v.attribute("containerName") != "":
		name = "blob.csi.azure.com"
	case isOfAzure && v.attribute("shareName") != "":
		name = "file.csi.azure.com"
	}
	if name != "" {
		rows = rowsByDriver[name]
	}
	return rows
}

// row returns the row of the volume. Callers must not change it.
func (v Volume) row() *row {
	for _, r := range v.rows() {
		if r.selector.matches == nil || r.selector.matches(v) {
			return r
		}
	}
	return emptyRow
}

// Protocols returns the protocols that a rule selects if it names a driver. Empty if the driver is unknown.
func Protocols(name string) []v1alpha1.VolumeProtocol {
	all := lists.AddMissing(nil, lists.Pick(rowsOf(name), func(r *row) (v1alpha1.VolumeProtocol, bool) {
		return r.protocol, r.protocol != "" && !r.rare
	})...)
	slices.SortFunc(all, func(a, b v1alpha1.VolumeProtocol) int { return slices.Index(inOrder, a) - slices.Index(inOrder, b) })
	return all
}

// Families returns the option families of a driver's NFS volumes. Empty if it has no NFS volumes.
func Families(name string) []mountoptions.Protocol {
	return lists.AddMissing(nil, lists.Pick(rowsOf(name), func(r *row) (mountoptions.Protocol, bool) {
		return r.client.options(), r.protocol == nfs
	})...)
}

var inOrder = []v1alpha1.VolumeProtocol{nfs, smb, block}

// Source returns the source of a volume, based on the table.
func (v Volume) Source() Source {
	r := v.row()
	source := Source{Driver: v.Driver, FSType: v.FSType, Protocol: r.protocol, Server: ServerIdentity(r.server.in(v)), Client: r.client}
	if r.fsType.read != nil && source.Protocol == block {
		source.FSType = r.fsType.in(v)
	}
	return source
}

// IsKnown reports whether the table contains the volume. Other volumes can be of any kind.
func (v Volume) IsKnown() bool { return v.row().driver != "" }

// MountedPath returns the path that an NFS volume mounts from its server. Empty if unknown.
func (v Volume) MountedPath() string { return v.row().path.in(v) }

// UnsupportedReason returns the reason why the volume does not support mount options. Empty if it supports them, or if the driver is unknown.
func (v Volume) UnsupportedReason() string { return v.row().unsupported }

// MissingForBackend returns an option of the backend that the mount options lack. If a volume has no mount options, the driver uses
// the options of its backend; otherwise, it ignores the backend's options. Empty if no option is lost.
func (v Volume) MissingForBackend(p mountoptions.Protocol, original, list []string) string {
	if len(original) > 0 || len(list) == 0 {
		return ""
	}
	empty := v.row().empty
	needed := mountoptions.SplitOptions([]string{v.attribute(empty.Attribute)})
	if option := empty.Needs[p]; option != "" {
		needed = append(needed, option)
	}
	for _, option := range needed {
		if name, _, _ := strings.Cut(option, "="); !p.Sets(list, name) {
			return option
		}
	}
	return ""
}

// MountsPerPod reports whether every new pod gets a new mount. Otherwise, all pods of the volume on a node share one mount. A changed
// option then takes effect after all of them have left the node.
func (v Volume) MountsPerPod() bool { return v.row().reads == atPublish }

// PassedOptions returns the mount options that the driver passes to mount for a volume with these options.
func (v Volume) PassedOptions(options []string) []string {
	r, list := v.row(), options
	if r.changes.apply != nil {
		list = r.changes.apply(v, options)
	}
	if additional := r.additional.in(v); additional != "" {
		list = append(slices.Clone(list), additional)
	}
	return list
}

// ProtectedOptions returns the options that must not be weakened: the options of the driver, and ro if the volume is read-only. The kubelet
// ignores the volume's readOnly, but users may rely on it.
func (v Volume) ProtectedOptions() []string {
	if v.ReadOnly {
		return append([]string{"ro"}, v.PassedOptions(nil)...)
	}
	return v.PassedOptions(nil)
}

// Check returns the options of a volume that have a different meaning for mount, because the driver adds options or changes their order. It
// also returns rw if the volume is read-only. The fix for each problem is to remove the option.
func (v Volume) Check(p mountoptions.Protocol, options []string) []mountoptions.Problem {
	problems := p.AlteredOptions(options, v.PassedOptions(options))
	if v.ReadOnly && slices.Contains(options, "rw") {
		problems = append(problems, mountoptions.Problem{Option: "rw", Message: "would contradict the volume's readOnly: leave it out, it is the default"})
	}
	return problems
}

// attribute ignores case because the drivers convert the keys to lower case.
func (v Volume) attribute(name string) string {
	for key, value := range v.Attributes {
		if strings.EqualFold(key, name) {
			return value
		}
	}
	return ""
}

// words identify a protocol if they are a complete part of a name, or a value.
var words = map[v1alpha1.VolumeProtocol][]string{
	nfs: {"nfs", "nfsv3", "nfsv4", "nfs3", "nfs4", "efs", "nas"},
	smb: {"smb", "cifs", "samba", "smb3"},
}

var exclusiveOptions = map[v1alpha1.VolumeProtocol][]string{
	nfs: {"nfsvers", "nconnect", "nolock", "nocto", "noresvport", "local_lock", "minorversion", "lookupcache", "acregmin", "acdirmin", "nordirplus"},
	smb: {"mfsymlinks", "file_mode", "dir_mode", "nosharesock", "nobrl", "seal", "multichannel", "closetimeo", "credentials"},
}

// diskTypes are file systems of disks. ext4 is missing because provisioners set it for volumes of any kind.
var diskTypes = []string{"ext2", "ext3", fsTypeXFS, "btrfs"}

// LooksLike guesses the protocol of a volume whose driver is not in the table, based on its names, attributes and mount options. Use
// it only for messages. Empty if there is no indication.
func (v Volume) LooksLike(options []string) v1alpha1.VolumeProtocol {
	for _, p := range []v1alpha1.VolumeProtocol{nfs, smb} {
		if hasWord(v.Driver, words[p]) || slices.Contains(words[p], strings.ToLower(v.FSType)) ||
			slices.Contains(words[p], strings.ToLower(v.attribute("fsType"))) ||
			slices.Contains(words[p], strings.ToLower(v.attribute("protocol"))) || hasName(options, exclusiveOptions[p]...) {
			return p
		}
	}
	switch {
	case strings.HasPrefix(v.attribute("source"), "//"), strings.HasPrefix(v.attribute("source"), `\\`):
		return smb
	case slices.Contains(diskTypes, v.FSType):
		return block
	}
	return ""
}

func hasWord(name string, words []string) bool {
	parts := strings.FieldsFunc(strings.ToLower(name), func(r rune) bool { return strings.ContainsRune(".-_/", r) })
	return slices.ContainsFunc(parts, func(part string) bool { return slices.Contains(words, part) })
}
