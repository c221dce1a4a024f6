package plan

import (
	"testing"
	"time"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume/optionset"
	"github.com/storageclient/operator/test/check"
)

// A mark whose times are in the future counts from now, and is written again.
func TestATimeInTheFutureIsWrittenAgain(t *testing.T) {
	b := newBench(t)
	toCanary(b)
	ahead := b.now.Add(7 * 24 * time.Hour)
	s := b.snapshot()
	before := For(s)
	s.Now = b.now.Add(-7 * 24 * time.Hour)
	planned := For(s)
	var written []RecordSet
	for _, step := range planned.Steps {
		if record, records := step.(RecordSet); records && record.Mark != nil {
			written = append(written, record)
		}
	}
	if len(written) != 1 || !written[0].Mark.Since.Equal(s.Now.Truncate(time.Second)) || written[0].Mark.Written.After(s.Now) {
		t.Errorf("got steps %v, want a mark with the time of now; with the right clock %v", planned.Steps, before.Steps)
	}
	r := &optionset.Record{Blames: []optionset.Blame{{Volume: "a", Since: ahead, RevertedAt: ahead}}, Closed: map[string]time.Time{"b": ahead, "c": b.now}}
	r.LimitTimes(b.now)
	want := &optionset.Record{Blames: []optionset.Blame{{Volume: "a", Since: b.now, RevertedAt: b.now}}, Closed: map[string]time.Time{"b": b.now, "c": b.now}}
	check.Equal(t, "record", want.Encode(), r.Encode())
	check.Equal(t, "failures", want.Blames, r.Blames)
	check.Equal(t, "closed", want.Closed, r.Closed)
	r.LimitTimes(time.Time{})
	check.Equal(t, "failures without a clock", want.Blames, r.Blames)
	check.Equal(t, "closed without a clock", want.Closed, r.Closed)
}

// A pause and a hold make no write, also not for the time of a mark.
func TestATimeInTheFutureStaysWhileTheProfileMakesNoWrites(t *testing.T) {
	for name, change := range map[string]func(*v1alpha1.StorageClientProfile){
		"paused":    func(p *v1alpha1.StorageClientProfile) { p.Spec.Paused = true },
		"mode Plan": func(p *v1alpha1.StorageClientProfile) { p.Spec.Mode = v1alpha1.ModePlan },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			toCanary(b)
			change(&b.profile)
			s := b.snapshot()
			for _, now := range []time.Time{b.now, b.now.Add(-7 * 24 * time.Hour)} {
				s.Now = now
				if steps := For(s).Steps; len(steps) > 0 {
					t.Errorf("at %s: got steps %v, want none", now, steps)
				}
			}
		})
	}
}

// A summary has no clock. It sees the sets in the same state as the plan, and the same candidates for probes.
func TestCandidatesDoNotDependOnTheTime(t *testing.T) {
	for name, way := range ways {
		for happening, happen := range happenings {
			b := newBench(t)
			way(b)
			now := happen(b)
			b.wait(10 * time.Second)
			b.pass(now)
			with, without := b.snapshot(), b.snapshot()
			without.Now = time.Time{}
			if want, got := ProbeCandidates(with), ProbeCandidates(without); len(got) != len(want) {
				t.Errorf("%s + %s: got %d candidates without a time, %d with", name, happening, len(got), len(want))
			}
			before, after := newPlanner(with).sets, newPlanner(without).sets
			for set, r := range before {
				for _, server := range []string{"filer", "other"} {
					if state := after[set].State(server); state != r.State(server) {
						t.Errorf("%s + %s: state on %s %s, without a time %s", name, happening, server, r.State(server), state)
					}
				}
			}
		}
	}
}
