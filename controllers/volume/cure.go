package volume

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/storageclient/operator/controllers/volume/plan"
)

// retryWithin is within what time a kubelet has tried to mount with the list that a volume has now: it reads the volume again when it
// begins to wait anew for a pod's volumes, every 2 min 3 s (podAttachAndMountTimeout of kubernetes pkg/kubelet/volumemanager), and
// backs off for 2 min 2 s at most (exponentialbackoff of pkg/util/goroutinemap).
const retryWithin = 5 * time.Minute

// inspectCures says how pods mount volumes that have their own lists back, as far as that is known by now.
func (s *scope) inspectCures(ctx context.Context, inCure []plan.InCure) (map[string]plan.Cure, error) {
	out := map[string]plan.Cure{}
	if len(inCure) == 0 {
		return out, nil
	}
	volumes := make([]plan.Watched, len(inCure))
	for i, v := range inCure {
		volumes[i] = plan.Watched{Volume: v.Volume, Since: v.Since}
	}
	told, err := readFailedMounts(ctx, s.APIReader, namespacesOf(volumes))
	if err != nil {
		return nil, err
	}
	w, err := readPods(ctx, s.APIReader, namespacesOf(volumes))
	if err != nil {
		return nil, err
	}
	for _, v := range inCure {
		cure, err := w.judgeCure(ctx, v, told)
		if err != nil {
			return nil, err
		}
		if cure != "" {
			out[v.Volume.Name] = cure
		}
	}
	return out, nil
}

// judgeCure goes by the pods that use the volume: one that has started for the first time since mounted it with its own list, and one
// that fails alike, long enough after, cannot.
func (w *witnesses) judgeCure(ctx context.Context, v plan.InCure, told []*failedMount) (plan.Cure, error) {
	volumeClaim, bound := volumeClaimKey(v.Volume)
	if !bound {
		return plan.CureEnded, nil
	}
	waiting := sets.New[types.NamespacedName]()
	for _, key := range slices.SortedFunc(maps.Keys(w.pods), compareKeys) {
		pod := w.pods[key]
		if key.Namespace != volumeClaim.Namespace || len(pod.volumes[volumeClaim.Name]) == 0 {
			continue
		}
		if pod.startedSince(v.Since) && !pod.restarted {
			return plan.CureWorked, nil
		}
		if pod.started.IsZero() && !pod.ended {
			waiting.Insert(key)
		}
	}
	if len(waiting) == 0 {
		return plan.CureEnded, nil
	}
	for _, f := range told {
		if !waiting.Has(f.pod) || f.kindOn(v.Volume) != v.Failure || f.last.Before(v.Since.Add(retryWithin)) {
			continue
		}
		if confirmed, err := w.confirm(ctx, f, v.Volume); err != nil || confirmed {
			return plan.CureFailed, err
		}
	}
	return "", nil
}

func compareKeys(a, b types.NamespacedName) int {
	return strings.Compare(a.String(), b.String())
}
