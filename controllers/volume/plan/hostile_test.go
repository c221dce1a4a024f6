package plan

import (
	"testing"
	"time"

	"github.com/storageclient/operator/api/v1alpha1"
)

// A pause and a hold make no writes, also not for the time of a mark.
func TestHostileNoCorrectionWhilePaused(t *testing.T) {
	for name, change := range map[string]func(*v1alpha1.StorageClientProfile){
		"paused":    func(p *v1alpha1.StorageClientProfile) { p.Spec.Paused = true },
		"mode Plan": func(p *v1alpha1.StorageClientProfile) { p.Spec.Mode = v1alpha1.ModePlan },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			toCanary(b)
			change(&b.profile)
			s := b.snapshot()
			if steps := For(s).Steps; len(steps) > 0 {
				t.Skipf("control: steps %v with the right clock", steps)
			}
			s.Now = b.now.Add(-7 * 24 * time.Hour)
			if steps := For(s).Steps; len(steps) > 0 {
				t.Errorf("got %v", steps)
			}
		})
	}
}

// The trial controller asks for the candidates without a time, as trial/reconciler.go does.
func TestHostileCandidatesDoNotDependOnTheTime(t *testing.T) {
	for name, way := range ways {
		for happening, happen := range happenings {
			b := newBench(t)
			way(b)
			now := happen(b)
			b.wait(10 * time.Second)
			b.pass(now)
			s := b.snapshot()
			want := ProbeCandidates(s)
			s.Now = time.Time{}
			if got := ProbeCandidates(s); len(got) != len(want) {
				t.Errorf("%s + %s: got %d candidates without a time, %d with", name, happening, len(got), len(want))
			}
			before, after := newPlanner(b.snapshot()).sets, newPlanner(s).sets
			for set, r := range before {
				for _, server := range []string{"filer", "other"} {
					if other := after[set]; other.State(server) != r.State(server) {
						t.Errorf("%s + %s: state on %s %s, without a time %s", name, happening, server, r.State(server), other.State(server))
					}
				}
			}
		}
	}
}
