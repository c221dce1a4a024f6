package fleet

import (
	"slices"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/nodesettings"
	"github.com/storageclient/operator/tuning/standing"
)

// WithheldSettings returns the settings that require a reboot and that a node must not get, sorted. A permitted reboot did not make them effective,
// so they must leave the boot menu again while the node stays failed at this boot hash. The StorageClientNode still contains the desired hashes, so
// that the failure stays and no setting is tried twice. Settings that are already left out stay out, so no other record is needed.
func WithheldSettings(clientNode *v1alpha1.StorageClientNode, wanted nodesettings.Result) []string {
	if clientNode == nil || clientNode.Spec.Release || clientNode.Spec.BootHash != wanted.BootHash ||
		!standing.RebootedWithoutEffect(&clientNode.Spec, &clientNode.Status) {
		return nil
	}
	keys := lists.Filter(lists.Each(wanted.Settings, func(s v1alpha1.NodeSetting) string { return s.Key }), func(key string) bool {
		return nodesettings.TakesEffectAtBoot(key) && !isEffective(clientNode, key)
	})
	slices.Sort(keys)
	return keys
}

// isEffective reports whether a key is among the node's settings and its agent does not report that it has no effect.
func isEffective(clientNode *v1alpha1.StorageClientNode, key string) bool {
	named := slices.ContainsFunc(clientNode.Spec.Settings, func(s v1alpha1.NodeSetting) bool { return s.Key == key })
	return named && !slices.ContainsFunc(clientNode.Status.Settings, func(s v1alpha1.SettingStatus) bool {
		state := standing.Of(s, false)
		return s.Key == key && (state == standing.Failed || state.IsPending())
	})
}
