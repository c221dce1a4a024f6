package v1alpha1

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func goodRequest() SampleRequest {
	return SampleRequest{ID: "a1", Seconds: 600, Nodes: []string{"n1"}, Until: metav1.NewTime(time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC))}
}

func TestASampleRequestIsReadAsItWasWritten(t *testing.T) {
	got, err := DecodeSampleRequest(goodRequest().Encode())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(goodRequest(), got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got.SampleID("u-1") != "u-1-a1" || !got.StartBefore().Equal(time.Date(2026, 9, 1, 11, 50, 0, 0, time.UTC)) {
		t.Errorf("id %s, start before %s", got.SampleID("u-1"), got.StartBefore())
	}
}

func TestWhatIsNoSampleRequest(t *testing.T) {
	of := func(change func(*SampleRequest)) string {
		r := goodRequest()
		change(&r)
		return r.Encode()
	}
	for name, test := range map[string]struct{ value, want string }{
		"no JSON":                      {"yes", "decode"},
		"no id":                        {of(func(r *SampleRequest) { r.ID = "" }), "id must"},
		"an id that is too long":       {of(func(r *SampleRequest) { r.ID = strings.Repeat("a", 28) }), "id must"},
		"an id that holds more":        {of(func(r *SampleRequest) { r.ID = "a\n" }), "id must"},
		"a window that is too short":   {of(func(r *SampleRequest) { r.Seconds = 9 }), "seconds must"},
		"a window that is too long":    {of(func(r *SampleRequest) { r.Seconds = 3601 }), "seconds must"},
		"no nodes":                     {of(func(r *SampleRequest) { r.Nodes = nil }), "nodes must"},
		"too many nodes":               {of(func(r *SampleRequest) { r.Nodes = make([]string, 17) }), "nodes must"},
		"a request that never expires": {of(func(r *SampleRequest) { r.Until = metav1.Time{} }), "until must"},
	} {
		t.Run(name, func(t *testing.T) {
			if r, err := DecodeSampleRequest(test.value); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
}
