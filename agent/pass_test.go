package agent

import (
	"context"
	"errors"
	"testing"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/journal"
	"github.com/storageclient/operator/test/check"
)

// brokenSubject is a sysctl subject whose files cannot be written.
type brokenSubject struct{ host.Subject }

func (brokenSubject) Name() string                                { return "sysctl" }
func (brokenSubject) Apply(context.Context, []host.Setting) error { return errors.New("no space") }

func TestASubjectThatFailsFailsAllOfItsSettings(t *testing.T) {
	for name, test := range map[string]struct {
		key    string
		item   item
		failed string
	}{
		"a setting to be applied":             {key: "sysctl/a", item: item{entry: &journal.Entry{}}, failed: "no space"},
		"a setting to be proven":              {key: "sysctl/a", item: item{unconfirmed: &journal.Entry{}}, failed: "no space"},
		"a setting to be restored":            {key: "sysctl/a", item: item{restore: &host.Original{}}, failed: "not restored: no space"},
		"an unsupported setting":              {key: "sysctl/a", item: item{entry: &journal.Entry{}, unsupported: true}},
		"a setting that only the journal has": {key: "sysctl/a", item: item{isJournalled: true}},
		"a setting of another subject":        {key: "sysctls/a", item: item{entry: &journal.Entry{}}},
	} {
		t.Run(name, func(t *testing.T) {
			p := &pass{plan: plan{}}
			it := p.item(test.key)
			test.item.key, test.item.name = it.key, it.name
			*it = test.item
			p.item("sysctl/other").entry = &journal.Entry{}
			p.applySubject(t.Context(), brokenSubject{})
			check.Equal(t, "failed", test.failed, it.failed)
		})
	}
}
