package plan

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume/judge"
	"github.com/storageclient/operator/tuning/mountoptions"
)

const (
	// ObserveEvery is how often volumes of a batch that soaks are observed: the kubelet tells of a failed mount within two
	// minutes, and client nodes report mounts without an event for us.
	ObserveEvery = 10 * time.Second
	// stoppedRetry is how soon a stopped profile's volumes are planned again without an event: more of the last batch may
	// have failed.
	stoppedRetry = 10 * time.Minute
)

// For decides what to write next, and says for every volume why.
func For(s Snapshot) Plan {
	p := &planner{Snapshot: s, volumes: s.judgeAll(), plan: Plan{Notes: make(map[string]Note, len(s.Volumes))}}
	p.mounted = p.findMounted()
	p.progress = progressByProfile(p.volumes, s, p.mounted)
	var changes []judged
	for _, j := range p.volumes {
		if p.stepAtOnce(j) {
			continue
		}
		if j.verdict.ChangesList(j.Volume) {
			changes = append(changes, j)
		}
	}
	slices.SortFunc(p.plan.Steps, func(a, b Step) int { return strings.Compare(a.Target().Name, b.Target().Name) })
	for _, j := range inOrder(changes) {
		p.stepInBatch(j)
	}
	p.watchBatches(len(changes) > 0)
	return p.plan
}

// planner holds one pass. It is thrown away after it.
type planner struct {
	Snapshot
	volumes  []judged
	mounted  map[string]bool
	progress map[string]*progress
	// soaking is whether the time of a volume's batch is not over, also where the batch is: a good mount elsewhere is no good
	// mount here.
	soaking bool
	plan    Plan
}

// stepAtOnce plans what waits for nobody, and leaves a change of the list for a profile to stepInBatch.
func (p *planner) stepAtOnce(j judged) bool {
	on := OnVolume{Note: p.noteFor(j.Volume, j.verdict)}
	var step Step
	switch message, failed := p.FailedMounts[j.Volume.Name]; {
	case failed && j.mayBeTakenBack():
		verdict, failedMount := judge.TakenBack(j.Volume, j.verdict, j.Mark, message)
		on.Note = p.noteFor(j.Volume, verdict)
		step = RestoreOptions{OnVolume: on, Options: verdict.Options, FailedMount: failedMount}
	case j.verdict.Action == judge.ActionNone:
		return true
	case j.verdict.ChangesList(j.Volume):
		return false
	case j.verdict.Action == judge.ActionWrite:
		step = WriteOptions{OnVolume: on, Verdict: j.verdict}
	case j.verdict.Action == judge.ActionRestore:
		step = RestoreOptions{OnVolume: on, Options: j.verdict.Options}
	default:
		step = ReleaseVolume{OnVolume: on}
	}
	if !p.isRefused(j.Volume.Name) {
		p.plan.Steps = append(p.plan.Steps, step)
	}
	return true
}

// noteFor keeps what is to be said of a volume; of one that concerns no profile there is nothing to say.
func (p *planner) noteFor(pv *corev1.PersistentVolume, v judge.Verdict) Note {
	n := Note{Volume: pv.Name, Reason: v.Reason, Message: v.Message, State: v.State, Object: pv}
	if v.State != judge.StateUnselected || v.Action != judge.ActionNone {
		p.plan.Notes[pv.Name] = n
	}
	return n
}

// isRefused says whether the API server refused the volume's last write. One that a policy protects must not keep all others
// waiting as the canary.
func (p *planner) isRefused(volume string) bool {
	until, refused := p.Refused[volume]
	if !refused || !p.Now.Before(until) {
		return false
	}
	p.planAgain(until)
	note := p.plan.Notes[volume]
	note.Message = "the API server refused the last write, the next is tried at " + until.UTC().Format(time.RFC3339) + "; then " + note.Message
	p.plan.Notes[volume] = note
	return true
}

// stepInBatch plans a change of the list, or says what it waits for. The canary of an option set, one volume, goes alone; then no
// more at a time than the profile's share, and nothing while the batch before is not over, or after a FailedMount. A volume of
// several profiles goes when all of them let it.
func (p *planner) stepInBatch(j judged) {
	if p.isRefused(j.Volume.Name) {
		return
	}
	since, wait := time.Time{}, ""
	for _, name := range j.verdict.Profiles {
		progress := p.progress[name]
		wait = cmp.Or(wait, progress.waitsFor(j.OptionSet, p.Now))
		if progress.stoppedBy != "" {
			p.planAgain(p.Now.Add(stoppedRetry))
		}
		switch at := progress.batchTime(p.Now); {
		case since.IsZero():
			since = at
		case !since.Equal(at):
			wait = cmp.Or(wait, "profile "+name+": another batch comes first")
		}
	}
	note := p.plan.Notes[j.Volume.Name]
	if wait != "" {
		note.Message = wait + "; then " + note.Message
		p.plan.Notes[j.Volume.Name] = note
		return
	}
	for _, name := range j.verdict.Profiles {
		p.progress[name].countPlanned(j.OptionSet)
		p.planAgain(since.Add(soakOf(p.progress[name].profile)))
	}
	mark := &judge.Mark{Since: since, Rules: j.verdict.RuleHashes(), Unprovable: p.mounted[j.Volume.Name] || len(j.verdict.DeclaredOptions()) == 0}
	p.plan.Steps = append(p.plan.Steps, WriteOptions{OnVolume: OnVolume{Note: note}, Verdict: j.verdict, Mark: mark})
}

// watchBatches names the volumes whose failed mounts matter: those of batches that soak, and those of each profile's last batch. None
// does once all volumes carry their list and the last soak is over.
func (p *planner) watchBatches(someChange bool) {
	for _, progress := range p.progress {
		for _, b := range progress.busy {
			p.planAgain(b.until)
		}
		p.soaking = p.soaking || progress.planned > 0
		if someChange && progress.batches[p.Now.Unix()] != nil {
			p.planAgain(p.Now.Truncate(time.Second).Add(time.Second))
		}
	}
	if p.soaking {
		p.planAgain(p.Now.Add(ObserveEvery))
	}
	if !p.soaking && !someChange {
		return
	}
	for _, j := range p.volumes {
		if j.mayBeTakenBack() && slices.ContainsFunc(j.verdict.Profiles, func(name string) bool { return p.progress[name].watches(j.Mark, p.Now) }) {
			p.plan.Watched = append(p.plan.Watched, Watched{Volume: j.Volume, Since: j.Mark.Since})
		}
	}
}

func (p *planner) planAgain(at time.Time) {
	if p.plan.Next.IsZero() || at.Before(p.plan.Next) {
		p.plan.Next = at
	}
}

// mayBeTakenBack says whether the volume carries a list of ours that a batch brought.
func (j judged) mayBeTakenBack() bool {
	v := j.verdict
	return j.Mark != nil && (v.State == judge.StateUpToDate || v.State == judge.StatePending || v.Contested) && j.CarriesOurs
}

// findMounted names the volumes of which a node has a mount that looks like the declared options of the list they carry, or
// are about to get. Only those are looked for of which it matters: whose batch soaks, and that are to be written.
func (p *planner) findMounted() map[string]bool {
	wanted := map[string][]string{}
	for _, j := range p.volumes {
		soaking := p.isSoaking(j)
		p.soaking = p.soaking || soaking
		if !soaking && !j.verdict.ChangesList(j.Volume) {
			continue
		}
		if options := j.verdict.DeclaredOptions(); len(options) > 0 {
			wanted[j.Volume.Name] = options
		}
	}
	out := map[string]bool{}
	if len(wanted) == 0 {
		return out
	}
	for i := range p.ClientNodes {
		for k := range p.ClientNodes[i].Status.Mounts {
			if m := &p.ClientNodes[i].Status.Mounts[k]; !out[m.Volume] && showsOptions(m, wanted[m.Volume]) {
				out[m.Volume] = true
			}
		}
	}
	return out
}

func showsOptions(m *v1alpha1.MountStatus, options []string) bool {
	return len(options) > 0 && len(m.Options) > 0 && len(mountoptions.Outdated(m.Protocol, options, m.Options)) == 0
}

// isSoaking says whether the volume carries its list and the time of its batch is not over.
func (p *planner) isSoaking(j judged) bool {
	if j.Mark == nil || !j.CarriesOurs {
		return false
	}
	for _, name := range j.verdict.Profiles {
		if profile := p.Profiles.Get(name); isMarkFor(j.Mark, profile) && p.Now.Before(j.Mark.Since.Add(soakOf(profile))) {
			return true
		}
	}
	return false
}

// inOrder sorts volumes by age, and by name where that is equal.
func inOrder(all []judged) []judged {
	slices.SortStableFunc(all, func(a, b judged) int {
		return cmp.Or(a.Volume.CreationTimestamp.Compare(b.Volume.CreationTimestamp.Time), strings.Compare(a.Volume.Name, b.Volume.Name))
	})
	return all
}
