package mountoptions

import "fmt"

const (
	// maxTransfer is the largest rsize and wsize that the kernel uses, in bytes.
	maxTransfer = 1 << 20
	// minTransfer is the smallest rsize and wsize; below it, the kernel uses defaultTransfer.
	minTransfer     = 1024
	defaultTransfer = 4096
	// maxTimeo is the longest timeo that the kernel uses, in tenths of a second.
	maxTimeo = 6000
)

// nfs is based on fs/nfs/fs_context.c of kernels 5.10 to 7.3 and nfs(5). Timers are limited to the largest number of seconds that fits 32
// bits in milliseconds: the kernel accepts larger values and overflows.
var nfs = read("NFS", &table{
	warns:  map[string]func(Option) string{keyTimeo: cautionTimeo, keyRsize: cautionTransfer, keyWsize: cautionTransfer},
	checks: []func(*table, []Option) []Problem{checkVersions, checkTwice, checkCache, checkLocks, checkTransport},
})

func cautionTimeo(o Option) string {
	if number(o.Value) > maxTimeo {
		return fmt.Sprintf("the kernel uses at most %d", maxTimeo)
	}
	return ""
}

func cautionTransfer(o Option) string {
	n := number(o.Value)
	if n <= 0 {
		return ""
	}
	if sizes := transferSizes(n); len(sizes) > 1 || sizes[0] != n {
		return "the kernel uses " + describeSizes(sizes)
	}
	return ""
}
