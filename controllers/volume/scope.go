package volume

import (
	"cmp"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/controllers/store"
	"github.com/storageclient/operator/controllers/volume/ledger"
	"github.com/storageclient/operator/controllers/volume/plan"
	"github.com/storageclient/operator/controllers/volume/snapshot"
	"github.com/storageclient/operator/tuning/catalogue"
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
