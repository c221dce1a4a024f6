package rollout

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/rollout/plan"
)

// recordFailures records failures before any step is applied, because steps remove the facts from which failures are derived. If the write fails,
// the affected nodes are left to the next pass, and no new disruption starts.
func (p *pass) recordFailures(ctx context.Context, change *plan.FailureChange) {
	if change == nil {
		return
	}
	if p.live == nil || !change.All && p.live.HasAll(change.Nodes...) {
		err := p.writeFailures(ctx, change.Profiles)
		if err == nil {
			return
		}
		p.out.Finish("", err)
	}
	p.unrecorded = true
	p.out.Skip("", nil)
	for _, node := range change.Nodes {
		p.out.Skip(node, nil)
	}
}

func (p *pass) recordedFailures() (map[string]v1alpha1.ProfileFailures, sets.Set[string]) {
	failures, unread := make(map[string]v1alpha1.ProfileFailures, len(p.failures.Data)), sets.New[string]()
	for profile, value := range p.failures.Data {
		decoded, err := v1alpha1.DecodeFailures(value)
		if err != nil {
			unread.Insert(profile)
			continue
		}
		failures[profile] = decoded
	}
	return failures, unread
}

// writeFailures writes all recorded failures. An entry that cannot be read stays unchanged.
func (p *pass) writeFailures(ctx context.Context, next map[string]v1alpha1.ProfileFailures) error {
	before, unread := p.recordedFailures()
	failures := p.failures.DeepCopy()
	data := make(map[string]string, len(next))
	for profile := range unread {
		data[profile] = failures.Data[profile]
	}
	for profile, remembered := range next {
		data[profile] = remembered.Encode()
	}
	failures.Data = data
	if err := p.writeConfigMap(ctx, failures); err != nil {
		return err
	}
	p.failures = failures
	p.reportFailures(ctx, before, next)
	return nil
}

// reportFailures reports failures that were cleared on request, and lost nodes. A lost node has no Node for an event, so the profile gets it.
func (p *pass) reportFailures(ctx context.Context, before, next map[string]v1alpha1.ProfileFailures) {
	for profile, failures := range next {
		if failures.Retry != before[profile].Retry {
			log.FromContext(ctx).Info("Cleared failures, as the annotation requests", "StorageClientProfile", profile, "retry", failures.Retry)
		}
		known := sets.New[string]()
		for _, boot := range before[profile].Boots {
			for _, node := range boot.Nodes {
				known.Insert(boot.BootHash + " " + node.UID)
			}
		}
		for _, boot := range failures.Boots {
			for _, node := range boot.Nodes {
				if node.Reason == v1alpha1.RolloutReasonNodeLost && !known.Has(boot.BootHash+" "+node.UID) {
					log.FromContext(ctx).Info("Lost a node", "StorageClientProfile", profile, "Node", node.Name, "message", node.Message)
					if regarding := p.profiles.ByName(profile); regarding != nil {
						p.Recorder.Eventf(regarding.StorageClientProfile, nil, corev1.EventTypeWarning, eventNodeLost, "Reboot", "%s: %s", node.Name, node.Message)
					}
				}
			}
		}
	}
}
