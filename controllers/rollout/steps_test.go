package rollout

import (
	"fmt"

	"github.com/storageclient/operator/controllers/rollout/plan"
)

// describe describes a step in one line.
func describe(step plan.Step) string {
	switch s := step.(type) {
	case plan.AddClaim:
		if s.Missing {
			return fmt.Sprintf("claim %s again for %s", s.Node, s.Claim.Profile)
		}
		return fmt.Sprintf("claim %s for %s", s.Node, s.Claim.Profile)
	case plan.UpdateClaim:
		switch {
		case s.Claim.Permit == nil:
			return fmt.Sprintf("claim of %s: no permit", s.Node)
		case s.Claim.Permit.Leaving != "":
			return fmt.Sprintf("claim of %s: permit, and leaving (%s)", s.Node, s.Claim.Permit.Leaving)
		}
		return fmt.Sprintf("claim of %s: permit", s.Node)
	case plan.ReleaseClaim:
		return "release the claim of " + s.Node
	case plan.Cordon:
		return "cordon " + s.Node
	case plan.Uncordon:
		return fmt.Sprintf("uncordon %s: %s", s.Node, s.Reason)
	case plan.RemoveGuards:
		return "remove the protection annotations of " + s.Node
	case plan.SetMaintenance:
		switch {
		case s.State == plan.MaintenanceNone:
			return fmt.Sprintf("conditions of %s: none", s.Node)
		case s.Permitting:
			return fmt.Sprintf("conditions of %s: %s, for a permit", s.Node, s.State)
		}
		return fmt.Sprintf("conditions of %s: %s", s.Node, s.State)
	case plan.Drain:
		return "drain " + s.Node
	case plan.WriteNote:
		return fmt.Sprintf("note %s: %s %s", s.Node, s.Note.Phase, s.Note.Reason)
	case plan.GivePermit:
		return "permit the reboot of " + s.Node
	case plan.ClearPermit:
		return fmt.Sprintf("clear the permit of %s: %s", s.Node, s.Reason)
	case plan.RemoveTaint:
		return "remove the untuned taint of " + s.Node
	}
	return fmt.Sprintf("unknown step %T", step)
}
