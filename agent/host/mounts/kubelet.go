package mounts

import (
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/storageclient/operator/tuning/lists"
)

// podVolume matches a path that only a kubelet makes: DIR/pods/UID/volumes/kubernetes.io~PLUGIN/NAME. Static pods have a UID without hyphens.
var podVolume = regexp.MustCompile(`^(/.*)/pods/[0-9a-f]{8}-?[0-9a-f-]{23,27}/volumes/kubernetes\.io~[^/]+/`)

// kubelets are the root directories of kubelets on the host, and the file systems that contain them.
type kubelets struct {
	dirs []string
	// nodeDevices are the devices of the node itself. A bind mount of them is not a workload's file system.
	nodeDevices map[string]bool
}

// findKubelets adds the kubelets in the mount table to dir. A kubelet with another root directory, or behind a symbolic link, must not hide its pods'
// mounts from a reboot.
func findKubelets(lines []Entry, dir string) kubelets {
	dirs := []string{dir}
	for _, line := range lines {
		if m := podVolume.FindStringSubmatch(line.Point); m != nil {
			dirs = append(dirs, m[1])
		}
	}
	k := kubelets{dirs: lists.Distinct(dirs), nodeDevices: map[string]bool{}}
	for _, dir := range k.dirs {
		for _, name := range []string{"/", dir, dir + "/pods", dir + "/plugins"} {
			if device := mountOf(lines, name).Device; device != "" {
				k.nodeDevices[device] = true
			}
		}
	}
	return k
}

// mountOf returns the mount that contains a path. If two mounts have one mount point, the later one is on top.
func mountOf(lines []Entry, name string) (found Entry) {
	for _, line := range lines {
		if IsBelow(name, line.Point) && len(line.Point) >= len(found.Point) {
			found = line
		}
	}
	return found
}

// IsBelow reports whether an absolute path is a directory, or below it.
func IsBelow(name, dir string) bool {
	return name == dir || strings.HasPrefix(name, strings.TrimSuffix(dir, "/")+"/")
}

// place is the position of a mount point below a kubelet's directory.
type place struct {
	// pod is the pod's UID; global is true below plugins. A mount point elsewhere has neither; that of a pod's device has both.
	pod    string
	global bool
	volume string
	// device is true if a block device itself is mounted, for a volume in block mode.
	device bool
}

func (k kubelets) placeOf(point string) place {
	for _, dir := range k.dirs {
		rest, ok := strings.CutPrefix(point, dir+"/")
		if !ok {
			continue
		}
		elements := strings.Split(rest, "/")
		switch {
		case elements[0] == "pods" && len(elements) > 2:
			return podPlace(elements[1], elements[2:])
		case elements[0] == "plugins" && len(elements) > 1:
			return globalPlace(elements[1:])
		}
	}
	return place{}
}

// podPlace parses volumes/PLUGIN/NAME[/mount], volume-subpaths/NAME/CONTAINER/INDEX and volumeDevices/PLUGIN/NAME.
func podPlace(uid string, elements []string) place {
	at := place{pod: uid}
	switch {
	case elements[0] == "volumes" && len(elements) > 2:
		at.volume = elements[2]
	case elements[0] == "volume-subpaths" && len(elements) > 1:
		at.volume = elements[1]
	case elements[0] == "volumeDevices" && len(elements) > 2:
		at.volume, at.device = elements[2], true
	}
	return at
}

// globalPlace parses kubernetes.io/csi/pv/NAME/globalmount, kubernetes.io/csi/volumeDevices and kubernetes.io/local-volume/mounts/NAME. Newer CSI
// paths contain a hash instead of the name.
func globalPlace(elements []string) place {
	at := place{global: true}
	for i := range len(elements) - 2 {
		switch elements[i] + "/" + elements[i+1] {
		case "csi/pv", "local-volume/mounts":
			at.volume = elements[i+2]
			return at
		case "csi/volumeDevices":
			return devicePlace(elements[i+2:])
		}
	}
	return at
}

// devicePlace parses NAME/dev/UID, publish/NAME/UID and staging/NAME. The first two belong to a pod, whose own directory only has a symbolic link.
// Source: pkg/volume/csi/csi_block.go and pkg/volume/util/volumepathhandler of Kubernetes.
func devicePlace(elements []string) place {
	at := place{global: true, volume: elements[0], device: true}
	switch {
	case len(elements) > 2 && elements[1] == "dev":
		at.pod = elements[2]
	case len(elements) > 2 && elements[0] == "publish":
		at.volume, at.pod = elements[1], elements[2]
	case len(elements) > 1 && (elements[0] == "publish" || elements[0] == "staging"):
		at.volume = elements[1]
	}
	return at
}

// podsOf returns the pods that have mounted each superblock or device file.
func (k kubelets) podsOf(lines []Entry) map[string][]string {
	pods := map[string][]string{}
	for _, line := range lines {
		if at := k.placeOf(line.Point); at.pod != "" {
			pods[line.backing()] = append(pods[line.backing()], at.pod)
		}
	}
	return pods
}

// busyMounts returns the workloads' NFS, SMB and block mounts below a kubelet's directory.
func busyMounts(lines []Entry, k kubelets) []Busy {
	found, pods := map[string]Busy{}, k.podsOf(lines)
	for _, line := range lines {
		at := k.placeOf(line.Point)
		if at.pod == "" && !at.global || !k.holdsBack(line, at) {
			continue
		}
		busy := Busy{MountPoint: line.Point, PodUID: at.pod, Volume: at.volume, FSType: line.FSType}
		if at.pod == "" {
			busy.PodUIDs = lists.Distinct(pods[line.backing()])
		}
		found[line.Point] = busy
	}
	return slices.SortedFunc(maps.Values(found), func(a, b Busy) int { return strings.Compare(a.MountPoint, b.MountPoint) })
}

func (k kubelets) holdsBack(line Entry, at place) bool {
	if isNFS(line.FSType) || isSMB(line.FSType) {
		return true
	}
	if line.FSType == "devtmpfs" {
		return at.device
	}
	// Btrfs has no device number of a block device, but its source is the device.
	block := !strings.HasPrefix(line.Device, "0:") || strings.HasPrefix(line.Source, "/dev/")
	return block && !k.nodeDevices[line.Device]
}

// Orphan is a network mount below a kubelet's directory that no process of a pod can use.
type Orphan struct {
	MountPoint string
	// PodUID is the pod of the mount. Empty for a driver's staging mount.
	PodUID string
	// Changed is the last change of the pod's directory or, for a staging mount, of the directory that contains the mount point. Since is the time
	// at which the orphan was first seen, if the caller sets it.
	Changed, Since time.Time
}

// podCgroup matches the UID of a pod in the cgroup path of a process. cgroupfs keeps its hyphens, and systemd replaces them with underscores.
var podCgroup = regexp.MustCompile(`pod([0-9a-f]{8}(?:[-_]?[0-9a-f]{4}){3}[-_]?[0-9a-f]{12})`)

// Orphans returns the network mounts of pods without a process, and the staging mounts of volumes without such a pod. It reads the mount table and the
// cgroups of processes, and never a mount. If no process shows a pod, it returns none: then the cgroups have another form.
func (r Reader) Orphans() (found []Orphan) {
	lines, _, err := r.readMountinfo()
	running := r.runningPods()
	if err != nil || len(running) == 0 {
		return nil
	}
	k, inPod, inSandbox := findKubelets(lines, r.kubeletDir), map[string]bool{}, map[string]bool{}
	for _, line := range lines {
		inPod[line.Device] = inPod[line.Device] || running[k.placeOf(line.Point).pod]
		// A sandboxed runtime, such as Kata Containers, keeps the mounts of its containers below /run.
		inSandbox[line.Device] = inSandbox[line.Device] || strings.HasPrefix(line.Point[1:], "run/")
	}
	for _, line := range lines {
		at, dir := k.placeOf(line.Point), path.Dir(line.Point)
		isUnused := at.global && path.Base(line.Point) == "globalmount" && !inPod[line.Device]
		if at.pod != "" {
			before, _, _ := strings.Cut(line.Point, "/"+at.pod+"/")
			isUnused, dir = !running[at.pod], path.Join(before, at.pod)
		}
		// An access to a directory on a mount of that kind can hang.
		canHang := func(l Entry) bool {
			return (isNFS(l.FSType) || isSMB(l.FSType) || strings.HasPrefix(l.FSType, "fuse")) && IsBelow(dir, l.Point)
		}
		if !isUnused || inSandbox[line.Device] || !isNFS(line.FSType) && !isSMB(line.FSType) || slices.ContainsFunc(lines, canHang) {
			continue
		}
		if info, err := r.fs.Lstat(dir); err == nil {
			found = append(found, Orphan{MountPoint: line.Point, PodUID: at.pod, Changed: info.ModTime()})
		}
	}
	return found
}

// runningPods returns the UIDs of the pods that have a process.
func (r Reader) runningPods() map[string]bool {
	running := map[string]bool{}
	found, _ := r.fs.Glob("/", "proc/[0-9]*")
	for _, process := range found {
		// A process may have exited.
		data, _ := r.fs.ReadFile(path.Join(process, "cgroup"))
		for _, match := range podCgroup.FindAllStringSubmatch(string(data), -1) {
			running[strings.ReplaceAll(match[1], "_", "-")] = true
		}
	}
	return running
}
