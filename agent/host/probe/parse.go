package probe

import "strings"

// countVolumes counts the NFS file systems of a network namespace, from /proc/net/nfsfs/volumes: a header, and a line for each
// (nfs_volume_list_show in the kernel's fs/nfs/client.c).
func countVolumes(data string) int {
	n := 0
	for line := range strings.Lines(data) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] != "NV" {
			n++
		}
	}
	return n
}

// devicesOf are the devices of all mounts in /proc/self/mountinfo but the one at a point, and its own.
func devicesOf(data, point string) (own string, others []string) {
	for line := range strings.Lines(data) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		if fields[4] == point {
			own = fields[2]
			continue
		}
		others = append(others, fields[2])
	}
	return own, others
}
