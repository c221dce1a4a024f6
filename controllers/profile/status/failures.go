package status

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/fleet"
	"github.com/storageclient/operator/controllers/internal/match"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/nodesettings"
	"github.com/storageclient/operator/tuning/text"
)

const maxLostNodes = 20

// recalled contains the recorded failures of a profile that its nodes do not show.
type recalled struct {
	// lost are failed nodes that are gone, the latest first; more is the number of earlier failures that are not named.
	lost    []v1alpha1.LostNode
	omitted int
	// failed are existing nodes that have failed although their current note is different.
	failed []string
}

// recallFailures finds the recorded failures of a profile that count: failures of the current boot hashes of its nodes; all of them while it has no
// nodes.
func recallFailures(profile *fleet.Profile, all fleet.Snapshot, failures v1alpha1.ProfileFailures) recalled {
	var out recalled
	if len(failures.Boots) == 0 || profile.Phase == match.Held && profile.Spec.Mode == v1alpha1.ModePlan {
		return out
	}
	nodes := lists.Map(all.Nodes, func(node *corev1.Node) (string, *corev1.Node) { return node.Name, node })
	matched, wanted := 0, sets.New[string]()
	for _, node := range all.Concerned(profile) {
		clientNode := all.ClientNodes[node.Name]
		if (!profile.Selects(node) || match.IsIgnored(node)) && !fleet.CarriesSettingsOf(profile.Name, clientNode) {
			continue
		}
		matched++
		wanted.Insert(all.Profiles.Desired(node, clientNode).BootHash)
		if clientNode != nil {
			wanted.Insert(targetOf(clientNode))
		}
	}
	settings := nodesettings.BootSettingsHash(profile.StorageClientProfile)
	for _, boot := range failures.Boots {
		if boot.Settings != settings || (matched > 0 && !wanted.Has(boot.BootHash)) {
			continue
		}
		out.omitted += boot.More
		for _, failed := range boot.Nodes {
			node := nodes[failed.Name]
			if node == nil || string(node.UID) != failed.UID {
				out.lost = append(out.lost, v1alpha1.LostNode{Name: failed.Name, Since: new(failed.At), Reason: failed.Reason, Message: failed.Message})
			} else if clientNode := all.ClientNodes[failed.Name]; isStillFailed(clientNode, boot.BootHash) {
				out.failed = append(out.failed, failed.Name)
			}
		}
	}
	slices.SortStableFunc(out.lost, func(a, b v1alpha1.LostNode) int { return b.Since.Compare(a.Since.Time) })
	return out
}

// targetOf returns the target of a StorageClientNode to which a failure refers.
func targetOf(clientNode *v1alpha1.StorageClientNode) string {
	if clientNode.Spec.Release {
		return "release-" + clientNode.Spec.BootHash
	}
	return clientNode.Spec.BootHash
}

// isStillFailed reports whether a recorded failure of an existing node is not over, regardless of its note.
func isStillFailed(clientNode *v1alpha1.StorageClientNode, bootHash string) bool {
	if clientNode == nil || clientNode.Status.Rollout == nil {
		return true
	}
	phase := clientNode.Status.Rollout.Phase
	return phase != v1alpha1.RolloutUpToDate && phase != v1alpha1.RolloutSettling && targetOf(clientNode) == bootHash
}

func (t *tally) addRecalled(r recalled) {
	lost := lists.Each(r.lost, func(lost v1alpha1.LostNode) string { return lost.Name + " (gone)" })
	t.failedBoots = append(lists.AddMissing(t.failedBoots, r.failed...), lost...)
	t.failed = lists.AddMissing(t.failed, r.failed...)
	slices.Sort(t.failed)
	t.failed = append(t.failed, lost...)
	t.failedBefore = r.omitted
	t.counts.Failed = int32(len(t.failed) + r.omitted)
	t.lost = r.lost[:min(len(r.lost), maxLostNodes)]
}

// failed lists the failed nodes. If some of them are gone, it also explains how to continue, because these nodes cannot recover.
func (r Report) failed(status metav1.ConditionStatus, reason string) verdict {
	message := "Failed on " + text.List(r.nodes.failed)
	if r.nodes.failedBefore > 0 {
		message += fmt.Sprintf(", and %d earlier", r.nodes.failedBefore)
	}
	message += text.Labelled("; ", text.Join(r.nodes.unset, "; "))
	byCanary := func(w waitingNode) bool { return w.reason == v1alpha1.RolloutReasonCanaryFailed }
	if waiting := len(lists.Filter(slices.Concat(r.nodes.pending, r.nodes.stuck), byCanary)); waiting > 0 {
		message += fmt.Sprintf("; %s for this canary", text.Count(waiting, "node waits", "nodes wait"))
	}
	if reason == v1alpha1.ReasonNodesFailed {
		message += text.Labelled("; ", describeStuck(slices.DeleteFunc(slices.Clone(r.nodes.stuck), byCanary)))
	}
	hasCommand := len(r.nodes.lost)+r.nodes.failedBefore > 0
	if hasCommand {
		message += fmt.Sprintf("; change settings that require a reboot, or retry: kubectl storageclient retry %s", r.profile.Name)
	}
	return verdict{status, reason, message, hasCommand}
}
