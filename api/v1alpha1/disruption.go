package v1alpha1

import (
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Disruption says for whom, for which settings and since when a node is disrupted. It is what a claim in BudgetConfigMap
// and the mark under DisruptionAnnotation on a Node hold, in the form of Encode.
//
// +kubebuilder:object:generate=false
type Disruption struct {
	// Profile is the profile that the node is disrupted for: the one with the highest priority of those that need it.
	Profile string `json:"profile"`
	// BootHash is the boot hash that the disruption is for.
	BootHash string `json:"bootHash"`
	// Since is when the claim was made, or the node cordoned.
	Since metav1.Time `json:"since"`
}

// Encode writes a disruption as claims and marks hold it. Clusters hold values of former releases: the bytes must not change.
func (d Disruption) Encode() string {
	value, err := json.Marshal(d)
	if err != nil {
		panic(err) // two strings and a time
	}
	return string(value)
}

// DecodeDisruption reads the value of a claim or of a mark. A field that is not there is empty; fields of later releases are
// passed over. Whoever counts disruptions counts one that cannot be read, too: it comes back empty with the error.
func DecodeDisruption(value string) (Disruption, error) {
	var raw struct {
		Disruption

		Since json.RawMessage `json:"since"`
	}
	if err := json.Unmarshal([]byte(value), &raw); err != nil {
		return Disruption{}, fmt.Errorf("decode disruption %q: %w", value, err)
	}
	if raw.Since != nil {
		if err := json.Unmarshal(raw.Since, &raw.Disruption.Since); err != nil {
			return Disruption{}, fmt.Errorf("decode disruption %q: since: %w", value, err)
		}
	}
	return raw.Disruption, nil
}
