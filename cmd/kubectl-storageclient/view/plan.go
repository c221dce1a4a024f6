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
	"sigs.k8s.io/yaml"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/overview"
	"github.com/storageclient/operator/controllers/volume"
	"github.com/storageclient/operator/tuning/advice"
	"github.com/storageclient/operator/tuning/catalogue"
)

// Plan is what "plan" prints.
type Plan struct {
	Name       string `json:"name"`
	Generation int64  `json:"generation"`
	// Spec holds every default.
	Spec    v1alpha1.StorageClientProfileSpec `json:"spec"`
	Nodes   overview.Preview                  `json:"nodes"`
	Volumes *Volumes                          `json:"volumes,omitempty"`
	// Advice is as in the profile's status, but as the nodes and volumes are now; what hurts first.
	Advice []v1alpha1.Advice `json:"advice,omitempty"`
	// Servers are what the nodes may bring to each server of the profile's volumes, the most requests first.
	Servers []advice.Load `json:"servers,omitempty"`
	// Approval is the command that lets the reboots begin, empty if none is needed.
	Approval string `json:"approval,omitempty"`
}

// Volumes counts what would become of the profile's volumes.
type Volumes struct {
	Matched  int32 `json:"matched"`
	UpToDate int32 `json:"upToDate"`
	Blocked  int32 `json:"blocked"`
	// Examples are up to three blocked volumes.
	Examples []volume.Note `json:"examples,omitempty"`
	Unknown  string        `json:"unknown,omitempty"`
}

// NewPlan puts a plan together. volumes is nil for a profile without volume rules.
func NewPlan(p *v1alpha1.StorageClientProfile, preview overview.Preview, volumes *Volumes) Plan {
	plan := Plan{Name: p.Name, Generation: p.Generation, Spec: p.Spec.WithDefaults(), Nodes: preview, Volumes: volumes}
	if plan.Spec.Rollout.Reboot.Policy == v1alpha1.RebootOnApproval && preview.PlanHash != "" && !preview.Approved {
		plan.Approval = fmt.Sprintf("kubectl storageclient approve %s --plan %s", p.Name, preview.PlanHash)
	}
	return plan
}

// Advise fills in the advice and the loads of servers.
func (p *Plan) Advise(in advice.Input) {
	p.Advice, p.Servers = advice.For(in), advice.Loads(in)
}

// Text prints the plan for people.
func (p Plan) Text(w io.Writer) error {
	out := &printer{w: w}
	out.line(fmt.Sprintf("Profile %s, generation %d, with defaults filled in; what is not shown is empty, 0 or false:\n", p.Name, p.Generation))
	spec, err := yaml.Marshal(p.Spec)
	if err != nil {
		return fmt.Errorf("encode spec of StorageClientProfile %s: %w", p.Name, err)
	}
	out.line("  " + strings.ReplaceAll(strings.TrimSpace(string(spec)), "\n", "\n  "))
	if p.Nodes.Refused != "" {
		out.line("\nNothing of it will be applied. " + p.Nodes.Refused)
		return out.err
	}
	if p.Spec.Mode == v1alpha1.ModePlan {
		out.line("\nIn mode Plan nothing of what follows happens.")
	}
	p.groups(out)
	p.reboots(out)
	p.volumes(out)
	p.servers(out)
	// The table of servers is what that rule says.
	others := slices.DeleteFunc(slices.Clone(p.Advice), func(a v1alpha1.Advice) bool { return a.ID == advice.ServerBudget })
	out.advice(p.Name, others)
	return out.err
}

func (p Plan) groups(out *printer) {
	if len(p.Nodes.Groups) == 0 {
		out.line("\nNo node matches.")
	}
	for _, g := range p.Nodes.Groups {
		out.line(fmt.Sprintf("\n%s (%s), settings hash %s:", count(int32(len(g.Nodes)), "node"), capped(g.Nodes), cmp.Or(g.Hash, "none")))
		rows := [][]string{{"KEY", "VALUE", "FROM", "TAKES-EFFECT", "ON-REMOVAL"}}
		for _, s := range g.Settings {
			rows = append(rows, []string{s.Key, s.Value, s.Profile, string(catalogue.Effect(s.Key)), string(s.OnRemoval)})
		}
		out.table(rows)
		for _, c := range g.Conflicts {
			out.line("Conflict: " + c)
		}
	}
}

func (p Plan) reboots(out *printer) {
	reboot := p.Spec.Rollout.Reboot.Policy
	if len(p.Nodes.Reboots) == 0 {
		out.line("\nNo node would reboot.")
		return
	}
	out.line(fmt.Sprintf("\n%s would reboot, policy %s, at most %s at a time, in this order:", count(int32(len(p.Nodes.Reboots)), "node"), reboot, p.Spec.Rollout.MaxUnavailable.String()))
	rows := [][]string{{"NODE", "ZONE", "WHY"}}
	for _, r := range p.Nodes.Reboots {
		why := strings.Join(r.Why, "; ")
		if r.Held != "" {
			why += "; not as it stands: " + r.Held
		}
		rows = append(rows, []string{r.Node, cmp.Or(r.Zone, "-"), why})
	}
	out.table(rows)
	p.times(out)
	switch {
	case p.Approval != "":
		out.line("\nThey wait for an approval:\n  " + p.Approval)
	case reboot == v1alpha1.RebootOnApproval:
		out.line("\nThe plan " + p.Nodes.PlanHash + " is approved.")
	case reboot == v1alpha1.RebootNever:
		out.line("\nThe settings are staged; somebody else has to reboot the nodes.")
	}
}

// times tells when the reboots begin and end at the earliest.
func (p Plan) times(out *printer) {
	if p.Nodes.Earliest == nil {
		return
	}
	text := "\nThe first goes at " + stamp(p.Nodes.Earliest) + " at the earliest"
	if len(p.Spec.Rollout.Windows) > 0 {
		text += ", as the windows are open"
	}
	if p.Approval != "" {
		text += ", if it is approved by then"
	}
	if p.Nodes.EstimatedCompletion != nil {
		text += "; the last is back at " + stamp(p.Nodes.EstimatedCompletion) + " at the earliest"
	}
	out.line(text + ".")
}

func stamp(t *metav1.Time) string { return t.UTC().Format(time.RFC3339) }

func (p Plan) volumes(out *printer) {
	v := p.Volumes
	if v == nil {
		return
	}
	if v.Unknown != "" {
		out.line("\nVolumes are not known: " + v.Unknown)
		return
	}
	out.line(fmt.Sprintf("\n%s would change, %d as declared, %d left alone.", count(v.Matched-v.UpToDate-v.Blocked, "volume"), v.UpToDate, v.Blocked))
	for _, n := range v.Examples {
		out.line(fmt.Sprintf("  %s: %s: %s", n.Volume, n.Reason, n.Message))
	}
}

// servers shows the servers that may get most.
func (p Plan) servers(out *printer) {
	const shown = 10
	if len(p.Servers) == 0 || p.Servers[0].Nodes == 0 {
		return
	}
	out.line(fmt.Sprintf("\nAt most, with %s mounting from it, a server gets:", count(int32(p.Servers[0].Nodes), "node")))
	rows := [][]string{{"SERVER", "CONNECTIONS", "REQUESTS-IN-FLIGHT"}}
	for _, s := range p.Servers[:min(len(p.Servers), shown)] {
		rows = append(rows, []string{s.Server, strconv.FormatInt(s.Connections, 10), strconv.FormatInt(s.Requests, 10)})
	}
	out.table(rows)
	if more := len(p.Servers) - shown; more > 0 {
		out.line(fmt.Sprintf("and %d more", more))
	}
}
