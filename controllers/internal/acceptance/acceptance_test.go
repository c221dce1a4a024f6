package acceptance

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageclient/operator/api/v1alpha1"
)

const (
	live      = v1alpha1.EffectLive
	boot      = v1alpha1.EffectReboot
	mount     = v1alpha1.EffectNextMount
	transport = v1alpha1.EffectNewTransport
	action    = v1alpha1.EffectAction
)

func TestJudge(t *testing.T) {
	one := []Setting{{Key: "a/b", Message: "m"}}
	for name, c := range map[string]struct {
		state  v1alpha1.SettingState
		effect v1alpha1.SettingEffect
		want   Verdict
		// accepted is whether the node is accepted as it stands, comes whether it would be after the next boot.
		accepted, comes bool
	}{
		"read back":                               {v1alpha1.SettingInSync, live, Verdict{}, true, true},
		"a boot argument read back":               {v1alpha1.SettingInSync, boot, Verdict{}, true, true},
		"too much for the memory":                 {v1alpha1.SettingClamped, boot, Verdict{Exceptions: one}, true, true},
		"unknown to the kernel":                   {v1alpha1.SettingUnsupported, live, Verdict{Exceptions: one}, true, true},
		"in force, and another file wins at boot": {v1alpha1.SettingShadowed, live, Verdict{Exceptions: one}, true, true},
		"another file wins for new transports":    {v1alpha1.SettingShadowed, transport, Verdict{Exceptions: one}, true, true},
		"another file wins for mounts":            {v1alpha1.SettingShadowed, mount, Verdict{Exceptions: one}, true, true},
		"only a boot could, and a file wins":      {v1alpha1.SettingShadowed, boot, Verdict{Refused: one}, false, false},
		"something keeps changing it":             {v1alpha1.SettingDrifted, live, Verdict{Drifted: one}, true, true},
		"something takes it out of the menu":      {v1alpha1.SettingDrifted, boot, Verdict{Unstaged: one}, false, false},
		"refused by the kernel":                   {v1alpha1.SettingFailed, live, Verdict{Refused: one}, false, false},
		"not to be staged":                        {v1alpha1.SettingFailed, boot, Verdict{Refused: one}, false, false},
		"staged":                                  {v1alpha1.SettingPending, boot, Verdict{Awaited: one}, false, true},
		"not done yet":                            {v1alpha1.SettingPending, action, Verdict{Awaited: one}, false, true},
		"for the next mount":                      {v1alpha1.SettingPending, mount, Verdict{}, true, true},
		"for the next transport":                  {v1alpha1.SettingPending, transport, Verdict{}, true, true},
		"a state of a later release":              {"Confirming", live, Verdict{Awaited: one}, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			got := Judge([]v1alpha1.NodeSetting{{Key: "a/b"}}, []v1alpha1.SettingStatus{{Key: "a/b", State: c.state, TakesEffect: c.effect, Message: "m"}})
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
			if got.IsAccepted() != c.accepted || (len(got.Obstacles()) == 0) != c.comes || (len(got.Missing()) == 0) != c.accepted {
				t.Errorf("accepted %t, obstacles %v, missing %v", got.IsAccepted(), got.Obstacles(), got.Missing())
			}
		})
	}
}

func TestJudgeGoesByWhatIsWanted(t *testing.T) {
	wanted := []v1alpha1.NodeSetting{{Key: "b/silent"}, {Key: "a/silent"}}
	reported := []v1alpha1.SettingStatus{{Key: "x/no-longer-wanted", State: v1alpha1.SettingFailed}}
	want := Verdict{Awaited: []Setting{{Key: "a/silent"}, {Key: "b/silent"}}}
	if diff := cmp.Diff(want, Judge(wanted, reported)); diff != "" {
		t.Error(diff)
	}
}

func TestAReportIsFoundWhereverItStands(t *testing.T) {
	wanted := []v1alpha1.NodeSetting{{Key: "a"}, {Key: "b"}, {Key: "c"}}
	reported := []v1alpha1.SettingStatus{{Key: "c", State: v1alpha1.SettingInSync}, {Key: "a", State: v1alpha1.SettingFailed, Message: "no"}}
	got := Judge(wanted, reported)
	if diff := cmp.Diff(Verdict{Refused: []Setting{{Key: "a", Message: "no"}}, Awaited: []Setting{{Key: "b"}}}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestDescribe(t *testing.T) {
	settings := []Setting{{"b", "in the way"}, {"a", ""}, {"c", "x, y"}, {"d", "z"}}
	if got, want := Describe(settings), "a; b: in the way; c: x, y and 1 more"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
