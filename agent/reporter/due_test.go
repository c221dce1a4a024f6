package reporter

import (
	"context"
	"errors"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/storageclient/operator/api/v1alpha1"
)

type failingAPI struct{ err error }

func (a *failingAPI) Prove(context.Context, int64, v1alpha1.StorageClientNodeStatus) error {
	return a.err
}
func (a *failingAPI) ApplyStatus(context.Context, v1alpha1.StorageClientNodeStatus, string) (*v1alpha1.StorageClientNode, error) {
	return nil, a.err
}

func TestDueIsNotInThePastWhileAWriteWaits(t *testing.T) {
	api, clock := &failingAPI{}, clocktesting.NewFakeClock(time.Unix(1000, 0))
	r := New(api, clock)
	busy := func(point string) v1alpha1.StorageClientNodeStatus {
		return v1alpha1.StorageClientNodeStatus{BusyMounts: []v1alpha1.BusyMount{{MountPoint: point}}}
	}
	r.Run(t.Context(), busy("/a"))
	clock.Step(time.Second)
	api.err = errors.New("no answer")
	r.Run(t.Context(), v1alpha1.StorageClientNodeStatus{}) // urgent: the last mount is gone
	clock.Step(2 * time.Second)
	r.Run(t.Context(), busy("/b")) // not urgent, and too early
	if remaining := r.Due().Sub(clock.Now()); remaining <= 0 {
		t.Errorf("the write is due %s ago, but waits for another %s", -remaining, r.nextAt.Sub(clock.Now()))
	}
}
