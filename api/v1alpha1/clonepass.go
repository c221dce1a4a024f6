package v1alpha1

import "encoding/json"

// ClonePass is what the Pod of a clone tells of its pass, as JSON in its container's termination message. Whoever reads it did not write
// it: which pass it is of, on which node, and with which list, only the clone itself tells.
//
// +kubebuilder:object:generate=false
type ClonePass struct {
	// phases are what was measured.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=2
	Phases []TrialPassPhase `json:"phases,omitempty"`

	// transports is the number of connections that an NFS mount had.
	// +optional
	Transports int32 `json:"transports,omitempty"`

	// failed says why the work was not done. There are no phases then.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Failed string `json:"failed,omitempty"`

	// void says why what was measured counts for nothing. There are no phases then.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Void string `json:"void,omitempty"`
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
