package nodesettings

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/catalogue"
)

// TakesEffectAtBoot is true for keys that nothing but a boot brings into effect.
func TakesEffectAtBoot(key string) bool {
	return catalogue.Key(key).AtBoot()
}

// Hashes names a set of settings by their keys and values, and the part of it that takes effect at boot: 16 hexadecimal
// digits each, empty for an empty set. Where a setting comes from, and in which order, does not matter.
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
