package optionset

import (
	"go/parser"
	"go/token"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/storageclient/operator/test/check"
)

const (
	server  = "filer"
	another = "other"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// row is a row of the table in the package comment.
type row struct {
	from, events []string
	to, current  string
}

// readTable reads the table from the package comment.
func readTable(t *testing.T) []row {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "doc.go", nil, parser.ParseComments|parser.PackageClauseOnly)
	if err != nil {
		t.Fatal(err)
	}
	var out []row
	for line := range strings.SplitSeq(file.Doc.Text(), "\n") {
		cells := strings.Split(line, "|")
		if len(cells) != 4 {
			continue
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if cells[0] != "from" {
			out = append(out, row{strings.Split(cells[0], ", "), strings.Split(cells[1], ", "), cells[2], cells[3]})
		}
	}
	if len(out) < 20 {
		t.Fatalf("got %d rows in the table of the package comment, want at least 20", len(out))
	}
	return out
}

// traits are facts in addition to a state: a volume has the options, the options work, the text of a failure names the options.
type traits struct{ isWritten, evidence, named bool }

func everyTrait() []traits {
	var out []traits
	for i := range 8 {
		out = append(out, traits{i&1 > 0, i&2 > 0, i&4 > 0})
	}
	return out
}

var states = []State{Untried, Probing, Works, Rejected, Canary, Suspected, Failing, Disputed}

var kinds = []Kind{
	ProbeOrdered, ProbeWorked, ProbeRefused, ProbeInconclusive, ProbeUnwanted, Written, Mounted, MountFailed, Restored, OwnMounted, OwnFailed,
	NoPodWaits, VolumeGone, Undeclared,
}

func newRecord() *Record {
	return &Record{Identity: Identity{Set: "abc", Rules: []string{"p/rule"}, Driver: "kubernetes.io/nfs", Protocol: "NFS"}}
}

// event returns an event of the given kind about the volume "a" and the server.
func event(kind Kind, named bool) Event {
	e := Event{Kind: kind, Server: server, At: noon, Blame: Blame{Volume: "a", Text: string(kind)}}
	if kind == MountFailed {
		e.Failure, e.Unclear, e.Options = "denied", !named, []string{"hard"}
	}
	return e
}

// stand returns a record in the given state. It returns nil if the state is impossible with the traits.
func stand(state State, with traits) *Record {
	r := newRecord()
	if with.isWritten {
		r.Next(event(Written, false))
	}
	if with.evidence {
		r.Next(Event{Kind: Mounted, Server: another, Blame: Blame{Volume: "b", Text: "seen"}, At: noon})
	}
	for _, kind := range map[State][]Kind{
		Probing: {ProbeOrdered}, Rejected: {ProbeRefused}, Canary: {Written}, Suspected: {MountFailed, Restored},
		Failing: {MountFailed, Restored, OwnMounted}, Disputed: {MountFailed, Restored, OwnMounted},
	}[state] {
		r.Next(event(kind, with.named))
	}
	if r.State(server) != state {
		return nil
	}
	return r
}

// rest returns the state that follows from the traits alone.
func (with traits) rest() State {
	switch {
	case with.evidence:
		return Works
	case with.isWritten:
		return Canary
	}
	return Untried
}

// matches reports whether the row applies to a state with traits. A row with more traits takes precedence.
func (r row) matches(state State, with traits) (ok bool, names int) {
	for _, from := range r.from {
		base, rest, _ := strings.Cut(from, " ")
		if base != string(state) && base != "any" {
			continue
		}
		named, evidence := strings.Contains(rest, "by name"), strings.Contains(rest, "with evidence")
		if (!named || with.named) && (!evidence || with.evidence) {
			return true, strings.Count(rest, "by name") + strings.Count(rest, "with evidence")
		}
	}
	return false, 0
}

// findRow finds the row of an event in a state. Nil if there is none.
func findRow(table []row, state State, with traits, kind Kind) *row {
	var out *row
	maximum := -1
	for i := range table {
		if ok, names := table[i].matches(state, with); ok && slices.Contains(table[i].events, string(kind)) && names > maximum {
			out, maximum = &table[i], names
		}
	}
	return out
}

// Checks every event in every state against the table. An event without a row changes no state.
func TestTable(t *testing.T) {
	table, used := readTable(t), map[*row]bool{}
	for _, state := range states {
		for _, with := range everyTrait() {
			for _, kind := range kinds {
				r := stand(state, with)
				if r == nil {
					continue
				}
				row, want := findRow(table, state, with, kind), state
				if row != nil {
					used[row] = true
					if want = State(row.to); row.to == "rest" {
						want = with.rest()
					}
				}
				before := r.State(another)
				r.Next(event(kind, with.named))
				if got := r.State(server); got != want {
					t.Errorf("%s, %+v, after %s: got state %s, want %s", state, with, kind, got, want)
				}
				if row != nil && r.MustRestore(server) != (row.current == "restore") {
					t.Errorf("%s, %+v, after %s: got a restore of current volumes: %t, want %s", state, with, kind, r.MustRestore(server),
						row.current)
				}
				if strings.HasPrefix(string(kind), "Probe") && r.State(another) != before {
					t.Errorf("%s, %+v, after %s: got state %s on another server, want %s", state, with, kind, r.State(another), before)
				}
			}
		}
	}
	for i := range table {
		if !used[&table[i]] {
			t.Errorf("no test uses the row %+v", table[i])
		}
	}
}

// Observations of pods count only after the restore of the original options.
func TestNothingIsShownBeforeTheRestore(t *testing.T) {
	for _, kind := range []Kind{OwnMounted, OwnFailed, NoPodWaits} {
		r := newRecord()
		r.Next(event(MountFailed, true))
		r.Next(event(kind, false))
		if got := r.State(server); got != Suspected || r.Blames[0].Settled || len(r.Cleared) > 0 {
			t.Errorf("after %s: got state %s (%+v), want %s without a result", kind, got, r, Suspected)
		}
	}
	r := newRecord()
	r.Next(event(MountFailed, false))
	r.Next(event(VolumeGone, false))
	if got := r.State(server); got != Untried {
		t.Errorf("after a volume was deleted before its restore: got state %s, want %s", got, Untried)
	}
}

// A failure that also occurs with the original options no longer counts. Other failures still count.
func TestAClearedFailureDoesNotCount(t *testing.T) {
	r := stand(Suspected, traits{})
	r.Next(event(OwnFailed, false))
	if r.Counts("denied") || !r.Counts("refused") {
		t.Errorf("got cleared failures %q, want only denied", r.Cleared)
	}
	r.Next(event(MountFailed, false))
	if got := r.State(server); got != Untried {
		t.Errorf("after the same failure: got state %s, want %s", got, Untried)
	}
	for i := range 2 * maxCleared {
		e := event(MountFailed, false)
		e.Failure = strings.Repeat("x", i+1)
		r.Next(e)
		r.Next(event(Restored, false))
		r.Next(event(OwnFailed, false))
	}
	if len(r.Cleared) != maxCleared || r.Counts(strings.Repeat("x", 2*maxCleared)) {
		t.Errorf("got %d cleared failures %q, want the last %d", len(r.Cleared), r.Cleared, maxCleared)
	}
}

// Each of several volumes is observed, and the first for which the options are the cause decides.
func TestSeveralVolumesFail(t *testing.T) {
	of := func(kind Kind, volume string) Event {
		e := event(kind, false)
		e.Volume, e.Failure = volume, "failure of "+volume
		return e
	}
	suspected := func() *Record {
		r := newRecord()
		for _, volume := range []string{"b", "a", "c"} {
			r.Next(of(MountFailed, volume))
			r.Next(of(Restored, volume))
		}
		return r
	}
	r := suspected()
	r.Next(of(OwnFailed, "b"))
	r.Next(of(NoPodWaits, "a"))
	if r.State(server) != Suspected || r.BlamedVolume() != "c" {
		t.Errorf("with one open failure: got state %s by %s, want %s by c", r.State(server), r.BlamedVolume(), Suspected)
	}
	if r.Next(of(OwnFailed, "c")); r.State(server) != Untried || !cmp.Equal(r.Cleared, []string{"failure of b", "failure of c"}) {
		t.Errorf("without an open failure: got state %s, cleared %q; want %s, the failures of b and c", r.State(server), r.Cleared, Untried)
	}
	r = suspected()
	if r.Next(of(OwnMounted, "b")); r.State(server) != Failing || r.BlamedVolume() != "b" || len(r.Blames) != 1 {
		t.Errorf("after b mounts with its original options: got state %s (%+v), want %s by b alone", r.State(server), r.Blames, Failing)
	}
	for _, kind := range []Kind{MountFailed, OwnFailed, NoPodWaits, VolumeGone} {
		if r.Next(of(kind, "b")); r.State(server) != Failing {
			t.Errorf("after %s: got state %s, want %s", kind, r.State(server), Failing)
		}
	}
	r = newRecord()
	for i := range 2 * maxBlames {
		r.Next(of(MountFailed, strings.Repeat("v", i+1)))
	}
	if len(r.Blames) != maxBlames {
		t.Errorf("got %d recorded volumes, want %d", len(r.Blames), maxBlames)
	}
}

// A record is the same after a write and a read, except for the fields that are computed from the volumes.
func TestEncodeAndDecode(t *testing.T) {
	for _, state := range states {
		for _, with := range everyTrait() {
			r := stand(state, with)
			if r == nil {
				continue
			}
			r.Next(Event{Kind: ProbeWorked, Server: "third", Blame: Blame{Text: "works"}, At: noon})
			entries := r.Encode()
			r.probing, r.isWritten = nil, false
			got := Decode(entries)
			if len(got) != 1 || !cmp.Equal(r, got["abc"], cmp.AllowUnexported(Record{}), cmpopts.EquateEmpty()) {
				t.Errorf("%s, %+v (-want +got):\n%s", state, with, cmp.Diff(r, got["abc"], cmp.AllowUnexported(Record{}), cmpopts.EquateEmpty()))
			}
			for key := range entries {
				if !IsKey(key) || !slices.ContainsFunc([]string{server, another, "third"}, func(s string) bool { return slices.Contains(Keys("abc", s), key) }) {
					t.Errorf("%s, %+v: got key %s, want one of the set", state, with, key)
				}
			}
		}
	}
	if entries := newRecord().Encode(); len(entries) > 0 {
		t.Errorf("got entries %v for an empty record, want none", entries)
	}
}

// The release before recorded servers as the volumes spell them. The next write replaces these entries.
func TestRecordsOfAnotherSpellingAreFound(t *testing.T) {
	for spelling, identity := range map[string]string{"FILER.example.com.": "filer.example.com", "[fd00::1]": "fd00::1"} {
		for kind, state := range map[Kind]State{ProbeWorked: Works, ProbeRefused: Rejected} {
			r := newRecord()
			r.Next(Event{Kind: kind, Server: spelling, Blame: Blame{Text: "seen"}, At: noon})
			former := r.Encode()
			got := Decode(former)["abc"]
			if got.State(identity) != state {
				t.Errorf("%s: got state %s on %s, want %s", spelling, got.State(identity), identity, state)
			}
			if again := Decode(got.Encode())["abc"]; again.State(identity) != state {
				t.Errorf("%s: got state %s after another write, want %s", spelling, again.State(identity), state)
			}
		}
	}
}

// The release before recorded two spellings of one server. The newer result counts, regardless of the order of a map.
func TestOfTwoSpellingsTheNewerResultCounts(t *testing.T) {
	for name, test := range map[string]struct {
		first, second Kind
		state         State
	}{
		"both worked":            {ProbeWorked, ProbeWorked, Works},
		"both rejected":          {ProbeRefused, ProbeRefused, Rejected},
		"the later one worked":   {ProbeRefused, ProbeWorked, Works},
		"the earlier one worked": {ProbeWorked, ProbeRefused, Rejected},
	} {
		t.Run(name, func(t *testing.T) {
			for _, spellings := range [][]string{{"FILER", "filer"}, {"filer", "FILER"}} {
				r := newRecord()
				r.Next(Event{Kind: test.first, Server: spellings[0], Blame: Blame{Text: "old"}, At: noon})
				r.Next(Event{Kind: test.second, Server: spellings[1], Blame: Blame{Text: "new"}, At: noon.Add(time.Hour)})
				former := r.Encode()
				for range 20 {
					r := Decode(former)["abc"]
					if text := r.Worked["filer"].Text + r.Rejected["filer"].Text; text != "new" || r.State("filer") != test.state {
						t.Fatalf("%v: got state %s with result %q, want %s with the new result", spellings, r.State("filer"), text, test.state)
					}
				}
			}
		})
	}
}

func TestUnreadableEntriesAreSkipped(t *testing.T) {
	good := stand(Suspected, traits{evidence: true}).Encode()
	for key, text := range good {
		for name, entries := range map[string]map[string]string{
			"no JSON": {key: "{"}, "nothing": {key: "{}"}, "another key": {key + "x": text}, "another prefix": {"x" + key: text},
		} {
			if got := Decode(entries); len(got) > 0 {
				t.Errorf("%s, %s: got %+v, want none", key, name, got)
			}
		}
	}
}

func TestEntriesAreBounded(t *testing.T) {
	r := stand(Suspected, traits{})
	r.Blames[0].Options = []string{strings.Repeat("x", maxBytes)}
	r.Blames = append(r.Blames, Blame{Volume: "b", Options: []string{"short"}, Text: "kept"})
	for i := range 3 * maxWorked {
		r.Next(Event{Kind: ProbeWorked, Server: strings.Repeat("s", i+1), Blame: Blame{Text: strings.Repeat("é", maxText)}, At: noon.Add(time.Duration(i) * time.Second)})
	}
	got := Decode(r.Encode())["abc"]
	if got.Blames[0].Options != nil || got.Blames[1].Options != nil || got.Blames[1].Text != "kept" {
		t.Errorf("got recorded failures %+v, want both without options", got.Blames)
	}
	if _, first := got.Worked["s"]; len(got.Worked) != maxWorked || !first {
		t.Errorf("got %d recorded probes, want the first %d", len(got.Worked), maxWorked)
	}
	got.Next(Event{Kind: ProbeWorked, Server: "late", Blame: Blame{Text: "works"}, At: noon.Add(time.Hour)})
	if diff := cmp.Diff(r.Encode(), got.Encode()); got.State("late") == Works || diff != "" {
		t.Errorf("entries after another probe (-want +got):\n%s", diff)
	}
	for key, text := range r.Encode() {
		if len(text) > 3*maxBytes {
			t.Errorf("%s: got %d bytes, want at most %d", key, len(text), 3*maxBytes)
		}
	}
}

// A pod has started since the restore, with an unknown mount. The stop stays when that pod is gone: only another pod ends it.
func TestAnUnknownMountKeepsTheStop(t *testing.T) {
	suspected := func() *Record {
		r := newRecord()
		r.Next(Event{Kind: MountFailed, Server: server, Blame: Blame{Volume: "a", Failure: "f", Text: "failed", Unclear: true}, At: noon})
		r.Next(Event{Kind: OwnUnknown, Blame: Blame{Volume: "a"}, At: noon})
		if r.Blames[0].IsOpen {
			t.Error("a pod counts before the restore")
		}
		r.Next(Event{Kind: Restored, Blame: Blame{Volume: "a"}, At: noon})
		r.Next(Event{Kind: OwnUnknown, Blame: Blame{Volume: "a"}, At: noon})
		r.Next(Event{Kind: NoPodWaits, Blame: Blame{Volume: "a"}, At: noon})
		return Decode(r.Encode())["abc"]
	}
	for kind, want := range map[Kind]State{NoPodWaits: Suspected, OwnMounted: Failing, OwnFailed: Untried, VolumeGone: Untried} {
		r := suspected()
		r.Next(Event{Kind: kind, Blame: Blame{Volume: "a"}, At: noon})
		check.Equal(t, "state after "+string(kind), want, r.State(server))
	}
}
