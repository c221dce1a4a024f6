package report_test

import (
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/cmd/kubectl-storageclient/report"
	"github.com/storageclient/operator/tuning/verdict"
)

var update = flag.Bool("update", false, "write the golden files instead of comparing with them")

// listings returns passes that list a directory twice, with the counts measured on virtual nodes (FACTS). The two arms keep attributes or
// request them again.
func listings(rounds int32) (passes []v1alpha1.TrialPass) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, slot := range verdict.Schedule(rounds, 1) {
		vary := func(amplitude float64) float64 { return 1 + amplitude*(random.Float64()-0.5) }
		first := v1alpha1.TrialPassPhase{
			Name: "First listing", Units: 5000, Microseconds: int64(9e6 * vary(0.03)), BytesSent: 120e3, BytesReceived: int64(1.1e6 * vary(0.01)),
			Operations: []v1alpha1.TrialOperation{{Name: "READDIRPLUS", Count: 625}, {Name: "GETATTR", Count: 12}, {Name: "ACCESS", Count: 40}},
		}
		second := v1alpha1.TrialPassPhase{
			Name: "Second listing", Units: 5000, Microseconds: int64(26e6 * vary(0.6)), BytesSent: 800e3, BytesReceived: 1.2e6,
			Operations: []v1alpha1.TrialOperation{{Name: "GETATTR", Count: int64(5000 * vary(0.02))}, {Name: "ACCESS", Count: 14}},
		}
		if slot.Arm == v1alpha1.ArmAfter {
			second = v1alpha1.TrialPassPhase{
				Name: second.Name, Units: 5000, Microseconds: int64(0.9e6 * vary(0.8)),
				Operations: []v1alpha1.TrialOperation{{Name: "GETATTR", Count: 4}, {Name: "ACCESS", Count: 13}},
			}
		}
		passes = append(passes, v1alpha1.TrialPass{Round: slot.Round, Arm: slot.Arm, Phases: []v1alpha1.TrialPassPhase{first, second}})
	}
	return passes
}

func better() report.Trial {
	passes := listings(12)
	passes = slices.Delete(passes, 4, 5)
	return report.Trial{
		Title: "eda/projects", Workload: "ListDirectory in . as user 1000, two listings with a pause of 5 s", Goal: verdict.Goal{},
		Verdict:     verdict.Evaluate(passes, verdict.Goal{}, verdict.Work{Unit: "entry", BeforeSeconds: 3, AfterSeconds: 30, PauseSeconds: 5}),
		Rounds:      "Seconds in Second listing differ by a factor of 1.2 with the same options: 11 rounds decide in nine of ten trials.",
		Before:      []string{"vers=3", "hard", "acregmax=60", "nconnect=1"},
		After:       []string{"vers=3", "hard", "actimeo=30", "nconnect=4"},
		Cold:        []report.Cold{{Phase: "First listing", Caches: []string{"attributes", "names"}}, {Phase: "Second listing"}},
		Validity:    []string{"Each pass had a mount, a client and connections of its own.", "No other mount of the server got nconnect=4."},
		Environment: []report.Fact{{Name: "Nodes", Value: "node-1, node-2"}, {Name: "Kernel", Value: "6.1.0-40-amd64"}, {Name: "Server", Value: "filer1:/export/projects"}},
	}
}

// fewer returns a trial whose first listing may take longer.
func fewer() report.Trial {
	passes := listings(12)
	for i := range passes {
		if passes[i].Arm == v1alpha1.ArmAfter {
			passes[i].Phases[0].Microseconds = passes[i].Phases[0].Microseconds * 104 / 100
		}
	}
	t := better()
	t.Verdict = verdict.Evaluate(passes, verdict.Goal{}, verdict.Work{Unit: "entry"})
	return t
}

func undecided() report.Trial {
	t := better()
	t.Title = "eda/" + strings.Repeat("a-claim-with-a-long-name-", 8)
	t.Verdict = verdict.Evaluate(listings(12)[:12], verdict.Goal{}, verdict.Work{Unit: "entry"})
	t.Rounds = ""
	return t
}

func worse() report.Trial {
	passes := listings(12)
	for i, p := range passes {
		switch p.Arm {
		case v1alpha1.ArmAfter:
			passes[i].Arm = v1alpha1.ArmBefore
		case v1alpha1.ArmBefore:
			passes[i].Arm = v1alpha1.ArmAfter
		}
	}
	for i, p := range passes {
		if p.Arm == v1alpha1.ArmAgain {
			passes[i].Phases = passes[(i/3)*3+indexOf(passes[(i/3)*3:(i/3)*3+3], v1alpha1.ArmBefore)].Phases
		}
	}
	t := better()
	t.Before, t.After = t.After, t.Before
	t.Verdict = verdict.Evaluate(passes, verdict.Goal{}, verdict.Work{Unit: "entry"})
	return t
}

func indexOf(passes []v1alpha1.TrialPass, arm v1alpha1.TrialArm) int {
	for i, p := range passes {
		if p.Arm == arm {
			return i
		}
	}
	return 0
}

func render(t *testing.T, trial report.Trial) string {
	t.Helper()
	page, err := report.HTML(trial)
	if err != nil {
		t.Fatal(err)
	}
	return string(page)
}

func TestReports(t *testing.T) {
	for name, trial := range map[string]report.Trial{"better": better(), "worse": worse(), "fewer": fewer(), "undecided": undecided(), "empty": {}} {
		t.Run(name, func(t *testing.T) {
			path, got := filepath.Join("testdata", name+".html"), render(t, trial)
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", path, diff)
			}
		})
	}
}

var interval = regexp.MustCompile(`<line x1="([0-9.]+)" x2="([0-9.]+)" y1="11" y2="11" class="([a-z]+)"`)

func TestIntervalsAreDrawnAtTheirValues(t *testing.T) {
	for name, trial := range map[string]report.Trial{"better": better(), "worse": worse()} {
		page := render(t, trial)
		one, err := strconv.ParseFloat(regexp.MustCompile(`left: ([0-9.]+)%">equal`).FindStringSubmatch(page)[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		seen := 0
		for _, line := range interval.FindAllStringSubmatch(page, -1) {
			from, _ := strconv.ParseFloat(line[1], 64)
			to, _ := strconv.ParseFloat(line[2], 64)
			isOutside := line[3] == "better" && to < one || line[3] == "worse" && from > one
			over := line[3] != "better" && line[3] != "worse" && from <= one && to >= one
			if from > to || !isOutside && !over {
				t.Errorf("%s: got a %s interval from %v to %v in the drawing, with the line for equal lists at %v", name, line[3], from, to, one)
			}
			if isOutside {
				seen++
			}
		}
		if seen < 3 {
			t.Errorf("%s: got %d intervals that do not contain 1, want at least 3", name, seen)
		}
	}
}

// loads matches every way in which the report page could load something.
var loads = regexp.MustCompile(`(?i)<(script|link|img|iframe|object|embed|base|form|use|image)\b|https?:|[("'= ]//|url\(|@import|\ssrc\s*=|\shref\s*=|\son[a-z]+\s*=`)

func TestNothingIsLoaded(t *testing.T) {
	for name, trial := range map[string]report.Trial{"better": better(), "empty": {}} {
		page := render(t, trial)
		if found := loads.FindAllString(page, -1); found != nil {
			t.Errorf("%s: %q", name, found)
		}
		if !strings.Contains(page, `content="default-src 'none'; style-src 'unsafe-inline'"`) {
			t.Errorf("%s: got a page without the Content-Security-Policy", name)
		}
	}
}

// Names, options and messages come from untrusted sources.
func TestEverythingIsEscaped(t *testing.T) {
	const hostile = `</style><script>alert(1)</script>"'><img src=x onerror=alert(2)>`
	v := verdict.Evaluate(listings(12), verdict.Goal{}, verdict.Work{Unit: "entry"})
	v.Why = hostile
	for i := range v.Results {
		v.Results[i].Phase, v.Results[i].Unit, v.Results[i].Note = hostile, hostile, hostile
		if v.Results[i].Metric == "GETATTR" {
			v.Results[i].Metric = hostile
		}
	}
	page := render(t, report.Trial{
		Title: hostile, Workload: hostile, Goal: verdict.Goal{Metric: hostile}, Verdict: v, Rounds: hostile, Before: []string{hostile, "b" + hostile}, After: []string{hostile, "a" + hostile},
		Cold: []report.Cold{{Phase: hostile, Caches: []string{hostile}}}, Validity: []string{hostile},
		Environment: []report.Fact{{Name: hostile, Value: hostile}},
	})
	for _, tag := range []string{"<script", "<img", "</style><"} {
		if strings.Contains(page, tag) {
			t.Errorf("got the untrusted text %s unescaped in the page", tag)
		}
	}
	if n := strings.Count(page, "&lt;script&gt;"); n < 20 {
		t.Errorf("got only %d escaped texts, want at least 20", n)
	}
}
