package v1alpha1

import (
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Disruption describes the disruption of a node. Claims in BudgetConfigMap and the DisruptionAnnotation of a Node contain it in
// the form of Encode.
//
// +kubebuilder:object:generate=false
type Disruption struct {
	// Profile is the name of the profile with the highest priority among the profiles that need the disruption.
	Profile string `json:"profile"`
	// BootHash is the boot hash of the disruption.
	BootHash string `json:"bootHash"`
	// Since is the time of the claim, or of the cordon.
	Since metav1.Time `json:"since"`
	// CordonFirst is true if the node was claimed although PodDisruptionBudgets keep its pods: see rollout.drain.lookAhead.
	CordonFirst bool `json:"cordonFirst,omitempty"`
	// NodeUID is the UID of the claimed Node. It differs for another Node of the same name. Set in claims only.
	NodeUID string `json:"nodeUID,omitempty"`
	// Permit describes the reboot permit. It is set before the permit is given and removed once the permit is withdrawn. The claim
	// outlives the Node and then identifies the lost reboot. Set in claims only.
	Permit *ClaimedPermit `json:"permit,omitempty"`
}

// ClaimedPermit describes a reboot permit in a claim.
//
// +kubebuilder:object:generate=false
type ClaimedPermit struct {
	// BootHash is the boot hash of the permit, as in status.rollout.bootHash.
	BootHash string `json:"bootHash"`
	// Profiles maps the names of the node's profiles to the hashes of their settings that require a reboot at the time of the permit.
	Profiles map[string]string `json:"profiles"`
	// Leaving is the taint that announced the removal of the Node while it was Ready. If it is set, the permit is not the cause when
	// the Node disappears. Empty if there was no such taint.
	Leaving string `json:"leaving,omitempty"`
	// Budgets are the PodDisruptionBudgets of the pods that stay on the node and that the reboot stops, once for each pod.
	Budgets []string `json:"budgets,omitempty"`
	// Overdue is the time of the first of the passes in a row that found the permit overdue and unused. Nil if the last one did not.
	Overdue *metav1.Time `json:"overdue,omitempty"`
}

// Encode returns a disruption as claims and annotations contain it. Clusters contain values of earlier releases: the bytes must
// not change.
func (d Disruption) Encode() string {
	return encode(d)
}

// DecodeDisruption decodes the value of a claim or an annotation. Missing fields are empty; fields of later releases are ignored.
// For a value that cannot be decoded, it returns an empty disruption and the error; the disruption still counts.
func DecodeDisruption(value string) (Disruption, error) {
	return decode[Disruption]("disruption", value)
}

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
	return decode[ProfileFailures]("failures", value)
}

// encode returns the JSON of a value that contains only strings, numbers and times.
func encode(value any) string {
	data, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return string(data)
}

// decode returns the zero value and an error if the value cannot be decoded.
func decode[T any](kind, value string) (T, error) {
	var out, none T
	if err := json.Unmarshal([]byte(value), &out); err != nil {
		return none, fmt.Errorf("decode %s %q: %w", kind, value, err)
	}
	return out, nil
}
