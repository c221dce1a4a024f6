package rollout

import (
	"slices"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/rollout/plan"
	"github.com/storageclient/operator/tuning/nodesettings"
)

// ailment is the cause that keeps a setting from its desired value on a machine, as its agent reports it.
type ailment struct {
	state  v1alpha1.SettingState
	effect v1alpha1.SettingEffect
}

// moduleAilments are the possible ailments of a live value, and of a value that only a boot can apply.
var moduleAilments = []ailment{
	{v1alpha1.SettingFailed, v1alpha1.EffectLive}, {v1alpha1.SettingDrifted, v1alpha1.EffectLive}, {v1alpha1.SettingClamped, v1alpha1.EffectLive},
	{v1alpha1.SettingUnsupported, v1alpha1.EffectLive}, {v1alpha1.SettingShadowed, v1alpha1.EffectLive}, {v1alpha1.SettingShadowed, v1alpha1.EffectReboot},
	{v1alpha1.SettingPending, v1alpha1.EffectReboot}, {v1alpha1.SettingPending, v1alpha1.EffectNewTransport},
}

// argumentAilments are the causes that keep a kernel argument out of the boot menu.
var argumentAilments = []ailment{
	{v1alpha1.SettingFailed, v1alpha1.EffectReboot}, {v1alpha1.SettingDrifted, v1alpha1.EffectReboot},
	{v1alpha1.SettingClamped, v1alpha1.EffectReboot}, {v1alpha1.SettingUnsupported, v1alpha1.EffectReboot},
}

// isInTheWay reports whether a boot would not apply the setting, and only a user can remove the ailment. The invariants use this
// function instead of the production code that they check.
func isInTheWay(state v1alpha1.SettingState, effect v1alpha1.SettingEffect) bool {
	boots := effect == v1alpha1.EffectReboot
	return state == v1alpha1.SettingFailed || boots && (state == v1alpha1.SettingShadowed || state == v1alpha1.SettingDrifted)
}

// setAilment adds an ailment to a setting of a node, or removes it.
func (w *world) setAilment(n *simNode, key string, a ailment) {
	if n.machine.ailments[key] == a {
		return
	}
	if a == (ailment{}) {
		w.narrate("%s: nothing is in the way of %s any more", n.Name, key)
		delete(n.machine.ailments, key)
		if isBootKey(key) && !n.machine.downUntil.IsZero() {
			// The current boot does not apply a setting that becomes possible during it: the node needs another boot.
			n.machine.worsened++
		}
		return
	}
	w.narrate("%s: %s is %s (%s)", n.Name, key, a.state, a.effect)
	n.machine.ailments[key] = a
	n.machine.worsened++
}

// changeRandomAilment adds or removes a user's file, a tool that changes values back, or a full disk.
func (w *world) changeRandomAilment(n *simNode) {
	p := w.profiles[w.profileNames[w.rng.IntN(len(w.profileNames))]]
	key, choice := p.moduleKey(), moduleAilments
	if w.rng.IntN(4) == 0 {
		key, choice = p.key(), argumentAilments
	}
	if w.rng.IntN(3) == 0 {
		w.setAilment(n, key, ailment{})
		return
	}
	w.setAilment(n, key, choice[w.rng.IntN(len(choice))])
}

// bootAilments changes the ailments as a boot does: settings that waited for a boot become effective, and new ailments may
// appear.
func (w *world) bootAilments(n *simNode) {
	for _, name := range w.profileNames {
		key := w.profiles[name].moduleKey()
		if n.machine.ailments[key] == (ailment{v1alpha1.SettingPending, v1alpha1.EffectReboot}) {
			w.setAilment(n, key, ailment{})
		}
	}
	if n.machine.boot != bootWell {
		n.machine.worsened++
	}
	if !w.quiet && w.rng.IntN(6) == 0 {
		w.changeRandomAilment(n)
	}
}

// endAilments removes the ailments that keep nodes from finishing. Ailments that count as exceptions remain.
func (w *world) endAilments(n *simNode) {
	for _, name := range w.profileNames {
		p := w.profiles[name]
		for _, key := range []string{p.key(), p.moduleKey()} {
			ails := n.machine.ailments[key]
			if isInTheWay(ails.state, ails.effect) || ails == (ailment{v1alpha1.SettingPending, v1alpha1.EffectReboot}) {
				w.setAilment(n, key, ailment{})
			}
		}
	}
}

// inTheWay returns the settings that would prevent a node from being accepted after a boot, based on the last read.
func inTheWay(n *plan.Node) []string {
	if n.ClientNode == nil || n.ClientNode.Spec.Release || n.ClientNode.Status.Hash != n.ClientNode.Spec.Hash || n.ClientNode.Status.BootID != n.BootID {
		return nil
	}
	var keys []string
	for _, s := range n.ClientNode.Status.Settings {
		wanted := slices.ContainsFunc(n.ClientNode.Spec.Settings, func(w v1alpha1.NodeSetting) bool { return w.Key == s.Key })
		if wanted && isInTheWay(s.State, s.TakesEffect) {
			keys = append(keys, s.Key)
		}
	}
	return keys
}

// checkAcceptance is the first half of invariant 16. A node is disrupted or gets a permit only if it would be accepted after its
// boot.
func (m *manager) checkAcceptance(n *simNode, step plan.Step) {
	seen := m.seen[n.Name]
	if obstacles := inTheWay(&seen.Node); len(obstacles) > 0 {
		m.fail("invariant 16: %s for a node that would not be accepted: %v", step, obstacles)
	}
}

// checkFailure is the second half: an accepted node does not fail because of its settings, unless an ailment has become worse
// since.
func (m *manager) checkFailure(n *simNode, note v1alpha1.RolloutStatus) {
	c := n.ClientNode
	permit := c.Spec.RebootPermit
	if note.Phase != v1alpha1.RolloutFailed || permit == nil || permit.BootID == n.BootID || permit.BootHash != c.Spec.BootHash || c.Spec.Release {
		return
	}
	seen := m.seen[n.Name]
	reported := seen.Ready && c.Status.BootID == seen.BootID && c.Status.Hash == c.Spec.Hash && c.Status.ObservedGeneration == c.Generation
	if reported && n.machine.worsened == n.machine.worsenedAtPermit {
		m.fail("invariant 16: %s failed (%s) although its state did not get worse after the permit: %s", n.Name, note.Reason, note.Message)
	}
}

// checkKept checks that a drain stops if the node would not be accepted.
func (w *world) checkKept() {
	for _, name := range w.nodeNames {
		n := w.nodes[name]
		if n.Mark == nil || n.Deleting || n.Leaving != "" || n.ClientNode == nil || n.ClientNode.Spec.RebootPermit != nil || w.hasFailed(n) ||
			n.noteReason() == v1alpha1.RolloutReasonPermitRefused || len(n.budgetsNeeded(w)) == 0 {
			continue
		}
		if _, hash := w.desiredSettings(n); hash != n.ClientNode.Spec.BootHash {
			continue // The report refers to settings that are about to change.
		}
		if obstacles := inTheWay(&n.Node); len(obstacles) > 0 {
			w.fail("invariant 16: the drain of %s continues although the node would not be accepted: %v", name, obstacles)
		}
	}
}

// reports returns true if the agent reports a setting of the node in one of the given states.
func (n *simNode) reports(key string, states ...v1alpha1.SettingState) bool {
	return n.ClientNode != nil && slices.ContainsFunc(n.ClientNode.Status.Settings, func(s v1alpha1.SettingStatus) bool {
		return s.Key == key && slices.Contains(states, s.State)
	})
}

// isUnsupported reports whether the agent reports a kernel argument as unsupported on the machine.
func (n *simNode) isUnsupported(key string) bool {
	return n.reports(key, v1alpha1.SettingClamped, v1alpha1.SettingUnsupported)
}

// keepsTaint reports whether another tool keeps changing a value of the node. The taint remains until the tool stops.
func (w *world) keepsTaint(n *simNode) bool {
	return slices.ContainsFunc(w.profileNames, func(name string) bool { return n.reports(w.profiles[name].moduleKey(), v1alpha1.SettingDrifted) })
}

func isBootKey(key string) bool { return nodesettings.TakesEffectAtBoot(key) }
