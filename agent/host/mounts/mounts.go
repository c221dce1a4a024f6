// Package mounts reads the mounts of the host: the network and XFS mounts, the kernel's data about each, and the mounts that belong to the kubelet's
// pods. It never touches a mount point itself, because the access would hang if its server is gone.
package mounts

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/tuning/drivers"
	"github.com/storageclient/operator/tuning/lists"
)

const (
	// The host's procfs shows the host's processes to every reader. Its process 1 is therefore the host's init, with the mount namespace of the host.
	// "self" would be the reader.
	mountinfoFile  = "/proc/1/mountinfo"
	mountstatsFile = "/proc/1/mountstats"
	bdiDir         = "/sys/class/bdi"

	// DefaultKubeletDir is the kubelet's default directory for pods and plugins.
	DefaultKubeletDir = "/var/lib/kubelet"
)

// Mount is one network or XFS mount.
type Mount struct {
	// MountPoint is the mount point as process 1 sees it.
	MountPoint string
	// ID is the number of the mount. The kernel can reuse it once the mount is gone.
	ID string
	// Device is the major:minor of the superblock. Mounts of the same superblock share page cache and options.
	Device string
	// FSType is the file system type: nfs, nfs4, cifs, smb3 or xfs.
	FSType string
	// Server and Export are the two parts of a network source. Server is empty for a local file system.
	Server, Export string
	// Protocol is the type and version, e.g. NFSv3, NFSv4.1, SMB3.1.1, xfs.
	Protocol string
	// Options are the effective options, including the defaults of NFS.
	Options []string
	// Connections is the number of transports (xprt lines).
	Connections int
	// SlotLimit is the maximum number of requests in flight per transport. Zero if the kernel does not report it (before 5.14).
	SlotLimit int
	// ReadAheadKiB is the read-ahead window in KiB. Zero if unknown.
	ReadAheadKiB int
	// Volume is the volume's name in the kubelet's path: the name of a PersistentVolume, or of an inline volume of the pod.
	Volume string
	// PodUIDs are the pods that have mounted the superblock, sorted.
	PodUIDs []string
	// Client identifies the connections of an NFS mount. All mounts with the same client share them, and the first mount determines their number.
	// Empty for other types.
	Client string
	// First is the mount point of the oldest mount of that client, which may be this mount. Empty if Client is empty.
	First string
	// Age is the time since the superblock was mounted, in seconds. -1 if the kernel does not report it.
	Age int
	// Operations is the number of operations without an error, except the operations of mounting itself. It counts the superblock, or the whole share
	// if CountsShare is true, because SMB has no finer counters.
	Operations  uint64
	CountsShare bool
}

// IsNetwork reports whether the mount is a network file system.
func (m Mount) IsNetwork() bool { return isNFS(m.FSType) || isSMB(m.FSType) }

// Address returns the destination of an NFS mount's connections.
func (m Mount) Address() (netip.AddrPort, bool) {
	address, _, _ := strings.Cut(m.Client, " ")
	i := strings.LastIndex(address, ":")
	if i < 0 {
		return netip.AddrPort{}, false
	}
	ip, err := netip.ParseAddr(address[:i])
	port, wrong := strconv.ParseUint(address[i+1:], 10, 16)
	return netip.AddrPortFrom(ip.Unmap(), uint16(port)), err == nil && wrong == nil
}

// Busy is a workload's NFS, SMB or block mount below the kubelet's directory.
type Busy struct {
	// MountPoint is the mount point.
	MountPoint string
	// PodUID is the pod of the mount. Empty for a global mount.
	PodUID string
	// PodUIDs are the pods that use the same superblock or device file as a global mount, sorted. Empty for other mounts.
	PodUIDs []string
	// Volume is the volume's name, if the path contains it.
	Volume string
	// FSType is the file system type.
	FSType string
}

// Table contains the mounts of the host.
type Table struct {
	// Mounts are the network and XFS mounts, sorted by mount point.
	Mounts []Mount
	// Busy are the busy mounts, sorted by mount point.
	Busy []Busy
	// Malformed is the number of lines of the mount table that could not be parsed. Their mounts are unknown.
	Malformed int
	// Signs are the IDs of the known problems of which a mount shows a sign, sorted.
	Signs []string
}

// Reader reads the host's mounts.
type Reader struct {
	// Signs returns the IDs of the known problems of which a mount with these operations, by name, shows a sign. Without it, no mount shows one.
	Signs func(m Mount, operations map[string]Operation) []string

	fs         host.FS
	kubeletDir string
}

// NewReader returns a reader. kubeletDir is the kubelet's root directory on the host. The reader finds other directories in which a kubelet has
// mounted a pod's volumes.
func NewReader(fs host.FS, kubeletDir string) Reader {
	return Reader{fs: fs, kubeletDir: path.Clean(kubeletDir)}
}

// Read reads the mounts with all data that the kernel reports about them.
func (r Reader) Read() (Table, error) {
	lines, malformed, err := r.readMountinfo()
	if err != nil {
		return Table{}, err
	}
	stats := r.readMountstats()
	transports, shares := r.sysfsTransports(), r.readShares()
	k := findKubelets(lines, r.kubeletDir)
	var signs []string
	mounts, oldest := map[string]Mount{}, map[string]string{}
	for _, line := range lines {
		if !isNFS(line.FSType) && !isSMB(line.FSType) && line.FSType != "xfs" {
			continue
		}
		// A later line with the same mount point is mounted over the earlier one.
		s, counted := stats[line.Point]
		mount := r.describeMount(line, s, transports, k)
		if counted {
			mount.Age, mount.Operations = s.age, s.used()
		}
		r.countOperations(&mount, shares)
		mounts[line.Point] = mount
		if r.Signs != nil {
			signs = append(signs, r.Signs(mount, s.operations)...)
		}
		// If the ages are equal, the earlier line is the older mount.
		if first, known := oldest[mount.Client]; !known || stats[line.Point].age > stats[first].age {
			oldest[mount.Client] = line.Point
		}
	}
	for point, mount := range mounts {
		if mount.Client != "" {
			mount.First = oldest[mount.Client]
			mounts[point] = mount
		}
	}
	table := Table{Busy: busyMounts(lines, k), Malformed: malformed, Signs: lists.Distinct(signs)}
	table.Mounts = slices.SortedFunc(maps.Values(mounts), func(a, b Mount) int { return strings.Compare(a.MountPoint, b.MountPoint) })
	sharePods(table.Mounts, lines, k)
	return table, nil
}

// Busy returns the busy mounts, and the number of lines that could not be parsed. It reads the mount table only.
func (r Reader) Busy() (found []Busy, malformed int, err error) {
	lines, malformed, err := r.readMountinfo()
	if err != nil {
		return nil, 0, err
	}
	return busyMounts(lines, findKubelets(lines, r.kubeletDir)), malformed, nil
}

func (r Reader) readMountinfo() (lines []Entry, malformed int, err error) {
	data, err := r.fs.ReadFile(mountinfoFile)
	if err != nil {
		return nil, 0, fmt.Errorf("read mounts: %w", err)
	}
	lines, malformed = parseMountinfo(string(data))
	return lines, malformed, nil
}

// readMountstats is best effort: without it, mounts have only the options of the mount table.
func (r Reader) readMountstats() map[string]stats {
	data, err := r.fs.ReadFile(mountstatsFile)
	if err != nil {
		return nil
	}
	return parseMountstats(string(data))
}

func (r Reader) describeMount(line Entry, s stats, transports []transport, k kubelets) Mount {
	options := joinFlags(line.Super, line.Flags)
	if len(s.options) > 0 {
		options = joinFlags(s.options, line.Flags)
	}
	at := k.placeOf(line.Point)
	mount := Mount{
		MountPoint:   line.Point,
		ID:           line.ID,
		Age:          -1,
		Device:       line.Device,
		FSType:       line.FSType,
		Protocol:     protocolOf(line.FSType, options),
		Options:      options,
		Connections:  len(s.sourcePorts),
		ReadAheadKiB: r.readAhead(line.Device),
		Volume:       at.volume,
	}
	_, mount.Export = splitSource(line)
	mount.Server = serverName(line)
	if isNFS(line.FSType) {
		c := newClient(line, s)
		mount.SlotLimit, mount.Client = slotLimit(transports, c), c.clientName(line)
	}
	return mount
}

func (r Reader) readAhead(device string) int {
	value, _ := r.fs.ReadValue(path.Join(bdiDir, device, "read_ahead_kb"))
	kib, _ := strconv.Atoi(value)
	return kib
}

// sharePods adds the pods of the superblock to every mount. A global mount gets the volume's name from its pods.
func sharePods(mounts []Mount, lines []Entry, k kubelets) {
	pods, volumes := k.podsOf(lines), map[string][]string{}
	for _, line := range lines {
		if at := k.placeOf(line.Point); at.pod != "" && at.volume != "" {
			volumes[line.Device] = append(volumes[line.Device], at.volume)
		}
	}
	for i := range mounts {
		m := &mounts[i]
		m.PodUIDs = lists.Distinct(pods[m.Device])
		at := k.placeOf(m.MountPoint)
		if names := lists.Distinct(volumes[m.Device]); at.global && m.Volume == "" && len(names) == 1 {
			m.Volume = names[0]
		}
	}
}

func isNFS(fsType string) bool { return fsType == "nfs" || fsType == "nfs4" }

func isSMB(fsType string) bool { return fsType == "cifs" || fsType == "smb3" }

// splitSource returns the identity of the server in a source, and its path. It splits like the kernel: "server:path" and "[fe80::1]:path" at the
// first colon outside brackets (nfs_parse_devname), and "//server/share" with either kind of slash (smb3_parse_devname).
func splitSource(line Entry) (server, export string) {
	switch {
	case isNFS(line.FSType):
		name := line.Source
		if host, rest, found := strings.Cut(name, "]"); found && strings.HasPrefix(host, "[") && strings.HasPrefix(rest, ":") {
			return drivers.ServerIdentity(host[1:]), rest[1:]
		}
		name, export, _ = strings.Cut(name, ":")
		name, _, _ = strings.Cut(name, ",")
		return drivers.ServerIdentity(name), export
	case isSMB(line.FSType):
		server, export, _ = strings.Cut(strings.Trim(strings.ReplaceAll(line.Source, `\`, "/"), "/"), "/")
		return drivers.ServerIdentity(server), "/" + export
	}
	return "", ""
}

// serverName returns the name of the server in reports. Each local port of a tunnel leads to another file system, so it counts as a separate server.
func serverName(line Entry) string {
	name, _ := splitSource(line)
	if port := OptionValue(line.Super, "port"); isNFS(line.FSType) && port != "" && port != "0" && isLoopback(cmp.Or(OptionValue(line.Super, "addr"), name)) {
		return net.JoinHostPort(name, port)
	}
	return name
}

func isLoopback(address string) bool {
	ip, err := netip.ParseAddr(address)
	return err == nil && ip.Unmap().IsLoopback()
}

func protocolOf(fsType string, options []string) string {
	version := OptionValue(options, "vers")
	switch {
	case isNFS(fsType) && version == "" && fsType == "nfs":
		return "NFS"
	case isNFS(fsType) && version == "":
		return "NFSv4"
	case isNFS(fsType):
		return "NFSv" + version
	case isSMB(fsType):
		return "SMB" + version
	}
	return fsType
}

// OptionValue returns the value of the last option of that name.
func OptionValue(options []string, name string) string {
	value := ""
	for _, o := range options {
		if v, ok := strings.CutPrefix(o, name+"="); ok {
			value = v
		}
	}
	return value
}

// joinFlags adds the flags of one mount to the options of its superblock. A read-only mount of a writable superblock
// is read-only.
func joinFlags(options, flags []string) []string {
	joined := slices.Clone(options)
	for _, flag := range flags {
		switch i := slices.Index(joined, "rw"); {
		case flag == "rw" || slices.Contains(joined, flag):
		case flag == "ro" && i >= 0:
			joined[i] = flag
		default:
			joined = append(joined, flag)
		}
	}
	return joined
}
