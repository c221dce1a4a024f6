package view

import (
	"fmt"
	"strings"

	"github.com/storageclient/operator/api/v1alpha1"
)

// Approvable says why the profile's plan cannot be approved, nil if it can. plan is the hash that is meant, "" for
// whichever it is.
func Approvable(p *v1alpha1.StorageClientProfile, plan string) error {
	switch hash := p.Status.Plan.Hash; {
	case p.Status.ObservedGeneration != p.Generation:
		return fmt.Errorf("%s: the manager has not looked at generation %d yet (status is of %d): try again", p.Name, p.Generation, p.Status.ObservedGeneration)
	case hash == "":
		return fmt.Errorf("%s: there is no plan to approve: the profile has no boot settings", p.Name)
	case plan != "" && plan != hash:
		return fmt.Errorf("%s: the plan is %s by now, not %s: look at \"kubectl storageclient plan %s\" again", p.Name, hash, plan, p.Name)
	}
	return nil
}

// Approval shows the plan that is about to be approved.
func Approval(p *v1alpha1.StorageClientProfile) string {
	plan, spec := p.Status.Plan, p.Spec.WithDefaults()
	text := fmt.Sprintf("Plan %s of %s reboots %s", plan.Hash, p.Name, count(plan.NodesToReboot, "node"))
	if len(plan.Examples) > 0 {
		text += " (" + capped(plan.Examples) + ")"
	}
	text += fmt.Sprintf(", at most %s at a time.\n", spec.Rollout.MaxUnavailable.String())
	if plan.LimitedBy != "" {
		text += fmt.Sprintf("Limited by: %s.\n", strings.TrimSuffix(plan.LimitedBy, "."))
	}
	if spec.Rollout.Reboot.Policy != v1alpha1.RebootOnApproval {
		text += fmt.Sprintf("The policy is %s: the approval has no effect unless it becomes OnApproval.\n", spec.Rollout.Reboot.Policy)
	}
	return text
}

// Paused tells what has become of a pause. p is the profile as it was before.
func Paused(p *v1alpha1.StorageClientProfile, paused bool) string {
	switch {
	case paused:
		return p.Name + " is paused: nothing new begins, nodes under way finish."
	case p.Spec.Paused:
		return p.Name + " stays paused by its field spec.paused."
	}
	return p.Name + " goes on."
}
