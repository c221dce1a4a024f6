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
)

const (
	server  = "filer"
	another = "other"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// row is one of the table in the package's comment.
type row struct {
	from, events         []string
	to, allowed, current string
}

// readTable reads the table from the package's comment.
func readTable(t *testing.T) []row {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "doc.go", nil, parser.ParseComments|parser.PackageClauseOnly)
	if err != nil {
		t.Fatal(err)
	}
	var out []row
	for line := range strings.SplitSeq(file.Doc.Text(), "\n") {
		cells := strings.Split(line, "|")
		if len(cells) != 5 {
			continue
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if cells[0] != "from" {
			out = append(out, row{strings.Split(cells[0], ", "), strings.Split(cells[1], ", "), cells[2], cells[3], cells[4]})
		}
	}
	if len(out) < 20 {
		t.Fatalf("the package's comment has a table of %d rows", len(out))
	}
	return out
}

// traits are what may be known in addition to a state: that a volume has the options, that they work, that the text of a failure names them.
type traits struct{ carried, evidence, named bool }

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

// event is one of each kind that concerns the volume "a" and the server.
func event(kind Kind, named bool) Event {
	e := Event{Kind: kind, Server: server, At: noon, Blame: Blame{Volume: "a", Text: string(kind)}}
	if kind == MountFailed {
		e.Failure, e.Unclear, e.Options = "denied", !named, []string{"hard"}
	}
	return e
}

// stand makes a record that is in a state. It returns nil where a state does not go with what else is known.
func stand(state State, with traits) *Record {
	r := newRecord()
	if with.carried {
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

// rest is the state by what else is known.
func (with traits) rest() State {
	switch {
	case with.evidence:
		return Works
	case with.carried:
		return Canary
	}
	return Untried
}

// isOf reports whether the row is about a state with what else is known. A row that names more comes before one that names less.
func (r row) isOf(state State, with traits) (is bool, names int) {
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
	most := -1
	for i := range table {
		if is, names := table[i].isOf(state, with); is && slices.Contains(table[i].events, string(kind)) && names > most {
			out, most = &table[i], names
		}
	}
	return out
}

// Checks every event in every state against the table. An event without a row changes no state.
func TestTable(t *testing.T) {
	table, used := readTable(t), map[*row]bool{}
	allowed := map[State]Allowance{}
	for _, r := range table {
		if r.to != "rest" {
			if known, found := allowed[State(r.to)]; found && known != Allowance(r.allowed) {
				t.Errorf("the table allows %s and %s for %s", known, r.allowed, r.to)
			}
			allowed[State(r.to)] = Allowance(r.allowed)
		}
	}
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
					t.Errorf("%s, %+v, after %s: %s, want %s", state, with, kind, got, want)
				}
				if got := r.MayWrite(server); got != allowed[want] {
					t.Errorf("%s, %+v, after %s: new volumes %s, want %s", state, with, kind, got, allowed[want])
				}
				if row != nil && r.MustRestore(server) != (row.current == "restore") {
					t.Errorf("%s, %+v, after %s: current volumes are restored: %t, want %s", state, with, kind, r.MustRestore(server), row.current)
				}
				if strings.HasPrefix(string(kind), "Probe") && r.State(another) != before {
					t.Errorf("%s, %+v: %s of a server is one of another", state, with, kind)
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

// What pods show counts only once the volume has its original options.
func TestNothingIsShownBeforeTheRestore(t *testing.T) {
	for _, kind := range []Kind{OwnMounted, OwnFailed, NoPodWaits} {
		r := newRecord()
		r.Next(event(MountFailed, true))
		r.Next(event(kind, false))
		if got := r.State(server); got != Suspected || r.Blames[0].Settled || len(r.Cleared) > 0 {
			t.Errorf("after %s: %s, %+v", kind, got, r)
		}
	}
	r := newRecord()
	r.Next(event(MountFailed, false))
	r.Next(event(VolumeGone, false))
	if got := r.State(server); got != Untried {
		t.Errorf("after a volume is gone before it was restored: %s", got)
	}
}

// A failure that was there with the original options counts no more, and another one does.
func TestAClearedFailureDoesNotCount(t *testing.T) {
	r := stand(Suspected, traits{})
	r.Next(event(OwnFailed, false))
	if r.Counts("denied") || !r.Counts("refused") {
		t.Errorf("cleared are %q", r.Cleared)
	}
	r.Next(event(MountFailed, false))
	if got := r.State(server); got != Untried {
		t.Errorf("after the same failure: %s", got)
	}
	for i := range 2 * maxCleared {
		e := event(MountFailed, false)
		e.Failure = strings.Repeat("x", i+1)
		r.Next(e)
		r.Next(event(Restored, false))
		r.Next(event(OwnFailed, false))
	}
	if len(r.Cleared) != maxCleared || r.Counts(strings.Repeat("x", 2*maxCleared)) {
		t.Errorf("%d failures are cleared: %q", len(r.Cleared), r.Cleared)
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
		t.Errorf("with one left: %s by %s", r.State(server), r.BlamedVolume())
	}
	if r.Next(of(OwnFailed, "c")); r.State(server) != Untried || !cmp.Equal(r.Cleared, []string{"failure of b", "failure of c"}) {
		t.Errorf("with none left: %s, cleared %q", r.State(server), r.Cleared)
	}
	r = suspected()
	if r.Next(of(OwnMounted, "b")); r.State(server) != Failing || r.BlamedVolume() != "b" || len(r.Blames) != 1 {
		t.Errorf("once b mounts with its own: %s, %+v", r.State(server), r.Blames)
	}
	for _, kind := range []Kind{MountFailed, OwnFailed, NoPodWaits, VolumeGone} {
		if r.Next(of(kind, "b")); r.State(server) != Failing {
			t.Errorf("then %s: %s", kind, r.State(server))
		}
	}
	r = newRecord()
	for i := range 2 * maxBlames {
		r.Next(of(MountFailed, strings.Repeat("v", i+1)))
	}
	if len(r.Blames) != maxBlames {
		t.Errorf("%d volumes are recorded, want %d", len(r.Blames), maxBlames)
	}
}

// A record that is written and read is the same, but for what follows from the volumes.
func TestEncodeAndDecode(t *testing.T) {
	for _, state := range states {
		for _, with := range everyTrait() {
			r := stand(state, with)
			if r == nil {
				continue
			}
			r.Next(Event{Kind: ProbeWorked, Server: "third", Blame: Blame{Text: "works"}, At: noon})
			entries := r.Encode()
			r.probing, r.carried = nil, false
			got := Decode(entries)
			if len(got) != 1 || !cmp.Equal(r, got["abc"], cmp.AllowUnexported(Record{}), cmpopts.EquateEmpty()) {
				t.Errorf("%s, %+v: %s", state, with, cmp.Diff(r, got["abc"], cmp.AllowUnexported(Record{}), cmpopts.EquateEmpty()))
			}
			for key := range entries {
				if !IsKey(key) || !slices.ContainsFunc([]string{server, another, "third"}, func(s string) bool { return slices.Contains(Keys("abc", s), key) }) {
					t.Errorf("%s, %+v: key %s", state, with, key)
				}
			}
		}
	}
	if entries := newRecord().Encode(); len(entries) > 0 {
		t.Errorf("a record of nothing has %v", entries)
	}
}

func TestUnreadableEntriesAreSkipped(t *testing.T) {
	good := stand(Suspected, traits{evidence: true}).Encode()
	for key, text := range good {
		for name, entries := range map[string]map[string]string{
			"no JSON": {key: "{"}, "nothing": {key: "{}"}, "another key": {key + "x": text}, "another prefix": {"x" + key: text},
		} {
			if got := Decode(entries); len(got) > 0 {
				t.Errorf("%s, %s: %+v", key, name, got)
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
		t.Errorf("recorded is %+v", got.Blames)
	}
	if _, first := got.Worked["s"]; len(got.Worked) != maxWorked || !first {
		t.Errorf("%d probes are recorded", len(got.Worked))
	}
	got.Next(Event{Kind: ProbeWorked, Server: "late", Blame: Blame{Text: "works"}, At: noon.Add(time.Hour)})
	if diff := cmp.Diff(r.Encode(), got.Encode()); got.State("late") == Works || diff != "" {
		t.Errorf("another probe changes what is recorded:\n%s", diff)
	}
	for key, text := range r.Encode() {
		if len(text) > 3*maxBytes {
			t.Errorf("%s has %d bytes", key, len(text))
		}
	}
}
