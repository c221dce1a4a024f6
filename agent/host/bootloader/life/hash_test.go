package life_test

import (
	"testing"

	"github.com/storageclient/operator/agent/host/bootloader/life"
	"github.com/storageclient/operator/agent/host/hosttest/rig"
	"github.com/storageclient/operator/test/check"
)

func TestSizesOfHashTablesInKernelLogs(t *testing.T) {
	tests := map[string]struct {
		log  string
		want map[string]uint64
	}{
		"5.10": {"Inode-cache hash table entries: 131072 (order: 8, 1048576 bytes, linear)\n", map[string]uint64{rig.Ihash: 131072}},
		"6.1 with two NUMA nodes": {"Dentry cache hash table entries: 2097152 (order: 12, 16777216 bytes, vmalloc hugepage)\n",
			map[string]uint64{"dhash_entries": 2097152}},
		"before the word at the end": {"[    0.000000] Inode-cache hash table entries: 131072 (order: 8, 1048576 bytes)\n", map[string]uint64{rig.Ihash: 131072}},
		"a negative order":           {"Inode-cache hash table entries: 16 (order: -5, 128 bytes, linear)\n", map[string]uint64{rig.Ihash: 16}},
		"other tables":               {"Mount-cache hash table entries: 4096 (order: 3, 32768 bytes, linear)\n", map[string]uint64{}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			sizes := map[string]uint64{}
			life.ReadSizes(test.log, sizes)
			check.Equal(t, "sizes", test.want, sizes)
		})
	}
}
