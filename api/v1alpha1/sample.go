package v1alpha1

import (
	"encoding/json"
	"fmt"
	"regexp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Bounds of a SampleRequest, and of the spec that comes of it.
const (
	MinSampleSeconds = 10
	MaxSampleSeconds = 3600
	// MaxSampleNodes is how many nodes one request may name.
	MaxSampleNodes = 16
	// SampleGrace is how long a request may wait for its window to begin: until the manager and the agents have seen it.
	SampleGrace = 3 * time.Minute
)

// SampleRequest is what SampleAnnotation on a PersistentVolumeClaim holds. Whoever may annotate it may ask what its volume's
// mounts do: StorageClientNodes themselves are written by the manager and the agents alone.
//
// +kubebuilder:object:generate=false
type SampleRequest struct {
	// ID tells one request from the one before.
	ID string `json:"id"`
	// Seconds is how long the window is to be.
	Seconds int32 `json:"seconds"`
	// Nodes are the nodes that are to take a sample.
	Nodes []string `json:"nodes"`
	// Until is when the request expires. It leaves no more than SampleGrace beside the window.
	Until metav1.Time `json:"until"`
}

// Encode writes a request as the annotation holds it.
func (r SampleRequest) Encode() string {
	value, err := json.Marshal(r)
	if err != nil {
		panic(err) // strings, a number and a time
	}
	return string(value)
}

// SampleID is what the request of a PersistentVolumeClaim is called in spec.sample: no other one's has the same.
func (r SampleRequest) SampleID(volumeClaim types.UID) string {
	return string(volumeClaim) + "-" + r.ID
}

// StartBefore is until when its window may begin.
func (r SampleRequest) StartBefore() time.Time {
	return r.Until.Add(-time.Duration(r.Seconds) * time.Second)
}

// requestID leaves room for a UID in the 64 characters of spec.sample.id.
var requestID = regexp.MustCompile(`\A[A-Za-z0-9]{1,27}\z`)

// DecodeSampleRequest reads the annotation, which anybody may have written.
func DecodeSampleRequest(value string) (SampleRequest, error) {
	var r SampleRequest
	if err := json.Unmarshal([]byte(value), &r); err != nil {
		return SampleRequest{}, fmt.Errorf("decode %s: %w", SampleAnnotation, err)
	}
	switch {
	case !requestID.MatchString(r.ID):
		return SampleRequest{}, fmt.Errorf("%s: id must have 1 to 27 letters and digits", SampleAnnotation)
	case r.Seconds < MinSampleSeconds || r.Seconds > MaxSampleSeconds:
		return SampleRequest{}, fmt.Errorf("%s: seconds must be %d to %d", SampleAnnotation, MinSampleSeconds, MaxSampleSeconds)
	case len(r.Nodes) == 0 || len(r.Nodes) > MaxSampleNodes:
		return SampleRequest{}, fmt.Errorf("%s: nodes must name 1 to %d nodes", SampleAnnotation, MaxSampleNodes)
	case r.Until.IsZero():
		return SampleRequest{}, fmt.Errorf("%s: until must be a time", SampleAnnotation)
	}
	return r, nil
}
