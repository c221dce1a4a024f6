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

// The recordings that an upgrade reads, by the commit of the release: previous knew one option set for all results of the same rules, earlier knew
// a set only from its volumes.
const earlier, previous = "bc1e4c0", "d57d12a0"

// readRecording returns a cluster with the objects of a recording.
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

// stands contains, for each of the ways, the states on both servers, the blamed volumes, and whether the failure is cleared.
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
	"Created with the list":             {filer: optionset.Canary, other: optionset.Canary},
	"Written by a release that noted no proofs": {filer: optionset.Canary, other: optionset.Canary},
	"Written by a release that left no marks":   {filer: optionset.Canary, other: optionset.Canary},
}

// This release reads the records that the previous release and this one left on volumes and in the ledger.
func TestRecordingsAreRead(t *testing.T) {
	for _, directory := range []string{earlier, previous, "recorded"} {
		for _, way := range slices.Sorted(maps.Keys(ways)) {
			want, known := stands[way]
			if !known {
				t.Errorf("got no expected states for %s, want a row in stands", way)
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
					// The start of the options on each volume is no longer known.
					filer, other = asUntried(filer), asUntried(other)
					want.filer, want.other = asUntried(want.filer), asUntried(want.other)
				}
				if filer != want.filer || other != want.other || !slices.Equal(blamed, want.blamed) || r.Counts(unclearFailure.Kind) == want.cleared {
					t.Errorf("%s of %s, %s: got %s and %s, blamed %q, cleared: %t; want %+v", way, directory, when, filer, other, blamed,
						!r.Counts(unclearFailure.Kind), want)
				}
				if next := For(b.snapshot()); when == "at first" {
					b.keep(next.Ledger)
				} else if when == "recorded" && next.LedgerDue {
					t.Errorf("%s of %s: got more changes of the ledger: %v, want none", way, directory, slices.Collect(maps.Keys(next.Ledger)))
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
	for _, directory := range []string{earlier, previous} {
		for way, want := range map[string]bool{"Works": true, "Canary": false} {
			b := readRecording(t, directory, way)
			for _, name := range []string{"x", "y"} {
				b.volumes = append(b.volumes, created(name, 1, bound))
			}
			b.wait(time.Hour)
			batch, _ := stepsOf(For(b.snapshot()))
			if got := slices.Contains(batch, "x") && slices.Contains(batch, "y"); got != want {
				t.Errorf("%s of %s: got writes of %q, want x and y: %t", way, directory, batch, want)
			}
		}
	}
}

// TestTheReleaseBeforeReadsRecordings checks how a manager of the previous release reads the current recordings. That manager wrote
// testdata/earlier-reads.txt. To write the file again, check out that commit and add testdata/earlierreads_test.go.txt to its package plan
// as a test. Then run the test with RECORDINGS and READS.
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
			t.Errorf("%s: got no result of the previous release for the current recording", way)
		}
		// A set that this release stops must also stop there. A set that works must stay on its volumes.
		for _, line := range lines {
			_, stopped, isState := strings.Cut(line, "new volumes stopped on: ")
			stopped, _, _ = strings.Cut(stopped, ";")
			switch want := stands[way]; {
			case isState && want.filer == optionset.Rejected && stopped != "filer",
				isState && len(want.blamed) > 0 && stopped != "filer other",
				len(want.blamed) > 0 && strings.HasPrefix(line, "  write"),
				strings.HasPrefix(line, "  restore"), strings.HasPrefix(line, "  take back"):
				t.Errorf("%s: got %q in the previous release, want its set stopped if %+v stops it, and no restore", way,
					strings.TrimSpace(line), want)
			}
		}
	}
}
