package plan

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/storageclient/operator/controllers/volume/judge"
	"github.com/storageclient/operator/controllers/volume/ledger"
	"github.com/storageclient/operator/controllers/volume/optionset"
	"github.com/storageclient/operator/tuning/lists"
)

// maxSets is the maximum number of ledger entries with content that can be observed again. Further entries are not recorded.
const maxSets = 1000

// sets are the records of option sets that are declared, or that a volume has, by set.
type sets map[string]*optionset.Record

// isProven reports whether a mount or a probe shows that the volume's declared set works.
func (s sets) isProven(j evaluation) bool {
	_, known := s[j.verdict.Set].EvidenceOn(j.Source.Server)
	return known
}

// carriedIsProven reports whether a mount or a probe shows that the options that the volume carries work.
func (s sets) carriedIsProven(j evaluation) bool {
	_, known := s[j.carriedSet()].EvidenceOn(j.Source.Server)
	return known
}

// of returns the record of a set of a volume. It creates one if there is none.
func (s sets) of(j evaluation, set, ruleSet string, rules []string) *optionset.Record {
	if s[set] == nil {
		s[set] = judge.SetOf(j.Source, set, ruleSet, rules)
	}
	return s[set]
}

func (s sets) declared(j evaluation) *optionset.Record {
	return s.of(j, j.verdict.Set, j.verdict.RuleSet, j.verdict.Rules)
}

// carried returns the record of the set that a volume's mount options were written for.
func (s sets) carried(j evaluation) *optionset.Record {
	m := cmp.Or(j.Mark, &judge.Mark{RuleSet: j.verdict.RuleSet, Rules: j.verdict.Rules})
	return s.of(j, j.carriedSet(), m.RuleSet, m.Rules)
}

// carriedSet returns the option set that the volume's mount options were written for.
func (j evaluation) carriedSet() string {
	if j.Mark == nil {
		return j.setOf("", j.verdict.RuleSet, j.Volume.Spec.MountOptions)
	}
	return j.setOf(j.Mark.Set, j.Mark.RuleSet, j.Volume.Spec.MountOptions)
}

// setOf returns the option set of options that were written for the volume. The previous release recorded only the hash of the rules.
func (j evaluation) setOf(set, ruleSet string, options []string) string {
	switch {
	case set != "" || ruleSet == "" || !j.isDeclaredBy(ruleSet):
		return cmp.Or(set, ruleSet)
	case slices.Equal(options, j.verdict.Desired):
		return j.verdict.Set
	}
	return j.verdict.SetWith(j.Volume, options)
}

// isDeclaredBy reports whether the rules with the given hash declare the volume's options, with or without nconnect.
func (j evaluation) isDeclaredBy(ruleSet string) bool {
	return ruleSet == j.verdict.RuleSet || ruleSet == j.Verdict.RuleSet
}

// readSets reads the records of option sets from the ledger, and the state that earlier releases left on volumes. It clears sets that no rule
// declares and no volume has.
func (p *planner) readSets() {
	p.sets = optionset.Decode(p.Ledger.Sets())
	for _, r := range p.sets {
		r.LimitTimes(p.second())
	}
	for _, set := range slices.Sorted(maps.Keys(p.sets)) {
		if r := p.sets[set]; r.Set == r.RuleSet {
			p.importRecord(r)
		}
	}
	needed := map[string]bool{}
	for _, j := range p.volumes {
		needed[j.verdict.Set] = true
		// Another order of a rule's options is the same set.
		if r := p.sets[j.verdict.Set]; r != nil && r.RuleSet != j.verdict.RuleSet && !p.Profiles.Declare(r) {
			r.RuleSet = j.verdict.RuleSet
		}
		if j.HasAppliedOptions {
			needed[j.carriedSet()] = true
		}
		p.importAnnotations(j)
	}
	for set, r := range p.sets {
		if !needed[set] && !p.Profiles.Declare(r) {
			r.Next(optionset.Event{Kind: optionset.Undeclared})
		}
	}
}

// followBlamed records the fate of the volumes whose mounts failed: restored or deleted. A failure that the previous release recorded concerns
// several sets. While the volume carries one of them, its fate is open for all.
func (p *planner) followBlamed() {
	p.blamed = map[string]*optionset.Record{}
	for _, r := range p.sets {
		for _, b := range r.Blames {
			p.blamed[b.Volume] = nil
		}
	}
	existing := byName(lists.Filter(p.volumes, func(j evaluation) bool { _, blamed := p.blamed[j.Volume.Name]; return blamed }))
	for _, set := range slices.Sorted(maps.Keys(p.sets)) {
		r := p.sets[set]
		for _, b := range slices.Clone(r.Blames) {
			switch j, found := existing[b.Volume]; {
			case !found, b.UID != "" && b.UID != j.Volume.UID, j.HasAppliedOptions && j.carriedSet() != set && p.sets[j.carriedSet()].BlameOf(b.Volume) == nil:
				r.Next(p.eventOn(b.Volume, optionset.VolumeGone))
			case hasOptionsOfUser(j, b):
				r.Next(p.eventOn(b.Volume, optionset.VolumeGone))
			case !j.HasAppliedOptions && b.RevertedAt.IsZero():
				r.Next(p.eventOn(b.Volume, optionset.Restored))
			}
		}
		p.noteBlamed(r)
	}
}

// hasOptionsOfUser reports whether a user has set the failed options after the restore: no mount can show whether the original options work.
func hasOptionsOfUser(j evaluation, b optionset.Blame) bool {
	return !b.RevertedAt.IsZero() && !j.HasAppliedOptions && len(b.Options) > 0 && slices.Equal(j.Volume.Spec.MountOptions, b.Options)
}

// noteBlamed records the volumes with a failed mount of unknown cause.
func (p *planner) noteBlamed(r *optionset.Record) {
	for _, b := range r.Blames {
		if !b.Settled {
			p.blamed[b.Volume] = r
		}
	}
}

func (p *planner) eventOn(volume string, kind optionset.Kind) optionset.Event {
	return optionset.Event{Kind: kind, Blame: optionset.Blame{Volume: volume}, At: p.second()}
}

// blameOf returns the failed mount of a volume if its cause is unknown. Nil if there is none.
func (p *planner) blameOf(j evaluation) *optionset.Blame {
	return p.blamed[j.Volume.Name].BlameOf(j.Volume.Name)
}

// second returns the time of the plan with the precision of the records.
func (p *planner) second() time.Time { return p.Now.UTC().Truncate(time.Second) }

// keepSets finds differences between the records of sets and their entries in the ledger.
func (p *planner) keepSets(missed ledger.Changes) {
	stored, next, count := p.Ledger.Sets(), optionset.EncodeAll(p.sets), 0
	isCounted := func(key string) bool { // copies for the previous release do not count
		_, set, _ := strings.Cut(key, ".")
		return optionset.IsEvidenceKey(key) && p.sets[set] != nil
	}
	for key := range stored {
		switch {
		case next[key] == "":
			missed[types.UID(key)] = ledger.Forget
		case isCounted(key):
			count++
		}
	}
	for _, key := range slices.Sorted(maps.Keys(next)) {
		isNew := stored[key] == "" && optionset.IsEvidenceKey(key)
		if next[key] == stored[key] || isNew && count >= maxSets {
			continue
		}
		if isNew && isCounted(key) {
			count++
		}
		missed[types.UID(key)] = ledger.KeepSet(next[key])
	}
}

// importAnnotations adds the annotations of a volume to the records. An earlier release wrote them, or this one for an earlier release.
// Annotations also survive the loss of a ledger page.
func (p *planner) importAnnotations(j evaluation) {
	if m := j.Mark; m != nil && j.HasAppliedOptions {
		if m.Evidence != "" && j.carriesSet() {
			p.sets.carried(j).Import(optionset.Earlier{
				Volume: j.Volume.Name, Server: j.Source.Server, Evidence: m.Evidence, Probed: m.Probed, At: j.writtenAt(),
			})
		}
		if m.Cleared != "" {
			p.sets.carried(j).Import(optionset.Earlier{Cleared: m.Cleared})
		}
	}
	if f := j.FailedMount; f != nil && f.RuleSet != "" {
		p.sets.of(j, j.setOf(f.Set, f.RuleSet, f.Options), f.RuleSet, f.Rules).Import(optionset.Earlier{Volume: j.Volume.Name, Failed: f})
	}
}
