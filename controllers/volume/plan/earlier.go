package plan

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/controllers/volume/optionset"
	"github.com/storageclient/operator/tuning/lists"
)

// importRecord distributes the record of rules from the previous release to the option sets of their volumes. The failures concern all of them,
// and stay recorded for options that no volume has yet. The evidence proves the sets that volumes carry. If no volume carries one, it proves the
// sets of new volumes of the StorageClasses. It is used only once: later, the rules may give volumes other options.
func (p *planner) importRecord(r *optionset.Record) {
	declared := lists.Filter(p.volumes, func(j evaluation) bool { return j.verdict.RuleSet == r.RuleSet })
	carrying := lists.Filter(p.volumes, func(j evaluation) bool {
		return j.HasAppliedOptions && (j.Mark == nil && j.isDeclaredBy(r.RuleSet) || j.Mark != nil && j.Mark.Set == "" && j.Mark.RuleSet == r.RuleSet)
	})
	if len(declared) == 0 && len(carrying) > 0 {
		return // The rules have changed, and these volumes wait for their batch.
	}
	failures := *r
	failures.Evidence, failures.Worked = nil, nil
	p.sets[r.Set] = &failures
	for _, j := range declared {
		p.sets.declared(j).Add(&failures)
	}
	for _, j := range carrying {
		proven := *r
		proven.Worked = maps.Clone(r.Worked)
		maps.DeleteFunc(proven.Worked, func(server string, _ optionset.Evidence) bool { return server != j.Source.Server })
		p.sets.carried(j).Add(&proven)
	}
	if len(carrying) == 0 && (r.Evidence != nil || len(r.Worked) > 0) {
		for _, j := range p.newVolumes(r, declared) {
			p.sets.declared(j).Add(r)
		}
	}
}

// newVolumes evaluates new volumes that resemble the given ones, with the mount options of their StorageClasses. If no volume is given, there is
// one for each class.
func (p *planner) newVolumes(r *optionset.Record, similar []evaluation) (out []evaluation) {
	volumes := lists.Each(similar, func(j evaluation) *corev1.PersistentVolume { return j.Volume })
	if len(volumes) == 0 {
		source := corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: r.Driver, FSType: r.FSType}}
		volumes = lists.Each(slices.Sorted(maps.Keys(p.Classes)), func(class string) *corev1.PersistentVolume {
			return &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{StorageClassName: class, PersistentVolumeSource: source}}
		})
	}
	s := p.Snapshot
	s.Memory, s.Ledger = nil, nil
	for _, pv := range volumes {
		pv = &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Labels: pv.Labels}, Spec: *pv.Spec.DeepCopy()}
		pv.Spec.MountOptions = p.Classes[pv.Spec.StorageClassName]
		if j := s.evaluateAlone(pv); j.Verdict.RuleSet == r.RuleSet {
			out = append(out, evaluation{Evaluation: j, verdict: &j.Verdict})
		}
	}
	return out
}
