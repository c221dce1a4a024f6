package optionset

import (
	"testing"
	"time"
)

// The release before recorded two spellings of one server. The record must not depend on the order of a map.
func TestHostileTwoSpellingsGiveOneRecord(t *testing.T) {
	r := newRecord()
	r.Next(Event{Kind: ProbeWorked, Server: "FILER", Blame: Blame{Text: "old"}, At: noon})
	r.Next(Event{Kind: ProbeWorked, Server: "filer", Blame: Blame{Text: "new"}, At: noon.Add(time.Hour)})
	former, texts := r.Encode(), map[string]bool{}
	for range 100 {
		texts[Decode(former)["abc"].Worked["filer"].Text] = true
	}
	if len(texts) != 1 {
		t.Errorf("got evidence %v", texts)
	}
}

// A probe was rejected under one spelling. A later one worked under the other.
func TestHostileALaterProbeCounts(t *testing.T) {
	r := newRecord()
	r.Next(Event{Kind: ProbeRefused, Server: "FILER", Blame: Blame{Text: "old"}, At: noon})
	r.Next(Event{Kind: ProbeWorked, Server: "filer", Blame: Blame{Text: "new"}, At: noon.Add(time.Hour)})
	if got := Decode(r.Encode())["abc"].State("filer"); got != Works {
		t.Errorf("got %s", got)
	}
}
