package volume

import (
	"context"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
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
			case cause == mountfailures.Elsewhere, found && (known.NamesOptions || cause == mountfailures.Unknown),
				!f.mayConcern(volume), before[f.failure].Before(volume.Since):
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
		cure, err := w.evaluateRollback(ctx, v, failedMounts)
		if err != nil {
			return nil, err
		}
		if cure != "" {
			out[v.Volume.Name] = cure
		}
	}
	return out, nil
}

// evaluateRollback evaluates the pods that use the volume. The original options work if a pod has started for the first time since the restore. They
// fail if a pod has the same failure long enough after it.
func (w *witnesses) evaluateRollback(ctx context.Context, v plan.RollbackCheck, failedMounts []*failedMount) (optionset.Kind, error) {
	volumeClaim, bound := judge.ClaimOf(v.Volume)
	if !bound {
		return optionset.NoPodWaits, nil
	}
	waiting := sets.New[types.NamespacedName]()
	for _, key := range slices.SortedFunc(maps.Keys(w.pods), compareKeys) {
		pod := w.pods[key]
		if key.Namespace != volumeClaim.Namespace || len(pod.volumes[volumeClaim.Name]) == 0 {
			continue
		}
		if pod.hasStartedSince(v.Since) && !pod.restarted {
			return optionset.OwnMounted, nil
		}
		if pod.started.IsZero() && !pod.finished {
			waiting.Insert(key)
		}
	}
	if len(waiting) == 0 {
		return optionset.NoPodWaits, nil
	}
	for _, f := range failedMounts {
		if !waiting.Has(f.pod) || f.kindOn(v.Volume) != v.Failure || f.latest.Before(v.Since.Add(retryWithin)) {
			continue
		}
		if confirmed, err := w.confirm(ctx, f, v.Volume); err != nil || confirmed {
			return optionset.OwnFailed, err
		}
	}
	return "", nil
}
