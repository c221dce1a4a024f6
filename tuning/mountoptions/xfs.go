package mountoptions

// xfs is based on fs/xfs/xfs_super.c of kernels 5.10 to 7.3 and xfs(5). A remount only changes access times, ro, and
// inode32 or inode64. For other options, it succeeds without effect.
var xfs = read("XFS", &table{
	warns:  map[string]func(Option) string{"logbufs": cautionLogbufs},
	checks: []func(*table, []Option) []Problem{checkTwice, checkImplied},
})

func cautionLogbufs(o Option) string {
	if o.Value == "8" {
		return "is the kernel's default: raise logbsize instead"
	}
	return ""
}
