package plan

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/controllers/volume/judge"
	"github.com/storageclient/operator/controllers/volume/ledger"
	"github.com/storageclient/operator/controllers/volume/optionset"
	"github.com/storageclient/operator/tuning/lists"
)

// LedgerInterval is the interval between updates of the ledger for changes that the operator did not write: volumes that were created with declared
// options, or deleted.
const LedgerInterval = time.Minute

// keepLedger finds the changes that the ledger has missed: outdated records, and entries of volumes that were deleted or no longer have a
// record. Each change holds for current volumes and a current ledger, but may be wrong for cached ones.
func (p *planner) keepLedger() {
	p.plan.Records = lists.Map(p.plan.Steps, func(step Step) (string, judge.Record) { return step.Target().Name, judge.Record{} })
	missed, existing := ledger.Changes{}, make(map[types.UID]bool, len(p.volumes))
	for _, j := range p.volumes {
		uid := j.Volume.UID
		existing[uid] = true
		if _, planned := p.plan.Records[j.Volume.Name]; planned {
			p.plan.Records[j.Volume.Name] = j.Record
			continue
		}
		if p.Ledger == nil || uid == "" {
			continue
		}
		entry := p.Ledger.EntryOf(uid)
		switch {
		case j.Record.IsFromAnnotations() && !entry.IsSettled(j.Record.Lists(), j.Record.Profiles):
			missed[uid] = ledger.Settle(j.Volume.Name, j.Record.Lists(), j.Record.Profiles)
		case !j.Record.Present && entry != nil:
			missed[uid] = ledger.Forget
		}
	}
	if p.Ledger == nil {
		return
	}
	for uid := range p.Ledger.Volumes() {
		if !existing[uid] {
			missed[uid] = ledger.Forget
		}
	}
	p.keepSets(missed)
	if p.plan.LedgerDue = len(missed) > 0; p.plan.LedgerDue {
		p.planAgain(p.Now.Add(LedgerInterval))
	}
	p.plan.Ledger = missed
}

// ChangesBefore returns the changes of the ledger before steps run: their planned writes, and the changes that it has missed.
func (p Plan) ChangesBefore(steps []Step) ledger.Changes {
	out := ledger.Changes{}
	maps.Copy(out, p.Ledger)
	for _, step := range steps {
		pv := step.Target()
		record := p.Records[pv.Name]
		var known *ledger.Lists
		if record.IsFromAnnotations() {
			known = ptr.To(record.Lists())
		}
		switch step := step.(type) {
		case WriteOptions:
			out[pv.UID] = ledger.Begin(pv.Name, known, record.Recalled, step.lists(), step.Verdict.Profiles)
		case RestoreOptions, ReleaseVolume:
			out[pv.UID] = ledger.End(pv.Name, known, record.Profiles)
		}
	}
	delete(out, "")
	return out
}

// ChangesAfter returns the changes of the ledger after steps ran, at a given time.
func ChangesAfter(steps []Step, at time.Time) ledger.Changes {
	out := ledger.Changes{}
	for _, step := range steps {
		switch step := step.(type) {
		case WriteOptions:
			out[step.Target().UID] = ledger.Settle(step.Target().Name, step.lists(), step.Verdict.Profiles)
		case RestoreOptions:
			out[step.Target().UID] = ledger.Forget
			if step.Set == nil {
				continue
			}
			// Mounts by pods count from now on: until now, pods may have mounted the options of the operator.
			blame := optionset.Blame{Volume: step.Target().Name}
			step.Set.Next(optionset.Event{Kind: optionset.Restored, Blame: blame, At: at.UTC().Truncate(time.Millisecond)})
			for key, text := range step.Set.Encode() {
				out[types.UID(key)] = ledger.KeepSet(text)
			}
		case ReleaseVolume:
			out[step.Target().UID] = ledger.Forget
		}
	}
	delete(out, "")
	return out
}

func (s WriteOptions) lists() ledger.Lists {
	return ledger.Lists{Original: s.Verdict.Original, Applied: s.Verdict.Options}
}

// LedgerKeys returns the keys of the ledger that a step affects. If one of them cannot be written, the step may have to wait.
func LedgerKeys(step Step) []types.UID {
	record, ok := step.(RecordSet)
	if !ok {
		return []types.UID{step.Target().UID}
	}
	return lists.Each(optionset.Keys(record.Set.Set, ""), func(key string) types.UID { return types.UID(key) })
}

// MayRunUnrecorded reports whether a step may run even if the ledger does not contain it: the removal of the operator's options needs no
// record.
func MayRunUnrecorded(step Step) bool {
	_, writes := step.(WriteOptions)
	_, records := step.(RecordSet)
	return !writes && !records
}
