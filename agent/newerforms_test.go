package agent

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/storageclient/operator/agent/host/hosttest"
	"github.com/storageclient/operator/agent/host/journal"
	"github.com/storageclient/operator/api/v1alpha1"
)

// A newer agent may give a field another form, and the format another version. All values that this agent understands are restored, the rest is named
// and stays in the journal.
func TestFormsOfANewerAgentDoNotPreventRestores(t *testing.T) {
	for name, test := range map[string]struct {
		// old is a regular expression. kept is in the journal afterwards, without blanks. named is in the message. Both are empty if the record of the
		// proof contains the form, because that record ends with the revert.
		old, replacement, kept, named string
		// rmemStays is true if the original of the confirmed setting is not understood.
		rmemStays bool
	}{
		"a newer version":                       {old: `"version": 1`, replacement: `"version": 2`, kept: `"version":2`, named: "version"},
		"a much newer version":                  {old: `"version": 1`, replacement: `"version": 4711, "unconfirmedV2": []`, kept: `"unconfirmedV2":[]`, named: "unconfirmedV2"},
		"a new kind of deadline":                {old: `"deadline": "[^"]*"`, replacement: `"deadline": 40`},
		"a deadline that is no time":            {old: `"deadline": "[^"]*"`, replacement: `"deadline": "soon"`},
		"a new kind of boot":                    {old: `"bootID": "[^"]*"`, replacement: `"bootID": ["a"]`},
		"a new kind of hash":                    {old: `"unconfirmed": \{\s*"hash": "[^"]*"`, replacement: `"unconfirmed": {"hash": 5`},
		"a new kind of applied value":           {old: `"applied": "1 2 3"`, replacement: `"applied": {"atMost": 3}`},
		"a new kind of retaining":               {old: `"applied": "16777216"`, replacement: `"applied": "16777216", "retain": "Sometimes"`, named: "retain"},
		"a new kind of original":                {old: `"value": "212992"`, replacement: `"value": {"bytes": 212992}`, kept: `"value":{"bytes":212992}`, named: "entries", rmemStays: true},
		"an entry of a new form":                {old: `"entries": \{`, replacement: `"entries": {"later/y": "1",`, kept: `"later/y":"1"`, named: "entries[later/y]"},
		"an entry that is a list":               {old: `"entries": \{`, replacement: `"entries": {"sysctl/a.b": [1],`, kept: `"sysctl/a.b":[1]`, named: "entries[sysctl/a.b]"},
		"an unproven setting of a new form":     {old: `"settings": \{`, replacement: `"settings": {"sysctl/c.d": 7,`, kept: `"sysctl/c.d":7`, named: "unconfirmed"},
		"permits of a new form":                 {old: `"version": 1`, replacement: `"version": 1, "permits": ["a", {"id": "b"}]`, kept: `"permits":["a",{"id":"b"}]`, named: "permits"},
		"permits by name":                       {old: `"version": 1`, replacement: `"version": 1, "permits": {"a": "boot-1"}`, kept: `"permits":{"a":"boot-1"}`, named: "permits"},
		"files of a new form":                   {old: `"version": 1`, replacement: `"version": 1, "files": {"/f": {"original": {"data": 5}}}`, kept: `"data":5`, named: "files"},
		"attempts of a new form":                {old: `"version": 1`, replacement: `"version": 1, "attempts": [1]`, named: "attempts"},
		"facts of a new form":                   {old: `"facts": \{`, replacement: `"facts": {"x": {"a": 1},`, kept: `"x":{"a":1}`, named: "boot.facts"},
		"an unknown field of an unknown object": {old: `"version": 1`, replacement: `"version": 1, "later": [{"entries": {"a": 1}}]`, kept: `"later":[{"entries":{"a":1}}]`, named: "later"},
		"an unknown field of a value":           {old: `"value": "212992"`, replacement: `"value": "212992", "unit": "B"`, named: "entries[sysctl/net.core.rmem_max].original.unit"},
		"a null":                                {old: `"version": 1`, replacement: `"version": 1, "permits": null, "later": null`, kept: `"later":null`, named: "later"},
	} {
		for _, booted := range []bool{false, true} {
			t.Run(name+map[bool]string{true: ", after a boot"}[booted], func(t *testing.T) {
				w := newConfirmWorld(t)
				w.declare(setting(rmem, "16777216"))
				w.runFor(w.agent(), time.Second)
				w.declare(setting(rmem, "16777216"), setting(tcpRmem, fatal))
				w.runPass(w.agent())
				if w.live[tcpRmem] != fatal || w.unconfirmed() == nil {
					t.Fatal("the value is not set")
				}
				before := hosttest.ReadFile(t, w.dir, journal.File)
				old := strings.ReplaceAll(test.old, "1 2 3", regexp.QuoteMeta(fatal))
				at := regexp.MustCompile(old).FindStringIndex(before)
				if at == nil {
					t.Fatalf("the journal has no %s:\n%s", old, before)
				}
				w.write(journal.File, before[:at[0]]+test.replacement+before[at[1]:])
				if booted {
					w.boot()
				}
				a := w.runFor(w.agent(), time.Minute)
				if w.live[tcpRmem] != usual || w.files[tcpRmem] != "" {
					t.Errorf("got live value %q, file %v: %s", w.live[tcpRmem], w.files, w.message(tcpRmem))
				}
				if got := w.message(tcpRmem); test.named != "" && !strings.Contains(got, "a newer agent wrote the journal") || !strings.Contains(got, test.named) || w.state(tcpRmem) != v1alpha1.SettingFailed {
					t.Errorf("got %s: %s, want the name %s", w.state(tcpRmem), got, test.named)
				}
				w.change(func(spec *v1alpha1.StorageClientNodeSpec) { spec.Release = true })
				w.runFor(a, 2*time.Minute)
				if isRestored := w.live[rmem] == "212992"; isRestored == test.rmemStays {
					t.Errorf("got live value %s of the confirmed setting: %s", w.live[rmem], w.message(rmem))
				}
				after := strings.Join(strings.Fields(hosttest.ReadFile(t, w.dir, journal.File)), "")
				if !strings.Contains(after, test.kept) {
					t.Errorf("the journal has no %s:\n%s", test.kept, after)
				}
			})
		}
	}
}
