package plan

import (
	"strings"
	"testing"
	"time"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

func TestForVolumesOfEvictedPods(t *testing.T) {
	const volume = "kubernetes.io/csi/ebs.csi.aws.com^vol-1"
	permit := []string{"claim of a: permit", "note a: Rebooting PermitGiven", "conditions of a: Drained, for a permit", "permit the reboot of a", "a: Rebooting PermitGiven"}
	waits := []string{"a: Draining VolumesInUse"}
	noted := func(f *fixture, since time.Duration) {
		f.addNote("a", v1alpha1.RolloutDraining, v1alpha1.RolloutReasonVolumesInUse, since)
	}
	for name, c := range map[string]struct {
		change func(*fixture)
		want   []string
	}{
		"delay the permit while the kubelet reports them": {func(*fixture) {}, waits},
		"delay the permit for almost two minutes":         {func(f *fixture) { noted(f, 119*time.Second) }, waits},
		"do not delay the permit beyond two minutes":      {func(f *fixture) { noted(f, 2*time.Minute) }, permit},
		"do not delay the permit once they are detached":  {func(f *fixture) { f.node("a").VolumesInUse = nil }, permit},
		"do not delay the permit if a pod with volumes stays": {
			func(f *fixture) { f.node("a").Drain = &DrainProgress{Gone: true, KeepsVolumes: true} }, permit,
		},
		"do not delay the permit beyond the timeout of the drain": {func(f *fixture) { f.cordoned("a", 15*time.Minute) }, permit},
		"start their wait after another wait of the drain": {
			func(f *fixture) {
				f.addNote("a", v1alpha1.RolloutDraining, v1alpha1.RolloutReasonMountsBusy, 10*time.Minute)
			}, waits,
		},
		"do not delay another permit after a rejected one": {
			func(f *fixture) {
				f.addNote("a", v1alpha1.RolloutDraining, v1alpha1.RolloutReasonPermitRefused, RefusalPause)
			}, permit,
		},
		"delay the permit no longer than the rest of the drain": {
			func(f *fixture) { f.cordoned("a", 14*time.Minute+59*time.Second) }, waits,
		},
		"are named after the mounts of pods": {
			func(f *fixture) { f.node("a").ClientNode.Status.BusyMounts = []v1alpha1.BusyMount{{MountPoint: "/m"}} },
			[]string{"a: Draining MountsBusy"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := cluster("a")
			f.cordoned("a", 13*time.Minute)
			f.node("a").Drain, f.node("a").VolumesInUse = &DrainProgress{Gone: true}, []string{volume}
			c.change(f)
			got := For(f.Snapshot)
			check.Equal(t, "plan", c.want, lines(got, "a"))
			note := got.Notes["a"]
			if note.Reason != v1alpha1.RolloutReasonVolumesInUse {
				return
			}
			if !strings.Contains(note.Message, volume) || !strings.Contains(note.Message, "Waiting until 2026-") {
				t.Errorf("got message %q, want the volume and the end of the wait", note.Message)
			}
			if got.Next.IsZero() || got.Next.Sub(f.Now) > 2*time.Minute {
				t.Errorf("got the next pass at %s, want one that follows the progress", got.Next)
			}
		})
	}
}

// The wait ends even if the kubelet never removes a volume from its report.
func TestForAVolumeThatStaysInUseGetsAPermitInTheEnd(t *testing.T) {
	f := cluster("a")
	f.cordoned("a", time.Minute)
	f.node("a").Drain, f.node("a").VolumesInUse = &DrainProgress{Gone: true}, []string{"v"}
	for waited := time.Duration(0); waited < 10*time.Minute; waited += 10 * time.Second {
		got := For(f.Snapshot)
		if note := got.Notes["a"]; note.Phase == v1alpha1.RolloutRebooting {
			check.Equal(t, "time until the permit", 2*time.Minute, waited)
			return
		}
		f.node("a").ClientNode.Status.Rollout = new(got.Notes["a"])
		f.Now = f.Now.Add(10 * time.Second)
	}
	t.Error("got no permit")
}
