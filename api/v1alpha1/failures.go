package v1alpha1

import (
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ProfileFailures is what FailuresConfigMap remembers of a profile, under its name and in the form of Encode.
//
// +kubebuilder:object:generate=false
type ProfileFailures struct {
	// Retry is the value of RetryAnnotation that was honoured last.
	Retry string `json:"retry,omitempty"`
	// Boots are the failures by boot hash.
	Boots []BootFailures `json:"boots,omitempty"`
}

// BootFailures are the nodes that failed with the same boot settings.
//
// +kubebuilder:object:generate=false
type BootFailures struct {
	// BootHash is what they failed at, as status.rollout.bootHash names it.
	BootHash string `json:"bootHash"`
	// Plan is the profile's plan hash then: where it has another one now, this is over.
	Plan string `json:"plan"`
	// More is how many nodes failed before those that are listed.
	More int `json:"more,omitempty"`
	// Nodes are the failed nodes, the oldest failure first.
	Nodes []FailedNode `json:"nodes"`
}

// FailedNode is one of them. Whether its Node still exists is not written down.
//
// +kubebuilder:object:generate=false
type FailedNode struct {
	// Name is the node's name.
	Name string `json:"name"`
	// UID is the UID of its Node.
	UID string `json:"uid"`
	// At is when it failed, or was found to be gone.
	At metav1.Time `json:"at"`
	// Reason is that of status.rollout, or NodeLost.
	Reason string `json:"reason"`
	// Message is that of status.rollout, cut short.
	Message string `json:"message"`
}

// Encode writes failures as the ConfigMap holds them. Clusters hold values of former releases: the bytes must not change.
func (f ProfileFailures) Encode() string {
	value, err := json.Marshal(f)
	if err != nil {
		panic(err) // strings, numbers and times
	}
	return string(value)
}

// DecodeFailures reads a value of FailuresConfigMap. Fields of later releases are passed over.
func DecodeFailures(value string) (ProfileFailures, error) {
	var out ProfileFailures
	if err := json.Unmarshal([]byte(value), &out); err != nil {
		return ProfileFailures{}, fmt.Errorf("decode failures %q: %w", value, err)
	}
	return out, nil
}
