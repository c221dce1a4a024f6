package orders

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/storageclient/operator/agent/host/probe"
	"github.com/storageclient/operator/agent/mounted"
	"github.com/storageclient/operator/agent/reporter"
	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/text"
)

const (
	// clonePassTimeout is shorter than the lifetime of a clone's Pod, so that the Pod can still report the timeout.
	clonePassTimeout = 8 * time.Minute
	// cloneStays is the minimum time that a clone stays mounted. The agent of its node must report the mount in this time for a valid
	// pass.
	cloneStays = mounted.Interval + reporter.Interval + 10*time.Second
)

// RunClonePass runs the work of one pass in the Pod of a clone that is mounted at dir. After successful work, it waits until the agent of
// the node has had time to report the mount.
func RunClonePass(ctx context.Context, dir string, work probe.Work) v1alpha1.ClonePass {
	return runClonePass(ctx, clonePassTimeout, cloneStays, func(ctx context.Context) ([]probe.Phase, int, error) {
		return probe.RunOnClone(ctx, dir, boundWork(work))
	})
}

func runClonePass(ctx context.Context, timeout, stays time.Duration, run func(context.Context) ([]probe.Phase, int, error)) v1alpha1.ClonePass {
	enough := time.After(stays)
	working, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	phases, transports, err := run(working)
	if reason, void := errors.AsType[probe.Void](err); void {
		return v1alpha1.ClonePass{Void: text.CutBytes(string(reason), v1alpha1.MaxClonePassText)}
	}
	switch {
	case ctx.Err() != nil:
		return v1alpha1.ClonePass{Void: "it was stopped before it finished"}
	case working.Err() != nil:
		return v1alpha1.ClonePass{Failed: fmt.Sprintf("the work took longer than %s", timeout)}
	case err != nil:
		return v1alpha1.ClonePass{Failed: text.CutBytes(err.Error(), v1alpha1.MaxClonePassText)}
	}
	select {
	case <-enough:
	case <-ctx.Done():
	}
	return v1alpha1.ClonePass{Phases: trialPhases(phases), Transports: int32(min(transports, math.MaxInt32))}
}
