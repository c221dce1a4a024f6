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
	var out Disruption
	if err := json.Unmarshal([]byte(value), &out); err != nil {
		return Disruption{}, fmt.Errorf("decode disruption %q: %w", value, err)
	}
	return out, nil
}

// encode returns the JSON of a value that contains only strings, numbers and times.
func encode(value any) string {
	data, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return string(data)
}
