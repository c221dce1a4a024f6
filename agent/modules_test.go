package agent

import (
	"testing"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/hosttest"
	"github.com/storageclient/operator/agent/host/journal"
	"github.com/storageclient/operator/agent/host/modprobe"
	"github.com/storageclient/operator/agent/host/mounts"
	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/tuning/catalogue"
)

// A parameter that only new connections get has a known default: its module may be loaded only after the first change, and then has no original.
func TestModuleParametersTakeEffectAsInTheCatalogue(t *testing.T) {
	found := 0
	for _, p := range catalogue.All() {
		name, isParameter := catalogue.Key(p.Key).In(modprobe.Name)
		if !isParameter {
			continue
		}
		dir, fs := hosttest.OpenHost(t, "debian-12")
		module, parameter := catalogue.Key(name).Cut()
		hosttest.WriteFile(t, dir, "/sys/module/"+module+"/parameters/"+parameter, "7\n")
		records := journal.New(fs)
		check.NoError(t, records.Load())
		o := modprobe.New(fs, nil, mounts.NewReader(fs, mounts.DefaultKubeletDir).Sessions, records).Restore(t.Context(), map[string]host.Original{name: {}})[0]
		isNewTransport := p.TakesEffect == v1alpha1.EffectNewTransport
		if got := o.Effect == host.NewTransport; got != isNewTransport {
			t.Errorf("%s: got effect %s, the catalogue has %s", name, o.Effect, p.TakesEffect)
		}
		if isNewTransport {
			found++
			if o.State != host.InSync || o.Observed != p.Default {
				t.Errorf("%s: restored to %q, %s (%s), want %q", name, o.Observed, o.State, o.Message, p.Default)
			}
		}
	}
	if found == 0 {
		t.Error("got no parameter that only new connections get")
	}
}
