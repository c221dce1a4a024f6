package agent

import (
	"errors"
	"testing"
	"time"

	"github.com/storageclient/operator/agent/host/connect"
)

func TestAProofThatCannotBeAbandonedStillTestsItsServer(t *testing.T) {
	w := newConfirmWorld(t)
	w.servers = []connect.Server{filer}
	w.defaults[rmem] = "212992"
	w.proved = nil // the API server always responds
	w.declare(setting(tcpRmem, fatal))
	a := w.agent()
	w.runPass(a)
	if w.live[tcpRmem] != fatal || w.unconfirmed() == nil {
		t.Fatalf("the value is not under test: live values are %v", w.live)
	}
	w.clock.Step(time.Second)
	w.restoreErr = errors.New("device or resource busy")
	w.declare(setting(tcpRmem, fatal), setting(rmem, "16777216"))
	w.runPass(a)
	if w.journal()[tcpRmem].Applied == fatal || w.files[tcpRmem] == fatal {
		t.Errorf("kept a value that breaks connections to the mounted server")
	}
}
