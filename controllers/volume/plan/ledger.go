package plan

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/storageclient/operator/controllers/volume/judge"
	"github.com/storageclient/operator/controllers/volume/ledger"
)

// KeepEvery is how often the ledger is brought up to what volumes have beside our writes: created with a list of ours, or deleted.
const KeepEvery = time.Minute

// keepLedger finds what the ledger has missed: records of volumes that it does not hold so, and entries of volumes that are gone or
// remember nothing any more. Each is true of volumes and ledger as they are, and may be wrong of what a cache says.
func (p *planner) keepLedger() {
	p.plan.Records = map[string]judge.Record{}
	for _, step := range p.plan.Steps {
		p.plan.Records[step.Target().Name] = judge.Record{}
	}
	missed, there := ledger.Changes{}, make(map[types.UID]bool, len(p.volumes))
	for _, j := range p.volumes {
		uid := j.Volume.UID
		there[uid] = true
		if _, planned := p.plan.Records[j.Volume.Name]; planned {
			p.plan.Records[j.Volume.Name] = j.Record
			continue
		}
		if p.Ledger == nil || uid == "" {
			continue
		}
		entry := p.Ledger.EntryOf(uid)
		switch {
		case j.Record.IsTold() && !entry.IsSettled(j.Record.Lists(), j.Record.Profiles):
			missed[uid] = ledger.Settle(j.Volume.Name, j.Record.Lists(), j.Record.Profiles)
		case !j.Record.Present && entry != nil:
			missed[uid] = ledger.Forget
		}
	}
	if p.Ledger == nil {
		return
	}
	for uid := range p.Ledger.Volumes() {
		if !there[uid] {
			missed[uid] = ledger.Forget
		}
	}
	p.keepFailedSets(missed)
	if p.plan.LedgerDue = len(missed) > 0; p.plan.LedgerDue {
		p.planAgain(p.Now.Add(KeepEvery))
	}
	if p.Live {
		p.plan.Ledger = missed
	}
}

// keepFailedSets finds failures that only their volumes remember, and those that are over.
func (p *planner) keepFailedSets(missed ledger.Changes) {
	known := p.Ledger.FailedSets()
	for _, j := range p.volumes {
		failed := judge.FailedSetOf(j.Volume, j.FailedMount)
		if probe := p.Probes[keyOf(j)]; probe.Verdict == ProbeRefused && isProbed(j, p.Profiles, p.tried) {
			failed = judge.RefusedSet(j.Volume, j.verdict, probe.Text, p.Now.UTC().Truncate(time.Second))
		}
		if failed == nil || known[failed.Key()] != "" || !failed.IsDeclared(p.Profiles) {
			continue
		}
		missed[ledger.KeyOfSet(failed.Key())] = ledger.Remember(failed.Volume, failed.Encode())
	}
	for key := range known {
		if p.failedSets[key] == nil {
			missed[ledger.KeyOfSet(key)] = ledger.Forget
		}
	}
}

// rememberedSets are the sets of options in the ledger that could not be mounted, as long as they are declared, no volume has shown
// the failure to be there with its own list, too, and no later probe says otherwise.
func (p *planner) rememberedSets() map[string]*judge.FailedSet {
	out := map[string]*judge.FailedSet{}
	for key, text := range p.Ledger.FailedSets() {
		failed := judge.DecodeFailedSet(text)
		if failed == nil || failed.Key() != key || !failed.IsDeclared(p.Profiles) {
			continue
		}
		probe, probed := p.Probes[ProbeKey{Set: failed.Set, Server: failed.Server}]
		isOver := slices.Contains(p.acquitted[failed.Set], failed.Failure)
		if failed.Server != "" {
			isOver = probed && probe.Verdict != ProbeRefused
		}
		if !isOver {
			out[key] = failed
		}
	}
	return out
}

// Ahead are the changes of the ledger before steps are taken: what these are about to write, and what it has missed.
func (p Plan) Ahead(steps []Step) ledger.Changes {
	out := ledger.Changes{}
	for uid, change := range p.Ledger {
		out[uid] = change
	}
	for _, step := range steps {
		pv := step.Target()
		record := p.Records[pv.Name]
		var known *ledger.Lists
		if record.IsTold() {
			lists := record.Lists()
			known = &lists
		}
		switch step := step.(type) {
		case WriteOptions:
			out[pv.UID] = ledger.Begin(pv.Name, known, record.Recalled, step.lists(), step.Verdict.Profiles)
		case RestoreOptions:
			out[pv.UID] = ledger.End(pv.Name, known, record.Profiles)
			rememberFailure(out, pv, step.FailedMount)
		case ReleaseVolume:
			out[pv.UID] = ledger.End(pv.Name, known, record.Profiles)
		case JudgeFailure:
			rememberFailure(out, pv, step.FailedMount)
		}
	}
	delete(out, "")
	return out
}

func rememberFailure(changes ledger.Changes, pv *corev1.PersistentVolume, failed *judge.FailedMount) {
	if set := judge.FailedSetOf(pv, failed); set != nil {
		changes[ledger.KeyOfSet(set.Key())] = ledger.Remember(set.Volume, set.Encode())
	}
}

// Settled are the changes of the ledger after steps were taken.
func Settled(steps []Step) ledger.Changes {
	out := ledger.Changes{}
	for _, step := range steps {
		switch step := step.(type) {
		case WriteOptions:
			out[step.Target().UID] = ledger.Settle(step.Target().Name, step.lists(), step.Verdict.Profiles)
		case RestoreOptions, ReleaseVolume:
			out[step.Target().UID] = ledger.Forget
		}
	}
	delete(out, "")
	return out
}

func (s WriteOptions) lists() ledger.Lists {
	return ledger.Lists{Original: s.Verdict.Original, Applied: s.Verdict.Options}
}

// MayGoUnrecorded says whether a step may be taken although the ledger does not know of it: what takes a list of ours away needs no
// memory of it.
func MayGoUnrecorded(step Step) bool {
	_, writes := step.(WriteOptions)
	return !writes
}
