package readahead

import (
	"testing"

	"github.com/storageclient/operator/agent/host/hosttest"
)

// The real udev sets the windows of the agent's rule, and no others.
func TestUdevSetsTheWindowsOfTheRule(t *testing.T) {
	dir, fs := machine(t)
	run := hosttest.Tool(t, dir, "udevadm")
	hosttest.Apply(t, subject(fs), hosttest.Settings("cifs", "8192", "ceph", "4096"))
	for name, want := range map[string]string{"cifs-7": "8192", "ceph-12": "4096", "cifs-a": "128", "xcifs-7": "128", "0:52": "128", "fuse-1": "128"} {
		device := "/sys/devices/virtual/bdi/" + name
		hosttest.WriteFile(t, dir, device+"/uevent", "")
		hosttest.WriteFile(t, dir, device+"/read_ahead_kb", "128\n")
		hosttest.WriteLink(t, dir, device+"/subsystem", "../../../../class/bdi")
		out := run("test", "--action=add", device)
		if got := hosttest.ReadFile(t, dir, device+"/read_ahead_kb"); got != want && got != want+"\n" {
			t.Errorf("%s: got %q, want %s\n%s", name, got, want, out)
		}
	}
}
