package view

import (
	"fmt"
	"io"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/overview"
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
		return "Paused " + p.Name + ": new changes do not start, nodes that are already disrupted finish."
	case p.Spec.Paused:
		return p.Name + " is still paused: spec.paused is true."
	}
	return "Resumed " + p.Name + "."
}
