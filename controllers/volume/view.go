package volume

import (
	"context"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/catalogue"
)

// view is what the reconciler knows beyond the volume at hand: the judged profiles, and what all volumes ask of their
// servers. It is read from the cache once, and again once a watch has told of a profile, a class or the pause; what
// becomes of a volume is added at each visit. So ten thousand volumes cost one list, and not one each.
type view struct {
	gatherer Gatherer
	// watched is true where forget is called for all that changes. Without watches every visit reads anew.
	watched atomic.Bool
	// changes counts the calls of forget.
	changes atomic.Int64

	mu       sync.Mutex
	filled   bool
	filledAt int64
	profiles Profiles
	servers  *servers
}

// forget has the next visit read anew.
func (v *view) forget() { v.changes.Add(1) }

// decide judges one volume, and remembers what is to become of it.
func (v *view) decide(ctx context.Context, reader client.Reader, allow catalogue.AllowList, namespace string, pv *corev1.PersistentVolume) (Decision, Profiles, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if err := v.fill(ctx, reader, allow, namespace); err != nil {
		return Decision{}, Profiles{}, err
	}
	in, err := inputFor(ctx, reader, v.profiles, pv)
	if err != nil {
		return Decision{}, Profiles{}, err
	}
	d := Decide(in)
	v.servers.put(pv, d)
	return v.servers.judge(pv, d), v.profiles, nil
}

func (v *view) fill(ctx context.Context, reader client.Reader, allow catalogue.AllowList, namespace string) error {
	// Counted before anything is read: what changes meanwhile is read again.
	changes := v.changes.Load()
	if v.filled && v.filledAt == changes && v.watched.Load() {
		return nil
	}
	s, err := readSnapshot(ctx, reader, namespace, func(list []v1alpha1.StorageClientProfile, pausedAll bool) Profiles {
		return v.gatherer.compile(list, allow, pausedAll)
	})
	if err != nil {
		return err
	}
	v.profiles, v.servers = s.Profiles, newServers()
	for i := range s.Volumes {
		v.servers.put(&s.Volumes[i], Decide(s.input(&s.Volumes[i])))
	}
	v.filled, v.filledAt = true, changes
	return nil
}

// drop forgets a volume that is gone.
func (v *view) drop(volume string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.servers != nil {
		v.servers.drop(volume)
	}
}
