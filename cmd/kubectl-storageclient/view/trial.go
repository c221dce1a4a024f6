package view

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/trial/plan"
	"github.com/storageclient/operator/tuning/text"
	"github.com/storageclient/operator/tuning/verdict"
)

// Trial is the output of "trial": the object with its results.
type Trial v1alpha1.StorageClientTrial

// defaultMetrics are the most important metrics, which the output always contains.
var defaultMetrics = []string{verdict.Operations, verdict.Bytes, verdict.Seconds}

// Names returns the name of the trial.
func (t *Trial) Names() []string {
	return []string{"storageclienttrial.tuning.storageclient.dev/" + t.Name}
}

// WriteText prints the trial for users.
func (t *Trial) WriteText(w io.Writer, wide bool) error {
	v := plan.VerdictOf((*v1alpha1.StorageClientTrial)(t))
	out := &printer{w: w}
	out.line(fmt.Sprintf("%s/%s, volume %s, %s of %q, %s:", t.Namespace, t.Spec.ClaimName, t.Status.Volume, t.Spec.Workload.Name, t.path(),
		text.Count(int(t.Status.Rounds), "round")))
	out.line("  before  " + cmp.Or(strings.Join(t.Status.Before, ","), "no options"))
	out.line("  after   " + cmp.Or(strings.Join(t.Status.After, ","), "no options") + "\n")
	if t.Spec.ReadAheadKiB > 0 {
		out.line(fmt.Sprintf("  Read-ahead of the candidate: %d KiB\n", t.Spec.ReadAheadKiB))
	}
	for _, name := range slices.Sorted(maps.Keys(t.Spec.Sysctls)) {
		out.line(fmt.Sprintf("  %s: %q before, %q after\n", name, t.Status.Sysctls[name], t.Spec.Sysctls[name]))
	}
	rows := [][]string{{"PHASE", "METRIC", "UNIT", "BEFORE", "AFTER", "RATIO", "95 % INTERVAL", "VERDICT"}}
	for _, r := range t.Status.Results {
		interval := ""
		if r.Ratio != "" {
			interval = r.Low + " to " + r.High
		}
		mark := string(r.Verdict)
		if r.Decides {
			mark += " *"
		}
		if r.Decides || wide || slices.Contains(defaultMetrics, r.Metric) {
			rows = append(rows, []string{r.Phase, r.Metric, r.Unit, r.Before, r.After, r.Ratio, interval, mark})
		}
	}
	out.table(rows)
	out.line(
		"\n* Decides the verdict. Each pass started on a new mount, with empty client caches of attributes, names, and data. The " +
			"state of the server's caches is unknown.")
	out.line("\n" + v.Why)
	return out.err
}

func (t *Trial) path() string { return cmp.Or(t.Spec.Workload.Path, ".") }
