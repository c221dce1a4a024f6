package plan

import "fmt"

// For returns the plan of a new session, and records its changes of phases.
func For(s Snapshot) Plan {
	out := NewSession(s).Plan()
	recordChanges(s, out)
	return out
}

// describe describes a step in one line.
func describe(step Step) string {
	switch s := step.(type) {
	case AddClaim:
		if s.Missing {
			return fmt.Sprintf("claim %s again for %s", s.Node, s.Claim.Profile)
		}
		return fmt.Sprintf("claim %s for %s", s.Node, s.Claim.Profile)
	case UpdateClaim:
		switch {
		case s.Claim.Permit == nil:
			return fmt.Sprintf("claim of %s: no permit", s.Node)
		case s.Claim.Permit.Leaving != "":
			return fmt.Sprintf("claim of %s: permit, and leaving (%s)", s.Node, s.Claim.Permit.Leaving)
		}
		return fmt.Sprintf("claim of %s: permit", s.Node)
	case ReleaseClaim:
		return "release the claim of " + s.Node
	case Cordon:
		return "cordon " + s.Node
	case Uncordon:
		return fmt.Sprintf("uncordon %s: %s", s.Node, s.Reason)
	case RemoveGuards:
		return "remove the protection annotations of " + s.Node
	case SetMaintenance:
		switch {
		case s.State == MaintenanceNone:
			return fmt.Sprintf("conditions of %s: none", s.Node)
		case s.Permitting:
			return fmt.Sprintf("conditions of %s: %s, for a permit", s.Node, s.State)
		}
		return fmt.Sprintf("conditions of %s: %s", s.Node, s.State)
	case Drain:
		return "drain " + s.Node
	case WriteNote:
		return fmt.Sprintf("note %s: %s %s", s.Node, s.Note.Phase, s.Note.Reason)
	case GivePermit:
		return "permit the reboot of " + s.Node
	case ClearPermit:
		return fmt.Sprintf("clear the permit of %s: %s", s.Node, s.Reason)
	case RemoveTaint:
		return "remove the untuned taint of " + s.Node
	}
	return fmt.Sprintf("unknown step %T", step)
}
