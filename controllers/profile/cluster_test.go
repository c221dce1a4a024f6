package profile

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

// Passes over many profiles share one read. A cluster that changes continuously is read once a second.
func TestPassesShareARead(t *testing.T) {
	w := newBenchWorld(3, 3, 3)
	r := w.newReconciler()
	pass := func(profile int) time.Duration {
		t.Helper()
		delete(r.passes, w.profiles[profile].Name)
		result, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: w.profiles[profile].Name}})
		check.NoError(t, err)
		return result.RequeueAfter
	}
	readings := func(name string, want int) {
		t.Helper()
		if w.readings != want {
			t.Errorf("%s: got %d reads, want %d", name, w.readings, want)
		}
	}
	wait := func(d time.Duration) { w.clock.SetTime(w.clock.Now().Add(d)) }

	pass(0)
	pass(1)
	pass(2)
	readings("three profiles after one event", 1)

	wait(300 * time.Millisecond)
	r.cluster.changes.Add(1)
	if got := pass(0); got != 700*time.Millisecond {
		t.Errorf("got a change 0.3 s after a read requeued after %s, want 0.7 s", got)
	}
	readings("a change right after a reading", 1)
	wait(700 * time.Millisecond)
	pass(0)
	pass(1)
	readings("a change a second after a reading", 2)

	wait(readingLasts)
	pass(1)
	readings("two seconds without an event", 3)

	// The cache may contain the new profile before the watch reports the change.
	w.profiles[2].Generation++
	w.profiles[2].ResourceVersion = w.version()
	w.profiles[2].Spec.Volumes[0].MountOptions = []v1alpha1.MountOption{"nocto"}
	if got := pass(2); got != readEvery || w.profiles[2].Status.ObservedGeneration != 1 {
		t.Errorf("got the edited profile requeued after %s with observed generation %d", got, w.profiles[2].Status.ObservedGeneration)
	}
	wait(readEvery)
	pass(2)
	readings("an edited profile", 4)
	if got := w.profiles[2].Status; got.ObservedGeneration != 2 || got.Volumes.UpToDate != 0 {
		t.Errorf("got status %+v of the edited profile", got)
	}

	r.cluster.isWatching = false
	pass(0)
	pass(0)
	readings("without a watch", 6)
}

// In a cluster that changes continuously, each profile has one pass for each read, and is requeued for the next read.
func TestEachProfileHasAPassForEachRead(t *testing.T) {
	w := newBenchWorld(3, 3, 3)
	r := w.newReconciler()
	pass := func(profile int) time.Duration {
		t.Helper()
		delete(r.passes, w.profiles[profile].Name)
		result, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: w.profiles[profile].Name}})
		check.NoError(t, err)
		return result.RequeueAfter
	}
	later := func(d time.Duration) {
		w.clock.SetTime(w.clock.Now().Add(d))
		r.cluster.changes.Add(1)
	}
	pass(0)
	later(400 * time.Millisecond)
	if got := pass(1); got != 600*time.Millisecond || w.readings != 1 || w.profiles[1].Status.ObservedGeneration != 1 {
		t.Errorf("got a new profile requeued after %s, after %d reads, with observed generation %d",
			got, w.readings, w.profiles[1].Status.ObservedGeneration)
	}
	w.profiles[1].Status.Nodes.Matched = 99
	if got := pass(1); got != 600*time.Millisecond || w.profiles[1].Status.Nodes.Matched != 99 {
		t.Errorf("got a second pass for the same read requeued after %s, with %d nodes", got, w.profiles[1].Status.Nodes.Matched)
	}
	// The removal of the profile's finalizer depends on all changes until now.
	w.profiles[2].DeletionTimestamp = &metav1.Time{Time: w.clock.Now()}
	w.profiles[2].ResourceVersion = w.version()
	later(readEvery)
	pass(0)
	if later(400 * time.Millisecond); pass(2) != 600*time.Millisecond || len(w.profiles[2].Status.Conditions) != 0 {
		t.Errorf("got a deleted profile evaluated with an outdated read: %+v", w.profiles[2].Status)
	}
}

// A long read is followed by a longer rest. Without changes, its result stays valid during the rest.
func TestALongReadIsFollowedByALongRest(t *testing.T) {
	for readTime, want := range map[time.Duration]time.Duration{0: readEvery, 100 * time.Millisecond: readEvery, time.Second: 5 * time.Second, time.Minute: maxRest} {
		w := newBenchWorld(2, 3, 3)
		w.readingTakes = readTime
		r := w.newReconciler()
		for i, profile := range w.profiles {
			r.cluster.changes.Add(int64(i))
			if _, _, err := r.readCluster(t.Context(), &profile); err != nil {
				t.Fatal(err)
			}
		}
		_, next, err := r.readCluster(t.Context(), &w.profiles[0])
		if err != nil || next != want || w.readings != 1 {
			t.Errorf("after a read of %s: got the next read after %s, want %s; %d reads, error %v", readTime, next, want, w.readings, err)
		}
		w.clock.SetTime(w.clock.Now().Add(want - 1))
		r.cluster.lastChanges = r.cluster.changes.Load()
		if all, _, err := r.readCluster(t.Context(), &w.profiles[0]); err != nil || all == nil || w.readings != 1 {
			t.Errorf("after a read of %s: got %d reads until the end of the rest, error %v", readTime, w.readings, err)
		}
	}
}
