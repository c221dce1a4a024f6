package drift

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

const key = "sysctl/net.core.rmem_max"

func status(state v1alpha1.SettingState, observed string, count int32) v1alpha1.SettingStatus {
	s := v1alpha1.SettingStatus{Key: key, Desired: "16777216", Observed: observed, State: state}
	if count > 0 {
		s.Drift = &v1alpha1.Drift{Count: count, LastTime: metav1.NewTime(time.Unix(1, 0)), LastObserved: "4096"}
	}
	return s
}

func TestOneEventForEachIncrease(t *testing.T) {
	inSync, none := v1alpha1.SettingInSync, v1alpha1.SettingStatus{}
	failed := status(v1alpha1.SettingFailed, "4096", 1)
	failed.Message = "read-only"
	shadowed := status(v1alpha1.SettingShadowed, "16777216", 0)
	shadowed.Message = "zz.conf wins"
	minimum, more := shadowed, shadowed
	minimum.Desired, more.Desired, more.Observed = "at-least 16777216", "at-least 16777216", "33554432"
	minimumBefore := minimum
	minimumBefore.State, minimumBefore.Message = inSync, ""
	tests := map[string]struct {
		before, after v1alpha1.SettingStatus
		want          []string
	}{
		"nothing happened":                       {before: status(inSync, "16777216", 2), after: status(inSync, "16777216", 2)},
		"the first time":                         {before: status(inSync, "16777216", 0), after: status(inSync, "16777216", 1), want: []string{`Warning SettingDriftHealed Another program or user changed sysctl/net.core.rmem_max to "4096"; the agent set it back to "16777216"`}},
		"several times at once":                  {before: status(inSync, "16777216", 1), after: status(inSync, "16777216", 4), want: []string{`Warning SettingDriftHealed Another program or user changed sysctl/net.core.rmem_max to "4096" 3 times; the agent set it back to "16777216"`}},
		"a record that starts again":             {before: status(inSync, "16777216", 4), after: status(inSync, "16777216", 1), want: []string{`Warning SettingDriftHealed Another program or user changed sysctl/net.core.rmem_max to "4096"; the agent set it back to "16777216"`}},
		"it could not be healed":                 {before: status(inSync, "16777216", 0), after: failed, want: []string{`Warning SettingDrifted Another program or user changed sysctl/net.core.rmem_max to "4096"; the agent could not set it back to "16777216": read-only`}},
		"no longer corrected":                    {before: status(inSync, "16777216", 5), after: status(v1alpha1.SettingDrifted, "4096", 5), want: []string{`Warning SettingDrifted sysctl/net.core.rmem_max is "4096", not the declared "16777216": Drifted`}},
		"still not corrected":                    {before: status(v1alpha1.SettingDrifted, "4096", 5), after: status(v1alpha1.SettingDrifted, "8192", 5)},
		"a file that overrides the agent's file": {before: status(inSync, "16777216", 0), after: shadowed, want: []string{`Warning SettingDrifted sysctl/net.core.rmem_max has the declared value "16777216" until the next boot: zz.conf wins`}},
		"a file that has less than a minimum":    {before: minimumBefore, after: minimum, want: []string{`Warning SettingDrifted sysctl/net.core.rmem_max has the declared value "at-least 16777216" until the next boot: zz.conf wins`}},
		"the kernel has more than a minimum":     {before: minimumBefore, after: more, want: []string{`Warning SettingDrifted sysctl/net.core.rmem_max has the declared value "at-least 16777216" until the next boot: zz.conf wins`}},
		"a removed record":                       {before: status(inSync, "16777216", 5), after: status(inSync, "16777216", 0)},
		"a setting that is new here":             {before: none, after: status(v1alpha1.SettingDrifted, "4096", 0)},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			recorder := events.NewFakeRecorder(10)
			clientNode := func(s v1alpha1.SettingStatus) *v1alpha1.StorageClientNode {
				n := &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
				n.Status.Settings = []v1alpha1.SettingStatus{s}
				return n
			}
			(&Reporter{Recorder: recorder}).ReportChanges(clientNode(test.before), clientNode(test.after))
			var got []string
			for len(recorder.Events) > 0 {
				got = append(got, strings.TrimSpace(<-recorder.Events))
			}
			check.Equal(t, "events", test.want, got)
		})
	}
}
