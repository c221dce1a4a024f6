package volume

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/storageclient/operator/api/v1alpha1"

	corev1 "k8s.io/api/core/v1"

	"github.com/storageclient/operator/tuning/text"
)

// judged is a volume with what is decided for it, steps aside.
type judged struct {
	pv   *corev1.PersistentVolume
	d    Decision
	mark *stepMark
	// leftOut is whether the API server refused to have the volume written a while ago.
	leftOut bool
}

// watched says whether the volume carries a list of ours that a step brought, and that may still be taken back.
func (j judged) watched() bool {
	return j.mark != nil && (j.d.State == StateUpToDate || j.d.State == StatePending || j.d.contested) && carriesOurs(j.pv)
}

// observed is what nodes and events tell of volumes.
type observed struct {
	// mounted are the volumes of which a node has a mount that looks like the list it carries, or is about to get.
	mounted map[string]bool
	// failed is what the FailedMount event says, by volume.
	failed map[string]string
}

// course is how the steps go on.
type course struct {
	// admitted are the volumes that may be written now, with the mark of their step.
	admitted map[string]judged
	// failed are the volumes whose list has to be taken back.
	failed map[string]judged
	// waits says for every other volume with a change what it waits for.
	waits map[string]waiting
	// stopped says whether a FailedMount holds a profile's volumes back.
	stopped bool
	// next is when the next soak is over; zero where nothing soaks.
	next time.Time
}

// waiting is a volume that has to wait.
type waiting struct {
	message string
	// steps is how many steps come before its own, as far as can be told. It is -1 where none will.
	steps int
}

// lane is the order in which one profile's changes reach its volumes.
type lane struct {
	profile *profile
	// matched are the profile's volumes, without blocked ones.
	matched int
	steps   map[int64]*step
	// refused says which volume could not be mounted; empty: none.
	refused string
	// proven are the option sets of steps that went well.
	proven map[string]bool
	// busy are the steps that are not over.
	busy []*step
	// begun counts the volumes of the step that begins now; canary is whether that is the first of an option set.
	begun, passed int
	canary        bool
}

// step is what was written at one time for one profile.
type step struct {
	until   time.Time
	volumes []string
	sets    []string
	mounted bool
}

func (p *profile) soak() time.Duration {
	return time.Duration(*p.spec.Rollout.Volumes.SoakSeconds) * time.Second
}

func (l *lane) limit() int {
	return v1alpha1.ResolveShare(*l.profile.spec.Rollout.Volumes.MaxPerStep, l.matched)
}

// lanesOf sorts what is known of all volumes by the profiles that act on them.
func lanesOf(all []judged, ps Profiles, seen observed, now time.Time) map[string]*lane {
	lanes := map[string]*lane{}
	for _, j := range all {
		for _, name := range j.d.Profiles {
			if lanes[name] == nil {
				p := ps.get(name)
				lanes[name] = &lane{profile: p, steps: map[int64]*step{}, proven: map[string]bool{}}
			}
			lanes[name].add(j, seen)
		}
	}
	for _, l := range lanes {
		l.close(now)
		for _, j := range all {
			if r := refusalOf(j.pv); r.refuses(l.profile) && l.refused == "" {
				l.refused = j.pv.Name
			}
		}
	}
	return lanes
}

func (l *lane) add(j judged, seen observed) {
	if j.d.State != StateBlocked {
		l.matched++
	}
	if j.mark == nil || j.mark.Rules[l.profile.name] != l.profile.rulesHash || !carriesOurs(j.pv) {
		return
	}
	since := j.mark.Since.Unix()
	if l.steps[since] == nil {
		l.steps[since] = &step{until: j.mark.Since.Add(l.profile.soak())}
	}
	s := l.steps[since]
	s.volumes, s.sets = append(s.volumes, j.pv.Name), append(s.sets, j.d.optionSet(j.pv))
	s.mounted = s.mounted || (seen.mounted[j.pv.Name] && !j.mark.Unprovable)
	if _, failed := seen.failed[j.pv.Name]; failed {
		l.refused = j.pv.Name
	}
}

// close tells the steps that are over from those that are not.
func (l *lane) close(now time.Time) {
	for _, s := range l.steps {
		if !s.mounted && now.Before(s.until) {
			l.busy = append(l.busy, s)
			continue
		}
		for _, set := range s.sets {
			l.proven[set] = true
		}
	}
	slices.SortFunc(l.busy, func(a, b *step) int { return a.until.Compare(b.until) })
}

// waits says what keeps a change of an option set from a volume now; empty: nothing.
func (l *lane) waits(set string) string {
	switch {
	case l.refused != "":
		return fmt.Sprintf("profile %s is stopped: %s could not be mounted", l.profile.name, l.refused)
	case len(l.busy) > 0:
		return fmt.Sprintf("profile %s: %s", l.profile.name, soaking(l.busy[0].volumes, len(l.steps) == 1, l.busy[0].until))
	case l.canary, l.begun > 0 && !l.proven[set], l.begun >= l.limit():
		return fmt.Sprintf("profile %s: another step comes first", l.profile.name)
	}
	return ""
}

func soaking(volumes []string, first bool, until time.Time) string {
	end := "until " + until.UTC().Format(time.RFC3339) + " or until a node has mounted it well"
	volumes = slices.Sorted(slices.Values(volumes))
	if len(volumes) == 1 && first {
		return "the canary " + volumes[0] + " soaks " + end
	}
	return text.List(volumes) + " soak " + end
}

// planSteps says which volumes are written next. The canary of an option set, one volume, goes alone; then no more at a time
// than the profile's limit, and nothing while the step before is not over, or after a FailedMount. A volume of several
// profiles goes when all of them let it. It reads neither API nor clock.
func planSteps(all []judged, ps Profiles, seen observed, now time.Time) course {
	lanes := lanesOf(all, ps, seen, now)
	out := course{admitted: map[string]judged{}, failed: map[string]judged{}, waits: map[string]waiting{}}
	for _, j := range inOrder(all) {
		if text, failed := seen.failed[j.pv.Name]; failed && j.watched() {
			out.failed[j.pv.Name] = judged{pv: j.pv, d: takenBack(j.pv, j.d, j.mark, text), mark: j.mark}
			continue
		}
		if j.d.needsStep(j.pv) && !j.leftOut {
			out.queue(j, lanes, seen, now)
		}
	}
	for _, l := range lanes {
		out.stopped = out.stopped || l.refused != ""
		for _, s := range l.busy {
			out.ends(s.until)
		}
	}
	return out
}

func (c *course) queue(j judged, lanes map[string]*lane, seen observed, now time.Time) {
	set, wait := j.d.optionSet(j.pv), waiting{}
	for _, name := range j.d.Profiles {
		l := lanes[name]
		if why := l.waits(set); why != "" {
			wait.message = cmp.Or(wait.message, why)
			wait.steps = max(wait.steps, l.passed/l.limit())
		}
	}
	for _, name := range j.d.Profiles {
		if lanes[name].refused != "" {
			wait.steps = -1
		}
	}
	if wait.message != "" {
		c.waits[j.pv.Name] = wait
		for _, name := range j.d.Profiles {
			lanes[name].passed++
		}
		return
	}
	for _, name := range j.d.Profiles {
		l := lanes[name]
		l.begun++
		l.canary = l.canary || !l.proven[set]
		c.ends(now.Add(l.profile.soak()))
	}
	j.d.mark = &stepMark{Since: now.UTC().Truncate(time.Second), Rules: j.d.hashes(),
		Unprovable: seen.mounted[j.pv.Name] || len(j.d.wanted()) == 0}
	c.admitted[j.pv.Name] = j
}

func (c *course) ends(soak time.Time) {
	if c.next.IsZero() || soak.Before(c.next) {
		c.next = soak
	}
}

// inOrder sorts volumes by age, and by name where that is equal.
func inOrder(all []judged) []judged {
	out := slices.Clone(all)
	slices.SortStableFunc(out, func(a, b judged) int {
		return cmp.Or(a.pv.CreationTimestamp.Compare(b.pv.CreationTimestamp.Time), strings.Compare(a.pv.Name, b.pv.Name))
	})
	return out
}

// underWatch are the volumes whose mounts and events matter: those of steps that soak, and those of each profile's last
// step also after that, for nobody may have looked while it soaked. Nothing is watched once all volumes carry their list
// and the last soak is over.
func underWatch(all []judged, ps Profiles, now time.Time) []judged {
	lanes := lanesOf(all, ps, observed{}, now)
	var out []judged
	for _, j := range all {
		if j.watched() && slices.ContainsFunc(j.d.Profiles, func(name string) bool { return lanes[name].watches(j.mark) }) {
			out = append(out, j)
		}
	}
	return out
}

func (l *lane) watches(mark *stepMark) bool {
	if mark.Rules[l.profile.name] != l.profile.rulesHash {
		return false
	}
	last := mark.Since.Unix()
	for since, s := range l.steps {
		if since > last {
			last = since
		}
		if since == mark.Since.Unix() && slices.Contains(l.busy, s) {
			return true
		}
	}
	return last == mark.Since.Unix()
}
