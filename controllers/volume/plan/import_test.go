package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/storageclient/operator/controllers/volume/optionset"
)

// earlier is the commit whose recordings are read as an upgrade finds them.
const earlier = "bc1e4c0"

// readRecording makes a cluster of a recording.
func readRecording(t *testing.T, directory, way string) *bench {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", directory, fileName(way)))
	if err != nil {
		t.Fatal(err)
	}
	var r recording
	if err := json.Unmarshal(data, &r); err != nil {
		t.Fatal(err)
	}
	b := newBench(t)
	b.now, b.profile, b.volumes = r.Now, r.Profile, r.Volumes
	for _, page := range r.Pages {
		b.pages[page.Name] = page
		b.version += 100
	}
	for _, pv := range b.volumes {
		if pv.Annotations == nil {
			pv.Annotations = map[string]string{}
		}
	}
	return b
}

// stands are the states on both servers, and what else is known, for each way in which a set may stand.
var stands = map[string]struct {
	filer, other optionset.State
	blamed       []string
	cleared      bool
}{
	"Untried":                           {filer: optionset.Untried, other: optionset.Untried},
	"Probing":                           {filer: optionset.Untried, other: optionset.Untried},
	"Rejected":                          {filer: optionset.Rejected, other: optionset.Canary},
	"Works, by a probe":                 {filer: optionset.Works, other: optionset.Untried},
	"Canary":                            {filer: optionset.Canary, other: optionset.Canary},
	"Works":                             {filer: optionset.Works, other: optionset.Works},
	"Suspected":                         {filer: optionset.Suspected, other: optionset.Suspected, blamed: []string{"a"}},
	"Suspected, by name":                {filer: optionset.Suspected, other: optionset.Suspected, blamed: []string{"a"}},
	"Suspected, with evidence":          {filer: optionset.Suspected, other: optionset.Suspected, blamed: []string{"b"}},
	"Suspected, by name, with evidence": {filer: optionset.Suspected, other: optionset.Suspected, blamed: []string{"b"}},
	"Suspected of two":                  {filer: optionset.Suspected, other: optionset.Suspected, blamed: []string{"b", "c"}},
	"Failing":                           {filer: optionset.Failing, other: optionset.Failing, blamed: []string{"a"}},
	"Failing, by name":                  {filer: optionset.Failing, other: optionset.Failing, blamed: []string{"a"}},
	"Disputed":                          {filer: optionset.Disputed, other: optionset.Disputed, blamed: []string{"b"}},
	"Cleared":                           {filer: optionset.Untried, other: optionset.Untried, cleared: true},
	"Cleared, and written again":        {filer: optionset.Canary, other: optionset.Canary, cleared: true},
	"Nothing learned":                   {filer: optionset.Untried, other: optionset.Untried},
	"Created with the list":             {filer: optionset.Untried, other: optionset.Untried},
	"Written by a release that noted no proofs": {filer: optionset.Canary, other: optionset.Canary},
	"Written by a release that left no marks":   {filer: optionset.Canary, other: optionset.Canary},
}

// This release reads the records that the previous release and this one left on volumes and in the ledger.
func TestRecordingsAreRead(t *testing.T) {
	for _, directory := range []string{earlier, "recorded"} {
		for _, way := range slices.Sorted(maps.Keys(ways)) {
			want, known := stands[way]
			if !known {
				t.Errorf("%s is in no table", way)
			}
			b := readRecording(t, directory, way)
			// A recorded state needs no annotation.
			for _, when := range []string{"at first", "recorded", "once the annotations are gone"} {
				p := newPlanner(b.snapshot())
				r := p.sets[b.set()]
				var blamed []string
				if r != nil {
					for _, blame := range r.Blames {
						blamed = append(blamed, blame.Volume)
					}
				}
				slices.Sort(blamed)
				filer, other := r.State("filer"), r.State("other")
				if when == "once the annotations are gone" {
					// It is no longer known which volume has had the options since when.
					filer, other = asUntried(filer), asUntried(other)
					want.filer, want.other = asUntried(want.filer), asUntried(want.other)
				}
				if filer != want.filer || other != want.other || !slices.Equal(blamed, want.blamed) || r.Counts(unclearFailure.Kind) == want.cleared {
					t.Errorf("%s of %s, %s: %s and %s, blamed %q, cleared: %t", way, directory, when, filer, other, blamed, !r.Counts(unclearFailure.Kind))
				}
				if next := For(b.snapshot()); when == "at first" {
					b.keep(next.Ledger)
				} else if when == "recorded" && next.LedgerDue {
					t.Errorf("%s of %s: the ledger is due again: %v", way, directory, slices.Collect(maps.Keys(next.Ledger)))
				}
				if when == "recorded" {
					for _, pv := range b.volumes {
						b.strip(pv.Name)
					}
				}
			}
		}
	}
}

func asUntried(state optionset.State) optionset.State {
	if state == optionset.Canary {
		return optionset.Untried
	}
	return state
}

// Evidence survives an upgrade: a batch continues only if the previous release had evidence that the options work.
func TestABatchContinuesAfterAnUpgrade(t *testing.T) {
	for way, want := range map[string]bool{"Works": true, "Canary": false} {
		b := readRecording(t, earlier, way)
		for _, name := range []string{"x", "y"} {
			b.volumes = append(b.volumes, created(name, 1, bound))
		}
		b.wait(time.Hour)
		batch, _ := stepsOf(For(b.snapshot()))
		if got := slices.Contains(batch, "x") && slices.Contains(batch, "y"); got != want {
			t.Errorf("%s: %q are written, want all: %t", way, batch, want)
		}
	}
}

// TestTheReleaseBeforeReadsRecordings holds what a manager of the release before made of the present recordings: testdata/earlier-reads.txt
// was written by it. To do so again, check that commit out, add testdata/earlierreads_test.go.txt to its package plan as a test, and run
// it with RECORDINGS and READS. That package needs this one's transitions_test.go, as it was before package optionset.
func TestTheReleaseBeforeReadsRecordings(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("testdata", "earlier-reads.txt"))
	if err != nil {
		t.Fatal(err)
	}
	reads := map[string][]string{}
	var header string
	for line := range strings.SplitSeq(strings.TrimSpace(string(data)), "\n") {
		if !strings.HasPrefix(line, "  ") {
			header = line
			continue
		}
		reads[header] = append(reads[header], line)
	}
	for _, way := range slices.Sorted(maps.Keys(ways)) {
		recorded, err := os.ReadFile(filepath.Join("testdata", "recorded", fileName(way)))
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(recorded)
		lines, known := reads[fileName(way)+" "+hex.EncodeToString(sum[:])]
		if !known {
			t.Errorf("%s: the release before has not read the present recording", way)
		}
		// Whatever stops a set in this release stops it there, and takes no list from volumes on which it works.
		for _, line := range lines {
			_, stopped, isState := strings.Cut(line, "new volumes stopped on: ")
			stopped, _, _ = strings.Cut(stopped, ";")
			switch want := stands[way]; {
			case isState && want.filer == optionset.Rejected && stopped != "filer",
				isState && len(want.blamed) > 0 && stopped != "filer other",
				len(want.blamed) > 0 && strings.HasPrefix(line, "  write"),
				strings.HasPrefix(line, "  restore"), strings.HasPrefix(line, "  take back"):
				t.Errorf("%s: there, %s", way, strings.TrimSpace(line))
			}
		}
	}
}
