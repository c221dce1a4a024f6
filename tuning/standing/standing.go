// Package standing evaluates the standing of each setting of a node, and its consequences. It is the common source for the agent's
// conditions and permits, the Node's condition Tuned, the untuned taint, the gate of live changes, the rollout, the profiles' counts,
// the preview and the plugin. Their results therefore agree.
//
// Table 1 lists the standing by the agent's report. A setting is due if the agent lists its key in rebootRequiredBy:
//
//	state x takesEffect                             | not due          | due
//	InSync x any                                    | Effective        | PendingReboot
//	Pending x NextMount, NewTransport               | Deferred         | PendingReboot
//	Pending x Live, waitsFor Proof                  | Proving          | Proving
//	                waitsFor Module                 | Deferred         | PendingReboot
//	                waitsFor Connections or another | Unproven         | Unproven
//	Pending x Reboot                                | PendingReboot    | PendingReboot
//	Pending x Action or none; another state         | Applying         | Applying
//	the agent does not report the key               | Applying         | Applying
//	Drifted x Reboot                                | Unstaged         | Unstaged
//	Drifted x any other                             | Drifted          | Drifted
//	Shadowed x Reboot                               | OverriddenAtBoot | OverriddenAtBoot
//	Shadowed x any other                            | Overridden       | PendingReboot
//	Clamped, Unsupported x any                      | Unavailable      | PendingReboot
//	Failed x any                                    | Failed           | Failed
//	removed from the spec: Failed                   | RestoreFailed    | RestoreFailed
//	                       Pending x Reboot         | RestoreAtBoot    | RestoreAtBoot
//	                       any other                | Restoring        | Restoring
//
// Table 2, the variable rules, lists the consequences. Facts about the node take precedence: an agent that does not report, a release, a
// spec that the agent has not reported on (Report.Applying), and settings that a reboot did not make effective (Report.Withheld).
package standing

import (
	"slices"

	"github.com/storageclient/operator/api/v1alpha1"
)

// Standing is the standing of one setting of a node. A larger value is worse: the worst standing of a node decides.
type Standing int

// Standings.
const (
	// Effective means that the desired value was read back.
	Effective Standing = iota
	// Deferred means that the value takes effect at the next mount or connection, or when its module is loaded.
	Deferred
	// Restoring means that the original value of a removed setting takes effect at the next mount or connection.
	Restoring
	// RestoreAtBoot means that the original value of a removed setting takes effect at the next boot.
	RestoreAtBoot
	// Unavailable means that the node does not support the value.
	Unavailable
	// Overridden means that the value is effective, but at each boot another file overrides it until the agent sets it again.
	Overridden
	// OverriddenAtBoot means that the setting takes effect only at boot, and another file overrides it then.
	OverriddenAtBoot
	// Drifted means that another program or user changed the value.
	Drifted
	// Unstaged means that the value is missing in the boot configuration, so the next boot would not make it effective.
	Unstaged
	// PendingReboot means that the value takes effect at the next boot.
	PendingReboot
	// Proving means that the value is set and new connections are about to confirm it.
	Proving
	// Unproven means that new connections must confirm the value but currently cannot.
	Unproven
	// Applying means that the agent has not applied the setting yet, or has not reported on it.
	Applying
	// RestoreFailed means that the original value of a removed setting could not be restored.
	RestoreFailed
	// Failed means that the setting could not be applied or read.
	Failed
)

// Boot is the effect of a boot on a setting.
type Boot int

// Boots.
const (
	// BootAccepted means that the node is accepted with the setting after a boot.
	BootAccepted Boot = iota
	// BootAwaited means that the value takes effect at the boot, or shortly after it without further action.
	BootAwaited
	// BootObstacle means that a boot does not make the value effective. A reboot would be useless.
	BootObstacle
)

type rule struct {
	name string
	// reason is the reason of the Node's condition Tuned and of the agent's condition Ready, if no other setting is worse.
	reason string
	// settled reports whether the agent has done everything possible. If not, the live gate counts the node as still changing.
	settled bool
	// soaks reports whether the time with this standing counts as the soak of a canary.
	soaks bool
	boot  Boot
}

// rules is table 2.
var rules = [...]rule{
	Effective:        {name: "Effective", reason: v1alpha1.NodeReasonTuned, settled: true, soaks: true, boot: BootAccepted},
	Deferred:         {name: "Deferred", reason: v1alpha1.NodeReasonTuned, settled: true, soaks: true, boot: BootAccepted},
	Restoring:        {name: "Restoring", reason: v1alpha1.NodeReasonTuned, settled: true, soaks: true, boot: BootAccepted},
	RestoreAtBoot:    {name: "RestoreAtBoot", reason: v1alpha1.NodeReasonTuned, settled: true, soaks: true, boot: BootAccepted},
	Unavailable:      {name: "Unavailable", reason: v1alpha1.NodeReasonTunedWithExceptions, settled: true, soaks: true, boot: BootAccepted},
	Overridden:       {name: "Overridden", reason: v1alpha1.NodeReasonTunedWithExceptions, settled: true, soaks: true, boot: BootAccepted},
	OverriddenAtBoot: {name: "OverriddenAtBoot", reason: v1alpha1.NodeReasonTunedWithExceptions, settled: true, soaks: true, boot: BootObstacle},
	Drifted:          {name: "Drifted", reason: v1alpha1.NodeReasonDrifted, settled: true, soaks: false, boot: BootAccepted},
	Unstaged:         {name: "Unstaged", reason: v1alpha1.NodeReasonDrifted, settled: true, soaks: false, boot: BootObstacle},
	PendingReboot:    {name: "PendingReboot", reason: v1alpha1.NodeReasonRebootPending, settled: true, soaks: true, boot: BootAwaited},
	Proving:          {name: "Proving", reason: v1alpha1.NodeReasonApplying, settled: false, soaks: false, boot: BootAccepted},
	Unproven:         {name: "Unproven", reason: v1alpha1.NodeReasonApplying, settled: false, soaks: false, boot: BootAccepted},
	Applying:         {name: "Applying", reason: v1alpha1.NodeReasonApplying, settled: false, soaks: false, boot: BootAwaited},
	// RestoreFailed: see also Obstacles.
	RestoreFailed: {name: "RestoreFailed", reason: v1alpha1.NodeReasonSettingsFailed, settled: true, soaks: true, boot: BootAccepted},
	Failed:        {name: "Failed", reason: v1alpha1.NodeReasonSettingsFailed, settled: false, soaks: false, boot: BootObstacle},
}

// String implements fmt.Stringer.
func (s Standing) String() string { return rules[s].name }

// Tuned reports whether a node with the setting may count as tuned: its condition Tuned may be True, and the untuned taint is
// removed.
func (s Standing) Tuned() bool {
	return rules[s].reason == v1alpha1.NodeReasonTuned || rules[s].reason == v1alpha1.NodeReasonTunedWithExceptions
}

// Settled reports whether the agent has done everything possible for the setting.
func (s Standing) Settled() bool { return rules[s].settled }

// Soaks reports whether the time with the setting counts as the soak of a canary.
func (s Standing) Soaks() bool { return rules[s].soaks }

// Boot returns the effect of a boot on the setting.
func (s Standing) Boot() Boot { return rules[s].boot }

// Exception reports whether the node differs from the declared value and the difference is accepted.
func (s Standing) Exception() bool {
	return s == Unavailable || s == Overridden || s == OverriddenAtBoot
}

// IsPending reports whether the setting gets its value without further action.
func (s Standing) IsPending() bool {
	return slices.Contains([]Standing{Deferred, PendingReboot, Proving, Unproven, Applying}, s)
}

// Of returns the standing of a setting in the spec. due reports whether its key is among the settings that require a reboot.
func Of(s v1alpha1.SettingStatus, needsReboot bool) Standing {
	boots := s.TakesEffect == v1alpha1.EffectReboot
	switch s.State {
	case v1alpha1.SettingInSync:
		return unlessRebootNeeded(Effective, needsReboot)
	case v1alpha1.SettingPending:
		return ofPending(s, needsReboot)
	case v1alpha1.SettingDrifted:
		if boots {
			return Unstaged
		}
		return Drifted
	case v1alpha1.SettingShadowed:
		if boots {
			return OverriddenAtBoot
		}
		return unlessRebootNeeded(Overridden, needsReboot)
	case v1alpha1.SettingClamped, v1alpha1.SettingUnsupported:
		return unlessRebootNeeded(Unavailable, needsReboot)
	case v1alpha1.SettingFailed:
		return Failed
	}
	return Applying
}

func ofPending(s v1alpha1.SettingStatus, needsReboot bool) Standing {
	switch s.TakesEffect {
	case v1alpha1.EffectNextMount, v1alpha1.EffectNewTransport:
		return unlessRebootNeeded(Deferred, needsReboot)
	case v1alpha1.EffectReboot:
		return PendingReboot
	case v1alpha1.EffectLive:
		switch s.WaitsFor {
		case v1alpha1.WaitsForProof:
			return Proving
		case v1alpha1.WaitsForModule:
			// No pod loads the module while the node is kept empty.
			return unlessRebootNeeded(Deferred, needsReboot)
		}
		return Unproven
	case v1alpha1.EffectAction:
	}
	return Applying
}

func unlessRebootNeeded(s Standing, needsReboot bool) Standing {
	if needsReboot {
		return PendingReboot
	}
	return s
}

// ofRemoved returns the standing of a setting that is no longer in the spec.
func ofRemoved(s v1alpha1.SettingStatus) Standing {
	switch {
	case s.State == v1alpha1.SettingFailed:
		return RestoreFailed
	case s.State == v1alpha1.SettingPending && s.TakesEffect == v1alpha1.EffectReboot:
		return RestoreAtBoot
	}
	return Restoring
}
