package mountoptions

// smb is based on fs/smb/client/fs_context.c and connect.c of kernels 6.12 and 7.3, and mount.cifs(8). Options in
// /proc/mounts are based on cifs_show_options of 6.1 and later. Timers are limited to 2^30 jiffies at 1000 jiffies per second, the smallest
// maximum of all kernels.
var smb = read("SMB", &table{
	warns: map[string]func(Option) string{"cache": cautionCache},

	timers:        []string{"acregmax", "acdirmax"},
	timerDefaults: map[string]string{"acregmax": "1", "acdirmax": "1"},
	actimeoYields: true,

	never: map[string]bool{
		keySync: true, "atime": true, "diratime": true, "_netdev": true, "nofail": true,
		"handletimeout": true, "retrans": true, "max_cached_dirs": true, "lease": true, "sharesock": true,
		"persistenthandles": true, "resilienthandles": true, "serverino": true, "seal": true,
		"sign": true, "noblocksend": true, "noautotune": true, "nosparse": true, "nodelete": true, "compress": true, "tcpnodelay": true,
	},
	hidden: withTwins(map[string]string{
		"brl": "brl", "multichannel": "nomultichannel", "max_channels": "1", keyHard: "soft", "echo_interval": "60",
		"max_credits": "32000", "strictsync": "strictsync", "handlecache": "handlecache", "esize": "0",
	}),
	granted: map[string]bool{keyRsize: true, keyWsize: true, "max_channels": true},
	checks:  []func(*table, []Option) []Problem{checkTwice, checkYielding},

	protections: []protection{access, smbVersion, smbSec, smbSigning, smbSeal},
})

func cautionCache(o Option) string {
	switch o.Value {
	case "loose", "ro", "singleclient":
		return "caches as if no other client writes: if one does, data is lost or stale"
	case "none":
		return "disables caching: every access queries the server"
	}
	return ""
}
