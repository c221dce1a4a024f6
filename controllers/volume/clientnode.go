package volume

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/storageclient/operator/api/v1alpha1"
)

// CacheTransformClientNode is for the manager's cache of client nodes: of a node's mounts it keeps what is compared with
// volumes, which is little of what a large node reports: not where they are, and of those of no volume the server alone. It drops the
// conditions, which sum the rest up for others. What thousands of nodes say in the same words is kept once, whole lists of settings too.
// Client nodes of the cache are therefore only ever patched, never updated.
func CacheTransformClientNode(object any) (any, error) {
	clientNode, ok := object.(*v1alpha1.StorageClientNode)
	if !ok {
		return object, nil
	}
	clientNode.ManagedFields = nil
	clientNode.Status.Mounts = keepVersion(&lastMounts, clientNode.Name, keptMounts(clientNode.Status.Mounts))
	clientNode.Status.Conditions = nil
	clientNode.Spec.Settings = sharedSettings.share(keyOfSettings(clientNode.Spec.Settings), func() []v1alpha1.NodeSetting {
		return slices.Clone(clientNode.Spec.Settings)
	})
	for i := range clientNode.Spec.Volumes {
		v := &clientNode.Spec.Volumes[i]
		v.Name, v.MountOptions = shared(v.Name), sharedList(v.MountOptions)
	}
	clientNode.Spec.Volumes = keepVersion(&lastVolumes, clientNode.Name, clientNode.Spec.Volumes)
	clientNode.Status.Settings = keptReports(clientNode.Status.Settings)
	return clientNode, nil
}

func keyOfSettings(settings []v1alpha1.NodeSetting) string {
	var key strings.Builder
	for _, s := range settings {
		writeKey(&key, s.Key, s.Value, s.Profile, string(s.OnRemoval))
	}
	return key.String()
}

// keptReports are what nodes of one kind report alike, but for a drift, which is one node's.
func keptReports(reports []v1alpha1.SettingStatus) []v1alpha1.SettingStatus {
	var key strings.Builder
	for _, s := range reports {
		if s.Drift != nil {
			return withSharedTexts(reports)
		}
		writeKey(&key, s.Key, s.Desired, s.Observed, s.Original, string(s.TakesEffect), string(s.State), s.Message)
	}
	return sharedReports.share(key.String(), func() []v1alpha1.SettingStatus { return withSharedTexts(reports) })
}

func writeKey(key *strings.Builder, texts ...string) {
	for _, text := range texts {
		fmt.Fprintf(key, "%d:%s", len(text), text)
	}
}

func withSharedTexts(reports []v1alpha1.SettingStatus) []v1alpha1.SettingStatus {
	for i := range reports {
		s := &reports[i]
		s.Key, s.Desired, s.Observed, s.Original = shared(s.Key), shared(s.Desired), shared(s.Observed), shared(s.Original)
		s.TakesEffect, s.State, s.Message = shared(s.TakesEffect), shared(s.State), shared(s.Message)
	}
	return slices.Clone(reports)
}

func keptMounts(mounts []v1alpha1.MountStatus) []v1alpha1.MountStatus {
	if len(mounts) == 0 {
		return mounts
	}
	kept := make([]v1alpha1.MountStatus, 0, len(mounts))
	for _, mount := range mounts {
		if mount.Volume == "" {
			kept = append(kept, v1alpha1.MountStatus{Server: shared(mount.Server), Protocol: shared(mount.Protocol)})
			continue
		}
		kept = append(kept, v1alpha1.MountStatus{
			Volume: shared(mount.Volume), Server: shared(mount.Server), Protocol: shared(mount.Protocol),
			Options: sharedList(mount.Options), Connections: mount.Connections, SlotLimit: mount.SlotLimit,
			ReadAheadKiB: mount.ReadAheadKiB, Since: mount.Since, Used: mount.Used, State: shared(mount.State), Message: shared(mount.Message),
		})
	}
	return kept
}

// keepVersion has the versions of a node's object share a list that has not changed in between: while a report is on its way to all who
// read, both versions are there. A list that has changed is copied: decoding leaves room behind it.
func keepVersion[T any](last *pool[[]T], node string, list []T) []T {
	if len(list) == 0 {
		return nil
	}
	was := last.share(node, func() []T { return slices.Clone(list) })
	if equality.Semantic.DeepEqual(was, list) {
		return was
	}
	return last.replace(node, slices.Clone(list))
}

// sharedList is the one copy of a list of options: of tens of thousands of mounts few have different ones.
func sharedList(options []string) []string {
	if len(options) == 0 {
		return options
	}
	return sharedOptions.share(strings.Join(options, ","), func() []string {
		for i := range options {
			options[i] = shared(options[i])
		}
		return slices.Clone(options)
	})
}
