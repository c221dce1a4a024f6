package kernellog

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/test/check"
)

// Records are read as the kernel of this machine writes them: the names consist of random bytes, which /dev/kmsg escapes.
func TestRecordsOfARealKernelAreRead(t *testing.T) {
	fs, err := host.OpenFS("/")
	check.NoError(t, err)
	defer fs.Close()
	if file, err := os.OpenFile(logFile, os.O_WRONLY, 0); err != nil {
		t.Skipf("the kernel's log is NOT compared with: run the tests as root: %v", err)
	} else {
		_ = file.Close()
	}
	f := New(fs, noSign)
	if _, err := f.Read(); err != nil {
		t.Skipf("the kernel's log is NOT compared with: %v", err)
	}
	mark := fmt.Sprintf("test-of-storage-client-%d-", os.Getpid())
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 1))
		name := []byte(mark)
		for range 1 + r.IntN([]int{8, 40, 700}[r.IntN(3)]) {
			// A name has no blanks. The kernel ends a text at the byte 0.
			if b := byte(1 + r.IntN(255)); !strings.ContainsRune(" \t\n\f\r", rune(b)) {
				name = append(name, b)
			}
		}
		want := Line{Server: string(name), Responds: seed%3 == 0}
		text := map[uint64]string{0: "nfs: server %s OK", 1: "nfs: server %s not responding, still trying", 2: `CIFS: VFS: \\%s has not responded in 180 seconds. Reconnecting...`}[seed%3]
		// The kernel limits the records of one open file.
		log, err := os.OpenFile(logFile, os.O_WRONLY, 0)
		check.NoError(t, err)
		_, err = fmt.Fprintf(log, "<7>"+text+"\n", name)
		_ = log.Close()
		check.NoError(t, err)
		lines, err := f.Read()
		check.NoError(t, err)
		var got []Line
		for _, line := range lines {
			if strings.HasPrefix(line.Server, mark) {
				got = append(got, Line{Server: line.Server, Responds: line.Responds})
			}
		}
		if diff := cmp.Diff([]Line{want}, got); diff != "" {
			t.Errorf("seed %d: lines (-want +got):\n%s", seed, diff)
		}
	}
}
