package plan

import (
	"fmt"
	"time"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume/optionset"
	"github.com/storageclient/operator/tuning/mountoptions"
)

// clockTolerance is by how much the clocks of the manager, of nodes and of the API server may differ. A mount counts only if it was
// made that much later than the write, so that one from before is not taken for one from after. NTP keeps clocks within milliseconds,
// and all times here are in whole seconds. The price is a mount within these seconds that shows nothing.
const clockTolerance = 5 * time.Second

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

// observeMounts notes which mounts have shown sets to work: those that nodes report, and those that pods without an agent have made.
func (p *planner) observeMounts() {
	p.news = map[string]bool{}
	carriers := map[string]judged{}
	for _, j := range p.volumes {
		if r := p.sets[j.verdict.Set]; j.carriesSet() && (r == nil || r.Evidence == nil || r.State(j.Source.Server) == optionset.Rejected) {
			carriers[j.Volume.Name] = j
		}
	}
	for set, evidence := range p.Evidence {
		if j, carries := carriers[evidence.Volume]; carries && j.verdict.Set == set && j.writtenAt().Equal(evidence.Written) {
			p.noteMount(j, evidence.Text)
		}
	}
	if len(carriers) == 0 {
		return
	}
	for _, clientNode := range p.ClientNodes {
		for k := range clientNode.Status.Mounts {
			m := &clientNode.Status.Mounts[k]
			if j, carries := carriers[m.Volume]; carries && !p.news[j.verdict.Set] && j.isShownBy(m, p.Now) {
				p.noteMount(j, fmt.Sprintf("%s has mounted %s", clientNode.Name, m.Volume))
			}
		}
	}
}

func (p *planner) noteMount(j judged, text string) {
	r := p.sets.declared(j)
	p.news[j.verdict.Set] = p.news[j.verdict.Set] || r.Evidence == nil
	r.Next(optionset.Event{Kind: optionset.Mounted, Server: j.Source.Server, Blame: optionset.Blame{Volume: j.Volume.Name, Text: text}, At: p.second()})
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

// mayRecordEvidence reports whether the volume is the one whose mount has shown its set to work, which is news.
func (p *planner) mayRecordEvidence(j judged) bool {
	return p.news[j.verdict.Set] && p.sets[j.verdict.Set].Evidence.Volume == j.Volume.Name && j.mayBeTakenBack()
}

func (p *planner) recordEvidence(j judged, on OnVolume) RecordSet {
	r := p.sets[j.verdict.Set]
	on.Note.Message = "its options work: " + r.Evidence.Text
	out := RecordSet{OnVolume: on, Set: r, text: fmt.Sprintf("note on %s: %s", j.Volume.Name, r.Evidence.Text)}
	if j.Mark != nil {
		out.Mark = j.Mark.WithEvidence(r.Evidence.Text)
	}
	return out
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
	proven := p.sets.isProven(j)
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
		if p.sets.isProven(j) || !j.carriesSet() || j.Mark != nil && j.Mark.Created {
			continue
		}
		p.sets.declared(j).Next(optionset.Event{Kind: optionset.Written})
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
