package volume

import (
	"context"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/parallel"
	"github.com/storageclient/operator/controllers/objects"
	"github.com/storageclient/operator/controllers/volume/plan"
	"github.com/storageclient/operator/tuning/lists"
)

func (s *scope) readSnapshot(ctx context.Context) (plan.Snapshot, error) {
	out, err := s.reader.Read(ctx)
	if err != nil {
		return plan.Snapshot{}, err
	}
	if out.ClientNodes, err = objects.All[*v1alpha1.StorageClientNode](ctx, s.Client, &v1alpha1.StorageClientNodeList{}); err != nil {
		return plan.Snapshot{}, fmt.Errorf("list StorageClientNodes: %w", err)
	}
	out.Now, out.Rejected = s.now, s.rejected
	if s.ledger = out.Ledger; s.ledger == nil {
		return plan.Snapshot{}, errNoLedger
	}
	for _, r := range s.ledger.Reservations {
		s.appeared[r.UID] = s.appeared[r.UID] || slices.ContainsFunc(out.Volumes, func(pv *corev1.PersistentVolume) bool { return pv.Name == r.Data["volume"] })
	}
	out.Appeared = s.appeared
	return out, nil
}

// readLive returns a snapshot with the volumes and the ledger from the API server. It reads the ledger first: volumes may still have a record
// that the ledger no longer has.
func (s *scope) readLive(ctx context.Context, cached plan.Snapshot) (fresh plan.Snapshot, newer bool, err error) {
	live, err := s.reader.ReadLedger(ctx, s.APIReader)
	if err != nil {
		return plan.Snapshot{}, false, fmt.Errorf("read records from the API server: %w", err)
	}
	if cached.Volumes, newer, err = s.refreshVolumes(ctx, cached.Volumes); err != nil {
		return plan.Snapshot{}, false, fmt.Errorf("read PersistentVolumes from the API server: %w", err)
	}
	newer = newer || !live.IsSame(cached.Ledger)
	cached.Ledger, s.ledger = live, live
	s.compared.Begin(0, s.now)
	return cached, newer, nil
}

// refreshVolumes returns the current volumes of the API server, and whether any differs from the cache. It reads only those.
func (s *scope) refreshVolumes(ctx context.Context, cached []*corev1.PersistentVolume) (current []*corev1.PersistentVolume, newer bool, err error) {
	versions, err := objects.ListVersions(ctx, s.APIReader, corev1.SchemeGroupVersion.WithKind("PersistentVolumeList"))
	if err != nil {
		return nil, false, err
	}
	known := lists.Map(cached, func(pv *corev1.PersistentVolume) (string, *corev1.PersistentVolume) { return pv.Name, pv })
	outdated := objects.FindOutdated(versions, known)
	current = slices.DeleteFunc(slices.Clone(cached), func(pv *corev1.PersistentVolume) bool { return outdated.Has(pv.Name) })
	newer = len(current) < len(cached)
	var mutex sync.Mutex
	err = parallel.TryEach(s.parallelism(), sets.List(outdated), func(name string) error {
		pv := &corev1.PersistentVolume{}
		if err := s.APIReader.Get(ctx, client.ObjectKey{Name: name}, pv); err != nil {
			return client.IgnoreNotFound(err)
		}
		mutex.Lock()
		defer mutex.Unlock()
		current, newer = append(current, pv), true
		return nil
	})
	return current, newer, err
}
