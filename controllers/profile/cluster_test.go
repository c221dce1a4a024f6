package profile

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/storageclient/operator/api/v1alpha1"
)

// Passes over many profiles share a reading, none goes by an older one than its event, and a cluster that goes on changing is read once
// a second.
func TestPassesShareAReading(t *testing.T) {
	w := newBenchWorld(3, 3, 3)
	r := w.newReconciler()
	pass := func(profile int) time.Duration {
		t.Helper()
		r.pacer.forget(w.profiles[profile].Name)
		result, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: w.profiles[profile].Name}})
		if err != nil {
			t.Fatal(err)
		}
		return result.RequeueAfter
	}
	readings := func(what string, want int) {
		t.Helper()
		if w.readings != want {
			t.Errorf("%s: %d readings, want %d", what, w.readings, want)
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
		t.Errorf("a change 0.3 s after a reading waits %s, want 0.7 s", got)
	}
	readings("a change right after a reading", 1)
	wait(700 * time.Millisecond)
	pass(0)
	pass(1)
	readings("a change a second after a reading", 2)

	wait(readingLasts)
	pass(1)
	readings("two seconds without an event", 3)

	// The cache may have the profile before its watch tells of it.
	w.profiles[2].Generation++
	w.profiles[2].ResourceVersion = w.version()
	w.profiles[2].Spec.Volumes[0].MountOptions = []v1alpha1.MountOption{"nocto"}
	if got := pass(2); got != readEvery || w.profiles[2].Status.ObservedGeneration != 1 {
		t.Errorf("the edited profile waits %s and has observed generation %d", got, w.profiles[2].Status.ObservedGeneration)
	}
	wait(readEvery)
	pass(2)
	readings("an edited profile", 4)
	if got := w.profiles[2].Status; got.ObservedGeneration != 2 || got.Volumes.UpToDate != 0 {
		t.Errorf("the edited profile has %+v", got)
	}

	r.cluster.isWatching = false
	pass(0)
	pass(0)
	readings("without a watch", 6)
}
