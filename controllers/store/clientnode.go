package store

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/storageclient/operator/api/v1alpha1"
)

// clientNodes contains the strings and lists that the StorageClientNodes of a cache share.
type clientNodes struct {
	texts    *Pool[string]
	settings *Pool[[]v1alpha1.NodeSetting]
	reports  *Pool[[]v1alpha1.SettingStatus]
	options  *Pool[[]string]
	// mounts and volumes are the last lists of each node.
	mounts  *Pool[[]v1alpha1.MountStatus]
	volumes *Pool[[]v1alpha1.NodeVolume]
}

// NewClientNodeTransform returns the transform of the manager's cache of StorageClientNodes. It keeps only the fields of a node's mounts that are
// compared with volumes, and only server and protocol for mounts without a volume. It drops the conditions, which the manager does not read. Equal
// strings and lists of thousands of nodes are stored once. Controllers must patch these objects and never update them: an update would remove the
// dropped fields.
func NewClientNodeTransform() func(object any) (any, error) {
	c := &clientNodes{
		texts: NewPool[string](maxTexts), settings: NewPool[[]v1alpha1.NodeSetting](maxLists), reports: NewPool[[]v1alpha1.SettingStatus](maxLists),
		options: NewPool[[]string](maxLists), mounts: NewPool[[]v1alpha1.MountStatus](maxNodes), volumes: NewPool[[]v1alpha1.NodeVolume](maxNodes),
	}
	return func(object any) (any, error) {
		if clientNode, ok := object.(*v1alpha1.StorageClientNode); ok {
			c.keep(clientNode)
		}
		return object, nil
	}
}

func (c *clientNodes) keep(clientNode *v1alpha1.StorageClientNode) {
	clientNode.ManagedFields = nil
	clientNode.Status.Mounts = keepVersion(c.mounts, clientNode.Name, c.compactMounts(clientNode.Status.Mounts))
	clientNode.Status.Conditions = nil
	clientNode.Spec.Settings = c.settings.Share(keyOfSettings(clientNode.Spec.Settings), func() []v1alpha1.NodeSetting {
		return slices.Clone(clientNode.Spec.Settings)
	})
	for i := range clientNode.Spec.Volumes {
		v := &clientNode.Spec.Volumes[i]
		v.Name, v.MountOptions = shared(c, v.Name), c.sharedList(v.MountOptions)
	}
	clientNode.Spec.Volumes = keepVersion(c.volumes, clientNode.Name, clientNode.Spec.Volumes)
	clientNode.Status.Settings = c.compactReports(clientNode.Status.Settings)
}

func shared[S ~string](c *clientNodes, text S) S {
	return S(c.texts.Share(string(text), func() string { return string(text) }))
}

func keyOfSettings(settings []v1alpha1.NodeSetting) string {
	var key strings.Builder
	for _, s := range settings {
		writeKey(&key, s.Key, s.Value, s.Profile, string(s.OnRemoval))
	}
	return key.String()
}

// compactReports returns one shared list for all nodes with equal reports. A list with a drift belongs to one node: only its strings are shared.
func (c *clientNodes) compactReports(reports []v1alpha1.SettingStatus) []v1alpha1.SettingStatus {
	var key strings.Builder
	for _, s := range reports {
		if s.Drift != nil {
			return c.withSharedTexts(reports)
		}
		writeKey(&key, s.Key, s.Desired, s.Observed, s.Original, string(s.TakesEffect), string(s.State), string(s.WaitsFor), s.Message,
			strings.Join(s.FailedConnections, " "))
	}
	return c.reports.Share(key.String(), func() []v1alpha1.SettingStatus { return c.withSharedTexts(reports) })
}

func writeKey(key *strings.Builder, texts ...string) {
	for _, text := range texts {
		fmt.Fprintf(key, "%d:%s", len(text), text)
	}
}

func (c *clientNodes) withSharedTexts(reports []v1alpha1.SettingStatus) []v1alpha1.SettingStatus {
	for i := range reports {
		s := &reports[i]
		s.Key, s.Desired, s.Observed, s.Original = shared(c, s.Key), shared(c, s.Desired), shared(c, s.Observed), shared(c, s.Original)
		s.TakesEffect, s.State, s.Message = shared(c, s.TakesEffect), shared(c, s.State), shared(c, s.Message)
	}
	return slices.Clone(reports)
}

func (c *clientNodes) compactMounts(mounts []v1alpha1.MountStatus) []v1alpha1.MountStatus {
	if len(mounts) == 0 {
		return mounts
	}
	compacted := make([]v1alpha1.MountStatus, 0, len(mounts))
	for _, mount := range mounts {
		if mount.Volume == "" {
			compacted = append(compacted, v1alpha1.MountStatus{Server: shared(c, mount.Server), Protocol: shared(c, mount.Protocol)})
			continue
		}
		compacted = append(compacted, v1alpha1.MountStatus{
			Volume: shared(c, mount.Volume), Server: shared(c, mount.Server), Protocol: shared(c, mount.Protocol),
			Options: c.sharedList(mount.Options), Connections: mount.Connections, SlotLimit: mount.SlotLimit,
			ReadAheadKiB: mount.ReadAheadKiB, ReadAheadState: shared(c, mount.ReadAheadState), Since: mount.Since, Used: mount.Used, State: shared(c, mount.State), Message: shared(c, mount.Message),
		})
	}
	return compacted
}

// keepVersion shares an unchanged list between two versions of a node's object: both exist until all readers have the new one. It copies a changed
// list, because decoding leaves unused capacity behind it.
func keepVersion[T any](last *Pool[[]T], node string, list []T) []T {
	if len(list) == 0 {
		return nil
	}
	return last.Update(node, func(previous []T, found bool) []T {
		if found && equality.Semantic.DeepEqual(previous, list) {
			return previous
		}
		return slices.Clone(list)
	})
}

// sharedList returns the shared copy of mount options: tens of thousands of mounts have only a few different sets.
func (c *clientNodes) sharedList(options []string) []string {
	if len(options) == 0 {
		return options
	}
	return c.options.Share(strings.Join(options, ","), func() []string {
		for i := range options {
			options[i] = shared(c, options[i])
		}
		return slices.Clone(options)
	})
}
