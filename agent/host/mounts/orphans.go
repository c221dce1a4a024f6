package mounts

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"time"
)

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
