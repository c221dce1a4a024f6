package rollout

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"

	"github.com/storageclient/operator/api/v1alpha1"
)

func TestABusyHostIsAnEventWhenItBeginsAndWhenTheNodeIsGivenUp(t *testing.T) {
	s := scopeOf(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
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
	if diff := cmp.Diff([]string{"Warning HostBusy apt-get", "Warning HostBusy given up"}, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}
