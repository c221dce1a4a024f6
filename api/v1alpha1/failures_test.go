package v1alpha1_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

// TestFailuresEncodingIsStable pins the encoding that clusters already store.
func TestFailuresEncodingIsStable(t *testing.T) {
	node := v1alpha1.FailedNode{Name: "n1", UID: "u-1", At: since, Reason: "NodeLost", Message: "It was deleted"}
	for name, c := range map[string]struct {
		in   v1alpha1.ProfileFailures
		want string
	}{
		"nothing but a retry": {v1alpha1.ProfileFailures{Retry: "2026-11-20T12:00:00Z/n1"}, `{"retry":"2026-11-20T12:00:00Z/n1"}`},
		"a node": {
			v1alpha1.ProfileFailures{Boots: []v1alpha1.BootFailures{{BootHash: "1f3a", Settings: "2b", Nodes: []v1alpha1.FailedNode{node}}}},
			`{"boots":[{"bootHash":"1f3a","settings":"2b","nodes":[{"name":"n1","uid":"u-1","at":"2026-11-20T12:00:00Z","reason":"NodeLost","message":"It was deleted"}]}]}`,
		},
		"more than are listed": {
			v1alpha1.ProfileFailures{Boots: []v1alpha1.BootFailures{{BootHash: "1f3a", More: 3}}},
			`{"boots":[{"bootHash":"1f3a","more":3,"nodes":null}]}`,
		},
		"nothing": {v1alpha1.ProfileFailures{}, `{}`},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.in.Encode(); got != c.want {
				t.Fatalf("got  %s\nwant %s", got, c.want)
			}
			got, err := v1alpha1.DecodeFailures(c.want)
			check.NoError(t, err)
			sameTime := cmp.Comparer(func(a, b metav1.Time) bool { return a.Time.Equal(b.Time) })
			check.Equal(t, "result", c.in, got, sameTime)
		})
	}
}

func TestDecodeFailures(t *testing.T) {
	for name, c := range map[string]struct{ value, wrong string }{
		"a field of a later release is ignored": {`{"retry":"1","next":{}}`, ""},
		"a value that is not JSON":              {"by hand", `"by hand"`},
		"a field of another type is named":      {`{"retry":1}`, "retry"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := v1alpha1.DecodeFailures(c.value)
			if (err != nil) != (c.wrong != "") || (err != nil && !strings.Contains(err.Error(), c.wrong)) {
				t.Errorf("error %v", err)
			}
		})
	}
}
