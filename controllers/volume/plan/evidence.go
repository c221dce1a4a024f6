package plan

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume/judge"
	"github.com/storageclient/operator/controllers/volume/optionset"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/mountoptions"
)

// carriesSet reports whether the volume carries options of the set that is currently declared for it.
func (j evaluation) carriesSet() bool {
	return j.HasAppliedOptions && j.verdict.Set != "" && j.isCurrent()
}

// writtenAt returns the time at which the volume got its mount options, if recorded.
func (j evaluation) writtenAt() time.Time {
	return cmp.Or(ptr.Deref(j.Mark, judge.Mark{}).Written, j.carriedSince())
}

// observeMounts records the mounts that show that sets work. The API server shows a pod for each of them.
func (p *planner) observeMounts() {
	p.news = map[string]bool{}
	for _, j := range p.volumes {
		evidence, seen := p.Evidence[j.verdict.Set]
		if seen && evidence.Volume == j.Volume.Name && j.writtenAt().Equal(evidence.Written) && p.lacksMount(j) {
			p.noteMount(j, evidence.Text)
		}
	}
}

// lacksMount reports whether a mount of the volume would be the first evidence of a pod for its set.
func (p *planner) lacksMount(j evaluation) bool {
	r := p.sets[j.verdict.Set]
	return j.carriesSet() && (r == nil || r.Evidence == nil || r.State(j.Source.Server) == optionset.Rejected)
}

// findReported returns the volumes of which a node reports a mount with their options. This is no evidence, since any node may report anything.
// But it is a reason to look for a pod there.
func (p *planner) findReported() map[string]bool {
	carriers, out := byName(lists.Filter(p.volumes, p.lacksMount)), map[string]bool{}
	if len(carriers) == 0 {
		return nil
	}
	for _, clientNode := range p.ClientNodes {
		for k := range clientNode.Status.Mounts {
			m := &clientNode.Status.Mounts[k]
			if j, carries := carriers[m.Volume]; carries && !out[m.Volume] && ShowsOptions(m, j.verdict.DeclaredOptions()) {
				out[m.Volume] = true
			}
		}
	}
	return out
}

func (p *planner) noteMount(j evaluation, text string) {
	r := p.sets.declared(j)
	p.news[j.verdict.Set] = p.news[j.verdict.Set] || r.Evidence == nil
	r.Next(optionset.Event{Kind: optionset.Mounted, Server: j.Source.Server, Blame: optionset.Blame{Volume: j.Volume.Name, Text: text}, At: p.second()})
}

// ShowsOptions reports whether a mount appears to have these options. Options that the kernel does not show cannot be compared. For
// connections, it compares the number of open ones.
func ShowsOptions(m *v1alpha1.MountStatus, options []string) bool {
	if n, isSet := mountoptions.NFS.Nconnect(options); isSet && mountoptions.OfMount(m.Protocol) == mountoptions.NFS && int(m.Connections) != n {
		return false
	}
	return len(m.Options) > 0 && len(mountoptions.Outdated(m.Protocol, options, m.Options)) == 0
}

// mayRecordEvidence reports whether the volume's mount is new evidence for its set.
func (p *planner) mayRecordEvidence(j evaluation) bool {
	return p.news[j.verdict.Set] && p.sets[j.verdict.Set].Evidence.Volume == j.Volume.Name && j.mayRevert()
}

func (p *planner) recordEvidence(j evaluation, target OnVolume) RecordSet {
	r := p.sets[j.verdict.Set]
	target.Note.Message = "Options work: " + r.Evidence.Text
	out := RecordSet{OnVolume: target, Set: r, text: fmt.Sprintf("record evidence on %s: %s", j.Volume.Name, r.Evidence.Text)}
	if j.Mark != nil {
		out.Mark = j.Mark.WithEvidence(r.Evidence.Text)
	}
	return out
}

func (p *planner) findMounted() map[string]bool {
	out := map[string]bool{}
	for _, clientNode := range p.ClientNodes {
		for k := range clientNode.Status.Mounts {
			out[clientNode.Status.Mounts[k].Volume] = true
		}
	}
	return out
}

// canaryRank returns the rank of a volume as a canary: first volumes that a pod is about to mount, then volumes that pods have mounted.
// Next are the others, and volumes that no pod can mount are last. The rank matters only until there is evidence.
func (p *planner) canaryRank(j evaluation) int {
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

// findCarriers finds the volumes with options of unproven sets, by set: volumes that pods can mount, and volumes that no pod can mount in
// their current phase.
func (p *planner) findCarriers() {
	p.carriers, p.unusedCarriers = map[string][]string{}, map[string][]string{}
	for _, j := range p.volumes {
		set := j.verdict.Set
		if p.sets.isProven(j) || !j.carriesSet() {
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

// waitsForMount returns the names of the volumes of which one must be mounted before the volume gets its options. Empty if there are none. A
// volume that no pod can mount does not prevent another one from being the canary.
func (p *planner) waitsForMount(j evaluation) []string {
	if carriers := p.carriers[j.verdict.Set]; len(carriers) > 0 || !j.isUnused() {
		return carriers
	}
	return p.unusedCarriers[j.verdict.Set]
}

// maxReservation is the time in which the volume of a reservation must appear.
const maxReservation = 2 * time.Minute

// followReservations makes other volumes wait for a reserved canary that has not appeared yet. A reservation ends with the need for the canary: its
// volume is proven, gone, unused, or carries other options.
func (p *planner) followReservations() {
	if p.Ledger == nil {
		return
	}
	for _, r := range p.Ledger.Reservations {
		set, volume, end := r.Data["set"], r.Data["volume"], r.CreationTimestamp.Add(maxReservation)
		i := slices.IndexFunc(p.volumes, func(j evaluation) bool { return j.Volume.Name == volume })
		switch {
		case i < 0 && p.Now.Before(end) && !p.Appeared[r.UID]:
			p.carriers[set] = append(p.carriers[set], volume)
			p.planAgain(end)
		case i < 0 || !p.volumes[i].carriesSet() || p.sets.isProven(p.volumes[i]) || !p.volumes[i].isReservedBy(r) || p.volumes[i].isUnused():
			p.plan.Expired = append(p.plan.Expired, r)
		}
	}
}

func (j evaluation) isReservedBy(r *corev1.ConfigMap) bool {
	return maps.Equal(r.Data, judge.ReservationFor(j.Volume, j.verdict.Set).Data)
}

// SourceOfEvidence returns the name of a volume that has the options of a set, or may get them, and can then give evidence. Empty if there is none.
func SourceOfEvidence(s Snapshot, set string) string {
	for _, j := range s.evaluateAll() {
		mayHave := j.carriesSet() || j.verdict.ChangesOptions(j.Volume)
		if j.verdict.Set == set && mayHave && !j.isUnused() {
			return j.Volume.Name
		}
	}
	return ""
}
