package mountoptions

import "math"

const (
	// maxSMBTimer is 2^30 jiffies in seconds at 1000 jiffies per second, the smallest maximum of all kernels.
	maxSMBTimer = 1 << 30 / 1000

	refuseIdentity  = "sets who logs in and how; only the volume itself may set that"
	refuseOwnership = "sets who owns the files; only the volume itself may set that"
	warnSMBIgnored  = "is accepted but ignored by the SMB client"
	warnSMBSync     = warnSMBIgnored + " since kernel 5.11: with cache=none every write waits for the server"
)

// smb is based on fs/smb/client/fs_context.c and connect.c of kernels 6.12 and 7.3, and mount.cifs(8). Options in
// /proc/mounts are based on cifs_show_options of 6.1 and later.
var smb = &table{
	source: "kernel fs/smb/client/fs_context.c, 6.12 and 7.3; mount.cifs(8) of cifs-utils 7.9; Azure Files, SMB performance",
	specs: withCommon(map[string]spec{
		"actimeo":    {key: keyActimeo, kind: count, max: maxSMBTimer, unit: "s", note: "Sets acregmax and acdirmax, unless one of them is set before it."},
		"acregmax":   {key: "acregmax", kind: count, max: maxSMBTimer, unit: "s"},
		"acdirmax":   {key: "acdirmax", kind: count, max: maxSMBTimer, unit: "s"},
		"closetimeo": {key: "closetimeo", kind: count, max: maxSMBTimer, unit: "s", initial: "1"},
		"cache": {key: "cache", kind: word, words: []string{"strict", "none", "loose", "ro", "singleclient"}, initial: "strict",
			caution: cautionCache},

		"max_channels": {key: "max_channels", kind: count, min: 1, max: 16, unit: "channels",
			note: "More than one implies multichannel. Azure Files allows at most four, on SSD shares."},
		"multichannel":   {key: "multichannel", value: "multichannel", note: "On its own: two channels."},
		"nomultichannel": {key: "multichannel", value: "nomultichannel"},

		"rsize":  {key: keyRsize, kind: count, max: math.MaxUint32, unit: "bytes", note: "Servers usually allow up to 8 MiB."},
		"wsize":  {key: keyWsize, kind: count, max: math.MaxUint32, unit: "bytes", note: "Servers usually allow up to 8 MiB. Rounded down to whole pages."},
		"rasize": {key: "rasize", kind: count, min: 1 << 20, max: 32 << 20, unit: "bytes", note: "Read-ahead. By default twice rsize."},

		"max_cached_dirs": {key: "max_cached_dirs", kind: count, min: 1, max: math.MaxUint16, unit: "directories", initial: "16"},
		"echo_interval":   {key: "echo_interval", kind: count, min: 1, max: 600, unit: "s", initial: "60"},
		"handletimeout":   {key: "handletimeout", kind: count, max: 960000, unit: "ms"},
		"retrans":         {key: "retrans", kind: count, max: 100, unit: "tries"},

		"max_credits": {key: "max_credits", kind: count, min: 20, max: 60000, unit: "credits", initial: "32000", note: "The server decides how " +
			"many it grants."},
		"esize": {key: "esize", kind: count, max: math.MaxUint32, unit: "bytes", note: "Reads from encrypted shares of at least this size " +
			"are decrypted by several threads; 0 for never."},

		"seal":      {key: "seal", value: "seal", note: "Encrypts traffic; Azure Files always does."},
		"serverino": {key: "serverino", value: "serverino"},
		"noserverino": {key: "serverino", value: "noserverino", warning: "uses made-up inode numbers: hard links are not recognized, " +
			"and numbers change"},
		"strictsync": {key: "strictsync", value: "strictsync"},
		"nostrictsync": {key: "strictsync", value: "nostrictsync", warning: "returns from fsync before the server has written the data: " +
			"a server crash loses it"},
		"handlecache":         {key: "handlecache", value: "handlecache"},
		"nohandlecache":       {key: "handlecache", value: "nohandlecache"},
		"persistenthandles":   {key: "persistenthandles", value: "persistenthandles", note: "If the server supports them."},
		"nopersistenthandles": {key: "persistenthandles", value: "nopersistenthandles"},
		"resilienthandles":    {key: "resilienthandles", value: "resilienthandles"},
		"noresilienthandles":  {key: "resilienthandles", value: "noresilienthandles"},
		"fsc":                 {key: "fsc", value: "fsc", note: "Needs cachefilesd on the node."},
		"nodfs":               {key: "dfs", value: "nodfs"},

		"nosharesock": {key: "sharesock", value: "nosharesock", note: "Each mount gets its own connection. Only kernels from 6.6 on show it."},
		"mfsymlinks":  {key: "mfsymlinks", value: "mfsymlinks"},
		"brl":         {key: "brl", value: "brl"},
		"nobrl":       {key: "brl", value: "nobrl", warning: "does not send byte-range locks to the server: clients do not see each other's locks"},
		"nolease":     {key: "lease", value: "nolease", warning: "disables leases: no caching between opens"},
		"hard":        {key: keyHard, value: "hard"},
		"soft":        {key: keyHard, value: "soft", note: "The default for SMB, unlike NFS."},

		"vers": {key: keyVersion, kind: word, words: []string{"2.1", "3", "3.0", "3.02", "3.1.1", versionDefault},
			removed: map[string]string{"1.0": "SMB1 is insecure", "2.0": "SMB 2.0 lacks leases and large requests"}},

		"sync":       {key: keySync, value: "sync", warning: warnSMBSync},
		"async":      {key: keySync, value: "async", warning: warnSMBIgnored},
		"atime":      {key: "atime", value: "atime", warning: warnSMBIgnored},
		"noatime":    {key: "atime", value: "noatime", warning: warnSMBIgnored},
		"relatime":   {key: "atime", value: "relatime", warning: warnSMBIgnored},
		"diratime":   {key: "diratime", value: "diratime", warning: warnSMBIgnored},
		"nodiratime": {key: "diratime", value: "nodiratime", warning: warnSMBIgnored},
	}),
	rejected: map[string]string{
		"user": refuseIdentity, "username": refuseIdentity, "pass": refuseIdentity, "password": refuseIdentity, "password2": refuseIdentity,
		"credentials": refuseIdentity, "cred": refuseIdentity, "dom": refuseIdentity, "domain": refuseIdentity, "domainauto": refuseIdentity,
		"guest": refuseIdentity, "sec": refuseIdentity, "cruid": refuseIdentity, "multiuser": refuseIdentity,
		"uid": refuseOwnership, "gid": refuseOwnership, "forceuid": refuseOwnership, "forcegid": refuseOwnership,
		"file_mode": refuseOwnership, "dir_mode": refuseOwnership, "noperm": refuseProtection,
		"ip": refuseAddress, "unc": refuseAddress, "source": refuseAddress, "prefixpath": refuseAddress, "srcaddr": refuseAddress,
	},
	timers:        []string{"acregmax", "acdirmax"},
	timerDefaults: map[string]string{"acregmax": "1", "acdirmax": "1"},
	actimeoYields: true,

	never: map[string]bool{
		keySync: true, "atime": true, "diratime": true, "_netdev": true, "nofail": true,
		"handletimeout": true, "retrans": true, "max_cached_dirs": true, "lease": true, "sharesock": true,
		"persistenthandles": true, "resilienthandles": true, "serverino": true, "seal": true,
	},
	hidden: withTwins(map[string]string{
		"brl": "brl", "multichannel": "nomultichannel", "max_channels": "1", keyHard: "soft", "echo_interval": "60",
		"max_credits": "32000", "strictsync": "strictsync", "handlecache": "handlecache", "esize": "0",
	}),
	granted: map[string]bool{keyRsize: true, keyWsize: true, "max_channels": true},
	checks:  []func(*table, []Option) []Problem{checkTwice, checkYielding},

	protections: []protection{access, smbVersion, smbSec, smbSigning, smbSeal},
}

func cautionCache(o Option) string {
	switch o.Value {
	case "loose", "ro", "singleclient":
		return "caches as if no other client writes: if one does, data is lost or stale"
	case "none":
		return "disables caching: every access queries the server"
	}
	return ""
}
