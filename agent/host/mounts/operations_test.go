package mounts

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/tuning/counters"
)

const (
	sharedMounts = `40 1 0:52 / /var/lib/kubelet/plugins/kubernetes.io/csi/d/6a1f/globalmount rw - nfs4 10.0.0.1:/e rw,vers=4.1,nconnect=4,addr=10.0.0.1
41 1 0:52 / ` + pods + pod1 + `/volumes/kubernetes.io~csi/pv2/mount rw - nfs4 10.0.0.1:/e rw,vers=4.1,nconnect=4,addr=10.0.0.1
42 1 0:52 / ` + pods + pod2 + `/volumes/kubernetes.io~csi/pv1/mount rw - nfs4 10.0.0.1:/e rw,vers=4.1,nconnect=4,addr=10.0.0.1
43 1 0:53 / /home rw - nfs 10.0.0.2:/home rw,vers=3,addr=10.0.0.2
44 1 9:0 / /mnt/d1 rw - xfs /dev/md0 rw
`
	goodBlock = "device 10.0.0.1:/e mounted on " + pods + pod2 + `/volumes/kubernetes.io~csi/pv1/mount with fstype nfs4 statvers=1.1
	opts:	rw,vers=4.1,nconnect=4
	events:	1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27
	bytes:	1 2 3 4 8388608 1048576 7 8
	xprt:	tcp 0 1 1 0 0 57 57 0 57 2 2 3 0
	xprt:	tcp 0 1 1 0 0 57 57 0 57 2 2 3 0
	per-op statistics
	        NULL: 0 0 0 0 0 0 0 0 0
	       WRITE: 1 1 0 1048800 136 0 9 9 1
	        READ: 8 10 1 1288 8397700 1500 2200 3701 2
`
)

func TestSuperblocks(t *testing.T) {
	operations := []Operation{
		{Name: "READ", Count: 8, Transmissions: 10, MajorTimeouts: 1, BytesSent: 1288, BytesReceived: 8397700, Queue: 1500 * time.Millisecond, RoundTrip: 2200 * time.Millisecond, Execution: 3701 * time.Millisecond, Errors: 2},
		{Name: "WRITE", Count: 1, Transmissions: 1, BytesSent: 1048800, BytesReceived: 136, RoundTrip: 9 * time.Millisecond, Execution: 9 * time.Millisecond, Errors: 1},
	}
	for name, stats := range map[string]string{
		"one mount of three has statistics":            goodBlock,
		"a block before it breaks off":                 "device 10.0.0.2:/home mounted on\n\tbytes:\t9 9 9 9 9 9\n\tper-op statistics\n\t READ: 9 9 9 9 9 9 9 9\n" + goodBlock,
		"another mount's numbers are none":             goodBlock + "device 10.0.0.2:/home mounted on /home with fstype nfs statvers=1.1\n\tbytes:\tx\n\tper-op statistics\n\t READ: 1 2 y\n\t WRITE 1 1 1 1 1 1 1 1\n\t:\n",
		"unknown lines":                                strings.ReplaceAll(goodBlock, "\tper-op", "\tfuture:\t1 x\n\tper-op"),
		"an old kernel shows more mounts without them": "device proc mounted on /proc with fstype proc\n" + goodBlock,
	} {
		t.Run(name, func(t *testing.T) {
			r := reader(t, map[string]string{"/proc/1/mountinfo": sharedMounts, "/proc/1/mountstats": stats, sessionSlotsFile: "64\n"})
			blocks, err := r.Superblocks()
			check.NoError(t, err)
			if len(blocks) != 2 || blocks[1].Server != "10.0.0.2" || len(blocks[1].Operations) > 0 || blocks[1].Nconnect != 1 {
				t.Fatalf("got %+v, want two superblocks, the second without statistics", blocks)
			}
			got := blocks[0]
			if got.Volume != "pv1" || !cmp.Equal(got.Volumes, []string{"pv1", "pv2"}) || got.Nconnect != 4 || got.Connections != 2 || got.SessionSlots != 64 {
				t.Errorf("got %+v", got)
			}
			check.Equal(t, "bytes", counters.Bytes{Read: 1, Written: 2, DirectRead: 3, DirectWritten: 4, WireRead: 8388608, WireWritten: 1048576}, got.Bytes)
			if want := (counters.Events{DataInvalidations: 3, AttributeInvalidations: 4, Opens: 5, Listings: 13, Flushes: 15, Syncs: 16}); got.Events != want {
				t.Errorf("got %+v, want %+v", got.Events, want)
			}
			transport := TransportCounters{counters.Connection{Sends: 57, Responses: 57, Connects: 1}, 2, 3}
			if want := []TransportCounters{transport, transport}; !cmp.Equal(got.Transports, want) {
				t.Errorf("got %+v, want %+v", got.Transports, want)
			}
			check.Equal(t, "operations", operations, got.Operations)
		})
	}
}

func TestOperationsOfAKernelThatCountsNoErrors(t *testing.T) {
	counted := parseMountstats(strings.ReplaceAll(goodBlock, " 3701 2\n", " 3701\n"))
	got := byName(counted[pods+pod2+"/volumes/kubernetes.io~csi/pv1/mount"].operations)
	if len(got) != 2 || got[0].Execution != 3701*time.Millisecond || got[0].Errors != 0 {
		t.Errorf("got %+v", got)
	}
}

func TestSuperblocksWithoutMountstats(t *testing.T) {
	if _, err := reader(t, map[string]string{"/proc/1/mountinfo": sharedMounts}).Superblocks(); err == nil {
		t.Error("no error")
	}
}

func FuzzParseOperations(f *testing.F) {
	f.Add(goodBlock)
	f.Fuzz(func(t *testing.T, data string) {
		// The parser reads a complete block after any input.
		counted := parseMountstats(data + "\n" + goodBlock)
		if len(counted[pods+pod2+"/volumes/kubernetes.io~csi/pv1/mount"].operations) != 2 {
			t.Errorf("the block after %q is missing", data)
		}
	})
}
