package reporter

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/storageclient/operator/api/v1alpha1"
)

type failingAPI struct{ err error }

func (a *failingAPI) Prove(context.Context, int64, v1alpha1.StorageClientNodeStatus) error {
	return a.err
}
func (a *failingAPI) ApplyStatus(context.Context, v1alpha1.StorageClientNodeStatus, string) error {
	return a.err
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

func TestABusyServerProvesTheConnectionAndLacksTheStatus(t *testing.T) {
	api, clock := &failingAPI{}, clocktesting.NewFakeClock(time.Unix(1000, 0))
	r := New(api, clock)
	status := v1alpha1.StorageClientNodeStatus{Hash: "a"}
	api.err = fmt.Errorf("write status: %w", apierrors.NewTooManyRequestsError("busy"))
	if err := r.Prove(t.Context(), 1, status); err != nil {
		t.Errorf("got %v, want contact", err)
	}
	if r.Ready() || r.isDue(status) {
		t.Error("the status counts as written, or is written again at once")
	}
	if clock.Step(time.Minute); !r.isDue(status) {
		t.Error("the status is not written later")
	}
	api.err = errors.New("i/o timeout")
	if r.Prove(t.Context(), 1, status) == nil {
		t.Error("a broken connection counts as a proof")
	}
}
