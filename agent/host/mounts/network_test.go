package mounts

import (
	"testing"

	"github.com/storageclient/operator/tuning/counters"
)

func TestLog(t *testing.T) {
	m := Mount{Device: "254:0", FSType: "xfs"}
	r := reader(t, map[string]string{
		"/sys/dev/block/254:0/uevent":     "MAJOR=254\nDEVNAME=dm-0\n",
		"/sys/fs/xfs/dm-0/stats/stats":    "dir 1 2 3 4\nlog 1000 64000 25 900 30\npush_ail 5000 7 0 0 1 2 3 4 5 6\nxpc 1 2 3\n",
		"/sys/fs/xfs/vdb/stats/stats":     "log 9 9 9 9 9\n",
		"/sys/dev/block/254:1/uevent":     "DEVNAME=vdb1\n",
		"/sys/dev/block/254:2/uevent":     "DEVNAME=vdc\n",
		"/sys/fs/xfs/vdc/stats/stats":     "log x y z\n",
		"/sys/dev/block/254:3/uevent":     "DEVNAME=../vdb\n",
		"/sys/dev/block/254:4/uevent":     "MAJOR=254\n",
		"/sys/dev/block/254:5/unexpected": "",
	})
	if got, ok := r.Log(m); !ok || got != (counters.Log{Writes: 1000, NoBuffer: 25, NoSpace: 7}) {
		t.Errorf("got %+v, %t", got, ok)
	}
	for _, device := range []string{"254:1", "254:2", "254:3", "254:4", "254:5"} {
		if got, ok := r.Log(Mount{Device: device}); ok {
			t.Errorf("%s: got unexpected log %+v", device, got)
		}
	}
}
