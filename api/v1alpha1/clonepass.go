package v1alpha1

import "encoding/json"

// ClonePass is the result of a clone's pass. The clone's Pod writes it as JSON to the termination message of its container. It
// does not identify the pass, the node or the mount options: readers get these from the clone.
//
// +kubebuilder:object:generate=false
type ClonePass struct {
	// phases contains the measurements of the pass.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=2
	Phases []TrialPassPhase `json:"phases,omitempty"`

	// transports is the number of connections that an NFS mount had.
	// +optional
	Transports int32 `json:"transports,omitempty"`

	// failed is the reason why the work was not done. If it is set, there are no phases.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Failed string `json:"failed,omitempty"`

	// void is the reason why the measurement is invalid. If it is set, there are no phases.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Void string `json:"void,omitempty"`
}

const (
	// MaxClonePassBytes is the maximum size of a termination message in Kubernetes.
	MaxClonePassBytes = 4096
	// MaxClonePassText is the maximum length of failed and void in a ClonePass, in bytes.
	MaxClonePassText = 512
)

// Encode returns the pass in the format of the termination message.
func (p ClonePass) Encode() string {
	return encode(p)
}

// encode returns the JSON of a value that contains only strings, numbers and times.
func encode(value any) string {
	data, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return string(data)
}
