package plan

import (
	"fmt"
	"strings"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/text"
)

// refused begins what a note says of a write that the API server refused, behind what it says else.
const refused = " [trying again: "

// WithRefusal is a note that also says why the API server refused a write.
func WithRefusal(note v1alpha1.RolloutStatus, err error) v1alpha1.RolloutStatus {
	said := text.Cut(withoutRefusal(note.Message), MaxMessage/2)
	note.Message = said + refused + text.Cut(err.Error(), MaxMessage-len(said)-len(refused)-1) + "]"
	return note
}

// Refusal is what a note says of a refused write, empty where it says nothing.
func Refusal(note v1alpha1.RolloutStatus) string {
	_, said, _ := strings.Cut(note.Message, refused)
	return strings.TrimSuffix(said, "]")
}

// withoutRefusal is what a note says else: no decision rests on a refusal, and the next note is without it.
func withoutRefusal(message string) string {
	said, _, _ := strings.Cut(message, refused)
	return said
}

// checkMemory refuses every node while what the rollout has to write before it disrupts one cannot be written.
func (p *planner) checkMemory() (reason, message string) {
	if len(p.Immutable) == 0 {
		return "", ""
	}
	return v1alpha1.RolloutReasonConfigMapImmutable, fmt.Sprintf(
		"The rollout cannot write ConfigMap %s, which is immutable: save it, delete it, and create it again without immutable", text.List(p.Immutable))
}
