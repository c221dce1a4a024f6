package v1alpha1

import "encoding/json"

// ClonePass is what the Pod of a clone tells of its pass, as JSON in its container's termination message. Whoever reads it did not write
// it: which pass it is of, on which node, and with which list, only the clone itself tells.
//
// +kubebuilder:object:generate=false
type ClonePass struct {
	// Phases are what was measured.
	Phases []TrialPassPhase `json:"phases,omitempty"`
	// Transports is the number of connections that an NFS mount had.
	Transports int32 `json:"transports,omitempty"`
	// Failed says why the work was not done, Void why what was measured counts for nothing. At most one of them is there, and no phases.
	Failed string `json:"failed,omitempty"`
	Void   string `json:"void,omitempty"`
}

const (
	// MaxClonePassBytes is what Kubernetes keeps of a termination message.
	MaxClonePassBytes = 4096
	// MaxClonePassText bounds what a ClonePass says of a failure, in bytes.
	MaxClonePassText = 512
)

// Encode writes it as the termination message holds it.
func (p ClonePass) Encode() string {
	value, err := json.Marshal(p)
	if err != nil {
		panic(err) // strings and numbers
	}
	return string(value)
}
