package orders

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageclient/operator/agent/host/probe"
	"github.com/storageclient/operator/api/v1alpha1"
)

func TestResultsOfAClonePass(t *testing.T) {
	phases := []probe.Phase{{Name: probe.First, Duration: time.Second, Units: 5, Operations: []probe.Operation{{Name: "READ", Count: 3}}}, {Name: probe.Repeated}}
	slow := func(ctx context.Context) ([]probe.Phase, int, error) {
		<-ctx.Done()
		return nil, 0, ctx.Err()
	}
	for name, test := range map[string]struct {
		run       func(context.Context) ([]probe.Phase, int, error)
		isDeleted bool
		want      v1alpha1.ClonePass
	}{
		"a measurement": {run: func(context.Context) ([]probe.Phase, int, error) { return phases, 4, nil }, want: v1alpha1.ClonePass{Transports: 4, Phases: []v1alpha1.TrialPassPhase{
			{Name: "First", Microseconds: 1000000, Units: 5, Operations: []v1alpha1.TrialOperation{{Name: "READ", Count: 3}}}, {Name: "Repeated"},
		}}},
		"work that fails":       {run: func(context.Context) ([]probe.Phase, int, error) { return nil, 0, errors.New("no file to read") }, want: v1alpha1.ClonePass{Failed: "no file to read"}},
		"a proof that fails":    {run: func(context.Context) ([]probe.Phase, int, error) { return nil, 0, probe.Void("shared") }, want: v1alpha1.ClonePass{Void: "shared"}},
		"work that takes long":  {run: slow, want: v1alpha1.ClonePass{Failed: "the work took longer than 8m0s"}},
		"a Pod that is deleted": {run: slow, isDeleted: true, want: v1alpha1.ClonePass{Void: "it was stopped before it finished"}},
		"a long error": {run: func(context.Context) ([]probe.Phase, int, error) {
			return nil, 0, errors.New(strings.Repeat("x", 2*v1alpha1.MaxClonePassText))
		}, want: v1alpha1.ClonePass{Failed: strings.Repeat("x", v1alpha1.MaxClonePassText-len("…")) + "…"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if test.isDeleted {
					cancel()
				}
				if diff := cmp.Diff(test.want, runClonePass(ctx, 8*time.Minute, 0, test.run)); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		})
	}
}

// The agent reports a mount within cloneStays. A clone that is removed earlier does not prove anything.
func TestACloneStaysUntilItIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const stays = time.Minute
		started := time.Now()
		pass := runClonePass(t.Context(), time.Second, stays, func(context.Context) ([]probe.Phase, int, error) { return nil, 1, nil })
		if duration := time.Since(started); duration != stays || pass.Transports != 1 {
			t.Errorf("got %+v after %s", pass, duration)
		}
	})
}

// The largest pass fits into the size limit of Kubernetes.
func TestAPassFitsIntoATerminationMessage(t *testing.T) {
	phase := probe.Phase{Duration: 1 << 62, Units: 1 << 63, BytesSent: 1 << 63, BytesReceived: 1 << 63}
	for i := range v1alpha1.MaxTrialOperations {
		phase.Operations = append(phase.Operations, probe.Operation{Name: strings.Repeat(string(rune('A'+i)), maxOperationName), Count: 1 << 63})
	}
	first, repeated := phase, phase
	first.Name, repeated.Name = probe.First, probe.Repeated
	pass := v1alpha1.ClonePass{Phases: trialPhases([]probe.Phase{first, repeated}), Transports: 1 << 30}
	if n := len(pass.Encode()); len(pass.Phases) != 2 || n > v1alpha1.MaxClonePassBytes {
		t.Errorf("got %d phases in %d bytes", len(pass.Phases), n)
	}
}
