// Package view converts API objects to the output of the plugin. It is pure.
package view

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/overview"
	volumeplan "github.com/storageclient/operator/controllers/volume/plan"
	"github.com/storageclient/operator/tuning/advice"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/text"
)

// Status is the output of "status", as text, JSON or YAML.
type Status struct {
	// Summary describes in one sentence whether all profiles are done.
	Summary  string    `json:"summary"`
	Done     bool      `json:"done"`
	Profiles []Profile `json:"profiles"`
}

// Profile is the status of one profile.
type Profile struct {
	Name       string                              `json:"name"`
	Generation int64                               `json:"generation"`
	Summary    string                              `json:"summary"`
	Done       bool                                `json:"done"`
	Status     v1alpha1.StorageClientProfileStatus `json:"status"`
	// Details is nil unless requested.
	Details *Details `json:"details,omitempty"`
}

// Details contains a profile's nodes and mounts.
type Details struct {
	Nodes      []overview.Node      `json:"nodes"`
	Deviations []overview.Deviation `json:"deviations"`
	Stale      []StaleMount         `json:"staleMounts"`
	// HeldUpBy is the wait that holds the profile up most. Nil if the profile is done.
	HeldUpBy *overview.Wait `json:"heldUpBy,omitempty"`
	// Unknown describes data that could not be read.
	Unknown string `json:"unknown,omitempty"`
}

// StaleMount is a mount of running pods that still has options from before a change.
// Its pods are namespace/name if requested, otherwise UIDs.
type StaleMount = volumeplan.StaleMount

// NewStatus evaluates profiles. Callers can add Details to its Profiles.
func NewStatus(profiles []v1alpha1.StorageClientProfile) Status {
	out := Status{Done: true}
	for i := range profiles {
		p := &profiles[i]
		sentence, done := Verdict(p)
		out.Profiles = append(out.Profiles, Profile{Name: p.Name, Generation: p.Generation, Summary: sentence, Done: done, Status: p.Status})
		out.Done = out.Done && done
	}
	out.Summary = strings.Join(summarize(out.Profiles), "\n")
	return out
}

// summarize returns one sentence per line.
func summarize(profiles []Profile) []string {
	unfinished := lists.Filter(profiles, func(p Profile) bool { return !p.Done })
	lines := lists.Each(unfinished, func(p Profile) string { return p.Summary })
	switch open := len(lines); {
	case len(profiles) == 0:
		return []string{"No StorageClientProfile found."}
	case len(profiles) == 1:
		return []string{profiles[0].Summary}
	case open == 0:
		return []string{fmt.Sprintf("All %d profiles are done.", len(profiles))}
	default:
		return append([]string{fmt.Sprintf("%d of %d profiles are done.", len(profiles)-open, len(profiles))}, lines...)
	}
}

// WriteText prints the status for users. now is the reference time for ages.
func (s Status) WriteText(w io.Writer, now time.Time) error {
	out := &printer{w: w}
	out.lines("", summarize(s.Profiles))
	if len(s.Profiles) == 0 {
		return out.err
	}
	for _, p := range s.Profiles {
		if p.Details != nil {
			out.writeHeldUpBy(p.Details.HeldUpBy, now)
		}
	}
	// Nodes and volumes are shown as the number up to date of the number matched.
	writeTable(out, []string{"PROFILE", "READY", "REASON", "NODES", "PENDING-REBOOT", "DISRUPTED", "FAILED",
		"VOLUMES", "EXCEPTIONS", "BLOCKED", "STALE-MOUNTS", "PLAN", "LIMITED-BY"}, s.Profiles, profileRow)
	for _, p := range s.Profiles {
		if p.Details != nil {
			p.writeDetails(out, now)
		}
	}
	return out.err
}

func profileRow(p Profile) []string {
	ready, reason := string(metav1.ConditionUnknown), ""
	if c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReady); c != nil {
		ready, reason = string(c.Status), c.Reason
	}
	n, v := p.Status.Nodes, p.Status.Volumes
	return []string{p.Name, ready, reason,
		share(n.UpToDate, n.Matched), number(n.PendingReboot), number(n.Disrupted), number(n.Failed),
		share(v.UpToDate, v.Matched), number(v.Exceptions), number(v.Blocked), number(v.StaleMounts), p.Status.Plan.Hash, p.Status.Plan.LimitedBy}
}

func number(n int32) string { return strconv.Itoa(int(n)) }

func share(part, whole int32) string { return number(part) + "/" + number(whole) }

// HeldUpBy returns the wait that holds a profile up most, of its nodes, its volumes and the profile itself. Nil if the profile is done.
func HeldUpBy(p *v1alpha1.StorageClientProfile, list []overview.Wait, volumes []volumeplan.Listed) *overview.Wait {
	if _, done := Verdict(p); done {
		return nil
	}
	c := cmp.Or(conditionOf(p, v1alpha1.ConditionReady), &metav1.Condition{Reason: v1alpha1.ReasonPending})
	start, ranks := &c.LastTransitionTime, map[volumeplan.VolumeState]overview.WaitRank{volumeplan.VolumePending: overview.WaitQueue, volumeplan.VolumeBlocked: overview.WaitUser}
	for _, v := range volumes {
		if rank, isOpen := ranks[v.State]; isOpen {
			list = append(list, overview.Wait{Node: overview.Node{Name: "PersistentVolume " + v.Volume, Reason: v.Reason, Message: v.Message, Since: start}, Rank: rank,
				Action: cmp.Or(VolumeRemedies[v.Reason], "If the message stays, run: kubectl storageclient volumes "+p.Name)})
		}
	}
	for _, name := range []string{v1alpha1.ConditionReconciling, v1alpha1.ConditionPaused, v1alpha1.ConditionStalled} {
		if meta.IsStatusConditionTrue(p.Status.Conditions, name) {
			c = conditionOf(p, name)
		}
	}
	whole := overview.Wait{Node: overview.Node{Name: "StorageClientProfile " + p.Name, Reason: c.Reason, Message: c.Message, Since: &c.LastTransitionTime}, Rank: overview.WaitQueue + 1}
	if c.Type == v1alpha1.ConditionPaused || c.Type == v1alpha1.ConditionStalled || slices.Contains(userReasons, c.Reason) {
		whole.Rank = overview.WaitUser
	}
	return overview.FirstOf(append([]overview.Wait{whole}, list...))
}

// userReasons are the reasons of the conditions of profiles that progress once a user acts. Their messages contain the action.
var userReasons = []string{v1alpha1.ReasonWaitingForEvidence, v1alpha1.ReasonWaitingForApproval, v1alpha1.ReasonRebootPending}

func (p *printer) writeHeldUpBy(w *overview.Wait, now time.Time) {
	if w == nil {
		return
	}
	end := ""
	if w.Until != nil {
		end = "; ends on its own by " + formatTime(w.Until)
	} else if w.Action == "" && w.Rank >= overview.WaitQueue {
		end = "; ends on its own after the nodes and volumes ahead"
	}
	p.line(fmt.Sprintf("Held up by %s: %s%s%s%s", w.Name, w.Reason, text.Labelled(", for ", ageOf(w.Since, now)), text.Labelled(": ", text.Line(w.Message)), end))
	if w.Action != "" {
		p.line("  Action: " + strings.ReplaceAll(w.Action, "`", `"`))
	}
}

func (p Profile) writeDetails(out *printer, now time.Time) {
	if len(p.Details.Nodes) == 0 {
		out.line("\n" + p.Name + " matches no nodes.")
	}
	writeSection(out, "Nodes of "+p.Name, []string{"NODE", "PHASE", "REASON", "SINCE", "MESSAGE"}, p.Details.Nodes, func(n overview.Node) []string {
		return []string{n.Name, n.Phase, n.Reason, ageOf(n.Since, now), n.Message}
	})
	lost := "Failed nodes of " + p.Name + " that were deleted"
	writeSection(out, lost, []string{"NODE", "REASON", "SINCE", "MESSAGE"}, p.Status.LostNodes, func(n v1alpha1.LostNode) []string {
		return []string{n.Name, n.Reason, ageOf(n.Since, now), n.Message}
	})
	writeSection(out, "Settings of "+p.Name+" that are not effective as declared",
		[]string{"KEY", "STATE", "DESIRED", "OBSERVED", "NODES", "MESSAGE"}, p.Details.Deviations, func(d overview.Deviation) []string {
			return []string{d.Key, string(d.State), d.Desired, d.Observed, text.List(d.Nodes), d.Message}
		})
	stale := "Stale mounts of " + p.Name + ": restart their pods"
	writeSection(out, stale, []string{"NODE", "VOLUME", "PODS", "MESSAGE"}, p.Details.Stale, func(m StaleMount) []string {
		return []string{m.Node, m.Volume, text.InOrder(m.Pods, ", "), m.Message}
	})
	if p.Details.Unknown != "" {
		out.line("\nCannot read " + p.Details.Unknown)
	}
	out.writeAdvice(p.Name, p.Status.Advice)
}

// writeAdvice prints errors, warnings and the load on servers, and lists the IDs of other advice.
func (p *printer) writeAdvice(profile string, all []v1alpha1.Advice) {
	isMinor := func(a v1alpha1.Advice) bool {
		return a.Severity == v1alpha1.SeverityInfo && a.ID != advice.ServerBudget
	}
	major := lists.Filter(all, func(a v1alpha1.Advice) bool { return !isMinor(a) })
	writeSection(p, "Advice for "+profile, []string{"RULE", "SEVERITY", "TEXT"}, major, func(a v1alpha1.Advice) []string {
		return []string{a.ID, string(a.Severity), a.Text}
	})
	if minor := lists.Pick(all, func(a v1alpha1.Advice) (string, bool) { return a.ID, isMinor(a) }); len(minor) > 0 {
		p.line("\nAlso worth knowing (see -o yaml or \"kubectl storageclient explain RULE\"): " + strings.Join(slices.Compact(minor), ", "))
	}
}

func ageOf(start *metav1.Time, now time.Time) string {
	if start.IsZero() {
		return ""
	}
	return duration.HumanDuration(now.Sub(start.Time))
}

// Verdict reports whether a profile is done. If not, the sentence contains the reason.
func Verdict(p *v1alpha1.StorageClientProfile) (sentence string, done bool) {
	ready := conditionOf(p, v1alpha1.ConditionReady)
	reconciling := conditionOf(p, v1alpha1.ConditionReconciling)
	switch {
	case !p.DeletionTimestamp.IsZero():
		return addReasons("Removing "+p.Name, reasonOf(reconciling, ready)), false
	case p.Status.ObservedGeneration != p.Generation:
		return fmt.Sprintf("%s is not done: the manager has not observed generation %d yet", p.Name, p.Generation), false
	case meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.ConditionStalled):
		return addReasons(p.Name+" is stopped and needs your action", reasonOf(conditionOf(p, v1alpha1.ConditionStalled))), false
	case ready != nil && ready.Status == metav1.ConditionTrue:
		return doneSentence(p, ready), true
	case meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.ConditionPaused):
		return addReasons(p.Name+" is paused", reasonOf(conditionOf(p, v1alpha1.ConditionPaused))), false
	case !meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.ConditionReconciling):
		return addReasons(p.Name+" is not done", additionalProgress(ready, p), reasonOf(ready)), false
	}
	return addReasons(p.Name+" is rolling out", additionalProgress(reconciling, p), reasonOf(reconciling)), false
}

// additionalProgress returns the progress of a profile, empty if the message of a condition with this reason contains it.
func additionalProgress(c *metav1.Condition, p *v1alpha1.StorageClientProfile) string {
	if c != nil && c.Message != "" && (c.Reason == v1alpha1.ReasonRollingOut || c.Reason == v1alpha1.ReasonPlanMode) {
		return ""
	}
	var parts []string
	if n := p.Status.Nodes; n.Matched > 0 {
		parts = append(parts, share(n.UpToDate, n.Matched)+" nodes")
	}
	if v := p.Status.Volumes; v.Matched > 0 {
		parts = append(parts, share(v.UpToDate, v.Matched)+" volumes")
	}
	return strings.Join(parts, ", ")
}

func doneSentence(p *v1alpha1.StorageClientProfile, ready *metav1.Condition) string {
	done := p.Name + " is done"
	switch ready.Reason {
	case v1alpha1.ReasonNothingMatched:
		done = addReasons(done, reasonOf(ready))
	case v1alpha1.ReasonReadyWithExceptions:
		done = addReasons(done+", with exceptions", reasonOf(ready))
	}
	if n := p.Status.Volumes.StaleMounts; n > 0 {
		done = fmt.Sprintf("%s. %s old options: restart these pods (kubectl storageclient status %s --pods)",
			done, text.Count(int(n), "mount of running pods still has", "mounts of running pods still have"), p.Name)
	}
	return done
}

// addReasons adds the known reasons to a sentence. It adds no period: the text may end with a command to copy.
func addReasons(sentence string, reasons ...string) string {
	return sentence + text.Labelled(": ", text.Combine("; ", reasons...))
}

// reasonOf returns the message of the first existing condition, or its reason if it has no message.
func reasonOf(conditions ...*metav1.Condition) string {
	for _, c := range conditions {
		if c != nil {
			return cmp.Or(strings.TrimSuffix(c.Message, "."), c.Reason)
		}
	}
	return ""
}

func conditionOf(p *v1alpha1.StorageClientProfile, name string) *metav1.Condition {
	return meta.FindStatusCondition(p.Status.Conditions, name)
}

func count(n int32, noun string) string { return text.Count(int(n), noun) }
