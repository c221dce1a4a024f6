package volume

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/controllers/volume/judge"
	"github.com/storageclient/operator/controllers/volume/optionset"
	"github.com/storageclient/operator/controllers/volume/plan"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/mountfailures"
)

// inspectFailedMounts returns the failed mounts of watched volumes since they got their mount options, except events with another cause than
// the options. It reads events live and with a field selector: there are too many to cache. See witnesses for the conditions under which an
// event is trusted.
func inspectFailedMounts(ctx context.Context, reader client.Reader, watched []plan.Watched) (map[string]plan.Failure, error) {
	out := map[string]plan.Failure{}
	if len(watched) == 0 {
		return out, nil
	}
	failedMounts, err := readFailedMounts(ctx, reader, namespacesOf(watched, func(w plan.Watched) *corev1.PersistentVolume { return w.Volume }))
	if err != nil {
		return nil, err
	}
	before := findFailures(failedMounts)
	changesRequests := slices.ContainsFunc(watched, func(w plan.Watched) bool { return w.ChangesRequests })
	failedMounts = slices.DeleteFunc(keepRecent(failedMounts, watched), func(f *failedMount) bool {
		return mountfailures.CauseOf(f.message, changesRequests) == mountfailures.Elsewhere
	})
	w, err := readNamedPods(ctx, reader, failedMounts)
	if err != nil {
		return nil, err
	}
	byClaim := groupByClaim(watched)
	for _, f := range failedMounts {
		for _, volume := range w.volumesOf(f.pod, byClaim) {
			known, found := out[volume.Volume.Name]
			cause := mountfailures.CauseOf(f.message, volume.ChangesRequests)
			switch {
			case plan.IsUnused(volume.Volume), cause == mountfailures.Elsewhere, found && (known.NamesOptions || cause == mountfailures.Unknown),
				!f.mayConcern(volume, before[f.failure]):
				continue
			}
			confirmed, err := w.confirm(ctx, f, volume.Volume)
			if err != nil {
				return nil, err
			}
			if confirmed {
				out[volume.Volume.Name] = plan.Failure{Text: failureText(f.message), Kind: f.kindOn(volume.Volume), NamesOptions: cause == mountfailures.Options}
			}
		}
	}
	return out, nil
}

func groupByClaim(watched []plan.Watched) map[types.NamespacedName][]plan.Watched {
	out := map[types.NamespacedName][]plan.Watched{}
	for _, w := range watched {
		if volumeClaim, bound := judge.ClaimOf(w.Volume); bound {
			out[volumeClaim] = append(out[volumeClaim], w)
		}
	}
	return out
}

func namespacesOf[T any](list []T, volumeOf func(T) *corev1.PersistentVolume) []string {
	return lists.Distinct(lists.Pick(list, func(entry T) (string, bool) {
		volumeClaim, bound := judge.ClaimOf(volumeOf(entry))
		return volumeClaim.Namespace, bound
	}))
}

// retryWithin is the time within which a kubelet retries a mount with the current mount options. It reads the volume again when it starts
// another wait for a pod's volumes, every 2 min 3 s (podAttachAndMountTimeout of kubernetes pkg/kubelet/volumemanager). Its maximum backoff is
// 2 min 2 s (exponentialbackoff of pkg/util/goroutinemap).
const retryWithin = 5 * time.Minute

func (s *scope) inspectRollbacks(ctx context.Context, inCure []plan.RollbackCheck) (map[string]optionset.Kind, error) {
	out := map[string]optionset.Kind{}
	if len(inCure) == 0 {
		return out, nil
	}
	namespaces := namespacesOf(inCure, func(v plan.RollbackCheck) *corev1.PersistentVolume { return v.Volume })
	failedMounts, err := readFailedMounts(ctx, s.APIReader, namespaces)
	if err != nil {
		return nil, err
	}
	w, err := readPods(ctx, s.APIReader, namespaces)
	if err != nil {
		return nil, err
	}
	for _, v := range inCure {
		if out[v.Volume.Name], err = w.evaluateRollback(ctx, v, failedMounts); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// evaluateRollback evaluates the pods that use the volume. The original options work if a pod has mounted the volume with them: see findMounter.
// They fail if a pod has the same failure long enough after the restore. The result is open while a pod waits. If the cause of the failure is
// unknown, and a pod has started since with an unknown mount, only another pod shows it, whatever happens to the first one. No pod can mount a
// volume without a claim: pods of a new claim of that name use another volume.
func (w *witnesses) evaluateRollback(ctx context.Context, v plan.RollbackCheck, failedMounts []*failedMount) (optionset.Kind, error) {
	if plan.IsUnused(v.Volume) {
		return optionset.NoPodWaits, nil
	}
	b, originals := v.Blame, plan.Awaited{Volume: v.Volume, After: v.Blame.RevertedAt.Add(judge.ClockTolerance), Former: v.Blame.Options}
	if text, err := w.findMounter(ctx, originals); err != nil || text != "" {
		return optionset.OwnMounted, err
	}
	volumeClaim, _ := judge.ClaimOf(v.Volume)
	kind := optionset.NoPodWaits
	for key, pod := range w.pods {
		switch isUser := key.Namespace == volumeClaim.Namespace && len(pod.volumes[volumeClaim.Name]) > 0; {
		case !isUser:
		case b.Unclear && !b.IsOpen && pod.hasFirstStartedSince(b.RevertedAt):
			return optionset.OwnUnknown, nil
		case !pod.finished && pod.started.IsZero():
			kind = ""
		}
	}
	for _, f := range failedMounts {
		if pod := w.pods[f.pod]; pod == nil || pod.finished || f.kindOn(v.Volume) != b.Failure {
			continue
		}
		switch confirmed, err := w.confirm(ctx, f, v.Volume); {
		case err != nil || confirmed && !f.latest.Before(b.RevertedAt.Add(retryWithin)):
			return optionset.OwnFailed, err
		case confirmed:
			kind = "" // also a pod that started before a reboot of its node
		}
	}
	return kind, nil
}
