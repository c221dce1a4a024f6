package modprobe

import (
	"strings"
	"testing"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/hosttest"
)

const identity = "storage-client-0b5c-1"

func identified(t *testing.T, dir string, fs host.FS, live string) *Subject {
	t.Helper()
	hosttest.WriteFile(t, dir, uniqueIDFile, live+"\n")
	s := unused(fs)
	s.SetNodeUID("0b5c-1")
	hosttest.Apply(t, s, hosttest.Settings(uniqueID, fromNode))
	return s
}

func TestAnIdentityIsKeptForTheNextBootAndNeverWrittenLive(t *testing.T) {
	dir, fs := loaded(t)
	s := identified(t, dir, fs, "")
	if got := hosttest.ReadFile(t, dir, uniqueIDFile); got != "\n" {
		t.Errorf("live value: got %q; new mounts would use another client ID", got)
	}
	if got, want := hosttest.ReadFile(t, dir, DropIn), header1+"options nfs nfs4_unique_id="+identity+"\n"; got != want {
		t.Errorf("drop-in %q, want %q", got, want)
	}
	o := hosttest.Observe(t, s, uniqueID, fromNode)
	hosttest.ExpectState(t, o, host.Pending)
	if o.Effect != host.Reboot || o.Desired != identity || !strings.Contains(o.Message, "only without NFS mounts") {
		t.Errorf("got %+v", o)
	}
}

func TestAnIdentityIsReadBackAfterTheBoot(t *testing.T) {
	for name, c := range map[string]struct {
		live, identifier string
		state            host.State
	}{
		"the module has it":                        {identity, "", host.InSync},
		"the client has no separate identifier":    {identity, "(null)\n", host.InSync},
		"the client shows the same":                {identity, identity + "\n", host.InSync},
		"another user gave the client another one": {identity, "mine\n", host.Shadowed},
		"the module has another one":               {"former", "", host.Pending},
	} {
		t.Run(name, func(t *testing.T) {
			dir, fs := loaded(t)
			if c.identifier != "" {
				hosttest.WriteFile(t, dir, identifierFile, c.identifier)
			}
			hosttest.ExpectState(t, hosttest.Observe(t, identified(t, dir, fs, c.live), uniqueID, fromNode), c.state)
		})
	}
}

func TestAnIdentityNeedsNoBootWhereTheModuleIsNotLoaded(t *testing.T) {
	_, fs := unloaded(t)
	s := unused(fs)
	s.SetNodeUID("0b5c-1")
	hosttest.Apply(t, s, hosttest.Settings(uniqueID, fromNode))
	hosttest.ExpectState(t, hosttest.Observe(t, s, uniqueID, fromNode), host.InSync)
}

func TestNoIdentityWithoutANode(t *testing.T) {
	dir, fs := loaded(t)
	hosttest.WriteFile(t, dir, uniqueIDFile, "\n")
	s := unused(fs)
	hosttest.Apply(t, s, hosttest.Settings(uniqueID, fromNode))
	hosttest.ExpectState(t, hosttest.Observe(t, s, uniqueID, fromNode), host.Unsupported)
	if fs.Exists(DropIn) {
		t.Error("the drop-in has an identity that all nodes share")
	}
}

func TestIdentityIsRestoredAtTheNextBoot(t *testing.T) {
	dir, fs := loaded(t)
	s := identified(t, dir, fs, identity)
	hosttest.Apply(t, s, nil)
	got := s.Restore(t.Context(), map[string]host.Original{uniqueID: {Present: true}})
	if len(got) != 1 || got[0].State != host.Pending || got[0].Effect != host.Reboot {
		t.Errorf("got %+v", got)
	}
	hosttest.WriteFile(t, dir, uniqueIDFile, "\n")
	if got := s.Restore(t.Context(), map[string]host.Original{uniqueID: {Present: true}}); got[0].State != host.InSync {
		t.Errorf("after the boot: got %+v", got)
	}
}
