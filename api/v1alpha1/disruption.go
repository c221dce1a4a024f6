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
	// NodeUID is the UID of the claimed Node, so that another of the same name is told from it. Only claims hold it.
	NodeUID string `json:"nodeUID,omitempty"`
	// Permit is there from before a reboot permit is given until it has been answered: the claim outlives the Node, and tells then
	// what was lost. Only claims hold it.
	Permit *ClaimedPermit `json:"permit,omitempty"`
}

// ClaimedPermit is what a claim says of a reboot permit.
//
// +kubebuilder:object:generate=false
type ClaimedPermit struct {
	// BootHash is what the permit is for, as status.rollout.bootHash names it.
	BootHash string `json:"bootHash"`
	// Profiles are those of the node with their plan hashes then.
	Profiles map[string]string `json:"profiles"`
	// Leaving is the taint by which others had marked the node for removal while it was Ready, empty if none had: when the Node
	// goes, it is not for the permit.
	Leaving string `json:"leaving,omitempty"`
}

// Encode writes a disruption as claims and marks hold it. Clusters hold values of former releases: the bytes must not change.
func (d Disruption) Encode() string {
	value, err := json.Marshal(d)
	if err != nil {
		panic(err) // strings and a time
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
