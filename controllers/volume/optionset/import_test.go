package optionset

import (
	"fmt"
	"maps"
	"testing"
	"time"
)

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

// Each entry may be on another page, which users can delete. A set without its failures is not proven either: it needs a canary.
func TestALostFailureTakesTheEvidenceAlong(t *testing.T) {
	r := newRecord()
	r.RuleSet = "rules"
	for _, kind := range []Kind{ProbeWorked, Mounted, MountFailed} {
		r.Next(event(kind, false))
	}
	all := EncodeAll(map[string]*Record{r.Set: r})
	for name, test := range map[string]struct {
		lost []string
		want State
	}{
		"no entry":                                {want: Suspected},
		"the failure, of which a copy is left":    {lost: []string{"failed.abc"}, want: Suspected},
		"the failure and its copy":                {lost: []string{"failed.abc", "failed.rules"}, want: Untried},
		"the evidence, of which a copy is left":   {lost: []string{"set.abc"}, want: Suspected},
		"the failure, its copy, and the evidence": {lost: []string{"failed.abc", "failed.rules", "set.abc"}, want: Untried},
		"all entries":                             {lost: []string{"failed.abc", "failed.rules", "set.abc", "set.rules"}, want: Untried},
	} {
		entries := maps.Clone(all)
		for _, key := range test.lost {
			if entries[key] == "" {
				t.Errorf("%s: got no entry %s, want one", name, key)
			}
			delete(entries, key)
		}
		if got := Decode(entries)["abc"].State(server); got != test.want {
			t.Errorf("%s: got state %s, want %s", name, got, test.want)
		}
	}
}
