package plan

import (
	"fmt"
	"time"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/mountoptions"
)

// clockTolerance is by how much the clocks of the manager, of nodes and of the API server may differ. A mount counts only if it was
// made that much later than the write, so that one from before is not taken for one from after. NTP keeps clocks within milliseconds,
// and all times here are in whole seconds. The price is a mount within these seconds that shows nothing.
const clockTolerance = 5 * time.Second

// maxAwaited is of how many volumes of a set a mount is looked for among pods.
const maxAwaited = 3

// carriesSet says whether the volume carries a list of the set that is declared for it now.
func (j judged) carriesSet() bool {
	return j.CarriesOurs && j.verdict.Set != "" && (j.isMarkCurrent() || j.Mark == nil && !j.verdict.ChangesList(j.Volume))
}

// writtenAt is when the volume got its list, as far as anybody remembers.
func (j judged) writtenAt() time.Time {
	if j.Mark != nil && !j.Mark.Written.IsZero() {
		return j.Mark.Written
	}
	return j.carriedSince()
}

// evidences are what has shown sets of options to work: mounted by pods, which holds for all volumes of the set, and by probes, which
// holds for those of the server.
type evidences struct {
	mounted map[string]Evidence
	probed  map[ProbeKey]Evidence
}

// of is what has shown the set that is declared for a volume to work.
func (e evidences) of(j judged) (Evidence, bool) { return e.ofSet(j.verdict.Set, j) }

func (e evidences) ofSet(set string, j judged) (Evidence, bool) {
	if evidence, known := e.mounted[set]; known {
		return evidence, true
	}
	evidence, known := e.probed[ProbeKey{Set: set, Server: j.Source.Server}]
	return evidence, known
}

// findEvidence gathers it from what marks remember, what was brought from elsewhere, what nodes have mounted, and what probes have shown.
func (p *planner) findEvidence() evidences {
	out := evidences{mounted: map[string]Evidence{}, probed: p.findProbed()}
	carriers := map[string]judged{}
	for _, j := range p.volumes {
		if !j.carriesSet() {
			continue
		}
		if j.Mark != nil && j.Mark.Evidence != "" && !j.Mark.Probed {
			out.mounted[j.verdict.Set] = Evidence{Text: j.Mark.Evidence, Volume: j.Volume.Name}
		}
		carriers[j.Volume.Name] = j
	}
	for set, evidence := range p.Evidence {
		j, carries := carriers[evidence.Volume]
		if _, known := out.mounted[set]; !known && (evidence.Volume == "" || carries && j.verdict.Set == set && j.writtenAt().Equal(evidence.Written)) {
			out.mounted[set] = evidence
		}
	}
	for name, j := range carriers {
		if _, known := out.mounted[j.verdict.Set]; known {
			delete(carriers, name)
		}
	}
	if len(carriers) == 0 {
		return out
	}
	for _, clientNode := range p.ClientNodes {
		for k := range clientNode.Status.Mounts {
			m := &clientNode.Status.Mounts[k]
			j, carries := carriers[m.Volume]
			if _, known := out.mounted[j.verdict.Set]; carries && !known && j.isShownBy(m, p.Now) {
				out.mounted[j.verdict.Set] = Evidence{Text: fmt.Sprintf("%s has mounted %s", clientNode.Name, m.Volume), Volume: m.Volume}
			}
		}
	}
	return out
}

// findProbed is what probes have shown, as they tell and as marks remember.
func (p *planner) findProbed() map[ProbeKey]Evidence {
	out := map[ProbeKey]Evidence{}
	for _, j := range p.volumes {
		switch probe := p.Probes[keyOf(j)]; {
		case j.carriesSet() && j.Mark != nil && j.Mark.Probed:
			out[keyOf(j)] = Evidence{Text: j.Mark.Evidence}
		case probe.Verdict == ProbeWorks && isProbed(j, p.Profiles, p.tried):
			out[keyOf(j)] = Evidence{Text: probe.Text}
		}
	}
	return out
}

// isShownBy says whether a mount shows the volume's list to work: it was made with it, and operations on it have ended. Of what an
// earlier release wrote, it is enough that it is in force.
func (j judged) isShownBy(m *v1alpha1.MountStatus, now time.Time) bool {
	isMadeWithIt := m.State == v1alpha1.MountEffective
	if !j.Mark.IsOfEarlierRelease() {
		isMadeWithIt = m.Used && m.Since != nil && m.Since.After(j.writtenAt().Add(clockTolerance)) && !m.Since.After(now.Add(clockTolerance))
	}
	return isMadeWithIt && ShowsOptions(m, j.verdict.DeclaredOptions())
}

// ShowsOptions says whether a mount looks as one with these options does. What the kernel shows nowhere cannot be compared; of
// connections it counts those that are open.
func ShowsOptions(m *v1alpha1.MountStatus, options []string) bool {
	if n, asked := mountoptions.Nconnect(options); asked && mountoptions.OfMount(m.Protocol) == mountoptions.NFS && int(m.Connections) != n {
		return false
	}
	return len(m.Options) > 0 && len(mountoptions.Outdated(m.Protocol, options, m.Options)) == 0
}

// mayKeepEvidence says whether the mount that shows the volume's set to work is to be written into its mark.
func (p *planner) mayKeepEvidence(j judged) bool {
	evidence := p.evidence.mounted[j.verdict.Set]
	return evidence.Volume == j.Volume.Name && j.carriesSet() && j.mayBeTakenBack() && j.Mark != nil && (j.Mark.Evidence == "" || j.Mark.Probed)
}

// awaitEvidence names the volumes whose mount would show what nothing has shown yet and others wait for, and those that may be the
// first of their set.
func (p *planner) awaitEvidence() {
	waiting, awaited := map[string]bool{}, map[string]int{}
	for _, j := range p.volumes {
		if _, known := p.evidence.of(j); known || !j.verdict.ChangesList(j.Volume) {
			continue
		}
		waiting[j.verdict.Set] = true
		if !j.isUnused() && j.Volume.Spec.ClaimRef != nil {
			p.plan.Candidates = append(p.plan.Candidates, j.Volume)
		}
	}
	for _, j := range p.volumes {
		set := j.verdict.Set
		if _, known := p.evidence.of(j); known || !waiting[set] || awaited[set] == maxAwaited || !j.carriesSet() || !j.mayBeTakenBack() || j.isUnused() || j.Volume.Spec.ClaimRef == nil {
			continue
		}
		awaited[set]++
		p.plan.Awaited = append(p.plan.Awaited, Awaited{Volume: j.Volume, Set: set, Written: j.writtenAt(), After: j.writtenAt().Add(clockTolerance)})
	}
}

// findMounted names the volumes that nodes report mounts of.
func (p *planner) findMounted() map[string]bool {
	out := map[string]bool{}
	for _, clientNode := range p.ClientNodes {
		for k := range clientNode.Status.Mounts {
			out[clientNode.Status.Mounts[k].Volume] = true
		}
	}
	return out
}

// canaryRank sorts volumes by how soon they show whether their options work: those that a pod is about to mount, those that pods have
// mounted, the others, and those that nobody can mount. It matters only until something has shown it.
func (p *planner) canaryRank(j judged) int {
	_, proven := p.evidence.of(j)
	switch {
	case j.isUnused():
		return 3
	case !proven && p.Coming[j.Volume.Name]:
		return 0
	case proven || p.mounted[j.Volume.Name]:
		return 1
	}
	return 2
}

// findCarriers finds the volumes that carry lists which nothing has shown to work, by set: those that pods can mount, and those that
// nobody can as they are. Volumes that were created with their lists are not among them: nobody chose them.
func (p *planner) findCarriers() {
	p.carriers, p.unusedCarriers = map[string][]string{}, map[string][]string{}
	for _, j := range p.volumes {
		set := j.verdict.Set
		if _, known := p.evidence.of(j); known || !j.carriesSet() || j.Mark != nil && j.Mark.Created {
			continue
		}
		if j.isUnused() {
			p.unusedCarriers[set] = append(p.unusedCarriers[set], j.Volume.Name)
		} else {
			p.carriers[set] = append(p.carriers[set], j.Volume.Name)
		}
	}
}

// waitsForMount names the volumes one of which has to be mounted before the volume gets its list; empty: none. A volume that nobody can
// mount keeps no other from being the canary.
func (p *planner) waitsForMount(j judged) []string {
	if carriers := p.carriers[j.verdict.Set]; len(carriers) > 0 || !j.isUnused() {
		return carriers
	}
	return p.unusedCarriers[j.verdict.Set]
}

// keepEvidence is the step that does so.
func keepEvidence(on OnVolume, j judged, evidence Evidence) KeepEvidence {
	on.Note.Message = "its options work: " + evidence.Text
	return KeepEvidence{OnVolume: on, Mark: j.Mark.WithEvidence(evidence.Text)}
}
