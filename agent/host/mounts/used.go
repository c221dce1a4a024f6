package mounts

import (
	"path"
	"slices"
	"strings"

	"github.com/storageclient/operator/tuning/counters"
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
		// "dir LOOKUP CREATE REMOVE GETDENTS" counts operations on directories, and "xpc STRATEGY WRITTEN READ" bytes.
		counted := r.readXFSStats(m.Device)
		m.Operations = 0
		for _, n := range slices.Concat(counted["dir"], counted["xpc"]) {
			m.Operations += n
		}
	}
}

// readXFSStats returns the counters of an XFS file system, by the name of their line. Nil if the kernel does not report them.
func (r Reader) readXFSStats(device string) map[string][]uint64 {
	uevent, err := r.fs.ReadFile(path.Join(blockDevices, device, "uevent"))
	if err != nil {
		return nil
	}
	for text := range strings.Lines(string(uevent)) {
		name, found := strings.CutPrefix(strings.TrimSpace(text), "DEVNAME=")
		if !found || strings.Contains(name, "..") {
			continue
		}
		// The kernel writes ! for / in names of /sys, as in cciss!c0d0.
		data, err := r.fs.ReadFile(path.Join(xfsDir, strings.ReplaceAll(name, "/", "!"), "stats/stats"))
		if err != nil {
			return nil
		}
		return parseXFSStats(string(data))
	}
	return nil
}

// parseXFSStats parses lines such as "dir 1 2 3 4". Source: xfs_stats_format in fs/xfs/xfs_stats.c.
func parseXFSStats(data string) map[string][]uint64 {
	counted := map[string][]uint64{}
	for text := range strings.Lines(data) {
		name, rest, _ := strings.Cut(strings.TrimSpace(text), " ")
		if numbers, ok := parseCounts(strings.Fields(rest)); ok {
			counted[name] = numbers
		}
	}
	return counted
}

// Log reads the log counters of an XFS mount. ok is false if the kernel does not report them. The lines are "log WRITES BLOCKS NOICLOGS FORCES
// FORCE_SLEEPS" and "push_ail TRY_LOGSPACE SLEEP_LOGSPACE ...".
func (r Reader) Log(m Mount) (l counters.Log, ok bool) {
	counted := r.readXFSStats(m.Device)
	log, tail := counted["log"], counted["push_ail"]
	if ok = len(log) > 2; ok {
		l.Writes, l.NoBuffer = log[0], log[2]
	}
	if len(tail) > 2 {
		l.NoSpace = tail[1]
	}
	return l, ok
}
