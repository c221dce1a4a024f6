package life

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/storageclient/operator/agent/host"
)

// bucketBytes is the size of one bucket of a hash table (struct hlist_head) on a 64-bit kernel.
const bucketBytes = 8

const factHashSizes = "hash-sizes"

// hashTables maps the name of a hash table in the kernel log to the argument that sets its size.
var hashTables = map[string]string{"Inode-cache": "ihash_entries", "Dentry cache": "dhash_entries"}

var (
	// Linux 5.10 to 7.3: "Inode-cache hash table entries: 16777216 (order: 15, 134217728 bytes, linear)".
	hashLine  = regexp.MustCompile(`(Inode-cache|Dentry cache) hash table entries: (\d+) \(order: -?\d+, \d+ bytes`)
	hashValue = regexp.MustCompile(`^(0[xX][0-9a-fA-F]+|\d+)$`)
	memTotal  = regexp.MustCompile(`(?m)^MemTotal:\s+(\d+) kB$`)
)

func isHashTable(name string) bool {
	return slices.Contains(slices.Collect(maps.Values(hashTables)), host.CanonicalName(name))
}

// hashEntries parses the size of a hash table. It accepts plain numbers only, because the kernel reads "16M" as 16.
func hashEntries(value string) (uint64, error) {
	if !hashValue.MatchString(value) {
		return 0, fmt.Errorf("%q is not a plain number", value)
	}
	n, err := strconv.ParseUint(value, 0, 64)
	if err == nil && (n == 0 || n > 1<<32) {
		err = fmt.Errorf("%q is out of range", value)
	}
	return n, err
}

// PowerAbove returns the number of buckets that the kernel creates for n entries, if it has the memory.
func PowerAbove(n uint64) uint64 { return 1 << bits.Len64(n-1) }

// hashSizes returns the table sizes of the running kernel by argument. It reads the kernel log once per boot, because the log rolls over. An argument
// that the log does not show is missing: it does not return to the log. Only a command that failed is tried again. The start of
// a log that is too long is enough.
func (s *Subject) hashSizes(ctx context.Context, bootID string) (map[string]uint64, error) {
	if value, ok := s.Facts.BootFact(bootID, factHashSizes); ok {
		return parseSizes(value), nil
	}
	sizes, failed := map[string]uint64{}, false
	for _, argv := range [][]string{{"journalctl", "-k", "-b", "-o", "cat", "--no-pager"}, {"dmesg"}} {
		log, err := s.Runner.Run(ctx, argv...)
		ReadSizes(string(log), sizes)
		if len(sizes) == len(hashTables) {
			failed = false
			break
		}
		failed = failed || err != nil && len(log) == 0 && !errors.Is(err, exec.ErrNotFound)
	}
	if failed {
		return sizes, nil
	}
	// A missing size is written as 0.
	text := fmt.Sprintf("ihash_entries=%d dhash_entries=%d", sizes["ihash_entries"], sizes["dhash_entries"])
	return sizes, s.Facts.SetBootFact(bootID, factHashSizes, text)
}

// ReadSizes uses the first line of each table. Later lines come from other programs.
func ReadSizes(log string, sizes map[string]uint64) {
	for _, match := range hashLine.FindAllStringSubmatch(log, -1) {
		name := hashTables[match[1]]
		if _, ok := sizes[name]; ok {
			continue
		}
		if n, err := strconv.ParseUint(match[2], 10, 64); err == nil {
			sizes[name] = n
		}
	}
}

func parseSizes(text string) map[string]uint64 {
	sizes := map[string]uint64{}
	for _, arg := range host.ParseArguments(text) {
		if n, err := strconv.ParseUint(arg.Value, 10, 64); err == nil && n > 0 {
			sizes[arg.Name] = n
		}
	}
	return sizes
}

// memoryForTables returns a lower bound of the memory that the kernel can distribute to hash tables, in bytes. MemTotal excludes the tables
// themselves. A table that exists proves memory of 16 times its size.
func (s *Subject) memoryForTables(sizes map[string]uint64) (uint64, error) {
	data, err := s.FS.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	match := memTotal.FindStringSubmatch(string(data))
	if match == nil {
		return 0, errors.New("parse /proc/meminfo: no MemTotal")
	}
	total, err := strconv.ParseUint(strings.TrimSpace(match[1]), 10, 54)
	if err != nil {
		return 0, fmt.Errorf("parse /proc/meminfo: %w", err)
	}
	total *= 1024
	for _, n := range sizes {
		total += n * bucketBytes
	}
	for _, n := range sizes {
		total = max(total, n*bucketBytes*16)
	}
	return total, nil
}
