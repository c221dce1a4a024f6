package plan

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

// A trial waits for its turn while the clock is ahead by a week for one pass. Then the clock is right.
func TestAWaitInTheFutureEndsNoTrial(t *testing.T) {
	for name, ahead := range map[string]time.Duration{"right": 0, "ahead": 7 * 24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, "n1")
			trial := l.add("a")
			trial.Status.StartTime = ptr.To(metav1.NewTime(l.now.Add(-time.Minute)))
			trial.Status.WaitingSince = ptr.To(metav1.NewTime(l.now.Add(ahead)))
			l.runTrials()
			if trial.Status.Verdict == "" || trial.Status.WaitingSince != nil || trial.Status.WaitedSeconds > 600 {
				t.Errorf("got status %+v, want a verdict and no wait", trial.Status)
			}
		})
	}
}

// The clock is ahead by a week while nodes get their requests. Then it is right, and the nodes die.
func TestRequestsOfAClockThatWasAheadHoldNoPlace(t *testing.T) {
	for name, ahead := range map[string]time.Duration{"right": 0, "ahead": 7 * 24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			names := []string{"alive"}
			for i := range maxSamples {
				names = append(names, fmt.Sprintf("n%02d", i))
			}
			l := newWatch(t, names...)
			counts := l.count
			l.count = func(name string, asked v1alpha1.NodeSample) *v1alpha1.NodeSampleStatus {
				if name == "alive" {
					return counts(name, asked)
				}
				return nil
			}
			for i, name := range names[1:] {
				part := fmt.Sprint(i / 10)
				l.nodes[name].Node.Labels["part"] = part
				if i%10 == 0 {
					l.observe(part, func(s *v1alpha1.StorageClientTrialSpec) {
						s.NodeSelector = map[string]v1alpha1.LabelText{"part": v1alpha1.LabelText(part)}
					})
				}
			}
			right := l.now
			l.now = l.now.Add(ahead)
			for range 4 {
				l.step()
			}
			for _, name := range names[1:] {
				l.nodes[name].Writable = false
			}
			l.now = right.Add(2 * time.Hour)
			l.step()
			l.nodes["alive"].Node.Labels["part"] = "alive"
			later := l.observe("later", func(s *v1alpha1.StorageClientTrialSpec) {
				s.NodeSelector = map[string]v1alpha1.LabelText{"part": "alive"}
			})
			for range 8 {
				l.step()
			}
			l.expectCounted(later)
		})
	}
}

// A trial that still waits gets the right time written.
func TestAWaitInTheFutureIsWrittenAgain(t *testing.T) {
	l := newLab(t, "n1")
	var waits []time.Time
	for _, name := range []string{"a", "b"} {
		l.add(name).Status.WaitingSince = ptr.To(metav1.NewTime(l.now.Add(7 * 24 * time.Hour)))
	}
	now := l.now
	l.step()
	for _, trial := range l.trials {
		if trial.Status.WaitingSince != nil {
			waits = append(waits, trial.Status.WaitingSince.Time)
		}
	}
	check.Equal(t, "starts of waits", []time.Time{now, now}, waits)
}
