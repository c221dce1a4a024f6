package probe

import (
	"strings"
)

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

// parseStats reads the options in force and the number of transports of the mount at a point, from /proc/self/mountstats.
func parseStats(data, point string) (options []string, transports int) {
	ours := false
	for line := range strings.Lines(data) {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0:
		case fields[0] == "device":
			// device SOURCE mounted on POINT with fstype TYPE
			ours = len(fields) > 4 && fields[4] == point
		case ours && fields[0] == "opts:" && len(fields) > 1:
			options = strings.Split(fields[1], ",")
		case ours && fields[0] == "xprt:":
			transports++
		}
	}
	return options, transports
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
