package mounts

import (
	"cmp"
	"slices"
)

// Entry is one line of the host's mount table, of any type. See proc_pid_mountinfo(5).
type Entry struct {
	// ID is the number of the mount. The kernel can reuse it once the mount is gone.
	ID string
	// Device is the major:minor of the superblock.
	Device string
	// Root is the directory of the file system that is mounted. It is "/" unless the mount is a bind mount of a part.
	Root string
	// Point is the mount point as process 1 sees it.
	Point string
	// FSType and Source are the type and the source.
	FSType, Source string
	// Flags are the options of the mount itself. Super are the options of its superblock.
	Flags, Super []string
}

// Entries reads the whole mount table, in its order: if two lines have one mount point, the later one is on top. It omits lines that cannot be
// parsed.
func (r Reader) Entries() ([]Entry, error) {
	lines, _, err := r.readMountinfo()
	return lines, err
}

// VolumeEntry is a file system that pods have mounted as a volume.
type VolumeEntry struct {
	// Volume is the volume's name in the kubelet's path. Device is the major:minor of the superblock. FSType is its type.
	Volume, Device, FSType string
}

// VolumeEntries returns the file systems that the kubelet's pods have mounted as volumes, sorted. It returns each pair of volume and device once. It
// reads the mount table only.
func (r Reader) VolumeEntries() ([]VolumeEntry, error) {
	lines, _, err := r.readMountinfo()
	if err != nil {
		return nil, err
	}
	k := findKubelets(lines, r.kubeletDir)
	var entries []VolumeEntry
	for _, line := range lines {
		if at := k.placeOf(line.Point); at.volume != "" &&
			(isNFS(line.FSType) || isSMB(line.FSType) || line.FSType == "xfs" && !k.nodeDevices[line.Device]) {
			entries = append(entries, VolumeEntry{Volume: at.volume, Device: line.Device, FSType: line.FSType})
		}
	}
	slices.SortFunc(entries, func(a, b VolumeEntry) int {
		return cmp.Or(cmp.Compare(a.Volume, b.Volume), cmp.Compare(a.Device, b.Device))
	})
	return slices.Compact(entries), nil
}
