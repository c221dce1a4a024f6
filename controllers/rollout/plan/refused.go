package plan

import (
	"fmt"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/text"
)

// WithRefusal returns a note with the API server's answer to a write that it rejected.
func WithRefusal(note v1alpha1.RolloutStatus, err error) v1alpha1.RolloutStatus {
	note.Refusal = text.Cut(err.Error(), MaxMessage)
	return note
}

// checkMemory refuses every node while what the rollout has to write before it disrupts one cannot be written.
func (p *planner) checkMemory() (reason, message string) {
	if len(p.Immutable) == 0 {
		return "", ""
	}
	return v1alpha1.RolloutReasonConfigMapImmutable, fmt.Sprintf(
		"The rollout cannot write ConfigMap %s, which is immutable: save it, delete it, and create it again without immutable", text.List(p.Immutable))
}
