package agent

import (
	"testing"

	"github.com/storageclient/operator/api/v1alpha1"
)

// TestWhatASettingWaitsFor covers every effect. Only an unconfirmed setting waits for connections.
func TestWhatASettingWaitsFor(t *testing.T) {
	for effect, want := range map[v1alpha1.SettingEffect]v1alpha1.SettingWait{
		v1alpha1.EffectReboot: v1alpha1.WaitsForBoot, v1alpha1.EffectNextMount: v1alpha1.WaitsForMount, v1alpha1.EffectNewTransport: v1alpha1.WaitsForTransport,
		v1alpha1.EffectLive: v1alpha1.WaitsForModule, v1alpha1.EffectAction: "",
	} {
		for _, state := range []v1alpha1.SettingState{
			v1alpha1.SettingInSync, v1alpha1.SettingPending, v1alpha1.SettingDrifted, v1alpha1.SettingShadowed, v1alpha1.SettingClamped,
			v1alpha1.SettingUnsupported, v1alpha1.SettingFailed,
		} {
			for isUnconfirmed, byProving := range map[bool]map[bool]v1alpha1.SettingWait{
				false: {false: want, true: want}, true: {false: v1alpha1.WaitsForConnections, true: v1alpha1.WaitsForProof},
			} {
				for proving, want := range byProving {
					if state != v1alpha1.SettingPending {
						want = ""
					}
					p := &pass{proving: proving}
					if got := p.waitsFor(v1alpha1.SettingStatus{State: state, TakesEffect: effect}, isUnconfirmed); got != want {
						t.Errorf("%s, %s, unconfirmed %t, proving %t: waits for %q, want %q", state, effect, isUnconfirmed, proving, got, want)
					}
				}
			}
		}
	}
}
