package volume

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/storageclient/operator/controllers/volume/judge"
	"github.com/storageclient/operator/controllers/volume/plan"
)

// retryWithin is the time within which a kubelet retries a mount with the current mount options. It reads the volume again when it starts
// another wait for a pod's volumes, every 2 min 3 s (podAttachAndMountTimeout of kubernetes pkg/kubelet/volumemanager). Its maximum backoff is
// 2 min 2 s (exponentialbackoff of pkg/util/goroutinemap).
const retryWithin = 5 * time.Minute

func (s *scope) inspectRollbacks(ctx context.Context, inCure []plan.RollbackCheck) (map[string]plan.RollbackResult, error) {
	out := map[string]plan.RollbackResult{}
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
func (w *witnesses) evaluateRollback(ctx context.Context, v plan.RollbackCheck, failedMounts []*failedMount) (plan.RollbackResult, error) {
	volumeClaim, bound := judge.ClaimOf(v.Volume)
	if !bound {
		return plan.RollbackUntested, nil
	}
	waiting := sets.New[types.NamespacedName]()
	for _, key := range slices.SortedFunc(maps.Keys(w.pods), compareKeys) {
		pod := w.pods[key]
		if key.Namespace != volumeClaim.Namespace || len(pod.volumes[volumeClaim.Name]) == 0 {
			continue
		}
		if pod.hasStartedSince(v.Since) && !pod.restarted {
			return plan.RollbackWorked, nil
		}
		if pod.started.IsZero() && !pod.finished {
			waiting.Insert(key)
		}
	}
	if len(waiting) == 0 {
		return plan.RollbackUntested, nil
	}
	for _, f := range failedMounts {
		if !waiting.Has(f.pod) || f.kindOn(v.Volume) != v.Failure || f.latest.Before(v.Since.Add(retryWithin)) {
			continue
		}
		if confirmed, err := w.confirm(ctx, f, v.Volume); err != nil || confirmed {
			return plan.RollbackFailed, err
		}
	}
	return "", nil
}

func compareKeys(a, b types.NamespacedName) int { return strings.Compare(a.String(), b.String()) }
