package servers

import (
	"net"
	"strconv"
	"syscall"
	"testing"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/tuning/serverhealth"
)

func TestFailingServersComeFirstIfThereAreTooMany(t *testing.T) {
	w := New(Reader{}, nil, nil, "boot-1", nil)
	for i := range maxServers + 10 {
		v := serverhealth.Verdict{Key: serverhealth.Key{Server: "s" + strconv.Itoa(100+i), Protocol: v1alpha1.ServerNFS}, State: v1alpha1.ServerIdle}
		if i >= maxServers {
			v.State = v1alpha1.ServerSilent
		}
		w.verdicts = append(w.verdicts, v)
	}
	var status v1alpha1.StorageClientNodeStatus
	w.Report(&status, v1alpha1.StorageClientNodeStatus{}, nil)
	list := status.Servers
	if len(list) != maxServers {
		t.Fatalf("unexpected number of servers: %d", len(list))
	}
	silent := 0
	for _, s := range list {
		if s.State == v1alpha1.ServerSilent {
			silent++
		}
	}
	check.Equal(t, "silent servers", 10, silent)
}

func TestResultsOfTestConnections(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want serverhealth.Probe
	}{
		"it responds":               {nil, serverhealth.Probe{Responded: true, Connected: true}},
		"no process listens":        {&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, serverhealth.Probe{ConnectionRefused: true}},
		"no connection can be made": {&net.OpError{Op: "dial", Err: syscall.EHOSTUNREACH}, serverhealth.Probe{}},
		"it does not respond":       {&net.OpError{Op: "read", Err: syscall.ETIMEDOUT}, serverhealth.Probe{Connected: true}},
	} {
		t.Run(name, func(t *testing.T) {
			check.Equal(t, "result", c.want, questionOf(serverhealth.Key{}, c.err))
		})
	}
}

func TestRoundDown(t *testing.T) {
	for n, want := range map[int]int32{0: 0, 1: 1, 2: 2, 3: 2, 255: 128, 256: 256} {
		if got := roundDown(n); got != want {
			t.Errorf("%d: got %d, want %d", n, got, want)
		}
	}
}
