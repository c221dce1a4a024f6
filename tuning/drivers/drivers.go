// Package drivers knows the drivers of PersistentVolumes: where each keeps protocol and server of a volume, and what it
// makes of the volume's mount options before mount sees them. It is pure: no cluster, no host, no clock.
package drivers

import (
	"cmp"
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

// Source is where a volume's data comes from.
type Source struct {
	// Driver is that of the Volume.
	Driver string
	// Protocol is empty where the driver is not in the table.
	Protocol v1alpha1.VolumeProtocol
	// Server is the host name or address as the volume names it. Empty where the volume does not.
	Server string
	// FSType is the file system type that a block volume is formatted with, e.g. xfs.
	FSType string
}

// Options is the family of the volume's mount options, empty where the driver is not known. Of file systems on block
// devices, XFS has one of its own; of the others only what every file system takes is known.
func (s Source) Options() mountoptions.Protocol {
	switch {
	case s.Protocol == v1alpha1.ProtocolNFS:
		return mountoptions.NFS
	case s.Protocol == v1alpha1.ProtocolSMB:
		return mountoptions.SMB
	case s.Protocol == v1alpha1.ProtocolBlock && s.FSType == fsTypeXFS:
		return mountoptions.XFS
	case s.Protocol == v1alpha1.ProtocolBlock:
		return mountoptions.Generic
	}
	return ""
}

// driver is what is known of one driver.
type driver struct {
	// protocols are those that it can speak.
	protocols []v1alpha1.VolumeProtocol
	// protocol is the one that it speaks for a volume; nil where it has only one.
	protocol func(Volume) v1alpha1.VolumeProtocol
	// server of a volume; nil where the volume does not name one.
	server func(Volume) string
	// path of the server that is mounted, of volumes of NFS; nil where the volume does not name it. Empty where it cannot be told.
	path func(Volume) string
	// freeHandle is true where nothing that mounts the volume reads its handle: it may then be any name.
	freeHandle bool
	// fsType of a block volume; nil where it is the volume's.
	fsType func(Volume) string
	// hands over to mount what it makes of a volume's options; nil where it keeps list and order.
	hands func(Volume, []string) []string
	// perPod is true where every pod has a mount of its own, rather than all pods of a node together.
	perPod bool
	// refuses says why the driver takes no mount options; empty where it does.
	refuses string
	// backend is set where the driver has a list of its own for volumes without one, and drops it as soon as a volume has
	// options. It holds what that list is needed for, of each family: an option without which the mount may become another.
	backend map[mountoptions.Protocol]string
	// read says where the facts of the row were read; of a driver without it they are not all known by its source.
	read *reading
}

// reading says where each fact of a driver was read: file and function of its source. What is not known says so.
type reading struct {
	// release is the newest one that was read.
	release string
	// staging is where a volume is mounted, once a node or for each pod; handle what is made of its handle; source what makes server and
	// path.
	staging, handle, source string
	// order is what becomes of the list's order, appends what is added to it, replaces what becomes of a volume's list that is not
	// empty beside lists of others, and readOnly where a pod's read-only claim arrives.
	order, appends, replaces, readOnly string
}

// unknown stands for a fact that was not found in the source.
const unknown = "not known"

const (
	nfs   = v1alpha1.ProtocolNFS
	smb   = v1alpha1.ProtocolSMB
	block = v1alpha1.ProtocolBlock
)

// table holds the kubelet's own plugins as of Kubernetes 1.36 and CSI drivers as of August 2026, by their sources.
var table = map[string]driver{
	"kubernetes.io/nfs": {protocols: only(nfs), server: host, path: func(v Volume) string { return v.Path }, hands: sortedList, perPod: true, freeHandle: true,
		read: &nfsInTree},
	"kubernetes.io/iscsi":        {protocols: only(block), server: host},
	"kubernetes.io/fc":           {protocols: only(block)},
	"kubernetes.io/local-volume": {protocols: only(block)},
	"kubernetes.io/host-path":    {refuses: "the kubelet does not mount hostPath volumes that have mount options"},

	"nfs.csi.k8s.io": {protocols: only(nfs), server: nfsServer, path: nfsPath, hands: nfsList, perPod: true, freeHandle: true, read: &nfsCSI},
	"smb.csi.k8s.io": {protocols: only(smb), server: smbServer, freeHandle: true, read: &smbCSI},
	// Azure Files speaks SMB unless the class asks for NFS, by either parameter. Disk images on a share are rare enough
	// that a rule has to look for them by fsTypes.
	"file.csi.azure.com": {protocols: []v1alpha1.VolumeProtocol{nfs, smb}, protocol: azureFileProtocol, server: azureFileServer, path: azureFilePath,
		fsType: attribute("fsType"), hands: azureFileList, read: &azureFiles},
	// Trident resolves the server when it publishes the volume; the volume does not name it. Options of the volume replace those of
	// the backend altogether (ControllerPublishVolume in frontend/csi/controller_server.go), the version of NFS among them, and
	// nouuid, which it gives all XFS (PublishLUN in storage_drivers/ontap).
	"csi.trident.netapp.io": {protocols: []v1alpha1.VolumeProtocol{nfs, smb, block}, protocol: tridentProtocol,
		backend: map[mountoptions.Protocol]string{mountoptions.NFS: "nfsvers", mountoptions.XFS: "nouuid"}},

	// Azure Disk takes the attribute rather than the volume's own field.
	"disk.csi.azure.com":       {protocols: only(block), fsType: func(v Volume) string { return cmp.Or(v.attribute("fsType"), v.FSType) }},
	"ebs.csi.aws.com":          {protocols: only(block)},
	"pd.csi.storage.gke.io":    {protocols: only(block)},
	"cinder.csi.openstack.org": {protocols: only(block)},
	"csi.vsphere.vmware.com":   {protocols: only(block)},
}

func only(p v1alpha1.VolumeProtocol) []v1alpha1.VolumeProtocol { return []v1alpha1.VolumeProtocol{p} }

// Protocols are those that a driver can speak, none for one that is not known.
func Protocols(name string) []v1alpha1.VolumeProtocol { return slices.Clone(table[name].protocols) }

// Source reads protocol and server of a volume.
func (v Volume) Source() Source {
	source := Source{Driver: v.Driver, FSType: v.FSType}
	d, known := table[v.Driver]
	switch {
	case !known || d.refuses != "":
		return source
	case d.protocol != nil:
		source.Protocol = d.protocol(v)
	default:
		source.Protocol = d.protocols[0]
	}
	if d.server != nil {
		source.Server = d.server(v)
	}
	if d.fsType != nil && source.Protocol == block {
		source.FSType = d.fsType(v)
	}
	return source
}

// MountedPath is what is mounted from the server of an NFS volume; empty where the volume does not tell.
func (v Volume) MountedPath() string {
	if path := table[v.Driver].path; path != nil {
		return path(v)
	}
	return ""
}

// MayBeCloned says whether a second volume of the same source, under another handle, is mounted beside the first one and touches no
// mount of it: the driver stages nothing, or takes the handle for a name.
func (v Volume) MayBeCloned() bool {
	d := table[v.Driver]
	return d.perPod || d.freeHandle
}

// HandleOfClone is the handle of such a second volume.
func (v Volume) HandleOfClone(suffix string) string {
	if !table[v.Driver].freeHandle {
		return v.Handle
	}
	return v.Handle + suffix
}

// Refuses says why volumes of the driver take no mount options, empty where they do or the driver is not known.
func (v Volume) Refuses() string { return table[v.Driver].refuses }

// MissingForBackend is the option that a list lacks which is to take the place of the backend's own: of a volume that has no
// options, the driver mounts with those of its backend, and with none of them once it has. Empty where nothing is lost.
func (v Volume) MissingForBackend(p mountoptions.Protocol, own, list []string) string {
	needed := table[v.Driver].backend[p]
	if needed == "" || len(own) > 0 || len(list) == 0 || p.Says(list, needed) {
		return ""
	}
	return needed
}

// MountsPerPod says whether every new pod has a new mount. Otherwise a node has one mount for all pods of the volume,
// and a changed option arrives once all of them have left the node.
func (v Volume) MountsPerPod() bool { return table[v.Driver].perPod }

// Hands is the list that mount gets for a volume with these options.
func (v Volume) Hands(options []string) []string {
	if hands := table[v.Driver].hands; hands != nil {
		return hands(v, options)
	}
	return options
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

// OwnOptions is what the volume's attributes add to its mount options.
func (v Volume) OwnOptions() string {
	if v.Driver == "nfs.csi.k8s.io" {
		return v.attribute("mountOptions")
	}
	return ""
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
