package catalogue

import "math/bits"

const (
	// bucketBytes is the size of a struct hlist_head on a 64-bit kernel.
	bucketBytes = 8
	// maxBuckets is the kernel's upper limit for every hash table.
	maxBuckets = 1 << 31
	// adaptBytes is the memory size from which the kernel halves the buckets for each byte whenever memory is four times as large.
	adaptBytes = 64 << 30
	// maxMemory is the maximum memory size in the computation: 2^56 bytes.
	maxMemory = 1 << 56
)

// bytesPerBucket is the memory for each bucket by default, as a power of two.
var bytesPerBucket = map[string]int{"dhash_entries": 13, "ihash_entries": 14}

// HashGrant is the predicted size of a hash table whose size is set on the kernel command line.
type HashGrant struct {
	// Granted is the minimum number of buckets that the table will have.
	Granted int64
	// Default is the number of buckets without the kernel argument.
	Default int64
	// Largest is the largest number that is certain to be granted.
	Largest int64
	// Clamped reports whether the kernel may grant less than the requested number, rounded up to a power of two.
	Clamped bool
}

// HashSize predicts the size of the hash table for a kernel argument (ihash_entries, dhash_entries). It returns false for any
// other argument, and if memTotal or pageSize is not positive.
//
// The kernel rounds up to a power of two and then limits the table to 1/16 of memory, rounded down (mm/mm_init.c,
// alloc_large_system_hash; measured: 16777216 becomes 8388608 with 1.5 GB, and is granted with 4 GiB). memTotal is MemTotal of
// /proc/meminfo in bytes, which differs from the kernel's figure. MemTotal excludes tables that were made before, so the tables of
// the running kernel should be added to it. It includes the initrd, which newer kernels exclude. HashSize therefore subtracts
// another 1/16 before a size counts as certain: a useless reboot is worse than a rejected value. After the boot, the kernel log
// contains the granted size; do not use this function then.
func HashSize(argument string, requested, memTotal, pageSize int64) (HashGrant, bool) {
	scale, ok := bytesPerBucket[argument]
	if !ok || memTotal <= 0 || pageSize <= 0 || requested < 0 {
		return HashGrant{}, false
	}
	memTotal = min(memTotal, maxMemory)
	grant := HashGrant{
		Largest: powerBelow(tableLimit(memTotal - memTotal/16)),
		Default: min(defaultBuckets(memTotal, pageSize, scale), powerBelow(tableLimit(memTotal))),
	}
	if requested == 0 {
		grant.Granted = grant.Default
		return grant, true
	}
	rounded := powerAbove(min(requested, maxBuckets))
	grant.Granted = min(rounded, grant.Largest)
	grant.Clamped = rounded > grant.Largest || requested > maxBuckets
	return grant, true
}

// tableLimit returns the number of buckets that fit into 1/16 of memory.
func tableLimit(memory int64) int64 { return min(memory/16/bucketBytes, maxBuckets) }

func defaultBuckets(memTotal, pageSize int64, scale int) int64 {
	memory := memTotal
	if pageSize < 1<<20 {
		memory = (memory + 1<<20 - 1) &^ (1<<20 - 1)
	}
	for adapt := int64(adaptBytes); adapt < memory; adapt <<= 2 {
		scale++
	}
	return powerAbove(max(memory>>scale, pageSize/bucketBytes))
}

// powerAbove returns the smallest power of two that is not below n; n is at most 2^56.
func powerAbove(n int64) int64 { return 1 << bits.Len64(uint64(max(n, 1)-1)) }

// powerBelow returns the largest power of two that is not above n.
func powerBelow(n int64) int64 { return 1 << (bits.Len64(uint64(max(n, 1))) - 1) }
