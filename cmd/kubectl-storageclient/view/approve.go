package view

import (
	"fmt"
	"io"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/overview"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/text"
)

// withoutApproval describes reboot policies that need no approval.
var withoutApproval = map[v1alpha1.RebootPolicy]string{
	v1alpha1.RebootAutomatic: "nodes reboot within the budget and the windows",
	v1alpha1.RebootNever:     "settings take effect at the next boot",
}

// CheckApprovable returns an error if the profile's plan cannot be approved, or if the approval would have no effect. plan is the expected
// hash. Empty matches any hash.
func CheckApprovable(p *v1alpha1.StorageClientProfile, plan string) error {
	policy := p.Spec.WithDefaults().Rollout.Reboot.Policy
	switch hash := p.Status.Plan.Hash; {
	case p.Status.ObservedGeneration != p.Generation:
		return fmt.Errorf("%s: the manager has not observed generation %d yet (status is for %d): try again",
			p.Name, p.Generation, p.Status.ObservedGeneration)
	case hash == "":
		return fmt.Errorf("%s: no reboots to approve: the profile has no settings that require a reboot", p.Name)
	case withoutApproval[policy] != "":
		return fmt.Errorf("%s: nothing to approve, because the reboot policy is %s: %s without an approval. To require one, set spec.rollout.reboot.policy to OnApproval",
			p.Name, policy, withoutApproval[policy])
	case plan != "" && plan != hash:
		return fmt.Errorf("%s: plan changed from %s to %s: review it again with \"kubectl storageclient plan %s\"", p.Name, plan, hash, p.Name)
	}
	return nil
}

// ExplainRejection adds the required role to the API server's rejection of an approval. Without the admission policy, RBAC rejects it
// without a role name.
func ExplainRejection(p *v1alpha1.StorageClientProfile, err error) error {
	if !apierrors.IsForbidden(err) {
		return err
	}
	hash := p.Status.Plan.Hash
	return fmt.Errorf("approve plan %s: no permission to approve reboots of StorageClientProfile %s: ask a user with ClusterRole %s to run %q: %w",
		hash, p.Name, v1alpha1.ApproverRole, ApproveCommand(p.Name, hash), err)
}

// ApproveCommand returns the command that approves exactly one plan of a profile.
func ApproveCommand(profile, plan string) string {
	return fmt.Sprintf("kubectl storageclient approve %s --plan %s", profile, plan)
}

// CheckPreview returns an error if a preview does not show the plan that is about to be approved.
func CheckPreview(p *v1alpha1.StorageClientProfile, preview overview.Preview) error {
	switch {
	case preview.Refused != "":
		return fmt.Errorf("%s: no plan to approve: profile invalid; nothing applied. %s", p.Name, preview.Refused)
	case preview.PlanHash != p.Status.Plan.Hash:
		return fmt.Errorf("%s: this plugin computes plan %s, but the manager plan %s: use the plugin of the manager's release",
			p.Name, preview.PlanHash, p.Status.Plan.Hash)
	}
	return nil
}

// WriteApproval prints the plan that is about to be approved: the same list as "plan", with all nodes.
func WriteApproval(w io.Writer, p *v1alpha1.StorageClientProfile, preview overview.Preview, budget Budget) error {
	out := &printer{w: w}
	plan := Plan{Name: p.Name, Spec: p.Spec.WithDefaults(), Nodes: preview}
	if len(preview.Reboots) == 0 {
		out.line(fmt.Sprintf("Plan %s of %s reboots no nodes now. The approval also covers nodes that require this reboot later.",
			preview.PlanHash, p.Name))
	} else {
		out.line(fmt.Sprintf("Plan %s of %s reboots %s, at most %s at a time, in this order:",
			preview.PlanHash, p.Name, count(int32(len(preview.Reboots)), "node"), plan.Spec.Rollout.MaxUnavailable.String()))
		plan.writeRebootTable(out)
		plan.writeTimes(out)
		out.line(budget.String())
	}
	plan.writeNotRebooted(out)
	return out.err
}

// DescribeApproval describes the plan that is about to be approved in lines, based on the profile's status.
func DescribeApproval(p *v1alpha1.StorageClientProfile) []string {
	plan, spec := p.Status.Plan, p.Spec.WithDefaults()
	description := fmt.Sprintf("Plan %s of %s reboots %s", plan.Hash, p.Name, count(plan.NodesToReboot, "node"))
	if len(plan.Examples) > 0 {
		description += " (" + text.List(plan.Examples) + ")"
	}
	lines := []string{fmt.Sprintf("%s, at most %s at a time.", description, spec.Rollout.MaxUnavailable.String())}
	if plan.LimitedBy != "" {
		lines = append(lines, fmt.Sprintf("Limited by: %s.", strings.TrimSuffix(plan.LimitedBy, ".")))
	}
	return lines
}

// DescribePause describes the result of pausing or resuming. p is the profile before the change.
func DescribePause(p *v1alpha1.StorageClientProfile, paused bool) string {
	switch {
	case paused:
		return "Paused " + p.Name + ": new changes do not start, nodes finish once the reboot has started."
	case p.Spec.Paused:
		return p.Name + " is still paused: spec.paused is true."
	}
	return "Resumed " + p.Name + "."
}

// Failures are the failed nodes of a profile.
type Failures struct {
	// Existing and Deleted are failed nodes. Permitted are the existing nodes that still have a reboot permit.
	Existing, Deleted, Permitted []string
	// Count is the number of failures. otherCount is the number of failures without a known node, or with another cause than a reboot.
	Count      int32
	otherCount int
}

// FindFailures returns the failed nodes of a profile, or only one of them.
func FindFailures(p *v1alpha1.StorageClientProfile, clientNodes []v1alpha1.StorageClientNode, node string) Failures {
	out := Failures{Count: p.Status.Nodes.Failed, otherCount: int(p.Status.Nodes.Failed)}
	for _, c := range clientNodes {
		isManaged := slices.ContainsFunc(c.Spec.Settings, func(s v1alpha1.NodeSetting) bool { return s.Profile == p.Name })
		if !isManaged || c.Status.Rollout == nil || c.Status.Rollout.Phase != v1alpha1.RolloutFailed {
			continue
		}
		if out.otherCount--; node != "" && c.Name != node {
			continue
		}
		out.Existing = append(out.Existing, c.Name)
		if c.Spec.RebootPermit != nil {
			out.Permitted = append(out.Permitted, c.Name)
		}
	}
	for _, lost := range p.Status.LostNodes {
		if out.otherCount--; node == "" || lost.Name == node {
			out.Deleted = append(out.Deleted, lost.Name)
		}
	}
	return out
}

// CheckRetryable returns an error if there is no failure to retry.
func (f Failures) CheckRetryable(profile, node string) error {
	switch {
	case f.Count == 0:
		return fmt.Errorf("%s: no failed nodes to retry", profile)
	case node != "" && len(f.Existing)+len(f.Deleted) == 0 && f.otherCount == 0:
		return fmt.Errorf("%s: Node %s has not failed: see \"kubectl storageclient status %s\"", profile, node, profile)
	}
	return nil
}

// DescribeRetry describes the effect of a retry in lines.
func (f Failures) DescribeRetry(profile, node string) (lines []string) {
	names := slices.DeleteFunc(slices.Clone(f.Existing), func(name string) bool { return slices.Contains(f.Permitted, name) })
	names = append(names, lists.Each(f.Deleted, func(name string) string { return name + " (deleted)" })...)
	switch {
	case node == "" && f.otherCount > 0:
		lines = append(lines, fmt.Sprintf("Requested a retry of all failed nodes of %s. The agents retry failed settings without this command.", profile))
	case len(names) > 0:
		lines = append(lines, fmt.Sprintf("Requested a retry of %s on: %s.", profile, text.List(names)))
	case len(f.Permitted) == 0:
		lines = append(lines, fmt.Sprintf("Requested a retry of %s on %s, if it failed.", profile, node))
	}
	if len(f.Permitted) > 0 {
		lines = append(lines, fmt.Sprintf("Not retried, no response to the reboot permit: %s. Bring these nodes back, or delete their Nodes and retry.",
			text.List(f.Permitted)))
	}
	return lines
}
