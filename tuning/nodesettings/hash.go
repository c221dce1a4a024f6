package nodesettings

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/catalogue"
)

// TakesEffectAtBoot reports whether a setting with the key takes effect only at boot.
func TakesEffectAtBoot(key string) bool { return catalogue.Key(key).AtBoot() }

// Hashes returns two hashes of a set of settings by their keys and values. hash covers all settings, bootHash only the settings
// that take effect at boot. A hash has 16 hexadecimal digits and is empty for an empty set. The profile and the order of the
// settings do not matter.
func Hashes(settings []v1alpha1.NodeSetting) (hash, bootHash string) {
	return hashOf(settings), hashOf(bootSettings(settings))
}

func bootSettings(settings []v1alpha1.NodeSetting) []v1alpha1.NodeSetting {
	return slices.DeleteFunc(slices.Clone(settings), func(s v1alpha1.NodeSetting) bool { return !TakesEffectAtBoot(s.Key) })
}

// hashOf must never change: see the package's testdata.
func hashOf(settings []v1alpha1.NodeSetting, marks ...string) string {
	if len(settings) == 0 {
		return ""
	}
	sum := sha256.New()
	for _, s := range slices.SortedFunc(slices.Values(settings), byKey) {
		sum.Write([]byte(s.Key + "=" + s.Value + "\n"))
	}
	for _, mark := range marks {
		sum.Write([]byte(mark + "\n"))
	}
	return hex.EncodeToString(sum.Sum(nil))[:16]
}
