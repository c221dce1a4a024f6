package mounts

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/storageclient/operator/agent/host/hosttest"
	"github.com/storageclient/operator/test/check"
)

// tunnel returns the findings about the mount of a tunnel.
func tunnel(t *testing.T, port int, sockets string) (gone, taken bool) {
	t.Helper()
	counted, err := reader(t, map[string]string{
		"/proc/1/mountinfo": fmt.Sprintf("30 1 0:52 / /m rw - nfs4 127.0.0.1:/ rw,vers=4.1,proto=tcp,port=%d,addr=127.0.0.1\n", port),
		"/proc/1/net/tcp":   sockets,
	}).Counters()
	if err != nil || len(counted) != 1 || !counted[0].Tunnel {
		t.Fatalf("got %+v, error %v", counted, err)
	}
	return counted[0].Gone, counted[0].Taken
}

// The record has the socket tables of kernel 6.18 with stunnel 5.68. Port 20049 has the configuration that efs-utils writes, and 20050 also has setuid.
// Connections were made to both ports. Then stunnel 20050 got SIGHUP, stunnel 20049 was killed, a process of user 1234 opened its port, and stunnel
// was started again.
func TestTunnelsAsStunnelLeavesThem(t *testing.T) {
	data, err := os.ReadFile("testdata/tunnels.txt")
	check.NoError(t, err)
	type finding struct{ gone, taken bool }
	want := map[string]map[int]finding{
		"started":     {20049: {}, 20050: {}},
		"connections": {20049: {}, 20050: {}},
		// A stunnel that has left root opens its port again as its own user. Only a response shows that the mount still has its tunnel.
		"reloaded user": {20049: {}, 20050: {taken: true}},
		"killed":        {20049: {gone: true}, 20050: {taken: true}},
		"taken":         {20049: {taken: true}, 20050: {taken: true}},
		"restarted":     {20049: {}, 20050: {taken: true}},
	}
	steps := strings.Split(string(data), "== ")[1:]
	if len(steps) != len(want) {
		t.Fatalf("got %d steps, want %d", len(steps), len(want))
	}
	for _, step := range steps {
		name, sockets, _ := strings.Cut(step, "\n")
		for port, found := range want[name] {
			if gone, taken := tunnel(t, port, sockets); (finding{gone, taken}) != found {
				t.Errorf("%s: port %d: got gone %t, taken %t; want %+v", name, port, gone, taken, found)
			}
		}
	}
}

// stunnels runs steps with the real stunnel in a separate network. Each line of input kills the previous process and starts the next one.
// The configuration is opened as root: a directory for temporary files can be closed to other users.
const stunnels = `ip link set lo up
start() { "$@" 2>"$log" & pid=$!; read -r _; kill -9 $pid; wait $pid; }
start "$stunnel" -fd 3 3<"$configuration"
start sleep 1000
start setpriv --reuid=1234 --clear-groups "$stunnel" -fd 3 3<"$configuration"
start "$stunnel" -fd 3 3<"$configuration"
`

// The findings about a tunnel follow its real program: it listens, is killed, another user's process has its port, and it is started again.
func TestARealStunnelIsFound(t *testing.T) {
	stunnel := hosttest.Program(t, "stunnel4")
	dir := t.TempDir()
	configuration := filepath.Join(dir, "stunnel.conf")
	hosttest.WriteFile(t, dir, "stunnel.conf", "foreground = yes\nsocket = l:SO_REUSEADDR=yes\nsocket = a:SO_BINDTODEVICE=lo\npid =\n[efs]\nclient = yes\n"+
		"accept = 127.0.0.1:20049\nconnect = 127.0.0.2:2049\nTIMEOUTbusy = 20\nTIMEOUTclose = 0\nTIMEOUTidle = 70\ndelay = yes\n")
	command := exec.CommandContext(t.Context(), "unshare", "--net", "sh", "-c", stunnels)
	command.Env = append(os.Environ(), "stunnel="+stunnel, "configuration="+configuration, "log="+filepath.Join(dir, "log"))
	steps, err := command.StdinPipe()
	check.NoError(t, err)
	check.NoError(t, command.Start())
	t.Cleanup(func() { steps.Close(); command.Wait() }) //nolint:errcheck // The last process is killed.
	for _, step := range []struct {
		name        string
		gone, taken bool
	}{{"stunnel listens", false, false}, {"stunnel is killed", true, false}, {"another user has the port", false, true}, {"stunnel is back", false, false}} {
		deadline := time.Now().Add(time.Minute)
		for {
			sockets, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/tcp", command.Process.Pid))
			check.NoError(t, err)
			if gone, taken := tunnel(t, 20049, string(sockets)); gone == step.gone && taken == step.taken {
				break
			}
			if time.Now().After(deadline) {
				log, _ := os.ReadFile(filepath.Join(dir, "log"))
				t.Fatalf("%s: got %s\n%s", step.name, sockets, log)
			}
			time.Sleep(10 * time.Millisecond)
		}
		if _, err := steps.Write([]byte("next\n")); err != nil {
			t.Fatal(err)
		}
	}
}
