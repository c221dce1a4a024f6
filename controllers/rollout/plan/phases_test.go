package plan

import (
	"flag"
	"fmt"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/tuning/lists"
)

// change is a change of a node's phase.
type change struct{ from, to v1alpha1.RolloutPhase }

// noPhase is the phase of a node without a note.
const noPhase v1alpha1.RolloutPhase = "none"

// changes are the changes of all plans that the tests of this package made, with the steps that accompanied them.
var (
	changesMutex sync.Mutex
	changes      = map[change]sets.Set[string]{}
)

// bookkeeping are the steps that may accompany every change. Nor does the table contain claims that were missing.
var bookkeeping = sets.New("UpdateClaim", "WriteNote", "SetMaintenance", "RemoveGuards", "RemoveTaint")

// recordChanges records the changes of a plan: notes that are written ahead of steps, and the final notes. Steps belong to the change that follows, or
// to the last one.
func recordChanges(s Snapshot, p Plan) {
	changesMutex.Lock()
	defer changesMutex.Unlock()
	for _, n := range s.Nodes {
		note, found := p.Notes[n.Name]
		if !found || n.ClientNode == nil {
			continue
		}
		last := change{to: noPhase}
		if written := n.ClientNode.Status.Rollout; written != nil && written.Phase != "" {
			last.to = written.Phase
		}
		pending := sets.New[string]()
		enter := func(phase v1alpha1.RolloutPhase) {
			if phase != last.to {
				last = change{last.to, phase}
				changes[last] = pending.Union(changes[last])
				pending.Clear()
			}
		}
		for _, step := range p.Steps {
			if step.NodeName() != n.Name {
				continue
			}
			if written, ok := step.(WriteNote); ok {
				enter(written.Note.Phase)
			}
			claim, isClaim := step.(AddClaim)
			if name := strings.TrimPrefix(fmt.Sprintf("%T", step), "plan."); !bookkeeping.Has(name) && !(isClaim && claim.Missing) {
				pending.Insert(name)
			}
		}
		enter(note.Phase)
		if last.from != "" {
			changes[last] = changes[last].Union(pending)
		}
	}
}

// readTable reads the table from the package comment.
func readTable() (map[change]sets.Set[string], error) {
	file, err := parser.ParseFile(token.NewFileSet(), "doc.go", nil, parser.ParseComments|parser.PackageClauseOnly)
	if err != nil {
		return nil, err
	}
	out := map[change]sets.Set[string]{}
	for line := range strings.SplitSeq(file.Doc.Text(), "\n") {
		cells := lists.Each(strings.Split(line, "|"), strings.TrimSpace)
		if len(cells) != 4 || cells[0] == "from" {
			continue
		}
		for from := range strings.SplitSeq(cells[0], ", ") {
			for to := range strings.SplitSeq(cells[1], ", ") {
				out[change{v1alpha1.RolloutPhase(from), v1alpha1.RolloutPhase(to)}] = sets.New(strings.Split(cells[3], ", ")...).Delete("-")
			}
		}
	}
	return out, nil
}

// TestMain compares the changes of all plans with the table in the package comment. It looks for missing changes only if all tests ran.
func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	ranAll := flag.Lookup("test.run").Value.String() == "" && flag.Lookup("test.skip").Value.String() == "" && flag.Lookup("test.list").Value.String() == ""
	if problems := compareChanges(ranAll); code == 0 && len(problems) > 0 {
		fmt.Println("FAIL: the table of phases in doc.go differs from the plans of the tests:\n" + strings.Join(problems, "\n"))
		code = 1
	}
	os.Exit(code)
}

func compareChanges(ranAll bool) (problems []string) {
	table, err := readTable()
	if err != nil {
		return []string{err.Error()}
	}
	for key, steps := range changes {
		allowed, found := table[key]
		switch more := steps.Difference(allowed); {
		case !found:
			problems = append(problems, fmt.Sprintf("%s to %s: not in the table; steps: %s", key.from, key.to, sets.List(steps)))
		case more.Len() > 0:
			problems = append(problems, fmt.Sprintf("%s to %s: the table does not have the steps %s", key.from, key.to, sets.List(more)))
		}
	}
	for key, steps := range table {
		made, found := changes[key]
		switch missing := steps.Difference(made); {
		case !ranAll:
		case !found:
			problems = append(problems, fmt.Sprintf("%s to %s: no test has a plan with this change", key.from, key.to))
		case missing.Len() > 0:
			problems = append(problems, fmt.Sprintf("%s to %s: no test has a plan with the steps %s", key.from, key.to, sets.List(missing)))
		}
	}
	slices.Sort(problems)
	return problems
}

// Changes that no other test of a plan makes.
func TestForChangesOfAPhase(t *testing.T) {
	const long = time.Hour
	noted := func(phase v1alpha1.RolloutPhase) func(*fixture) {
		return func(f *fixture) { f.addNote("a", phase, "", long) }
	}
	isDone := func(f *fixture) {
		before := f.node("a").ClientNode.Status.Rollout.Phase
		f.finish("a", long)
		f.addNote("a", before, "", long)
	}
	isSilent := func(f *fixture) { f.node("a").ClientNode.Status.Hash = "h0" }
	usedUp := func(f *fixture) { f.node("a").ClientNode.Status.Rollout.Attempts = MaxAttempts }
	isClaimed := func(f *fixture) {
		f.Claims["a"] = v1alpha1.Disruption{Profile: "eda", BootHash: "h1", Since: ago(long)}
	}
	settles := func(f *fixture) {
		f.permitted("a", time.Minute)
		f.rebooted("a")
		f.addNote("a", v1alpha1.RolloutSettling, v1alpha1.RolloutReasonSettling, time.Second).BootID = "a-2"
	}
	isNotReady := func(f *fixture) { f.node("a").Ready = false }
	isLate := func(f *fixture) { f.Now = f.Now.Add(24 * time.Hour) }
	for name, c := range map[string]struct {
		change []func(*fixture)
		want   []string
	}{
		"Applying, and no reboot is due":           {[]func(*fixture){noted(v1alpha1.RolloutApplying), isDone}, []string{"a: UpToDate NothingToDo"}},
		"Waiting, and the reboot is no longer due": {[]func(*fixture){noted(v1alpha1.RolloutWaiting), isDone}, []string{"a: UpToDate NothingToDo"}},
		"Waiting, and other settings are desired":  {[]func(*fixture){noted(v1alpha1.RolloutWaiting), isSilent}, []string{"a: Applying Applying"}},
		"Waiting, and all permits are used up":     {[]func(*fixture){noted(v1alpha1.RolloutWaiting), usedUp}, []string{"a: Failed AttemptsUsedUp"}},
		"Applying, and a reboot is due, but others have cordoned the node": {
			[]func(*fixture){noted(v1alpha1.RolloutApplying), func(f *fixture) { f.node("a").Unschedulable = true }}, []string{"a: Waiting CordonedByOthers"},
		},
		"Claimed, and the claim is accepted": {
			[]func(*fixture){noted(v1alpha1.RolloutClaimed), isClaimed}, []string{"conditions of a: Draining", "cordon a", "drain a", "a: Draining Draining"},
		},
		"Waiting, and the claim is accepted": {
			[]func(*fixture){noted(v1alpha1.RolloutWaiting), isClaimed}, []string{"conditions of a: Draining", "cordon a", "drain a", "a: Draining Draining"},
		},
		"Settling, and no longer Ready":           {[]func(*fixture){settles, isNotReady}, []string{"a: Rebooting WaitingForNode"}},
		"Settling, and no longer Ready for hours": {[]func(*fixture){settles, isNotReady, isLate}, []string{"a: Failed RebootTimedOut"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := cluster("a")
			for _, change := range c.change {
				change(f)
			}
			if diff := cmp.Diff(c.want, lines(For(f.Snapshot), "a")); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// Checks that each arrow of the picture is a row of the table, and each phase a box.
func TestThePictureOfTheRolloutHasThePhasesOfTheTable(t *testing.T) {
	table, err := readTable()
	check.NoError(t, err)
	picture, err := os.ReadFile("../../../docs/assets/rollout.svg")
	check.NoError(t, err)
	arrows := regexp.MustCompile(`<path id="(\w+)-(\w+)"`).FindAllStringSubmatch(string(picture), -1)
	if drawn := strings.Count(string(picture), `marker-end=`); len(arrows) != drawn || drawn < 10 {
		t.Errorf("%d of %d arrows have an id of two phases, want all, and at least 10", len(arrows), drawn)
	}
	for _, arrow := range arrows {
		if _, found := table[change{v1alpha1.RolloutPhase(arrow[1]), v1alpha1.RolloutPhase(arrow[2])}]; !found {
			t.Errorf("the arrow from %s to %s is not in the table", arrow[1], arrow[2])
		}
	}
	for key := range maps.Keys(table) {
		if !strings.Contains(string(picture), `font-weight="600">`+string(key.to)+"<") {
			t.Errorf("the picture has no box of phase %s", key.to)
		}
	}
}
