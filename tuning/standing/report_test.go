package standing

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A reboot of a node with an obstacle would be useless. Settings that a boot makes effective or does not change are no obstacle.
func TestObstacles(t *testing.T) {
	for name, test := range map[string]struct {
		report Report
		want   []string
	}{
		"what a boot brings, and what is effective without it": {
			report: Report{Settings: []Setting{{Key: "a", Standing: PendingReboot}, {Key: "b", Standing: Applying}, {Key: "c", Standing: Drifted}, {Key: "d", Standing: Unavailable}}},
		},
		"what a boot does not bring": {
			report: Report{Settings: []Setting{{Key: "a", Standing: Failed}, {Key: "b", Standing: PendingReboot}, {Key: "c", Standing: Unstaged}, {Key: "d", Standing: OverriddenAtBoot}}},
			want:   []string{"a", "c", "d"},
		},
		"a removal that failed, of a value that the boot configuration still has": {
			report: Report{Settings: []Setting{{Key: "a", Standing: RestoreFailed, boots: true}, {Key: "b", Standing: RestoreFailed}}},
			want:   []string{"a"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, keysOf(test.report.Obstacles())); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
