package plan

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

// TestForRecordsTheTimeSinceWhichANodeHasItsSettings checks status.rollout.tuned. The live gate measures soaks from it.
func TestForRecordsTheTimeSinceWhichANodeHasItsSettings(t *testing.T) {
	hourAgo := func(hash string) *v1alpha1.RolloutTuned {
		return &v1alpha1.RolloutTuned{Hash: hash, Since: ago(time.Hour)}
	}
	sinceNow := &v1alpha1.RolloutTuned{Hash: "h1", Since: metav1.NewTime(noon)}
	net := func(state v1alpha1.SettingState, waitsFor v1alpha1.SettingWait) v1alpha1.SettingStatus {
		return v1alpha1.SettingStatus{Key: "sysctl/net.core.rmem_max", State: state, TakesEffect: v1alpha1.EffectLive, WaitsFor: waitsFor}
	}
	for name, test := range map[string]struct {
		known  *v1alpha1.RolloutTuned
		change func(*fixture)
		want   *v1alpha1.RolloutTuned
	}{
		"it has just reported them":                 {nil, nil, sinceNow},
		"it has had them for an hour":               {hourAgo("h1"), nil, hourAgo("h1")},
		"it had others for an hour":                 {hourAgo("h0"), nil, sinceNow},
		"a setting that waits for a boot is staged": {nil, func(f *fixture) { f.node("a").ClientNode = waiting("a"); f.Paused = true }, sinceNow},
		"a mount brings one": {nil, func(f *fixture) {
			f.addSetting("a", v1alpha1.SettingStatus{Key: "x/y", State: v1alpha1.SettingPending, TakesEffect: v1alpha1.EffectNextMount})
		}, sinceNow},
		"one is being proven":      {hourAgo("h0"), func(f *fixture) { f.addSetting("a", net(v1alpha1.SettingPending, v1alpha1.WaitsForProof)) }, hourAgo("h0")},
		"one cannot be proven now": {nil, func(f *fixture) { f.addSetting("a", net(v1alpha1.SettingPending, v1alpha1.WaitsForConnections)) }, nil},
		"it had one, which cannot be proven now": {
			hourAgo("h1"), func(f *fixture) { f.addSetting("a", net(v1alpha1.SettingPending, v1alpha1.WaitsForConnections)) }, nil,
		},
		"its agent does not say what one waits for": {nil, func(f *fixture) { f.addSetting("a", net(v1alpha1.SettingPending, "")) }, nil},
		"its agent is about to apply others":        {hourAgo("h1"), func(f *fixture) { f.node("a").ClientNode.Status.Hash = "h0" }, hourAgo("h1")},
		"one drifted":                               {hourAgo("h1"), func(f *fixture) { f.addSetting("a", net(v1alpha1.SettingDrifted, "")) }, nil},
		"one failed":                                {hourAgo("h1"), func(f *fixture) { f.addSetting("a", net(v1alpha1.SettingFailed, "")) }, nil},
		"one failed, of others that it holds now":   {hourAgo("h0"), func(f *fixture) { f.addSetting("a", net(v1alpha1.SettingFailed, "")) }, nil},
		"another file overrides it at each boot":    {hourAgo("h1"), func(f *fixture) { f.addSetting("a", net(v1alpha1.SettingShadowed, "")) }, hourAgo("h1")},
		"a removed one was not restored": {hourAgo("h1"), func(f *fixture) {
			c := f.node("a").ClientNode
			c.Status.Settings = append(c.Status.Settings, net(v1alpha1.SettingFailed, ""))
		}, hourAgo("h1")},
		"its agent restarts":                            {hourAgo("h1"), func(f *fixture) { f.node("a").AgentReady = false }, hourAgo("h1")},
		"its agent restarts before the first note":      {nil, func(f *fixture) { f.node("a").AgentReady = false }, nil},
		"its agent has been silent for long":            {hourAgo("h1"), func(f *fixture) { f.node("a").AgentReady, f.node("a").AgentSilent = false, true }, nil},
		"it has booted, and the agent has not reported": {hourAgo("h1"), func(f *fixture) { f.node("a").BootID = "a-2" }, hourAgo("h1")},
		"it has booted without a note":                  {nil, func(f *fixture) { f.node("a").BootID = "a-2" }, nil},
		"it is being released":                          {hourAgo("h1"), func(f *fixture) { f.node("a").ClientNode.Spec.Release = true }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			f := cluster("a")
			f.finish("a", time.Hour)
			if test.change != nil {
				test.change(f)
			}
			c := f.node("a").ClientNode
			if c.Status.Rollout == nil {
				f.addNote("a", v1alpha1.RolloutWaiting, v1alpha1.ReasonPausedByAnnotation, time.Hour)
			}
			c.Status.Rollout.Tuned = test.known
			check.Equal(t, "tuned", test.want, For(f.Snapshot).Notes["a"].Tuned)
		})
	}
}

// The first note of a node waits until its settings are confirmed, but only for the usual duration. Two writes would contain less
// information.
func TestForTheFirstNoteOfANodeWaitsForItsSettings(t *testing.T) {
	for name, test := range map[string]struct {
		since time.Duration
		noted bool
	}{"they are being confirmed": {10 * time.Second, false}, "that takes long": {applyingNoteDelay, true}, "they are confirmed": {0, true}} {
		t.Run(name, func(t *testing.T) {
			f := cluster("a")
			f.finish("a", 0)
			f.node("a").ClientNode.Status.Rollout = nil
			if test.since > 0 {
				f.addSetting("a", v1alpha1.SettingStatus{Key: "sysctl/net.core.rmem_max", State: v1alpha1.SettingPending, TakesEffect: v1alpha1.EffectLive, WaitsFor: v1alpha1.WaitsForProof})
				f.node("a").ApplyingSince = noon.Add(-test.since)
			}
			p := For(f.Snapshot)
			if note, noted := p.Notes["a"]; noted != test.noted || noted && (note.Tuned != nil) != (test.since == 0) {
				t.Errorf("got a note %t: %+v", noted, note)
			}
			if !test.noted && !p.Next.Equal(noon.Add(applyingNoteDelay-test.since)) {
				t.Errorf("next plan: got at %s, want %s after %s", p.Next, applyingNoteDelay-test.since, noon)
			}
		})
	}
}

// A live change costs three writes: the settings, the agent's report, and the note. The note replaces a condition that names no
// settings.
func TestForALiveChangeCostsOneNote(t *testing.T) {
	const key = "sysctl/net.core.rmem_max"
	for name, prepare := range map[string]func(*fixture){
		"of a node that is up to date": func(f *fixture) { f.finish("a", time.Hour) },
		"of a node that waits for its reboot": func(f *fixture) {
			f.Paused = true
			f.addNote("a", v1alpha1.RolloutWaiting, v1alpha1.ReasonPausedByAnnotation, time.Hour)
		},
		"of a node that failed": func(f *fixture) {
			f.addNote("a", v1alpha1.RolloutFailed, v1alpha1.RolloutReasonAttemptsUsedUp, time.Hour)
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := cluster("a")
			prepare(f)
			f.addSetting("a", v1alpha1.SettingStatus{Key: key, State: v1alpha1.SettingInSync, TakesEffect: v1alpha1.EffectLive})
			n := f.node("a")
			status := &n.ClientNode.Status
			apply := func() bool {
				note, noted := For(f.Snapshot).Notes["a"]
				isNew := noted && !SameNote(*status.Rollout, note)
				if isNew {
					status.Rollout = &note
				}
				return isNew
			}
			apply()
			n.ClientNode.Spec.Hash, n.ApplyingSince = "h2", noon
			writes := 0
			for _, step := range []func(){
				func() {},
				func() {
					status.Hash, status.Settings[1].State, status.Settings[1].WaitsFor = "h2", v1alpha1.SettingPending, v1alpha1.WaitsForProof
				},
				func() {
					status.Settings[1].State, status.Settings[1].WaitsFor, n.ApplyingSince = v1alpha1.SettingInSync, "", time.Time{}
				},
				func() {},
			} {
				f.Now = f.Now.Add(2 * time.Second)
				if step(); apply() {
					writes++
				}
			}
			if tuned := status.Rollout.Tuned; writes != 1 || tuned == nil || tuned.Hash != "h2" || !tuned.Since.Time.Equal(noon.Add(6*time.Second)) {
				t.Errorf("got %d writes, tuned %+v; want one write", writes, tuned)
			}
		})
	}
}

func TestANoteIsWrittenForNewSettings(t *testing.T) {
	note := v1alpha1.RolloutStatus{Phase: v1alpha1.RolloutUpToDate, Tuned: &v1alpha1.RolloutTuned{Hash: "h", Since: ago(time.Hour)}}
	same := *note.DeepCopy()
	if !SameNote(note, same) {
		t.Error("got a difference between a note and its copy")
	}
	for name, tuned := range map[string]*v1alpha1.RolloutTuned{
		"other settings": {Hash: "g", Since: ago(time.Hour)}, "another time": {Hash: "h", Since: ago(time.Minute)}, "none": nil,
	} {
		other := note
		if other.Tuned = tuned; SameNote(note, other) || SameNote(other, note) {
			t.Errorf("%s: got no difference between the notes", name)
		}
	}
}
