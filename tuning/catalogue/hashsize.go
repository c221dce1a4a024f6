package catalogue

import "math/bits"

const (
	// bucketBytes is the size of a struct hlist_head on a 64-bit kernel.
	bucketBytes = 8
	// maxBuckets is the kernel's own upper bound of any hash table.
	maxBuckets = 1 << 31
	// adaptBytes is the memory from which on the kernel halves the buckets a byte with every fourfold of memory.
	adaptBytes = 64 << 30
	// maxMemory bounds the memory that is reckoned with: 2^56 bytes.
	maxMemory = 1 << 56
)

// bytesPerBucket is how much memory the kernel reckons for one bucket, as a power of two.
var bytesPerBucket = map[string]int{"dhash_entries": 13, "ihash_entries": 14}

// HashGrant is what a kernel will make of a hash table whose size is asked for on its command line.
type HashGrant struct {
	// Granted is how many buckets the table will have at least.
	Granted int64
	// Default is how many it has where nothing is asked for.
	Default int64
	// Largest is the largest number that is sure to be granted.
	Largest int64
	// Clamped is true where the kernel may grant less than what was asked for, rounded up to a power of two.
	Clamped bool
}

// HashSize predicts the size of the hash table that a kernel argument (ihash_entries, dhash_entries) asks for. It
// returns false for an argument that sizes no hash table that is known here, and where memTotal or pageSize is not
// positive.
//
// The kernel rounds up to a power of two and then holds the table to 1/16 of memory, rounding down (mm/mm_init.c,
// alloc_large_system_hash; measured: 16777216 becomes 8388608 with 1.5 GB, and is granted with 4 GiB). memTotal is
// MemTotal of /proc/meminfo in bytes. That is not the figure that the kernel reckons with: MemTotal leaves out tables
// that were made before, so those of the running kernel should be added to it, and it counts the initrd, which newer
// kernels do not. Another 1/16 is therefore taken off before anything counts as sure to be granted: a reboot for
// nothing is worse than a value refused. Once booted, the kernel log tells what was granted, and this function should
// not be asked any more.
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

// tableLimit is how many buckets fit into 1/16 of memory.
func tableLimit(memory int64) int64 {
	return min(memory/16/bucketBytes, maxBuckets)
}

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

// powerAbove is the smallest power of two that is not below n; n is at most 2^56.
func powerAbove(n int64) int64 {
	return 1 << bits.Len64(uint64(max(n, 1)-1))
}

// powerBelow is the largest power of two that is not above n.
func powerBelow(n int64) int64 {
	return 1 << (bits.Len64(uint64(max(n, 1))) - 1)
}
