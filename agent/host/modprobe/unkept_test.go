package modprobe

import (
	"strings"
	"syscall"
	"testing"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/hosttest"
	"github.com/storageclient/operator/test/check"
)

const (
	readOnlyRoot = "25 1 7:0 / / ro,relatime - squashfs /dev/loop0 ro,errors=continue\n"
	etcInMemory  = "25 1 8:1 / / ro - ext4 /dev/sda1 ro\n26 25 0:30 / /etc rw - tmpfs tmpfs rw\n"
)

// notPersistent returns a host whose /etc is not persistent, with an agent that keeps running.
func notPersistent(t *testing.T, open func(*testing.T) (string, host.FS), mountinfo string) (string, *Subject) {
	t.Helper()
	dir, fs := open(t)
	hosttest.WriteFile(t, dir, "/proc/1/mountinfo", mountinfo)
	s := unused(fs.WithHook(func(_ host.Op, name string) error {
		if strings.HasPrefix(name, "/etc/") && mountinfo == readOnlyRoot {
			return syscall.EROFS
		}
		return nil
	}))
	s.Attend(true)
	return dir, s
}

func TestParameterWithoutAFile(t *testing.T) {
	for name, test := range map[string]struct {
		mountinfo, reason string
		// notLoaded is the state of a parameter while its module is not loaded. A file in memory lasts until the next boot.
		notLoaded host.State
	}{
		"on a read-only /etc":  {readOnlyRoot, "/etc is read-only", host.Pending},
		"on an /etc in memory": {etcInMemory, "/etc is kept in memory", host.InSync},
	} {
		t.Run(name+" is set again by the agent", func(t *testing.T) {
			_, s := notPersistent(t, loaded, test.mountinfo)
			hosttest.Apply(t, s, hosttest.Settings(maxSlots, "128"))
			got := hosttest.Observe(t, s, maxSlots, "128")
			hosttest.ExpectState(t, got, host.InSync, "not persistent; the agent sets it again at each boot: "+test.reason)
			check.Equal(t, "observed", "128", got.Observed)
			s.Attend(false)
			hosttest.ExpectState(t, hosttest.Observe(t, s, maxSlots, "128"), host.Failed, test.reason, "no agent will set it again")
		})
		t.Run(name+" waits for its module", func(t *testing.T) {
			_, s := notPersistent(t, unloaded, test.mountinfo)
			hosttest.Apply(t, s, hosttest.Settings(maxSlots, "128"))
			hosttest.ExpectState(t, hosttest.Observe(t, s, maxSlots, "128"), test.notLoaded, "not loaded")
		})
		t.Run(name+" and is read only when the module is loaded costs no boot", func(t *testing.T) {
			dir, s := notPersistent(t, loaded, test.mountinfo)
			readOnly(t, dir, "/sys/module/nfs/parameters/max_session_slots")
			hosttest.Apply(t, s, hosttest.Settings(sessionSlots, "180"))
			hosttest.ExpectState(t, hosttest.Observe(t, s, sessionSlots, "180"), host.Unsupported, test.reason, "add nfs.max_session_slots=180 to the kernel command line")
		})
	}
}
