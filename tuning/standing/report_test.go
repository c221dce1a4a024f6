package standing

import (
	"testing"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
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
			check.Equal(t, "result", test.want, keysOf(test.report.Obstacles()))
		})
	}
}

// A single storage server may lie about a value. Its word counts against the whole fleet only with another witness.
func TestAccuser(t *testing.T) {
	failed := func(key string, connections ...string) Setting {
		return Setting{Key: key, Standing: Failed, connections: connections}
	}
	for name, test := range map[string]struct {
		report Report
		want   string
	}{
		"one server":                     {Report{Settings: []Setting{failed("a", "filer"), failed("b", "filer"), {Key: "c", Standing: Deferred}}}, "filer"},
		"two servers":                    {Report{Settings: []Setting{failed("a", "filer", "other")}}, ""},
		"the API server":                 {Report{Settings: []Setting{failed("a", v1alpha1.ConnectionAPIServer)}}, ""},
		"a server and the API server":    {Report{Settings: []Setting{failed("a", v1alpha1.ConnectionAPIServer, "filer")}}, ""},
		"a failure without a connection": {Report{Settings: []Setting{failed("a")}}, ""},
		"another failure, too":           {Report{Settings: []Setting{failed("a", "filer"), failed("b")}}, ""},
		"a reboot without effect":        {Report{Settings: []Setting{failed("a", "filer")}, Withheld: true}, ""},
		"no failure":                     {Report{}, ""},
	} {
		if got := test.report.Accuser(); got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}
