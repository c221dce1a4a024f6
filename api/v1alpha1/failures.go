package v1alpha1

import (
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ProfileFailures contains the recorded failures of a profile. FailuresConfigMap contains it under the profile's name in the form
// of Encode.
//
// +kubebuilder:object:generate=false
type ProfileFailures struct {
	// Retry is the value of RetryAnnotation that was applied last.
	Retry string `json:"retry,omitempty"`
	// Boots are the failures by boot hash.
	Boots []BootFailures `json:"boots,omitempty"`
}

// BootFailures contains the nodes that failed with the same boot hash.
//
// +kubebuilder:object:generate=false
type BootFailures struct {
	// BootHash is the boot hash of the failures, as in status.rollout.bootHash.
	BootHash string `json:"bootHash"`
	// Settings is the hash of the profile's settings that require a reboot. With another hash, the failures no longer count.
	Settings string `json:"settings,omitempty"`
	// More is the number of failed nodes that are older than the nodes in the list.
	More int `json:"more,omitempty"`
	// Nodes are the failed nodes, the oldest failure first.
	Nodes []FailedNode `json:"nodes"`
}

// FailedNode is a node that failed. It does not record whether the Node still exists.
//
// +kubebuilder:object:generate=false
type FailedNode struct {
	// Name is the name of the node.
	Name string `json:"name"`
	// UID is the UID of the Node.
	UID string `json:"uid"`
	// At is the time of the failure, or the time when the node was found missing.
	At metav1.Time `json:"at"`
	// Reason is the reason in status.rollout, or NodeLost.
	Reason string `json:"reason"`
	// Message is the shortened message in status.rollout.
	Message string `json:"message"`
}

// Encode returns failures as the ConfigMap contains them. The release before also reads them: fields keep their names and meanings.
func (f ProfileFailures) Encode() string {
	return encode(f)
}

// DecodeFailures decodes a value of FailuresConfigMap. Fields of later releases are ignored.
func DecodeFailures(value string) (ProfileFailures, error) {
	var out ProfileFailures
	if err := json.Unmarshal([]byte(value), &out); err != nil {
		return ProfileFailures{}, fmt.Errorf("decode failures %q: %w", value, err)
	}
	return out, nil
}
