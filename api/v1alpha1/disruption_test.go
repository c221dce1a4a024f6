package v1alpha1_test

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

var since = metav1.NewTime(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))

// TestDisruptionEncodingIsStable pins the encoding that clusters already store.
func TestDisruptionEncodingIsStable(t *testing.T) {
	east := metav1.NewTime(since.In(time.FixedZone("east", 3600)))
	for name, c := range map[string]struct {
		in   v1alpha1.Disruption
		want string
	}{
		"all fields":                    {v1alpha1.Disruption{Profile: "eda", BootHash: "1f3a", Since: since}, `{"profile":"eda","bootHash":"1f3a","since":"2026-11-20T12:00:00Z"}`},
		"a time of another zone":        {v1alpha1.Disruption{Profile: "eda", Since: east}, `{"profile":"eda","bootHash":"","since":"2026-11-20T12:00:00Z"}`},
		"nothing is known but the node": {v1alpha1.Disruption{}, `{"profile":"","bootHash":"","since":null}`},
		"a claim that names its Node":   {v1alpha1.Disruption{Profile: "eda", NodeUID: "u-1"}, `{"profile":"eda","bootHash":"","since":null,"nodeUID":"u-1"}`},
		"a claim of a node with a permit": {
			v1alpha1.Disruption{Profile: "eda", BootHash: "1f3a", NodeUID: "u-1", Permit: &v1alpha1.ClaimedPermit{
				BootHash: "release-1f3a", Profiles: map[string]string{"smb": "", "eda": "2b"}, Leaving: "karpenter.sh/disrupted",
			}},
			`{"profile":"eda","bootHash":"1f3a","since":null,"nodeUID":"u-1",` +
				`"permit":{"bootHash":"release-1f3a","profiles":{"eda":"2b","smb":""},"leaving":"karpenter.sh/disrupted"}}`,
		},
		"a character that JSON in HTML escapes": {v1alpha1.Disruption{Profile: "a<b"}, `{"profile":"a\u003cb","bootHash":"","since":null}`},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.in.Encode(); got != c.want {
				t.Fatalf("got  %s\nwant %s", got, c.want)
			}
			got, err := v1alpha1.DecodeDisruption(c.want)
			check.NoError(t, err)
			if !got.Since.Time.Equal(c.in.Since.Time) {
				t.Errorf("since: got %s, want %s", got.Since, c.in.Since)
			}
			got.Since, c.in.Since = metav1.Time{}, metav1.Time{}
			check.Equal(t, "result", c.in, got)
		})
	}
}

func TestDecodeDisruption(t *testing.T) {
	for name, c := range map[string]struct {
		value string
		want  v1alpha1.Disruption
		wrong []string
	}{
		"fields that are not there are empty":        {value: `{"profile":"eda"}`, want: v1alpha1.Disruption{Profile: "eda"}},
		"a field of a later release is ignored":      {value: `{"profile":"eda","attempt":3}`, want: v1alpha1.Disruption{Profile: "eda"}},
		"an empty object":                            {value: `{}`},
		"no time":                                    {value: `{"profile":"eda","since":null}`, want: v1alpha1.Disruption{Profile: "eda"}},
		"nothing at all is an error":                 {value: "", wrong: []string{`disruption ""`, "unexpected end"}},
		"a value that is not JSON":                   {value: "by hand", wrong: []string{`"by hand"`, "invalid character"}},
		"a list is an error":                         {value: "[]", wrong: []string{`"[]"`, "array"}},
		"a field of another type is named":           {value: `{"profile":1}`, wrong: []string{"profile", "number"}},
		"a time that is none is named with its name": {value: `{"profile":"eda","since":"today"}`, wrong: []string{"since", "today"}},
		"a time of another type is named":            {value: `{"profile":"eda","since":3}`, wrong: []string{"since", "number"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := v1alpha1.DecodeDisruption(c.value)
			check.Equal(t, "result", c.want, got)
			if (err != nil) != (len(c.wrong) > 0) {
				t.Fatalf("error %v", err)
			}
			for _, part := range c.wrong {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("got error %q, want it to contain %q", err, part)
				}
			}
		})
	}
}
