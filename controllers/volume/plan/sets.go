package plan

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/storageclient/operator/controllers/volume/judge"
	"github.com/storageclient/operator/controllers/volume/ledger"
	"github.com/storageclient/operator/controllers/volume/optionset"
)

// maxSets is the maximum number of entries of the ledger that can be observed again. Further ones are not recorded.
const maxSets = 1000

// sets are the records of sets of options that are declared, or that a volume has, by set.
type sets map[string]*optionset.Record

// stateOf returns how the set that is declared for a volume stands on its server.
func (s sets) stateOf(j judged) optionset.State { return s[j.verdict.Set].State(j.Source.Server) }

// isProven reports whether a mount or a probe has shown the set that is declared for a volume to work.
func (s sets) isProven(j judged) bool {
	_, known := s[j.verdict.Set].EvidenceOn(j.Source.Server)
	return known
}

// declared returns the record of the set that is declared for a volume.
func (s sets) declared(j judged) *optionset.Record {
	return s.add(judge.SetOf(j.Source, j.verdict.Set, j.verdict.Rules))
}

// add returns the record of a set, which is a given one if there was none.
func (s sets) add(r *optionset.Record) *optionset.Record {
	if s[r.Set] == nil {
		s[r.Set] = r
	}
	return s[r.Set]
}

// carried returns the record of the set that a volume's list was written for.
func (p *planner) carried(j judged) *optionset.Record {
	rules := j.verdict.Rules
	if j.Mark != nil {
		rules = j.Mark.Rules
	}
	r := judge.SetOf(j.Source, j.carriedSet(), rules)
	if r.Set == "" {
		return r
	}
	return p.sets.add(r)
}

// carriedSet is the set of options that the volume's list was written for.
func (j judged) carriedSet() string {
	if j.Mark == nil {
		return j.verdict.Set
	}
	return j.Mark.Set
}

// isDeclared reports whether rules still declare a set.
func (p *planner) isDeclared(r *optionset.Record) bool {
	return p.selected[r.Set] || p.Profiles.Declare(r)
}

// readSets reads the records of sets that are declared, or that a volume has, from the ledger, and what earlier releases left on volumes.
func (p *planner) readSets() {
	p.selected, p.stored = map[string]bool{}, map[string]string{}
	has := map[string]bool{}
	for _, j := range p.volumes {
		p.selected[j.verdict.Set] = true
		if j.CarriesOurs {
			has[j.carriedSet()] = true
		}
	}
	known := optionset.Decode(p.Ledger.Sets())
	for _, r := range known {
		maps.Copy(p.stored, r.Encode())
	}
	maps.DeleteFunc(known, func(set string, r *optionset.Record) bool { return !has[set] && !p.isDeclared(r) })
	p.sets = known
	for _, j := range p.volumes {
		if j.Mark != nil && j.Mark.Evidence != "" && j.carriesSet() {
			p.sets.declared(j).Import(optionset.Earlier{Volume: j.Volume.Name, Server: j.Source.Server, Evidence: j.Mark.Evidence, Probed: j.Mark.Probed, At: j.writtenAt()})
		}
		if j.Mark != nil && j.Mark.Acquitted != "" && j.CarriesOurs {
			p.carried(j).Import(optionset.Earlier{Cleared: j.Mark.Acquitted})
		}
		if f := j.FailedMount; f != nil {
			if r := judge.SetOf(j.Source, f.Set, f.Rules); has[f.Set] || p.isDeclared(r) {
				p.sets.add(r).Import(optionset.Earlier{Volume: j.Volume.Name, Failed: f})
			}
		}
	}
}

// followBlamed notes what has become of the volumes whose mounts failed: which have their original options back, and which are gone.
func (p *planner) followBlamed() {
	p.blamed = map[string]*optionset.Record{}
	for _, set := range slices.Sorted(maps.Keys(p.sets)) {
		for _, b := range p.sets[set].Blames {
			if !b.Settled {
				p.blamed[b.Volume] = p.sets[set]
			}
		}
	}
	there := map[string]bool{}
	for _, j := range p.volumes {
		r := p.blamed[j.Volume.Name]
		if r == nil {
			continue
		}
		there[j.Volume.Name] = true
		switch {
		case j.CarriesOurs && j.carriedSet() != r.Set:
			r.Next(p.eventOn(j.Volume.Name, optionset.VolumeGone))
		case !j.CarriesOurs && r.BlameOf(j.Volume.Name).RevertedAt.IsZero():
			r.Next(p.eventOn(j.Volume.Name, optionset.Restored))
		}
	}
	for volume, r := range p.blamed {
		if !there[volume] {
			r.Next(p.eventOn(volume, optionset.VolumeGone))
		}
		if b := r.BlameOf(volume); !there[volume] || b == nil || b.Settled {
			delete(p.blamed, volume)
		}
	}
}

// eventOn returns an event of a volume.
func (p *planner) eventOn(volume string, kind optionset.Kind) optionset.Event {
	return optionset.Event{Kind: kind, Blame: optionset.Blame{Volume: volume}, At: p.second()}
}

// blameOf returns the failed mount of a volume of which the cause is open. Nil if there is none.
func (p *planner) blameOf(j judged) *optionset.Blame {
	return p.blamed[j.Volume.Name].BlameOf(j.Volume.Name)
}

// second is the time of the plan as it is recorded.
func (p *planner) second() time.Time { return p.Now.UTC().Truncate(time.Second) }

// keepSets finds entries of sets that the ledger does not hold so.
func (p *planner) keepSets(missed ledger.Changes) {
	stored, next, count := p.Ledger.Sets(), map[string]string{}, 0
	for _, r := range p.sets {
		maps.Copy(next, r.Encode())
	}
	for key := range stored {
		switch {
		case next[key] == "":
			missed[types.UID(key)] = ledger.Forget
		case optionset.IsEvidenceKey(key):
			count++
		}
	}
	for _, key := range slices.Sorted(maps.Keys(next)) {
		isNew := stored[key] == "" && optionset.IsEvidenceKey(key)
		if next[key] == p.stored[key] || isNew && count == maxSets {
			continue
		}
		if isNew {
			count++
		}
		missed[types.UID(key)] = ledger.KeepSet(next[key])
	}
}
