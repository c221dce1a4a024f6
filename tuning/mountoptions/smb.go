package mountoptions

// smb is based on fs/smb/client/fs_context.c and connect.c of kernels 6.12 and 7.3, and mount.cifs(8). Options in
// /proc/mounts are based on cifs_show_options of 6.1 and later. Timers are limited to 2^30 jiffies at 1000 jiffies per second, the smallest
// maximum of all kernels.
var smb = read("SMB", &table{
	warns:  map[string]func(Option) string{"cache": cautionCache},
	checks: []func(*table, []Option) []Problem{checkTwice, checkYielding},
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
