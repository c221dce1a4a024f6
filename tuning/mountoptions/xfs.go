package mountoptions

const (
	refuseRemoved4  = "was removed in kernel 4.0: mount fails"
	refuseRemoved19 = "was removed in kernel 4.19: mount fails"
	refuseLayout    = "describes the disk layout; only the volume itself may set that"
	refuseQuota     = "turns on quotas; only the volume itself may set that"

	warnDeprecated = "is deprecated, and ignored from kernel 6.18 on"
	warnQuota      = "is the default without quotas; with quotas it drops their state, and the next mount with quotas counts all files again"
)

// xfs is based on fs/xfs/xfs_super.c of kernels 5.10 to 7.3 and xfs(5). A remount only changes access times, ro, and
// inode32 or inode64. For other options, it succeeds without effect.
var xfs = &table{
	source: "kernel fs/xfs/xfs_super.c and Documentation/admin-guide/xfs.rst, 5.10 to 7.3; xfs(5); measured on 5.10, 6.1 and 6.18",
	specs: overlay(local, map[string]spec{
		"logbufs": {key: "logbufs", kind: count, min: 2, max: 8, unit: "buffers", initial: "8", caution: cautionLogbufs},
		"logbsize": {key: "logbsize", kind: size, min: 16 << 10, max: 256 << 10, unit: "bytes", initial: "32k",
			note: "At least the log's stripe unit; over 32k needs a version 2 log. Takes logbufs x logbsize of memory per file system."},
		"allocsize": {key: "allocsize", kind: size, min: 4 << 10, max: 1 << 30, unit: "bytes",
			note: "The kernel accepts other numbers but rounds them down."},

		"inode64":     {key: "inode64", value: "inode64"},
		"inode32":     {key: "inode64", value: "inode32", warning: "keeps all inodes in the first terabyte"},
		"largeio":     {key: "largeio", value: "largeio"},
		"nolargeio":   {key: "largeio", value: "nolargeio"},
		"discard":     {key: "discard", value: "discard", warning: "sends a discard with every delete: running fstrim periodically costs less"},
		"nodiscard":   {key: "discard", value: "nodiscard"},
		"swalloc":     {key: "swalloc", value: "swalloc"},
		"filestreams": {key: "filestreams", value: "filestreams"},
		"wsync":       {key: "wsync", value: "wsync", warning: "makes every create, rename and delete wait for the disk"},
		"nouuid":      {key: "nouuid", value: "nouuid", warning: "allows a copy to be mounted next to its original: for snapshots only"},
		"dax": {key: keyDAX, kind: word, words: []string{"inode", "always", "never"}, initial: "inode", firstKernel: "5.8",
			note: "Only on persistent memory."},
		"noquota": {key: "quota", value: "noquota", warning: warnQuota},

		"ikeep":   {key: "ikeep", value: "ikeep", warning: warnDeprecated},
		"noikeep": {key: "ikeep", value: "noikeep", warning: warnDeprecated},
		"attr2":   {key: "attr2", value: "attr2", warning: warnDeprecated},
	}),
	rejected: map[string]string{
		"barrier": refuseRemoved19, "nobarrier": refuseRemoved19,
		"delaylog": refuseRemoved4, "nodelaylog": refuseRemoved4, "ihashsize": refuseRemoved4, "irixsgid": refuseRemoved4,
		"osyncisdsync": refuseRemoved4, "osyncisosync": refuseRemoved4,
		"noattr2":    "fails on all but very old file systems (kernels up to 6.17)",
		"norecovery": "mounts a file system without replaying its log",
		"quota":      refuseQuota, "uquota": refuseQuota, "usrquota": refuseQuota, "uqnoenforce": refuseQuota, "gquota": refuseQuota,
		"grpquota": refuseQuota, "gqnoenforce": refuseQuota, "pquota": refuseQuota, "prjquota": refuseQuota, "pqnoenforce": refuseQuota,
		"qnoenforce": refuseQuota,
		"sunit":      refuseLayout, "swidth": refuseLayout, "noalign": refuseLayout,
		"grpid": refuseOwnership, "nogrpid": refuseOwnership, "bsdgroups": refuseOwnership, "sysvgroups": refuseOwnership,
		"logdev": refuseAddress, "rtdev": refuseAddress,
	},
	implied: map[string]string{"nodiratime": "noatime"},
	never:   map[string]bool{"_netdev": true, "nofail": true, "ikeep": true, "attr2": true},
	hidden: withTwins(map[string]string{
		keySync: "async", "atime": "strictatime", keyDAX: "inode", "largeio": "nolargeio", "discard": "nodiscard", "diratime": "diratime",
	}),
	checks: []func(*table, []Option) []Problem{checkTwice, checkImplied},

	protections: append([]protection{access}, xfsQuotas...),
}

func cautionLogbufs(o Option) string {
	if o.Value == "8" {
		return "is the kernel's default: raise logbsize instead"
	}
	return ""
}
