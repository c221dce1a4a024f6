package rollout

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/rollout/plan"
	"github.com/storageclient/operator/test/check"
)

func TestABusyHostCausesAnEventAtItsStartAndAtTheTimeout(t *testing.T) {
	s := passOf(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
	recorder := events.NewFakeRecorder(10)
	s.Recorder = recorder
	if _, err := s.readSnapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	note := func(phase v1alpha1.RolloutPhase, reason, message string) v1alpha1.RolloutStatus {
		return v1alpha1.RolloutStatus{Phase: phase, Reason: reason, Message: message}
	}
	notes := []v1alpha1.RolloutStatus{
		note(v1alpha1.RolloutRebooting, v1alpha1.RolloutReasonPermitGiven, "permit"),
		note(v1alpha1.RolloutRebooting, v1alpha1.RolloutReasonHostBusy, "apt-get"),
		note(v1alpha1.RolloutRebooting, v1alpha1.RolloutReasonHostBusy, "dpkg"),
		note(v1alpha1.RolloutWaiting, v1alpha1.RolloutReasonHostBusy, "given up"),
		note(v1alpha1.RolloutWaiting, v1alpha1.RolloutReasonHostBusy, "given up"),
	}
	for i := range notes[1:] {
		s.emitNoteEvent("a", notes[i], notes[i+1])
	}
	close(recorder.Events)
	var got []string
	for event := range recorder.Events {
		got = append(got, event)
	}
	check.Equal(t, "events", []string{"Warning HostBusy apt-get", "Warning HostBusy given up"}, got)
}

// One event per node and step would be a fifth of all writes of a rollout.
func TestProgressIsReportedPerProfileAtMostOnceAMinute(t *testing.T) {
	mark := v1alpha1.Disruption{Profile: "eda"}.Encode()
	objects := []client.Object{&v1alpha1.StorageClientProfile{ObjectMeta: metav1.ObjectMeta{Name: "eda"}}}
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		objects = append(objects, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{v1alpha1.DisruptionAnnotation: mark}}})
	}
	s := passOf(t, objects...)
	recorder, clock := events.NewFakeRecorder(10), clocktesting.NewFakePassiveClock(time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC))
	s.Recorder, s.Clock = recorder, clock
	if _, err := s.readSnapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	uncordon := func(names ...string) {
		for _, name := range names {
			check.NoError(t, s.uncordonNode(t.Context(), plan.Uncordon{OnNode: plan.OnNode{Node: name}, Reason: v1alpha1.RolloutReasonAccepted}))
		}
	}
	uncordon("a")
	if next := s.reportProgress(); !next.IsZero() {
		t.Errorf("next event is due at %s, want none after the last report", next)
	}
	uncordon("b", "c")
	if next := s.reportProgress(); !next.Equal(clock.Now().Add(time.Minute)) {
		t.Errorf("next event is due at %s, want one a minute later", next)
	}
	clock.SetTime(clock.Now().Add(time.Minute))
	uncordon("d", "e")
	s.reportProgress()
	clock.SetTime(clock.Now().Add(time.Minute))
	if s.reportProgress(); len(s.progress) > 0 {
		t.Errorf("kept progress %v of a profile without further events", s.progress)
	}
	close(recorder.Events)
	var got []string
	for event := range recorder.Events {
		got = append(got, event)
	}
	want := []string{
		"Normal RolloutProgress Settings verified after the reboot, in service: a",
		"Normal RolloutProgress Settings verified after the reboot, in service: b, c, d and 1 more",
	}
	check.Equal(t, "events", want, got)
}
