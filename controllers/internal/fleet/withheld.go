package fleet

import (
	"slices"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/nodesettings"
	"github.com/storageclient/operator/tuning/standing"
)

// WithheldSettings are the boot settings, sorted, that a node is not to be given: a permitted reboot came back without their
// effect, and as long as the node stays failed at this boot hash they are to leave the boot menu again. The client node goes
// on naming the wanted hashes, so that the failure stands and nothing is tried twice; what has been left out of its
// settings already stays out, so no other record is needed.
func WithheldSettings(clientNode *v1alpha1.StorageClientNode, wanted nodesettings.Result) []string {
	if clientNode == nil || clientNode.Spec.Release || clientNode.Spec.BootHash != wanted.BootHash || !standing.BootedInVain(&clientNode.Spec, &clientNode.Status) {
		return nil
	}
	var keys []string
	for _, setting := range wanted.Settings {
		if nodesettings.TakesEffectAtBoot(setting.Key) && !inEffect(clientNode, setting.Key) {
			keys = append(keys, setting.Key)
		}
	}
	slices.Sort(keys)
	return keys
}

// inEffect reports whether a key is among the node's settings and its agent does not report that it has no effect.
func inEffect(clientNode *v1alpha1.StorageClientNode, key string) bool {
	named := slices.ContainsFunc(clientNode.Spec.Settings, func(s v1alpha1.NodeSetting) bool { return s.Key == key })
	return named && !slices.ContainsFunc(clientNode.Status.Settings, func(s v1alpha1.SettingStatus) bool {
		is := standing.Of(s, false)
		return s.Key == key && (is == standing.Failed || is.Waits())
	})
}
