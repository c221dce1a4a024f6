package view

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/cmd/internal/terminal"
	"github.com/storageclient/operator/controllers/overview"
	volumeplan "github.com/storageclient/operator/controllers/volume/plan"
	"github.com/storageclient/operator/tuning/advice"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/text"
)

// Plan is the output of "plan".
type Plan struct {
	Name       string `json:"name"`
	Generation int64  `json:"generation"`
	// Budget is the budget of the cluster. Nil if it was not requested.
	Budget *Budget `json:"budget,omitempty"`
	// Spec contains all defaults.
	Spec    v1alpha1.StorageClientProfileSpec `json:"spec"`
	Nodes   overview.Preview                  `json:"nodes"`
	Volumes *Volumes                          `json:"volumes,omitempty"`
	// Advice is the advice in the profile's status, for the current nodes and volumes; errors first.
	Advice []v1alpha1.Advice `json:"advice,omitempty"`
	// Servers are the maximum loads on the servers of the profile's volumes, most requests first.
	Servers []advice.Load `json:"servers,omitempty"`
	// Approval is the command that approves the reboots. Empty if they do not need approval.
	Approval string `json:"approval,omitempty"`
}

// Volumes describes the changes of the profile's volumes.
type Volumes struct {
	Matched int32 `json:"matched"`
	// UpToDate, Blocked and Exceptions count volumes whose mount options do not change. Exceptions differ because the rules allow it.
	UpToDate   int32 `json:"upToDate"`
	Blocked    int32 `json:"blocked"`
	Exceptions int32 `json:"exceptions"`
	// Examples contains up to three blocked volumes and up to three exceptions, after all writes.
	Examples []volumeplan.Note `json:"examples,omitempty"`
	Unknown  string            `json:"unknown,omitempty"`
	// Changes are the volumes whose mount options would change, by name.
	Changes []volumeplan.Change `json:"changes,omitempty"`
}

// NewVolumes returns the effect of one profile on volumes.
func NewVolumes(p volumeplan.Preview) *Volumes {
	const examples = 3
	out := &Volumes{Matched: int32(p.Matched), UpToDate: int32(p.UpToDate), Changes: p.Changes}
	add := func(list []volumeplan.Change) (unchanged int32) {
		for i, c := range list {
			if !c.Changes() {
				unchanged++
			}
			if i < examples {
				out.Examples = append(out.Examples, volumeplan.Note{Volume: c.Volume, Reason: c.Reason, Message: c.Message})
			}
		}
		return unchanged
	}
	out.Blocked, out.Exceptions = add(p.Blocked), add(p.Exceptions)
	return out
}

// NewPlan returns the plan of a profile. volumes is nil for a profile without volume rules.
func NewPlan(p *v1alpha1.StorageClientProfile, preview overview.Preview, volumes *Volumes) Plan {
	plan := Plan{Name: p.Name, Generation: p.Generation, Spec: p.Spec.WithDefaults(), Nodes: preview, Volumes: volumes}
	if plan.Spec.Rollout.Reboot.Policy == v1alpha1.RebootOnApproval && preview.PlanHash != "" && !preview.Approved {
		plan.Approval = ApproveCommand(p.Name, preview.PlanHash)
	}
	return plan
}

// WriteText prints the plan for users. If wide is set, it lists all volumes.
func (p Plan) WriteText(w io.Writer, wide bool) error {
	out := &printer{w: w}
	out.line(fmt.Sprintf("Profile %s, generation %d, with defaults filled in (empty, 0 and false are not shown):\n", p.Name, p.Generation))
	spec, err := terminal.YAML(p.Spec)
	if err != nil {
		return fmt.Errorf("encode spec of StorageClientProfile %s: %w", p.Name, err)
	}
	out.block(string(spec), "  ")
	if p.Nodes.Refused != "" {
		out.line("\nProfile invalid; nothing applied. " + p.Nodes.Refused)
		return out.err
	}
	if p.Spec.Mode == v1alpha1.ModePlan {
		out.line("\nMode is Plan: the following changes are not applied until mode is Enforce.")
	}
	p.writeGroups(out)
	p.writeReboots(out)
	p.writeNotRebooted(out)
	p.writeVolumes(out, wide)
	p.writeServers(out)
	// The table of servers contains the same information as this rule.
	otherAdvice := slices.DeleteFunc(slices.Clone(p.Advice), func(a v1alpha1.Advice) bool { return a.ID == advice.ServerBudget })
	out.writeAdvice(p.Name, otherAdvice)
	return out.err
}

func (p Plan) writeGroups(out *printer) {
	if len(p.Nodes.Groups) == 0 {
		out.line("\nNo nodes match.")
	}
	for _, g := range p.Nodes.Groups {
		out.line(fmt.Sprintf("\n%s (%s), settings hash %s:", count(int32(len(g.Nodes)), "node"), text.List(g.Nodes), cmp.Or(g.Hash, "none")))
		writeTable(out, []string{"KEY", "VALUE", "FROM", "TAKES-EFFECT", "ON-REMOVAL"}, g.Settings, func(s v1alpha1.NodeSetting) []string {
			return []string{s.Key, s.Value, s.Profile, string(catalogue.Effect(s.Key)), string(s.OnRemoval)}
		})
		out.lines("Conflict: ", g.Conflicts)
	}
}

func (p Plan) writeReboots(out *printer) {
	policy := p.Spec.Rollout.Reboot.Policy
	switch {
	case len(p.Nodes.Reboots) == 0 && len(p.Nodes.NotRebooted) > 0:
		return
	case len(p.Nodes.Reboots) == 0:
		out.line("\nNo reboots needed.")
		return
	}
	out.line(fmt.Sprintf("\n%s would reboot (policy %s, at most %s at a time), in this order:",
		count(int32(len(p.Nodes.Reboots)), "node"), policy, p.Spec.Rollout.MaxUnavailable.String()))
	p.writeRebootTable(out)
	p.writeTimes(out)
	if p.Budget != nil {
		out.line(p.Budget.String())
	}
	switch {
	case p.Approval != "":
		out.line("\nWaiting for approval. Approve with:")
		out.line("  " + p.Approval)
	case policy == v1alpha1.RebootOnApproval:
		out.line("\nPlan " + p.Nodes.PlanHash + " is approved.")
	case policy == v1alpha1.RebootNever:
		out.line("\nThe settings are staged and take effect at the next reboot: the operator reboots no nodes.")
	}
}

func (p Plan) writeRebootTable(out *printer) {
	writeTable(out, []string{"NODE", "ZONE", "REASON"}, p.Nodes.Reboots, func(r overview.Reboot) []string {
		return []string{r.Node, r.Zone, rebootReason(r)}
	})
}

// writeNotRebooted lists the nodes that lack a setting that requires a reboot, but are not rebooted.
func (p Plan) writeNotRebooted(out *printer) {
	title := text.Count(len(p.Nodes.NotRebooted), "node") + " would not be rebooted:"
	writeSection(out, title, []string{"NODE", "ZONE", "DESIRED", "BLOCKED-BY"}, p.Nodes.NotRebooted, func(r overview.Reboot) []string {
		return []string{r.Node, r.Zone, strings.Join(r.Reasons, "; "), r.Held}
	})
}

func (p Plan) writeTimes(out *printer) {
	if p.Nodes.Earliest == nil {
		return
	}
	times := "\nFirst reboot: " + formatTime(p.Nodes.Earliest) + " at the earliest"
	if len(p.Spec.Rollout.Windows) > 0 {
		times += ", when a window is open"
	}
	if p.Approval != "" {
		times += ", if approved by then"
	}
	if p.Nodes.EstimatedCompletion != nil {
		times += "; last node back: " + formatTime(p.Nodes.EstimatedCompletion) + " at the earliest"
	}
	out.line(times + ".")
}

func formatTime(t *metav1.Time) string { return t.UTC().Format(time.RFC3339) }

func (p Plan) writeVolumes(out *printer, wide bool) {
	v := p.Volumes
	if v == nil {
		return
	}
	if v.Unknown != "" {
		out.line("\nCannot read volumes: " + v.Unknown)
		return
	}
	exceptions := ""
	if v.Exceptions > 0 {
		exceptions = count(v.Exceptions, "exception") + ", "
	}
	out.line(fmt.Sprintf("\n%s would change, %d up to date, %s%d left unchanged.",
		count(max(v.Matched-v.UpToDate-v.Exceptions-v.Blocked, int32(len(v.Changes))), "volume"), v.UpToDate, exceptions, v.Blocked))
	out.volumeChanges(v.Changes, wide)
	for _, n := range v.Examples {
		out.message(n.Volume, n.Reason+": "+n.Message)
	}
}

func (p Plan) writeServers(out *printer) {
	const maxServers = 10
	if len(p.Servers) == 0 || p.Servers[0].Nodes == 0 {
		return
	}
	out.line(fmt.Sprintf("\nMaximum load on a server, with %s mounting from it:", count(int32(p.Servers[0].Nodes), "node")))
	servers := p.Servers[:min(len(p.Servers), maxServers)]
	writeTable(out, []string{"SERVER", "CONNECTIONS", "REQUESTS-IN-FLIGHT"}, servers, func(s advice.Load) []string {
		return []string{s.Server, strconv.FormatInt(s.Connections, 10), strconv.FormatInt(s.Requests, 10)}
	})
	if rest := len(p.Servers) - maxServers; rest > 0 {
		out.line(text.More(rest, ""))
	}
}
