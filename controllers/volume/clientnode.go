package volume

import (
	"slices"
	"strings"
	"sync"

	"github.com/storageclient/operator/api/v1alpha1"
)

// CacheTransformClientNode is for the manager's cache of client nodes: of a node's mounts it keeps what is compared with
// volumes, which is little of what a large node reports: not where they are, and of those of no volume the server alone. What thousands of nodes say in the same
// words is kept once. Client nodes of the cache are therefore only ever patched, never updated.
func CacheTransformClientNode(object any) (any, error) {
	clientNode, ok := object.(*v1alpha1.StorageClientNode)
	if !ok {
		return object, nil
	}
	clientNode.ManagedFields = nil
	clientNode.Status.Mounts = keptMounts(clientNode.Status.Mounts)
	for i := range clientNode.Spec.Settings {
		s := &clientNode.Spec.Settings[i]
		s.Key, s.Value, s.Profile, s.OnRemoval = shared(s.Key), shared(s.Value), shared(s.Profile), shared(s.OnRemoval)
	}
	for i := range clientNode.Status.Settings {
		s := &clientNode.Status.Settings[i]
		s.Key, s.Desired, s.Observed, s.Original = shared(s.Key), shared(s.Desired), shared(s.Observed), shared(s.Original)
		s.TakesEffect, s.State, s.Message = shared(s.TakesEffect), shared(s.State), shared(s.Message)
	}
	return clientNode, nil
}

func keptMounts(mounts []v1alpha1.MountStatus) []v1alpha1.MountStatus {
	var kept []v1alpha1.MountStatus
	lists := map[string][]string{}
	for _, mount := range mounts {
		if mount.Volume == "" {
			kept = append(kept, v1alpha1.MountStatus{Server: shared(mount.Server), Protocol: shared(mount.Protocol)})
			continue
		}
		kept = append(kept, v1alpha1.MountStatus{
			Volume: shared(mount.Volume), Server: shared(mount.Server), Protocol: shared(mount.Protocol),
			Options: sharedList(lists, mount.Options), Connections: mount.Connections, SlotLimit: mount.SlotLimit,
			ReadAheadKiB: mount.ReadAheadKiB, Since: mount.Since, Used: mount.Used, State: shared(mount.State), Message: shared(mount.Message),
		})
	}
	return slices.Clip(kept)
}

// sharedList is the first equal list of the same node: its mounts have few different ones.
func sharedList(lists map[string][]string, options []string) []string {
	key := strings.Join(options, ",")
	if _, seen := lists[key]; !seen {
		for i := range options {
			options[i] = shared(options[i])
		}
		lists[key] = slices.Clip(options)
	}
	return lists[key]
}

// maxTexts is how many different texts are known before those that nobody has said for that long are forgotten.
const maxTexts = 1 << 16

// texts has equal texts be one copy. What is not said again goes after two generations.
type texts struct {
	mutex      sync.Mutex
	young, old map[string]string
}

var sharedTexts texts

// shared is the one copy of a text.
func shared[S ~string](text S) S { return S(sharedTexts.share(string(text))) }

func (t *texts) share(text string) string {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if known, found := t.young[text]; found {
		return known
	}
	if known, found := t.old[text]; found {
		text = known
	}
	if t.young == nil || len(t.young) >= maxTexts {
		t.young, t.old = map[string]string{}, t.young
	}
	t.young[text] = text
	return text
}
