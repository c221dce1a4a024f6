package probe

import "strings"

// countVolumes counts the NFS file systems of a network namespace, from /proc/net/nfsfs/volumes. The file has a header and a line for each file
// system (nfs_volume_list_show in the kernel's fs/nfs/client.c).
func countVolumes(data string) int {
	n := 0
	for line := range strings.Lines(data) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] != "NV" {
			n++
		}
	}
	return n
}

// devicesBelow returns the devices of the mounts at and below a point in /proc/self/mountinfo, by mount point.
func devicesBelow(data, point string) map[string]string {
	devices := map[string]string{}
	for line := range strings.Lines(data) {
		if fields := strings.Fields(line); len(fields) >= 5 && (fields[4] == point || strings.HasPrefix(fields[4], point+"/")) {
			devices[fields[4]] = fields[2]
		}
	}
	return devices
}

// devicesOf returns the device of the mount at a point in /proc/self/mountinfo, and the devices of all other mounts.
func devicesOf(data, point string) (device string, otherDevices []string) {
	for line := range strings.Lines(data) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		if fields[4] == point {
			device = fields[2]
			continue
		}
		otherDevices = append(otherDevices, fields[2])
	}
	return device, otherDevices
}
