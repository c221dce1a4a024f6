package permit

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/storageclient/operator/agent/host/hosttest"
	"github.com/storageclient/operator/agent/host/journal"
	"github.com/storageclient/operator/agent/reporter"
	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

// node is an API server with one StorageClientNode, and its host.
type node struct {
	v1alpha1.StorageClientNode
	err     error
	date    time.Time
	holders []string
	busy    string
	// announced and rebooted are the errors of these steps. onQuery runs while the host lists its work.
	announced, rebooted error
	onQuery             func()
}

func (n *node) Get(context.Context) (*v1alpha1.StorageClientNode, time.Time, error) {
	return n.DeepCopy(), n.date, n.err
}

func (n *node) FindHolders(context.Context) ([]string, error) {
	if n.onQuery != nil {
		n.onQuery()
	}
	return n.holders, nil
}

func (n *node) Reboot(context.Context) error { return n.rebooted }

// A permit is undecided until the decision is final. The agent does not report before that.
func TestStatesOfTheDecisionOnAPermit(t *testing.T) {
	due := Settings{RebootBy: []string{"kernelArgument/a"}, CarriedOut: true}
	for name, test := range map[string]struct {
		change func(*node)
		due    Settings
		open   bool
		phase  v1alpha1.RebootPhase
	}{
		"there is none":                            {func(n *node) { n.Spec.RebootPermit = nil }, due, false, ""},
		"the API server cannot be read":            {func(n *node) { n.err = errors.New("no answer") }, due, true, ""},
		"the API server has a newer spec":          {func(n *node) { n.Generation++ }, due, true, ""},
		"no setting waits for a boot":              {func(*node) {}, Settings{CarriedOut: true}, false, v1alpha1.RebootRefused},
		"a mount is busy":                          {func(n *node) { n.busy = "still mounted: /a" }, due, false, v1alpha1.RebootRefused},
		"the host is busy":                         {func(n *node) { n.holders = []string{"apt-get"} }, due, false, v1alpha1.RebootWaiting},
		"no obstacle":                              {func(*node) {}, due, false, v1alpha1.RebootStarted},
		"an earlier agent has decided it":          {func(n *node) { n.Status.Reboot = &v1alpha1.RebootStatus{PermitID: "p1", Phase: v1alpha1.RebootFailed} }, due, false, v1alpha1.RebootFailed},
		"an earlier agent has decided another one": {func(n *node) { n.Status.Reboot = started("p0") }, due, false, v1alpha1.RebootStarted},
		"the settings could not be applied":        {func(*node) {}, Settings{RebootBy: due.RebootBy}, false, v1alpha1.RebootRefused},
	} {
		t.Run(name, func(t *testing.T) {
			var n node
			n.Generation, n.Spec.RebootPermit = 1, &v1alpha1.RebootPermit{ID: "p1", BootID: "boot-1"}
			seen := n.DeepCopy()
			test.change(&n)
			if n.Generation == 1 {
				seen = n.DeepCopy()
			}
			_, fs := hosttest.OpenHost(t, "debian-12")
			records, clock := journal.New(fs), clocktesting.NewFakeClock(time.Unix(1000, 0))
			check.NoError(t, records.Load())
			p := New(Config{
				API: &n, Clock: clock, BootID: "boot-1", Journal: records, Rebooter: &n, Reporter: reporter.New(nil, clock),
				FindBusy: func([]string) string { return n.busy }, RearmTrial: func(bool) error { return nil },
				Announce: func(context.Context, string) error { return n.announced },
			})
			p.Run(t.Context(), seen, test.due)
			open := p.IsOpen(n.Spec.RebootPermit)
			var status v1alpha1.StorageClientNodeStatus
			p.Report(&status)
			phase := v1alpha1.RebootPhase("")
			if status.Reboot != nil {
				phase = status.Reboot.Phase
			}
			if open != test.open || phase != test.phase {
				t.Errorf("got open %t with %q, want %t with %q", open, phase, test.open, test.phase)
			}
			if waits := !p.Due().IsZero(); waits != (test.phase == v1alpha1.RebootWaiting) {
				t.Errorf("due time: got %s", p.Due())
			}
		})
	}
}

// A permit that does not reboot the host leaves a trial without a permit: another boot is no proof.
func TestATrialLosesItsPermitIfTheHostIsNotRebooted(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*node, *journal.Journal) error
		want   []bool
	}{
		"it is rebooted":            {func(*node, *journal.Journal) error { return nil }, []bool{true}},
		"it is busy":                {func(n *node, _ *journal.Journal) error { n.busy = "still mounted: /a"; return nil }, nil},
		"the permit is withdrawn":   {func(n *node, _ *journal.Journal) error { n.announced = errors.New("conflict"); return nil }, []bool{true, false}},
		"the host rejects it":       {func(n *node, _ *journal.Journal) error { n.rebooted = errors.New("inhibited"); return nil }, []bool{true, false}},
		"the agent stopped earlier": {func(_ *node, j *journal.Journal) error { return j.UsePermit("p1", "boot-1") }, []bool{false}},
	} {
		t.Run(name, func(t *testing.T) {
			var n node
			n.Spec.RebootPermit = &v1alpha1.RebootPermit{ID: "p1", BootID: "boot-1"}
			_, fs := hosttest.OpenHost(t, "debian-12")
			records, clock := journal.New(fs), clocktesting.NewFakeClock(time.Unix(1000, 0))
			check.NoError(t, errors.Join(records.Load(), test.change(&n, records)))
			var trials []bool
			New(Config{
				API: &n, Clock: clock, BootID: "boot-1", Journal: records, Rebooter: &n, Reporter: reporter.New(nil, clock),
				FindBusy:   func([]string) string { return n.busy },
				RearmTrial: func(permitted bool) error { trials = append(trials, permitted); return nil },
				Announce:   func(context.Context, string) error { return n.announced },
			}).Run(t.Context(), n.DeepCopy(), Settings{RebootBy: []string{"kernelArgument/a"}, CarriedOut: true})
			if !slices.Equal(trials, test.want) {
				t.Errorf("the trial was prepared %v, want %v", trials, test.want)
			}
		})
	}
}

// The API server, or the permit, changes between the first read and the use of the permit. The permit is not used up.
func TestAPermitIsReadAgainBeforeItIsUsed(t *testing.T) {
	end := time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		change func(*node)
		phase  v1alpha1.RebootPhase
	}{
		"there is no change":            {func(*node) {}, v1alpha1.RebootStarted},
		"the API server cannot be read": {func(n *node) { n.err = errors.New("no answer") }, ""},
		"its response has no Date":      {func(n *node) { n.date = time.Time{} }, ""},
		"the permit is withdrawn":       {func(n *node) { n.Generation, n.Spec.RebootPermit = 2, nil }, ""},
		"the permit is over":            {func(n *node) { n.date = end.Add(time.Second) }, v1alpha1.RebootRefused},
	} {
		t.Run(name, func(t *testing.T) {
			n := node{date: end}
			n.Generation, n.Spec.RebootPermit = 1, &v1alpha1.RebootPermit{ID: "p1", BootID: "boot-1", NotAfter: &metav1.Time{Time: end}}
			n.onQuery = func() { test.change(&n) }
			_, fs := hosttest.OpenHost(t, "debian-12")
			records, clock := journal.New(fs), clocktesting.NewFakeClock(time.Unix(1000, 0))
			check.NoError(t, records.Load())
			armed := false
			p := New(Config{
				API: &n, Clock: clock, BootID: "boot-1", Journal: records, Rebooter: &n, Reporter: reporter.New(nil, clock),
				FindBusy: func([]string) string { return "" }, RearmTrial: func(permitted bool) error { armed = permitted; return nil },
				Announce: func(context.Context, string) error { return nil },
			})
			seen := n.DeepCopy()
			p.Run(t.Context(), seen, Settings{RebootBy: []string{"kernelArgument/a"}, CarriedOut: true})
			var status v1alpha1.StorageClientNodeStatus
			p.Report(&status)
			phase := v1alpha1.RebootPhase("")
			if status.Reboot != nil {
				phase = status.Reboot.Phase
			}
			_, used := records.UsedPermit("p1")
			if phase != test.phase || p.IsOpen(seen.Spec.RebootPermit) != (test.phase == "") {
				t.Errorf("got phase %q, open %t, want phase %q", phase, p.IsOpen(seen.Spec.RebootPermit), test.phase)
			}
			if uses := test.phase == v1alpha1.RebootStarted; used != uses || armed != uses {
				t.Errorf("got used %t, the trial armed %t, want %t", used, armed, uses)
			}
		})
	}
}
