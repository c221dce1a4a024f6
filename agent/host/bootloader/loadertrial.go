package bootloader

import "cmp"

const (
	// trialVariable is the agent's variable in GRUB's environment block. The agent sets it to trialArmed when it stages, and to trialPermitted right
	// before a permitted reboot. Before GRUB boots the new arguments, it changes these values to trialUsed and trialFailed. If GRUB finds one of the
	// latter, it boots the previous entry. The power may fail in any boot, so a boot without a permit is no proof: trialUsed is tried once more with
	// a permit.
	trialVariable  = "storage_client_trial"
	trialArmed     = "armed"
	trialPermitted = "permitted"
	trialUsed      = "used"
	trialFailed    = "failed"

	// factArmed is the name of the boot fact that records that a trial was armed in the boot.
	factArmed = "trial-armed"
)

// trial is the state of a trial in the environment block, in /etc/grub.d and in the menu.
type trial struct {
	// state is the value of the trial variable. Empty if unset.
	state string
	// printed is the output of the agent's generator. section is the copy of it in the menu.
	printed, section string
	// selected is the ID of the boot loader entry of the next boot. Empty for the default.
	selected string
	armedNow bool
	// first is the text of the menu's first entry. Empty if 10_linux did not make it.
	first string
	// defaults are the values that the menu sets as the default entry, and lines are their line numbers. loads reports whether the menu reads the
	// environment block, and clears whether it clears the entry of the next boot there. ids reports whether it identifies entries by ID.
	defaults           []string
	lines              []int
	loads, clears, ids bool
	// seen reports whether the menu reads any block.
	seen bool
	// envErr is the reason why GRUB could not write to the environment block, if the file itself shows one.
	envErr error
	// reason is the reason why the staged arguments have no trial, or no entry to return to. Empty if they have both, or do not need them.
	reason string
}

func (t trial) isPresent() bool { return t.state != "" || t.printed != "" || t.section != "" }

// isDue reports whether GRUB boots the new arguments next and is ready to return to the previous entry.
func (t trial) isDue() bool {
	return t.section != "" && (t.state == trialArmed || t.state == trialPermitted)
}

// isOver reports whether GRUB has booted the new arguments once and boots the previous entry from now on.
func (t trial) isOver() bool {
	return t.section != "" && (t.state == trialUsed || t.state == trialFailed)
}

// isBroken reports whether GRUB boots the new arguments, but cannot return to the previous entry.
func (t trial) isBroken() bool { return t.section != "" && t.reason != "" }

// trialNote describes, for an argument that waits for its boot, the consequence of a failed boot.
func (t trial) trialNote() string {
	switch {
	case t.reason != "":
		return "; the boot menu has no fallback entry: " + t.reason
	case t.isOver() && t.selected != "":
		return ", but only with a permit, and after the boot of the selected entry " + t.selected
	case t.isOver():
		return ", but only with a permit: a boot without one failed, because of a power loss or this argument, or booted another entry, and the " +
			"machine boots the previous entry until then"
	case t.isDue():
		return "; trial boot: if the machine does not start with it, the boot after that uses the previous entry"
	}
	return ""
}

// untriedReason returns the reason why the staged arguments have no trial. Empty if they have one, or do not need one.
func (h *Host) untriedReason(f facts, findObstacle func() string) string {
	if f.notBooted(f.dropIn.args) == nil || f.trial.section != "" || !h.attended {
		return ""
	}
	return cmp.Or(findObstacle(), "the argument was staged without one")
}

// nextTrial is the trial of the arguments to stage: the desired output of the generator, and the value of the variable. Both are empty if the
// arguments need no trial, or cannot have one.
type nextTrial struct {
	printed, state string
	// err is the reason why the arguments must not be staged without a trial. Nil if they may be.
	err error
}

var readyStates = map[bool]string{true: trialPermitted, false: trialArmed}
