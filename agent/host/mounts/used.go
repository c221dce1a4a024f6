package mounts

import (
	"path"
	"slices"
	"strings"
)

const (
	blockDevices = "/sys/dev/block"
	xfsDir       = "/sys/fs/xfs"
)

// ofMounting are the operations that the kernel makes to mount an NFS file system and to keep its client alive, even without any use. Source:
// nfs_try_get_tree, nfs4_try_get_tree and nfs_create_server in fs/nfs.
var ofMounting = []string{
	"NULL", "FSINFO", "PATHCONF", "GETATTR", "LOOKUP", "LOOKUP_ROOT", "SERVER_CAPS", "SECINFO", "SECINFO_NO_NAME", "FS_LOCATIONS", "FSID_PRESENT",
	"SETCLIENTID", "SETCLIENTID_CONFIRM", "RENEW", "EXCHANGE_ID", "CREATE_SESSION", "DESTROY_SESSION", "DESTROY_CLIENTID", "SEQUENCE",
	"GET_LEASE_TIME", "RECLAIM_COMPLETE", "BIND_CONN_TO_SESSION", "TEST_STATEID", "FREE_STATEID", "RELEASE_LOCKOWNER",
}

// used returns the number of operations without an error, except the operations of mounting itself.
func (s stats) used() (sum uint64) {
	for name, o := range s.operations {
		if o.Count > o.Errors && !slices.Contains(ofMounting, name) {
			sum += o.Count - o.Errors
		}
	}
	return sum
}

// countOperations counts the operations of a mount without mountstats.
func (r Reader) countOperations(m *Mount, shares map[string]uint64) {
	switch {
	case isSMB(m.FSType):
		m.Operations, m.CountsShare = shares[shareName(m.Server, m.Export)], true
	case m.FSType == "xfs":
		m.Operations = parseXFSStats(r.readXFSStats(m.Device))
	}
}

// readXFSStats returns the counters of an XFS file system. Empty if the kernel does not report them.
func (r Reader) readXFSStats(device string) string {
	uevent, err := r.fs.ReadFile(path.Join(blockDevices, device, "uevent"))
	if err != nil {
		return ""
	}
	for text := range strings.Lines(string(uevent)) {
		name, found := strings.CutPrefix(strings.TrimSpace(text), "DEVNAME=")
		if !found || strings.Contains(name, "..") {
			continue
		}
		// The kernel writes ! for / in names of /sys, as in cciss!c0d0.
		data, err := r.fs.ReadFile(path.Join(xfsDir, strings.ReplaceAll(name, "/", "!"), "stats/stats"))
		if err != nil {
			return ""
		}
		return string(data)
	}
	return ""
}

// parseXFSStats counts the operations on directories and the bytes read and written. It parses "dir LOOKUP CREATE REMOVE GETDENTS" and "xpc STRATEGY
// WRITTEN READ". Source: xfs_stats_format in fs/xfs/xfs_stats.c.
func parseXFSStats(data string) (sum uint64) {
	for text := range strings.Lines(data) {
		fields := strings.Fields(text)
		if len(fields) != 5 && len(fields) != 4 || fields[0] != "dir" && fields[0] != "xpc" {
			continue
		}
		if numbers, ok := parseCounts(fields[1:]); ok {
			for _, n := range numbers {
				sum += n
			}
		}
	}
	return sum
}
