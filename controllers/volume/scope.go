package volume

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/parallel"
	"github.com/storageclient/operator/controllers/objects"
	"github.com/storageclient/operator/controllers/store"
	"github.com/storageclient/operator/controllers/volume/ledger"
	"github.com/storageclient/operator/controllers/volume/plan"
	"github.com/storageclient/operator/controllers/volume/snapshot"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/lists"
)

const (
	// passInterval is the minimum time between two passes: volumes are created, deleted and bound all the time.
	passInterval = time.Second
	// rejectionRetryInterval is the wait before another write of a volume after the API server rejected one.
	rejectionRetryInterval = 5 * time.Minute
	// workers is the number of parallel writes.
	workers = 12
	// maxSteps is the maximum number of volumes that one pass writes. It limits the delay of restores.
	maxSteps = 500
)

// errNoLedger means that the records of volumes cannot be read. The reconciler does not write without them.
var errNoLedger = errors.New("list ConfigMaps with the records of PersistentVolumes: not permitted; check the Role storage-client-manager")

// Reconciler writes declared mount options to all PersistentVolumes. There is one request for the whole cluster.
type Reconciler struct {
	// Client reads from the manager's cache, whose PersistentVolumes must have the fields that NewCacheTransform keeps.
	Client client.Client
	// APIReader bypasses the cache, which holds neither events nor pods of users. It is used before a batch starts, and while one soaks. Defaults
	// to Client.
	APIReader client.Reader
	Recorder  events.EventRecorder
	// Clock sets the times of batches and passes. Defaults to the system clock.
	Clock clock.PassiveClock
	// Allow holds the parameters that are accepted beyond the catalogue.
	Allow catalogue.AllowList
	// Probes returns the results of probes. Nil disables probes, and no volume waits for them.
	Probes func() map[plan.ProbeKey]plan.Probe
	// Volumes caches earlier reads of the volumes, shared with other controllers. Nil disables the cache.
	Volumes *snapshot.Memory

	// The following fields may be lost without harm. The only request never runs twice at once.

	reader *snapshot.Reader
	pace   store.Pace
	// inspected spaces the inspections of failed mounts, compared the live comparisons of volumes and ledger.
	inspected, compared store.Pace
	// rejected are the volumes whose last write the API server rejected, with the time of the next attempt.
	rejected map[string]time.Time
	// reported holds the content of the last event of each blocked volume. An unchanged state causes only one event.
	reported map[string]string
	// appeared are the reservations whose volume existed at some time, by UID.
	appeared map[types.UID]bool
}

func (r *Reconciler) fillDefaults() {
	if r.reader != nil {
		return
	}
	r.reader = &snapshot.Reader{
		Reader: r.Client, Allow: r.Allow, Probes: r.Probes, Memory: cmp.Or(r.Volumes, snapshot.NewMemory()),
	}
	r.rejected, r.reported, r.appeared = map[string]time.Time{}, map[string]string{}, map[types.UID]bool{}
	r.Clock = cmp.Or[clock.PassiveClock](r.Clock, clock.RealClock{})
	r.APIReader = cmp.Or[client.Reader](r.APIReader, r.Client)
}

// scope is one pass.
type scope struct {
	*Reconciler
	now time.Time
	// workers is the number of parallel requests; 0: the constant of this name.
	workers int
	// ledger is the ledger as read, with later writes.
	ledger *ledger.Ledger
	// observed is true if due observations were made, live if all reads for the plan are live. unread is the error of such a read: steps that require
	// none run without it.
	observed, live bool
	unread         error
}

func (s *scope) parallelism() int { return cmp.Or(s.workers, workers) }

func (s *scope) delayVolume(volume string) { s.rejected[volume] = s.now.Add(rejectionRetryInterval) }

func (s *scope) readSnapshot(ctx context.Context) (plan.Snapshot, error) {
	out, err := s.reader.Read(ctx)
	if err != nil {
		return plan.Snapshot{}, err
	}
	if out.ClientNodes, err = objects.All[*v1alpha1.StorageClientNode](ctx, s.Client, &v1alpha1.StorageClientNodeList{}); err != nil {
		return plan.Snapshot{}, fmt.Errorf("list StorageClientNodes: %w", err)
	}
	maps.DeleteFunc(s.rejected, func(_ string, retryAt time.Time) bool { return retryAt.After(s.now.Add(rejectionRetryInterval)) })
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
