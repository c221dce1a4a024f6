package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/cmd/kubectl-storageclient/view"
	volumeplan "github.com/storageclient/operator/controllers/volume/plan"
	"github.com/storageclient/operator/tuning/text"
)

var (
	plans     = flag.Int("plans", 12, "number of random plans to compare with the manager's changes")
	firstPlan = flag.Uint64("plan-seed", 1, "the seed of the first of them")
)

// TestThePlanIsTheManagersPlan plans random profiles on random clusters, applies them, and compares the plan with the manager's changes.
func TestThePlanIsTheManagersPlan(t *testing.T) {
	standings := map[volumeplan.VolumeState]int{}
	for seed := *firstPlan; seed < *firstPlan+uint64(*plans); seed++ {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			w := newPlanWorld(t, seed)
			w.settle()
			w.change()
			w.settle()
			files := w.anyFiles()
			r := w.run(w.manifests(files), "plan", "-f", "-", "-o", "json")
			plan := w.decodePlan(r)
			before := w.observe()
			w.apply(files)
			w.settle()
			w.compareOptions(plan, before)
			w.compareSettings(plan, before)
			for _, p := range plan.Profiles {
				if p.Rejection == "" {
					w.compareReboots(plan, p)
					w.compareTexts(p.Name, standings)
				}
			}
			w.compareStandings(plan)
			if t.Failed() {
				t.Logf("files:\n%s", w.manifests(files))
				t.Logf("profiles:\n%s", w.manifests(pointers(w.listProfiles())))
			}
		})
	}
	for _, standing := range volumeplan.VolumeStates {
		if standings[standing] == 0 && standing != volumeplan.VolumeHeld && standing != volumeplan.VolumePending {
			t.Errorf("no volume is %s: the clusters show too little", standing)
		}
	}
}

func pointers[T any](list []T) []*T {
	out := make([]*T, len(list))
	for i := range list {
		out[i] = &list[i]
	}
	return out
}

func (w *planWorld) decodePlan(r result) view.FilePlan {
	w.t.Helper()
	var plan view.FilePlan
	if err := json.NewDecoder(strings.NewReader(r.out)).Decode(&plan); err != nil {
		w.t.Fatalf("%v, %v in:\n%s", err, r.err, r.out)
	}
	return plan
}

// planState is the part of a cluster that a plan describes: the mount options of each volume, and the settings of each node.
type planState struct {
	options  map[string][]string
	settings map[string]map[string]string
}

func (w *planWorld) observe() planState {
	out := planState{options: map[string][]string{}, settings: map[string]map[string]string{}}
	for _, pv := range w.listVolumes() {
		out.options[pv.Name] = append([]string{}, pv.Spec.MountOptions...)
	}
	for _, n := range w.listNodes() {
		out.settings[n.Name] = map[string]string{}
	}
	for _, c := range w.listClientNodes() {
		if c.Spec.Release {
			continue // its settings are being removed
		}
		for _, s := range c.Spec.Settings {
			out.settings[c.Name][s.Key] = s.Value
		}
	}
	return out
}

// compareOptions asserts that each volume has the options of the plan, or is unchanged.
func (w *planWorld) compareOptions(plan view.FilePlan, before planState) {
	want := maps.Clone(before.options)
	for _, c := range plan.Volumes.Changes {
		if diff := cmp.Diff(before.options[c.Volume], c.Old); diff != "" {
			w.t.Errorf("%s: old options (-cluster +plan):\n%s", c.Volume, diff)
		}
		want[c.Volume] = c.New
	}
	if diff := cmp.Diff(want, w.observe().options); diff != "" {
		w.t.Errorf("mount options (-plan +manager):\n%s", diff)
	}
}

// compareSettings asserts that each node has the settings of the plan.
func (w *planWorld) compareSettings(plan view.FilePlan, before planState) {
	want := map[string]map[string]string{}
	for name, settings := range before.settings {
		want[name] = maps.Clone(settings)
	}
	for _, c := range plan.Nodes {
		for _, name := range c.Nodes {
			for _, s := range c.Settings {
				if old, declared := before.settings[name][s.Key]; declared != (s.Old != nil) || declared && *s.Old != old {
					w.t.Errorf("%s of %s is %q, the plan says %q", s.Key, name, old, ptr.Deref(s.Old, "none"))
				}
				if s.New == nil {
					delete(want[name], s.Key)
				} else {
					want[name][s.Key] = *s.New
				}
			}
		}
	}
	if diff := cmp.Diff(want, w.observe().settings); diff != "" {
		w.t.Errorf("settings (-plan +manager):\n%s", diff)
	}
}

// compareReboots asserts that the manager plans the same reboots for a profile. Its status also counts the nodes that wait under policy Never.
func (w *planWorld) compareReboots(plan view.FilePlan, p view.FileProfile) {
	var want []string
	for _, r := range plan.Reboots {
		if slices.Contains(r.Profiles, p.Name) {
			want = append(want, r.Node)
		}
	}
	for _, r := range plan.NotRebooted {
		if slices.Contains(r.Profiles, p.Name) && strings.Contains(r.Held, "policy Never") {
			want = append(want, r.Node)
		}
	}
	live, err := getProfile(w.t.Context(), w.client, p.Name)
	w.must(err)
	got := slices.Sorted(slices.Values(live.Status.Plan.Examples))
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		w.t.Errorf("reboots for %s (-plan +manager):\n%s", p.Name, diff)
	}
}

// compareStandings asserts that the plan shows each volume that differs from the profiles, with the reason and the message of the manager.
func (w *planWorld) compareStandings(plan view.FilePlan) {
	got := map[string]string{}
	for standing, list := range map[volumeplan.VolumeState][]volumeplan.Change{volumeplan.VolumeBlocked: plan.Volumes.Blocked, volumeplan.VolumeException: plan.Volumes.Exceptions} {
		for _, c := range list {
			got[c.Volume] = fmt.Sprint(standing, " ", c.Reason, " ", c.Message)
		}
	}
	listed := map[string][]view.Volume{}
	for _, p := range plan.Profiles {
		if p.Rejection != "" {
			continue
		}
		for _, v := range w.volumesOf(p.Name) {
			listed[v.Volume] = append(listed[v.Volume], v)
		}
	}
	want := map[string]string{}
	for name, list := range listed {
		var differences []string
		for _, v := range list {
			switch v.State {
			case volumeplan.VolumeException:
				if want[name] == "" {
					want[name] = fmt.Sprint(v.State, " ", v.Reason)
				}
				differences = append(differences, cmpOr(v.Exceptions, v.Message)...)
			case volumeplan.VolumeUpToDate:
			case volumeplan.VolumePending, volumeplan.VolumeBlocked, volumeplan.VolumeHeld:
				want[name] = fmt.Sprint(v.State, " ", v.Reason, " ", v.Message)
			}
		}
		if len(differences) > 0 {
			slices.Sort(differences)
			want[name] += " " + text.Join(slices.Compact(differences), "; ")
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		w.t.Errorf("volumes that differ (-manager +plan):\n%s", diff)
	}
}

func cmpOr(list []string, other string) []string {
	if len(list) == 0 {
		return []string{other}
	}
	return list
}

func (w *planWorld) volumesOf(profile string) []view.Volume {
	w.t.Helper()
	r := w.run("", "volumes", profile, "-o", "json")
	var report view.VolumeReport
	if err := json.Unmarshal([]byte(r.out), &report); err != nil || r.err != nil {
		w.t.Fatalf("%v, %v in:\n%s", r.err, err, r.out)
	}
	return report.Volumes
}

// compareTexts asserts that volumes, diff, plan and the status say the same about each volume of a profile.
func (w *planWorld) compareTexts(profile string, seen map[volumeplan.VolumeState]int) {
	counts := map[volumeplan.VolumeState]int32{}
	texts := map[string]string{"volumes": w.run("", "volumes", profile).out, "diff": w.run("", "diff", profile, "-o", "wide").out, "plan": w.run(w.manifest(profile), "plan", "-f", "-", "-o", "wide").out}
	live, err := getProfile(w.t.Context(), w.client, profile)
	w.must(err)
	conflict := ptr.Deref(meta.FindStatusCondition(live.Status.Conditions, v1alpha1.ConditionConflict), metav1.Condition{})
	for _, v := range w.volumesOf(profile) {
		counts[v.State]++
		seen[v.State]++
		if v.State == volumeplan.VolumeUpToDate {
			continue
		}
		message := v.Reason + ": " + v.Message
		for name, out := range texts {
			if want := message; name == "diff" && !strings.Contains(out, v.Message) || name != "diff" && !strings.Contains(out, want) {
				w.t.Errorf("%s of %s lacks %q about %s:\n%s", name, profile, want, v.Volume, out)
			}
		}
		if v.State == volumeplan.VolumeBlocked && live.Status.Volumes.Blocked == 1 && !strings.Contains(conflict.Message, v.Volume+": "+v.Reason) {
			w.t.Errorf("condition Conflict of %s lacks %q about %s: %s", profile, message, v.Volume, conflict.Message)
		}
	}
	var same int32
	if last := lastLine(texts["diff"]); strings.Contains(last, "the mount options of") {
		_, err := fmt.Sscanf(last, "%d volume", &same)
		w.must(err)
	}
	status := live.Status.Volumes
	want := [...]int32{status.UpToDate, status.UpToDate, status.Exceptions, status.Blocked, status.Matched - status.UpToDate - status.Exceptions - status.Blocked}
	got := [...]int32{counts[volumeplan.VolumeUpToDate], same, counts[volumeplan.VolumeException], counts[volumeplan.VolumeBlocked], counts[volumeplan.VolumePending]}
	if diff := cmp.Diff(want, got); diff != "" {
		w.t.Errorf("volumes of %s up to date, the same by diff, exceptions, blocked, pending (-status +volumes):\n%s\n%s", profile, diff, texts["volumes"])
	}
}

func lastLine(out string) string {
	lines := strings.Split(strings.TrimSpace(out), "\n")
	return lines[len(lines)-1]
}

func (w *planWorld) manifest(profile string) string {
	live, err := getProfile(w.t.Context(), w.client, profile)
	w.must(err)
	return w.manifests([]*v1alpha1.StorageClientProfile{live})
}
