package status

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/test/check"
)

func TestAnEventIsSentIfTheStateOfAProfileChanges(t *testing.T) {
	list := func(words ...string) (out []metav1.Condition) {
		for i := 0; i < len(words); i += 4 {
			out = append(out, metav1.Condition{Type: words[i], Status: metav1.ConditionStatus(words[i+1]), Reason: words[i+2], Message: words[i+3]})
		}
		return out
	}
	rolling := list("Ready", "False", "RollingOut", "1/2", "Reconciling", "True", "RollingOut", "1/2", "Stalled", "False", "Progressing", "", "Conflict", "False", "NoConflict", "")
	for name, c := range map[string]struct {
		before, after []metav1.Condition
		want          []string
	}{
		"at first":                             {nil, rolling, []string{"Normal RollingOut 1/2"}},
		"not for what stands":                  {rolling, rolling, nil},
		"not for a change of the message only": {rolling, list("Ready", "False", "RollingOut", "2/2", "Reconciling", "True", "RollingOut", "2/2"), nil},
		"when it is done":                      {rolling, list("Ready", "True", "UpToDate", "2/2"), []string{"Normal UpToDate 2/2"}},
		"when it waits":                        {rolling, list("Ready", "False", "RebootPending", "due", "Reconciling", "True", "WaitingForApproval", "approve"), []string{"Normal WaitingForApproval approve"}},
		"when it is paused":                    {rolling, list("Ready", "False", "RollingOut", "1/2", "Paused", "True", "PausedByField", "resume"), []string{"Normal PausedByField resume"}},
		"when it needs manual action":          {rolling, list("Ready", "False", "Invalid", "why", "Stalled", "True", "Invalid", "why"), []string{"Warning Invalid why"}},
		"when a conflict comes up":             {rolling, append(list("Conflict", "True", "SettingConflict", "a and b"), rolling[:3]...), []string{"Warning SettingConflict a and b"}},
		"once if a conflict stops it":          {rolling, list("Ready", "False", "VolumeConflict", "v", "Stalled", "True", "VolumeConflict", "v", "Conflict", "True", "VolumeConflict", "v"), []string{"Warning VolumeConflict v"}},
		"when mounts are stale":                {rolling, append(list("MountsEffective", "False", "StaleMounts", "restart"), rolling...), []string{"Normal StaleMounts restart"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, change := range Changes(c.before, c.after) {
				got = append(got, change.Kind+" "+change.Reason+" "+change.Message)
			}
			check.Equal(t, "events", c.want, got)
		})
	}
}
