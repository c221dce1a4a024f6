package view

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/overview"
	volumeplan "github.com/storageclient/operator/controllers/volume/plan"
	"github.com/storageclient/operator/tuning/advice"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/nodesettings"
	"github.com/storageclient/operator/tuning/text"
)

// Budget is the reboot limit of the cluster for all profiles together.
type Budget struct {
	// MaxUnavailable is the manager's --max-unavailable. AtOnce is the resulting number of nodes.
	MaxUnavailable string `json:"maxUnavailable"`
	AtOnce         int    `json:"atOnce,omitempty"`
	// Source is the origin of the budget. Assumed reports whether the manager's value is unknown.
	Source  string `json:"source"`
	Assumed bool   `json:"assumed,omitempty"`
}

// String returns the budget with its source.
func (b Budget) String() string {
	limit := b.MaxUnavailable + " of all nodes"
	switch {
	case !strings.HasSuffix(b.MaxUnavailable, "%"):
		limit = b.MaxUnavailable + " at a time"
	case b.AtOnce > 0:
		limit = fmt.Sprintf("%d at a time, %s of all nodes", b.AtOnce, b.MaxUnavailable)
	}
	return fmt.Sprintf("Reboot limit of the cluster: %s (%s).", limit, b.Source)
}

// Pods summarizes the pods on one drained node, or on all of them.
type Pods struct {
	// Evicted is the number of pods that the drain evicts. WaitedFor is the number of pods that run to their end, such as pods of Jobs.
	Evicted   int `json:"evicted"`
	WaitedFor int `json:"waitedFor"`
	// Blocked contains the reasons why pods currently cannot be evicted, regardless of PodDisruptionBudgets.
	Blocked []string `json:"blocked,omitempty"`
	// Kept contains the pods that PodDisruptionBudgets keep now, each with the consequence for its node. Remarks contains pods that stay.
	Kept    []string `json:"kept,omitempty"`
	Remarks []string `json:"remarks,omitempty"`
}

// DryRunProfile is a profile from a file after a dry run by the API server.
type DryRunProfile struct {
	Name, File string
	// Before is the profile in the cluster. Nil if there is none. After is the profile of the file as the API server would store it.
	Before *v1alpha1.StorageClientProfile
	After  v1alpha1.StorageClientProfile
	// Rejection is the reason for a rejection by the API server, a webhook, or a policy. Empty if the profile is accepted. Unchecked is the
	// reason why there was no dry run. Empty if there was one.
	Rejection, Unchecked string
}

// FilePlanInput is the input of a FilePlan.
type FilePlanInput struct {
	Profiles []DryRunProfile
	Budget   Budget
	Allow    catalogue.AllowList
	Nodes    overview.Together
	// Volumes is nil if volumes cannot be read; UnknownVolumes is the reason. The same applies to Pods, by node, and UnknownPods.
	Volumes        *volumeplan.Preview
	UnknownVolumes string
	Pods           map[string]*Pods
	UnknownPods    string
	// Advice contains the inputs of the advice, by profile.
	Advice map[string]advice.Input
}

// Names returns the names of the profiles.
func (in FilePlanInput) Names() []string {
	return lists.Each(in.Profiles, func(p DryRunProfile) string { return p.Name })
}

// Actions of a FileProfile.
const (
	actionCreate   = "Create"
	actionUpdate   = "Update"
	actionNone     = "None"
	actionRejected = "Refused"
)

// FieldChange is a changed field of a profile.
type FieldChange struct {
	Field string `json:"field"`
	// Old and New are JSON values. Empty if unset.
	Old string `json:"old,omitempty"`
	New string `json:"new,omitempty"`
}

// FileProfile is the part of a FilePlan for one profile.
type FileProfile struct {
	Name string `json:"name"`
	File string `json:"file"`
	// Action is Create, Update or None, or Refused if the API server or the manager would reject the profile.
	Action string `json:"action"`
	// Rejection is the reason for the rejection.
	Rejection string        `json:"refused,omitempty"`
	Fields    []FieldChange `json:"fields,omitempty"`
	// Nodes is the number of selected nodes. ChangedNodes, Reboots and ChangedVolumes are the changes that this profile causes.
	Nodes          int `json:"nodes"`
	ChangedNodes   int `json:"changedNodes"`
	Reboots        int `json:"reboots"`
	ChangedVolumes int `json:"changedVolumes"`
	// Notes contain additional information.
	Notes []string `json:"notes,omitempty"`
	// Approval is the command that approves the reboots after the profile is applied. Empty if they do not need approval.
	Approval            string            `json:"approval,omitempty"`
	Earliest            *metav1.Time      `json:"earliest,omitempty"`
	EstimatedCompletion *metav1.Time      `json:"estimatedCompletion,omitempty"`
	Advice              []v1alpha1.Advice `json:"advice,omitempty"`
	Servers             []advice.Load     `json:"servers,omitempty"`
}

// PlannedReboot is a node that would reboot, with the pods on it.
type PlannedReboot struct {
	overview.JointReboot
	Pods *Pods `json:"pods,omitempty"`
}

// FilePlan is the output of "plan -f".
type FilePlan struct {
	// Summary describes the changes in one sentence.
	Summary string `json:"summary"`
	// Changed reports whether the plan changes anything.
	Changed  bool          `json:"changed"`
	Budget   Budget        `json:"budget"`
	Profiles []FileProfile `json:"profiles"`
	// Nodes are the nodes whose settings change, grouped by change.
	Nodes       []overview.NodeChange  `json:"nodes,omitempty"`
	Reboots     []PlannedReboot        `json:"reboots,omitempty"`
	NotRebooted []overview.JointReboot `json:"notRebooted,omitempty"`
	// Pods summarizes Reboots. Nil if unknown.
	Pods *Pods `json:"pods,omitempty"`
	// EstimatedCompletion is the earliest time at which the last node can be back.
	EstimatedCompletion *metav1.Time        `json:"estimatedCompletion,omitempty"`
	Volumes             *volumeplan.Preview `json:"volumes,omitempty"`
	Conflicts           []overview.Dispute  `json:"conflicts,omitempty"`
	Unknown             []string            `json:"unknown,omitempty"`
}

// NewFilePlan returns the plan for an input.
func NewFilePlan(in FilePlanInput) FilePlan {
	out := FilePlan{
		Budget: in.Budget, Nodes: in.Nodes.Changes, NotRebooted: in.Nodes.NotRebooted, Conflicts: in.Nodes.Conflicts,
		EstimatedCompletion: in.Nodes.EstimatedCompletion, Volumes: in.Volumes,
	}
	out.Budget.AtOnce = in.Nodes.AtOnce
	out.addReboots(in)
	out.Profiles = lists.Each(lists.Pointers(in.Profiles), func(p *DryRunProfile) FileProfile { return newFileProfile(in, p) })
	out.addUnknown(in)
	changes := len(out.Names())
	if out.Volumes != nil {
		changes += len(out.Volumes.Changes)
	}
	out.Changed = changes+len(out.Nodes)+len(out.Reboots) > 0
	out.Summary = out.summarize()
	return out
}

func (p *FilePlan) addReboots(in FilePlanInput) {
	if in.Pods != nil {
		p.Pods = &Pods{}
	}
	for _, r := range in.Nodes.Reboots {
		pods := in.Pods[r.Node]
		p.Reboots = append(p.Reboots, PlannedReboot{JointReboot: r, Pods: pods})
		if pods != nil {
			p.Pods.Evicted += pods.Evicted
			p.Pods.WaitedFor += pods.WaitedFor
			p.Pods.Blocked = append(p.Pods.Blocked, pods.Blocked...)
			p.Pods.Kept, p.Pods.Remarks = append(p.Pods.Kept, pods.Kept...), append(p.Pods.Remarks, pods.Remarks...)
		}
	}
	if p.Pods != nil {
		slices.Sort(p.Pods.Blocked)
	}
}

func (p *FilePlan) addUnknown(in FilePlanInput) {
	unknown := map[string][]string{}
	for _, tried := range in.Profiles {
		if tried.Unchecked != "" {
			verb := map[bool]string{true: "create", false: "patch"}[tried.Before == nil]
			key := "validation of %s by the API server, webhooks, and policies: a dry run requires permission to " + verb + " profiles"
			unknown[key] = append(unknown[key], tried.Name)
		}
	}
	for _, c := range p.Nodes {
		for _, s := range c.Settings {
			key := "current values of %s: " + s.Unknown + "; to read them, run on a node: node-agent observe -f FILE"
			if s.Unknown != "" && !slices.Contains(unknown[key], s.Key) {
				unknown[key] = append(unknown[key], s.Key)
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(unknown)) {
		p.Unknown = append(p.Unknown, strings.Replace(key, "%s", text.List(unknown[key]), 1))
	}
	if in.UnknownVolumes != "" {
		p.Unknown = append(p.Unknown, "changes of volumes: "+in.UnknownVolumes)
	}
	if in.UnknownPods != "" {
		p.Unknown = append(p.Unknown, in.UnknownPods)
	}
}

func newFileProfile(in FilePlanInput, profile *DryRunProfile) FileProfile {
	out := FileProfile{Name: profile.Name, File: profile.File, Action: actionCreate, Rejection: profile.Rejection}
	share := overview.Share{}
	if i := slices.IndexFunc(in.Nodes.Shares, func(s overview.Share) bool { return s.Profile == profile.Name }); i >= 0 {
		share = in.Nodes.Shares[i]
	}
	if profile.Before != nil {
		out.Action, out.Fields = actionUpdate, changedFields(profile.Before, &profile.After)
		if len(out.Fields) == 0 {
			out.Action = actionNone
		}
	}
	if out.Rejection = cmp.Or(out.Rejection, share.Refused); out.Rejection != "" {
		out.Action, out.Fields = actionRejected, nil
		return out
	}
	out.Nodes, out.ChangedNodes, out.Reboots = share.Matched, share.Changed, share.Rebooted
	out.Earliest, out.EstimatedCompletion = share.Earliest, share.EstimatedCompletion
	if in.Volumes != nil {
		out.ChangedVolumes = in.Volumes.ChangedBy[profile.Name]
	}
	out.Notes = notesOn(profile, in.Allow)
	if share.Rebooted > 0 && !share.Approved && profile.After.Spec.WithDefaults().Rollout.Reboot.Policy == v1alpha1.RebootOnApproval {
		out.Approval = ApproveCommand(profile.Name, share.PlanHash)
	}
	if a, known := in.Advice[profile.Name]; known {
		out.Advice, out.Servers = advice.For(a), advice.Loads(a)
	}
	return out
}

// notesOn returns the reasons why the effect of a profile differs from the plan, and the warnings of the webhook.
func notesOn(profile *DryRunProfile, allow catalogue.AllowList) []string {
	p := &profile.After
	var notes []string
	if profile.Before != nil && !profile.Before.DeletionTimestamp.IsZero() {
		notes = append(notes, "the profile in the cluster is being deleted: apply the file again after that")
	}
	if p.Spec.Mode == v1alpha1.ModePlan {
		notes = append(notes, "mode is Plan: changes are not applied until mode is Enforce")
	}
	if p.Spec.Paused || v1alpha1.IsStopped(p, v1alpha1.PausedAnnotation) {
		notes = append(notes, "paused: changes do not start until you resume the profile")
	}
	if odd := v1alpha1.OddStop(p, v1alpha1.PausedAnnotation); odd != "" {
		notes = append(notes, "annotation "+v1alpha1.PausedAnnotation+odd)
	}
	warnings := lists.Filter(nodesettings.Validate(p, allow), func(problem nodesettings.Problem) bool { return problem.Warning })
	return append(notes, lists.Each(warnings, nodesettings.Problem.String)...)
}

// changedFields returns the changed fields of the spec and the operator's annotations, sorted by path.
func changedFields(before, after *v1alpha1.StorageClientProfile) []FieldChange {
	old, next := fieldsOf(before), fieldsOf(after)
	all := maps.Clone(old)
	maps.Copy(all, next)
	changed := lists.Filter(slices.Sorted(maps.Keys(all)), func(field string) bool { return old[field] != next[field] })
	return lists.Each(changed, func(field string) FieldChange { return FieldChange{Field: field, Old: old[field], New: next[field]} })
}

func fieldsOf(p *v1alpha1.StorageClientProfile) map[string]string {
	out := map[string]string{}
	if spec, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&p.Spec); err == nil {
		addFields(out, "spec", spec)
	}
	for key, value := range p.Annotations {
		if strings.HasPrefix(key, v1alpha1.GroupVersion.Group+"/") {
			out["metadata.annotations["+key+"]"] = value
		}
	}
	return out
}

// addFields adds each field of a value by path. A list is one value, except for lists of entries with names.
func addFields(out map[string]string, path string, value any) {
	switch v := value.(type) {
	case map[string]any:
		for key, inner := range v {
			if strings.ContainsAny(key, "./") {
				addFields(out, path+"["+key+"]", inner)
			} else {
				addFields(out, path+"."+key, inner)
			}
		}
	case []any:
		if !addNamed(out, path, v) {
			out[path] = encode(v)
		}
	default:
		out[path] = encode(v)
	}
}

// addNamed adds a list whose entries have names. It reports whether they do.
func addNamed(out map[string]string, path string, list []any) bool {
	for _, entry := range list {
		if fields, ok := entry.(map[string]any); !ok || fields["name"] == nil {
			return false
		}
	}
	for _, entry := range list {
		fields := maps.Clone(entry.(map[string]any))
		name := fields["name"]
		delete(fields, "name")
		addFields(out, fmt.Sprintf("%s[%v]", path, name), fields)
	}
	return len(list) > 0
}

func encode(value any) string {
	if s, ok := value.(string); ok {
		return s
	}
	data, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value)
	}
	return string(data)
}

// Names returns the output of -o name: the profiles that would change.
func (p FilePlan) Names() []string {
	changing := lists.Filter(p.Profiles, func(profile FileProfile) bool { return profile.Action != actionNone })
	return lists.Each(changing, func(profile FileProfile) string { return profileResource + profile.Name })
}

// Rejections describes the rejected profiles, with the reason.
func (p FilePlan) Rejections() []string {
	rejected := lists.Filter(p.Profiles, func(profile FileProfile) bool { return profile.Rejection != "" })
	return lists.Each(rejected, func(profile FileProfile) string {
		return fmt.Sprintf("%s (%s) is rejected: %s", profile.Name, profile.File, profile.Rejection)
	})
}

func (p FilePlan) summarize() string {
	actions := map[string]int32{}
	for _, profile := range p.Profiles {
		actions[profile.Action]++
	}
	if !p.Changed {
		return "No changes: nodes and volumes are as declared in " + count(int32(len(p.Profiles)), "profile") + "."
	}
	nodes := slices.Concat(lists.Each(p.Nodes, func(c overview.NodeChange) []string { return c.Nodes })...)
	parts := []string{
		fmt.Sprintf("%d to create, %d to update, %d unchanged", actions[actionCreate], actions[actionUpdate], actions[actionNone]),
		fmt.Sprintf("%s would get new settings", text.Count(len(nodes), "node")),
		fmt.Sprintf("%d would reboot", len(p.Reboots)),
	}
	if n := actions[actionRejected]; n > 0 {
		parts[0] += fmt.Sprintf(", %d rejected", n)
	}
	if p.Volumes != nil {
		parts = append(parts, fmt.Sprintf("%s would change", count(int32(len(p.Volumes.Changes)), "volume")))
	}
	return "Profiles: " + strings.Join(parts, "; ") + "."
}

// WriteText prints the plan for users. If wide is set, it lists all nodes and volumes.
func (p FilePlan) WriteText(w io.Writer, wide bool) error {
	out := &printer{w: w}
	p.writeProfiles(out)
	p.writeNodes(out, wide)
	p.writeFileReboots(out)
	p.writeFileVolumes(out, wide)
	if len(p.Conflicts) > 0 {
		out.line("\nConflicts between profiles of equal priority: effective values do not change")
		for _, c := range p.Conflicts {
			out.line("  " + c.Text + ", on " + text.List(c.Nodes))
		}
	}
	for _, profile := range p.Profiles {
		out.writeAdvice(profile.Name, profile.Advice)
	}
	if len(p.Unknown) > 0 {
		out.line("\nUnknown:")
		out.lines("  ", p.Unknown)
	}
	out.line("\n" + p.Summary)
	out.line("The plan does not change the cluster.")
	return out.err
}

func (p FilePlan) writeProfiles(out *printer) {
	writeTable(out, []string{"PROFILE", "FILE", "ACTION", "NODES", "CHANGED", "REBOOTS", "VOLUMES"}, p.Profiles, func(profile FileProfile) []string {
		return []string{profile.Name, profile.File, profile.Action, fmt.Sprint(profile.Nodes), fmt.Sprint(profile.ChangedNodes),
			fmt.Sprint(profile.Reboots), p.volumesOf(profile)}
	})
	for _, profile := range p.Profiles {
		if profile.Rejection != "" {
			out.line("\n" + profile.Name + " is rejected: " + profile.Rejection)
		}
		if len(profile.Fields)+len(profile.Notes) > 0 {
			out.line("\n" + profile.Name + ":")
		}
		out.lines("  Note: ", profile.Notes)
		out.lines("  ", lists.Each(profile.Fields, FieldChange.String))
	}
}

// volumesOf returns "?" if volumes cannot be read.
func (p FilePlan) volumesOf(profile FileProfile) string {
	if p.Volumes == nil {
		return "?"
	}
	return fmt.Sprint(profile.ChangedVolumes)
}

func (f FieldChange) String() string {
	return fmt.Sprintf("%s: %s → %s", f.Field, cmp.Or(f.Old, "(not set)"), cmp.Or(f.New, "(not set)"))
}

const rebootTitle = " would reboot, in this order:"

// maxNames is the maximum number of names of a group in text output; -o wide shows all names.
const maxNames = 10

func (p FilePlan) writeNodes(out *printer, wide bool) {
	for _, c := range p.Nodes {
		out.line(fmt.Sprintf("\n%s: %s", count(int32(len(c.Nodes)), "node"), namesOf(c.Nodes, wide)))
		writeTable(out, []string{"KEY", "OLD", "NEW", "PROFILE", "TAKES-EFFECT"}, c.Settings, settingRow)
	}
}

func namesOf(names []string, wide bool) string {
	if wide || len(names) <= maxNames {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more (use -o wide to list all)", strings.Join(names[:maxNames], ", "), len(names)-maxNames)
}

// unknownValue is the text for a value that a node does not report.
const unknownValue = "unknown"

func settingRow(s overview.SettingChange) []string {
	old, next := cmp.Or(s.Effective, unknownValue), "original value"
	if s.Old != nil && old != cmp.Or(*s.Old, "set") {
		old += " (declared: " + cmp.Or(*s.Old, "set") + ")"
	}
	switch {
	case s.New != nil:
		next = cmp.Or(*s.New, "set")
	case s.OnRemoval == v1alpha1.DeletionRetain:
		next = "unchanged"
	}
	if s.New != nil && s.Old != nil && *s.New == *s.Old {
		next += " (on removal: " + string(s.OnRemoval) + ")"
	}
	return []string{s.Key, old, next, s.Profile, string(s.TakesEffect)}
}

func (p FilePlan) writeFileReboots(out *printer) {
	reboots := text.Count(len(p.Reboots), "node") + rebootTitle
	writeSection(out, reboots, []string{"NODE", "ZONE", "FOR", "PODS", "REASON"}, p.Reboots, func(r PlannedReboot) []string {
		return []string{r.Node, r.Zone, strings.Join(r.Profiles, ","), podsText(r.Pods), rebootReason(r.Reboot)}
	})
	if len(p.Reboots) > 0 {
		out.line("")
		out.lines("", p.rebootLines())
	}
	title := text.Count(len(p.NotRebooted), "node") + " would not be rebooted:"
	writeSection(out, title, []string{"NODE", "ZONE", "FOR", "DESIRED", "BLOCKED-BY"}, p.NotRebooted, func(r overview.JointReboot) []string {
		return []string{r.Node, r.Zone, strings.Join(r.Profiles, ","), strings.Join(r.Reasons, "; "), r.Held}
	})
}

func rebootReason(r overview.Reboot) string {
	return strings.Join(r.Reasons, "; ") + text.Labelled("; blocked now: ", r.Held)
}

func podsText(pods *Pods) string {
	if pods == nil {
		return "?"
	}
	return fmt.Sprint(pods.Evicted)
}

func (p FilePlan) rebootLines() []string {
	var lines []string
	if p.Pods != nil {
		lines = append(lines, p.Pods.String())
		if len(p.Pods.Blocked) > 0 {
			lines = append(lines, "Not evictable: "+text.Join(p.Pods.Blocked, "; ")+".")
		}
		for _, pods := range [][]string{p.Pods.Kept, p.Pods.Remarks} {
			if len(pods) > 0 {
				lines = append(lines, text.Join(pods, ". ")+".")
			}
		}
	}
	lines = append(lines, p.Budget.String())
	if p.EstimatedCompletion != nil {
		lines = append(lines, fmt.Sprintf(
			"Last node back: %s at the earliest, if the reboots were allowed now. This assumes %s for a drain and %s for a boot; "+
				"canaries, zones, and slow pods take additional time.",
			formatTime(p.EstimatedCompletion), overview.NominalDrain, overview.NominalBoot))
	} else {
		lines = append(lines, "Last node back: unknown; check the windows and the blocked nodes.")
	}
	for _, profile := range p.Profiles {
		if profile.Approval != "" {
			lines = append(lines, "After you apply it, approve with: "+profile.Approval)
		}
	}
	return lines
}

// String returns the numbers of pods.
func (p Pods) String() string {
	out := count(int32(p.Evicted), "pod") + " would be evicted"
	if p.WaitedFor > 0 {
		out += fmt.Sprintf(", %d would run to completion", p.WaitedFor)
	}
	if n := len(p.Blocked); n > 0 {
		out += fmt.Sprintf(", %d cannot be evicted", n)
	}
	return out + ". PodDisruptionBudgets decide when."
}

func (p FilePlan) writeFileVolumes(out *printer, wide bool) {
	if p.Volumes == nil {
		return
	}
	out.volumeChanges(p.Volumes.Changes, wide)
	for _, changed := range []bool{false, true} {
		volumes := p.differingVolumes(changed)
		if len(volumes) == 0 {
			continue
		}
		out.line("\n" + differingTitle(volumes, changed) + ":")
		limit := len(volumes)
		if !wide {
			limit = min(maxNames, limit)
		}
		for _, c := range volumes[:limit] {
			out.message(c.Volume, c.Reason+": "+c.Message)
		}
		if rest := len(volumes) - limit; rest > 0 {
			out.line("  " + text.More(rest, "") + " (use -o wide to list all)")
		}
	}
}

// differingVolumes returns the volumes that differ from the profiles after all writes: either the changed or the unchanged ones.
func (p FilePlan) differingVolumes(changed bool) []volumeplan.Change {
	return slices.DeleteFunc(slices.Concat(p.Volumes.Blocked, p.Volumes.Exceptions), func(c volumeplan.Change) bool { return c.Changes() != changed })
}

func differingTitle(volumes []volumeplan.Change, changed bool) string {
	if changed {
		return count(int32(len(volumes)), "volume") + " still different after the change"
	}
	return count(int32(len(volumes)), "volume") + " left unchanged"
}

// volumeChanges prints the old and the new mount options of volumes with the same change.
func (p *printer) volumeChanges(changes []volumeplan.Change, wide bool) {
	for _, g := range groupVolumes(changes) {
		p.line(fmt.Sprintf("\n%s of %s: %s", count(int32(len(g.names)), "volume"), strings.Join(g.Profiles, ", "), namesOf(g.names, wide)))
		p.line("  - " + listOf(g.Old))
		p.line("  + " + listOf(g.New))
	}
}

type volumeGroup struct {
	volumeplan.Change
	names []string
}

func groupVolumes(changes []volumeplan.Change) []volumeGroup {
	groups := lists.Group(changes, func(c volumeplan.Change) string { return fmt.Sprint(c.Profiles, c.Old, c.New) })
	slices.SortStableFunc(groups, func(a, b []volumeplan.Change) int { return cmp.Compare(len(b), len(a)) })
	return lists.Each(groups, func(same []volumeplan.Change) volumeGroup {
		return volumeGroup{same[0], lists.Each(same, func(c volumeplan.Change) string { return c.Volume })}
	})
}

func listOf(options []string) string { return cmp.Or(strings.Join(options, ","), "(no options)") }
