package status

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
)

// immutableMessage names the immutable ConfigMaps of the rollout, with the command to run, if nodes of the profile wait for such a write; otherwise
// empty.
func (r Report) immutableMessage() string {
	names := r.snapshot.Immutable
	if len(names) == 0 || !r.waitsForRollout() {
		return ""
	}
	return fmt.Sprintf("An immutable ConfigMap stops the rollout; recreate it: "+
		"kubectl -n %s get cm %s -o yaml | sed '/^ *immutable: true$/d' >saved.yaml && kubectl replace --force -f saved.yaml",
		v1alpha1.ManagerNamespace, strings.Join(names, " "))
}

// waitsForRollout reports whether a node of the profile must be disrupted, or must return to service.
func (r Report) waitsForRollout() bool {
	switch {
	case r.IsDeleting():
		return len(r.removal.nodes[rolloutHasIt])+len(r.removal.nodes[rebootRequired]) > 0
	case r.isPlanMode():
		return false
	}
	isHeld := r.rebootHold() != "" || r.paused.status == metav1.ConditionTrue
	return r.nodes.counts.Disrupted > 0 || (len(r.coming) > 0 && !isHeld)
}
