package volume

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/mountoptions"
)

const (
	// lookEvery is how often volumes that wait, and those that soak, are looked at: the kubelet tells of a failed mount
	// within two minutes.
	lookEvery = 10 * time.Second
	// shortestLook keeps a soak of no seconds from a look at every visit.
	shortestLook = time.Second
	// stoppedRetry is how soon a stopped profile's volumes are looked at without an event: the one that could not be
	// mounted may have been deleted.
	stoppedRetry = 10 * time.Minute
	// refusedRetry is for how long a volume is left out of steps whose write the API server refused.
	refusedRetry = 5 * time.Minute
	// admissionLasts is how long volumes that were admitted to one step may take to be written.
	admissionLasts = time.Minute
)

// looks keeps the last course for a while, so that all volumes that wait cost one look. It is no memory that anything
// depends on: what stands on the volumes makes the same course anew.
type looks struct {
	mu     sync.Mutex
	course course
	// changes is after how many changes of profiles the course was found; until is when the next is due.
	changes int64
	until   time.Time
	// refused are the volumes that the API server would not have written, until when they are left out of steps: a canary
	// that a policy protects must not keep all others waiting.
	refused map[string]time.Time
	// admittedAt is when volumes were last listed live.
	admittedAt time.Time
}

func (l *looks) refuse(volume string, now time.Time) {
	if l.refused == nil {
		l.refused = map[string]time.Time{}
	}
	l.refused[volume] = now.Add(refusedRetry)
	l.until = now
}

// drop forgets a volume that is gone.
func (l *looks) drop(volume string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.refused, volume)
}

func (r *Reconciler) now() time.Time {
	if r.Clock == nil {
		return clock.RealClock{}.Now()
	}
	return r.Clock.Now()
}

func (r *Reconciler) live() client.Reader {
	if r.Live == nil {
		return r.Client
	}
	return r.Live
}

// inStep says whether a volume that carries its list still belongs to a step that is watched.
func inStep(pv *corev1.PersistentVolume, d Decision, ps Profiles, now time.Time) bool {
	mark := markOf(pv)
	if mark == nil {
		return false
	}
	for _, name := range d.Profiles {
		p := ps.get(name)
		if mark.Rules[name] == p.rulesHash && now.Before(mark.Since.Add(p.soak())) {
			return true
		}
	}
	return false
}

// step carries a volume's part of the course out, and takes back what could not be mounted, whichever volume that is. The
// decision that it returns is the one that has been carried out.
func (r *Reconciler) step(ctx context.Context, pv *corev1.PersistentVolume, d Decision) (Decision, ctrl.Result, error) {
	r.looks.mu.Lock()
	defer r.looks.mu.Unlock()
	if err := r.look(ctx); err != nil {
		return d, ctrl.Result{}, err
	}
	if err := r.takeBack(ctx); err != nil {
		return d, ctrl.Result{}, err
	}
	now, c := r.now(), &r.looks.course
	soon := ctrl.Result{RequeueAfter: max(shortestLook, r.looks.until.Sub(now))}
	if admitted, ok := c.admitted[pv.Name]; ok {
		if admitted.pv.ResourceVersion != pv.ResourceVersion {
			// The volume changed, or the cache has not seen it yet: the next look finds out.
			r.looks.until, d.Action = now, ActionNone
			return d, ctrl.Result{RequeueAfter: conflictRetry}, nil
		}
		delete(c.admitted, pv.Name)
		err := r.apply(ctx, pv, admitted.d)
		if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
			r.looks.refuse(pv.Name, now)
		}
		return admitted.d, soon, err
	}
	if !d.needsStep(pv) {
		return d, soon, nil
	}
	d.Action = ActionNone
	wait, known := c.waits[pv.Name]
	switch {
	case known && wait.steps < 0:
		soon.RequeueAfter = stoppedRetry
	case known:
		soon.RequeueAfter *= time.Duration(1 + wait.steps)
	}
	d.Message = cmp.Or(wait.message, "the next step is about to be found") + "; then " + d.Message
	return d, soon, nil
}

// look finds the course anew where the last one is too old.
func (r *Reconciler) look(ctx context.Context) error {
	now, changes := r.now(), r.view.changes.Load()
	if r.view.watched.Load() && r.looks.changes == changes && now.Before(r.looks.until) {
		return nil
	}
	s, err := readSnapshot(ctx, r.Client, r.Namespace, func(list []v1alpha1.StorageClientProfile, pausedAll bool) Profiles {
		return r.view.gatherer.compile(list, r.Allow, pausedAll)
	})
	if err != nil {
		return err
	}
	next, err := r.courseOf(ctx, s, now)
	if err != nil {
		return err
	}
	switch before := r.looks.course.admitted; {
	case len(next.admitted) > 0:
		// What the cache shows may be old: a step begins by what the API server has.
		var volumes corev1.PersistentVolumeList
		if err := r.live().List(ctx, &volumes); err != nil {
			return fmt.Errorf("list PersistentVolumes live: %w", err)
		}
		s.Volumes = volumes.Items
		if next, err = r.courseOf(ctx, s, now); err != nil {
			return err
		}
		r.looks.admittedAt = now
	case r.looks.changes == changes && !next.stopped && now.Before(r.looks.admittedAt.Add(admissionLasts)):
		// They are part of the step that soaks now, and have not had their turn.
		next.admitted = before
	}
	wait := lookEvery
	if !next.next.IsZero() {
		wait = min(wait, next.next.Sub(now))
	}
	r.looks.course, r.looks.changes, r.looks.until = next, changes, now.Add(max(shortestLook, wait))
	return nil
}

// courseOf judges all volumes, reads what nodes and events tell of those under watch, and plans.
func (r *Reconciler) courseOf(ctx context.Context, s Snapshot, now time.Time) (course, error) {
	all := make([]judged, len(s.Volumes))
	for i, d := range s.decide() {
		pv := &s.Volumes[i]
		all[i] = judged{pv: pv, d: d, mark: markOf(pv), leftOut: now.Before(r.looks.refused[pv.Name])}
	}
	watch := underWatch(all, s.Profiles, now)
	failed, err := failedMounts(ctx, r.live(), watch)
	if err != nil {
		return course{}, err
	}
	var nodes v1alpha1.StorageClientNodeList
	if err := r.Client.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return course{}, fmt.Errorf("list StorageClientNodes: %w", err)
	}
	return planSteps(all, s.Profiles, observed{mounted: mountedWell(all, nodes.Items), failed: failed}, now), nil
}

// mountedWell are the volumes of which a node has a mount that looks like the declared options of the list they carry, or
// are about to get.
func mountedWell(all []judged, nodes []v1alpha1.StorageClientNode) map[string]bool {
	wanted := map[string][]string{}
	for _, j := range all {
		if options := j.d.wanted(); len(options) > 0 && (j.mark != nil || j.d.needsStep(j.pv)) {
			wanted[j.pv.Name] = options
		}
	}
	out := map[string]bool{}
	for i := range nodes {
		for _, m := range nodes[i].Status.Mounts {
			options, concerns := wanted[m.Volume]
			if concerns && len(m.Options) > 0 && len(mountoptions.Outdated(m.Protocol, options, m.Options)) == 0 {
				out[m.Volume] = true
			}
		}
	}
	return out
}

// takeBack restores the volumes that could not be mounted, before anything else goes on.
func (r *Reconciler) takeBack(ctx context.Context) error {
	for name, j := range r.looks.course.failed {
		pv := j.pv.DeepCopy()
		err := r.apply(ctx, pv, j.d)
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			r.looks.until = r.now()
			continue
		}
		if err != nil {
			return err
		}
		delete(r.looks.course.failed, name)
		r.tell(ctx, pv, j.d)
	}
	return nil
}

// StoppedBy says which volume keeps a new one from getting what is decided for it: one that could not be mounted with
// what the same volume rules declare. Empty: none. reader is the manager's cache.
func StoppedBy(ctx context.Context, reader client.Reader, d Decision) (string, error) {
	var all corev1.PersistentVolumeList
	if err := reader.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return "", fmt.Errorf("list PersistentVolumes: %w", err)
	}
	for i := range all.Items {
		r := refusalOf(&all.Items[i])
		for _, rule := range d.rules {
			if r.refuses(rule.profile) {
				return fmt.Sprintf("mountOptions are left as they are: profile %s is stopped, since PersistentVolume %s could not be mounted with %s",
					rule.profile.name, all.Items[i].Name, *r), nil
			}
		}
	}
	return "", nil
}
