package optionset

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// A record imports the state that an earlier release left on volumes, except failures with a later result.
func TestImport(t *testing.T) {
	later := noon.Add(time.Hour)
	failed := func(change ...func(*Failed)) Earlier {
		f := &Failed{Identity: newRecord().Identity, Blame: Blame{Options: []string{"hard"}, Text: "denied", Since: later, Failure: "denied", Unclear: true}}
		for _, c := range change {
			c(f)
		}
		return Earlier{Volume: "a", Failed: f}
	}
	of := func(volume string, e Earlier) Earlier {
		e.Volume = volume
		return e
	}
	named, settled := func(f *Failed) { f.Unclear = false }, func(f *Failed) { f.Unclear, f.Settled = false, true }
	cleared := func(f *Failed) { f.Unclear, f.Cleared = false, true }
	nothingLearned := func(f *Failed) { f.Unclear, f.Cleared, f.Failure = false, true, "" }
	// recorded is a failure in the ledger of an earlier release. If the text names the options, it is settled from the start.
	recorded := func() *Record {
		return Decode(map[string]string{"failed.abc": `{"set":"abc","rules":["p/rule"],"driver":"kubernetes.io/nfs","failure":"denied","settled":true,"volume":"a"}`})["abc"]
	}
	open := func() *Record {
		r := newRecord()
		r.Next(event(MountFailed, false))
		return r
	}
	judged := func(kind Kind) func() *Record {
		return func() *Record {
			r := newRecord()
			e := event(MountFailed, false)
			e.At = later
			r.Next(e)
			r.Next(event(Restored, false))
			r.Next(event(kind, false))
			return r
		}
	}
	for name, test := range map[string]struct {
		before         func() *Record
		earlier        []Earlier
		server, others State
		blames         int
		cleared        bool
	}{
		"a mount counts for all servers":                           {newRecord, []Earlier{{Volume: "b", Server: server, Evidence: "mounted"}}, Works, Works, 0, false},
		"a probe counts for its server":                            {newRecord, []Earlier{{Volume: "b", Server: server, Evidence: "probed", Probed: true}}, Works, Untried, 0, false},
		"a failure of unknown cause":                               {newRecord, []Earlier{failed()}, Suspected, Suspected, 1, false},
		"a failure that names the options, too":                    {newRecord, []Earlier{failed(named)}, Suspected, Suspected, 1, false},
		"a failure that is settled":                                {newRecord, []Earlier{failed(settled)}, Failing, Failing, 1, false},
		"with evidence it is disputed":                             {newRecord, []Earlier{failed(settled), {Volume: "b", Evidence: "mounted"}}, Disputed, Disputed, 1, false},
		"a cleared failure":                                        {newRecord, []Earlier{failed(cleared)}, Untried, Untried, 0, true},
		"a cleared failure in a mark":                              {newRecord, []Earlier{{Cleared: "denied"}}, Untried, Untried, 0, true},
		"and then it is not a cause for another volume":            {newRecord, []Earlier{{Cleared: "denied"}, failed()}, Untried, Untried, 0, true},
		"a failure without a result":                               {newRecord, []Earlier{failed(nothingLearned)}, Untried, Untried, 0, false},
		"a settled failure in the ledger stays":                    {recorded, nil, Failing, Failing, 1, false},
		"but an open failure on the volume continues":              {recorded, []Earlier{failed(named)}, Suspected, Suspected, 1, false},
		"and a cleared failure ends it":                            {recorded, []Earlier{failed(cleared)}, Untried, Untried, 0, true},
		"a failure that was cleared since is not open again":       {judged(OwnFailed), []Earlier{failed(func(f *Failed) { f.Failure = "another" })}, Untried, Untried, 0, true},
		"nor is a failure without a result":                        {judged(NoPodWaits), []Earlier{failed()}, Untried, Untried, 0, false},
		"but a later failure is":                                   {judged(NoPodWaits), []Earlier{failed(func(f *Failed) { f.Since = later.Add(time.Second) })}, Suspected, Suspected, 1, false},
		"a result for one volume does not close another's failure": {judged(NoPodWaits), []Earlier{of("b", failed())}, Suspected, Suspected, 1, false},
		"a settled one outlives its page of the ledger":            {judged(NoPodWaits), []Earlier{failed(settled)}, Failing, Failing, 1, false},
		"and settles an open failure in the record":                {open, []Earlier{failed(settled)}, Failing, Failing, 1, false},
		"a cause that was found since stays":                       {judged(OwnMounted), []Earlier{failed()}, Failing, Failing, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := test.before()
			for range 2 { // a second import does not change the record
				for _, e := range test.earlier {
					r.Import(e)
				}
				if r.State(server) != test.server || r.State(another) != test.others || len(r.Blames) != test.blames || r.Counts("denied") == test.cleared {
					t.Errorf("got states %s and %s (%+v), want %s and %s, %d failures, cleared: %t", r.State(server), r.State(another), r,
						test.server, test.others, test.blames, test.cleared)
				}
			}
			// An annotation is written before the restore: it does not know its time.
			var want time.Time
			if known := test.before().BlameOf("a"); known != nil {
				want = known.RevertedAt
			}
			if r.State(server) == Suspected && !r.Blames[0].RevertedAt.Equal(want) {
				t.Errorf("got a revert at %s, want %s", r.Blames[0].RevertedAt, want)
			}
		})
	}
}

// A user can edit an annotation to any length. After the import, the record still fits on a page.
func TestImportIsBounded(t *testing.T) {
	long, r := strings.Repeat("long", maxBytes), newRecord()
	r.Import(Earlier{Volume: "a", Server: server, Evidence: long, Cleared: long, Failed: &Failed{Blame: Blame{Options: []string{long}, Text: long, Failure: "denied " + long}}})
	if entries := r.Encode(); len(entries) != 2 {
		t.Fatalf("got %d entries, want 2", len(entries))
	}
	for key, text := range r.Encode() {
		if len(text) > maxBytes {
			t.Errorf("%s: got %d bytes, want at most %d", key, len(text), maxBytes)
		}
	}
}

// An entry without a volume is useless: no volume can show whether the options are the cause.
func TestAFailureOfNoVolumeIsSkipped(t *testing.T) {
	for _, text := range []string{`{"set":"abc"}`, `{"set":"abc","message":"denied","settled":true}`, `{"set":"abc","volume":"","more":[{},{"message":"denied"}]}`} {
		if r := Decode(map[string]string{"failed.abc": text})["abc"]; r.Stops() {
			t.Errorf("%s: got a stopped set (%+v), want none", text, r.Blames)
		}
	}
}

// The record keeps the newest results if there are more volumes than the limit.
func TestTheNewestJudgedVolumesAreRecorded(t *testing.T) {
	r := newRecord()
	for i := range maxClosed + 1 {
		volume, at := fmt.Sprint("pv", i), noon.Add(time.Duration(i)*time.Minute)
		for _, e := range []Event{{Kind: MountFailed, Blame: Blame{Failure: "denied", Unclear: true}}, {Kind: Restored}, {Kind: NoPodWaits}} {
			e.Volume, e.At = volume, at
			r.Next(e)
		}
	}
	if _, first := r.Closed["pv0"]; first || len(r.Closed) != maxClosed {
		t.Errorf("got results of %v, want the newest %d", r.Closed, maxClosed)
	}
}

// A copy that outlived its record's change completes the record, without an observation that has a later result.
func TestAdd(t *testing.T) {
	after := func(kinds ...Kind) *Record {
		r := newRecord()
		for _, kind := range kinds {
			r.Next(event(kind, false))
		}
		return r
	}
	for name, test := range map[string]struct {
		record, copied *Record
		want           State
	}{
		"a failure":                        {after(), after(MountFailed, Restored), Suspected},
		"a failure next to evidence":       {after(Mounted), after(MountFailed, Restored, OwnMounted), Disputed},
		"evidence next to a failure":       {after(MountFailed, Restored, OwnMounted), after(Mounted), Disputed},
		"a cleared failure":                {after(MountFailed, Restored, OwnFailed), after(MountFailed, Restored), Untried},
		"a failure without a result":       {after(MountFailed, Restored, NoPodWaits), after(MountFailed, Restored), Untried},
		"a rejection":                      {after(), after(ProbeRefused), Rejected},
		"a rejection despite evidence":     {after(), after(Mounted, ProbeRefused), Rejected},
		"a rejection before another probe": {after(ProbeRefused, ProbeWorked), after(ProbeRefused), Works},
		"a probe before a rejection":       {after(ProbeWorked, ProbeRefused, ProbeUnwanted, ProbeRefused), after(ProbeWorked), Rejected},
	} {
		test.record.Add(test.copied)
		if got := test.record.State(server); got != test.want {
			t.Errorf("%s: got state %s, want %s", name, got, test.want)
		}
		if _, works := test.record.EvidenceOn(server); test.want == Rejected && test.copied.Evidence == nil && works {
			t.Errorf("%s: got evidence for a rejected probe", name)
		}
	}
}
