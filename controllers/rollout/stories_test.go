package rollout

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/windows"
)

var update = flag.Bool("update", false, "write the stories instead of comparing them")

// TestStories plays rollouts without random events and compares the whole narrative, so that every change of behavior is visible
// in review.
func TestStories(t *testing.T) {
	for name, story := range map[string]func(*world){
		"canary first, then by age, the manager's own node last": func(w *world) {
			w.addNode("a").Manager = true
			w.addNode("b")
			w.addNode("c")
			w.addProfile("eda", nil, "a", "b", "c")
			w.playUntil(20 * time.Minute)
		},
		"a budget of two takes two at a time": func(w *world) {
			w.budget = 2
			for _, name := range []string{"a", "b", "c", "d"} {
				w.addNode(name)
			}
			w.addProfile("eda", func(r *v1alpha1.Rollout) {
				r.MaxUnavailable = ptr.To(intstr.FromInt32(2))
				r.Canary.SoakSeconds = ptr.To[int32](0)
			}, "a", "b", "c", "d")
			w.playUntil(20 * time.Minute)
		},
		"a drain that times out is released and tried again": func(w *world) {
			n := w.addNode("a")
			n.pods = []simPod{{name: "db", unseen: true, blockedUntil: w.now.Add(18 * time.Minute)}}
			w.addProfile("eda", nil, "a")
			w.playUntil(40 * time.Minute)
		},
		"a budget that never allows costs no eviction, and another node is the canary": func(w *world) {
			for _, name := range []string{"a", "b", "c"} {
				w.addNode(name)
			}
			w.nodes["a"].pods = []simPod{{name: "web"}, {name: "db", blockedUntil: w.now.Add(1000 * time.Hour)}}
			w.addProfile("eda", nil, "a", "b", "c")
			w.playUntil(24 * time.Hour)
			w.expectWastedEvictions(0)
		},
		"a budget that no dry run shows is met less and less often": func(w *world) {
			for _, name := range []string{"a", "b", "c"} {
				w.addNode(name)
			}
			w.nodes["a"].pods = []simPod{{name: "db", unseen: true, blockedUntil: w.now.Add(1000 * time.Hour)}}
			w.addProfile("eda", nil, "a", "b", "c")
			w.playUntil(24 * time.Hour)
			w.expectWastedEvictions(0)
		},
		"jobs that run for days cost no eviction, and another node is the canary": func(w *world) {
			for _, name := range []string{"a", "b", "c"} {
				w.addNode(name)
			}
			w.nodes["a"].pods = []simPod{{name: "web"}, {name: "job", runsUntil: w.now.Add(1000 * time.Hour)}}
			w.addProfile("eda", nil, "a", "b", "c")
			w.playUntil(24 * time.Hour)
			w.expectWastedEvictions(0)
		},
		"where every node runs jobs, one waits for them": func(w *world) {
			for _, name := range []string{"a", "b"} {
				w.addNode(name).pods = []simPod{{name: "job-" + name, runsUntil: w.now.Add(12 * time.Minute)}}
			}
			w.addProfile("eda", nil, "a", "b")
			w.playUntil(40 * time.Minute)
			w.expectWastedEvictions(0)
		},
		"somebody asks for a retry of a node that is left alone": func(w *world) {
			n := w.addNode("a")
			n.pods = []simPod{{name: "db", unseen: true, blockedUntil: w.now.Add(45 * time.Minute)}}
			n.machine.mounted = w.now.Add(36 * time.Minute)
			p := w.addProfile("eda", nil, "a")
			w.playUntil(36 * time.Minute)
			n.pods[0].blockedUntil = w.now
			w.narrate("somebody asks for a retry")
			p.Retry = "1"
			w.playUntil(10 * time.Minute)
		},
		"a boot without effect stops the rollout until the profile changes": func(w *world) {
			n := w.addNode("a")
			w.addNode("b")
			p := w.addProfile("eda", nil, "a", "b")
			w.bootsAs(n, bootWithoutEffect)
			w.playUntil(10 * time.Minute)
			w.narrate("somebody corrects the profile")
			p.version++
			w.bootsAs(n, bootWell)
			w.playUntil(20 * time.Minute)
		},
		"a node that never comes back holds its budget": func(w *world) {
			n := w.addNode("a")
			w.addNode("b")
			w.addProfile("eda", func(r *v1alpha1.Rollout) { r.FailureThreshold = ptr.To[int32](2) }, "a", "b")
			w.bootsAs(n, bootNever)
			w.playUntil(30 * time.Minute)
		},
		"somebody uncordons a node whose agent holds a permit": func(w *world) {
			n := w.addNode("a")
			w.addProfile("eda", nil, "a")
			n.machine.silentUntil = w.now.Add(8 * time.Minute)
			w.reportBefore(n)
			w.playUntil(time.Minute)
			w.narrate("somebody uncordons a")
			n.Unschedulable = false
			n.cordonChanges++
			n.nodeRV++
			w.playUntil(25 * time.Minute)
		},
		"a deleted profile with restoreReboot is rebooted away": func(w *world) {
			w.addNode("a")
			w.addNode("b")
			p := w.addProfile("eda", func(r *v1alpha1.Rollout) { r.Reboot.RestoreReboot = true }, "a", "b")
			w.playUntil(20 * time.Minute)
			w.narrate("somebody deletes the profile")
			p.Deleting = true
			w.playUntil(20 * time.Minute)
		},
		"a pause releases what has no permit": func(w *world) {
			n := w.addNode("a")
			n.pods = []simPod{{name: "db", unseen: true, blockedUntil: w.now.Add(time.Hour)}}
			p := w.addProfile("eda", nil, "a")
			w.playUntil(2 * time.Minute)
			w.narrate("somebody pauses the profile")
			p.Paused = v1alpha1.ReasonPausedByField
			w.playUntil(2 * time.Minute)
		},
		"a window that closes in the middle of a drain ends it until the next": func(w *world) {
			n := w.addNode("a")
			w.addNode("b")
			n.pods = []simPod{{name: "db", unseen: true, blockedUntil: w.now.Add(75 * time.Minute)}}
			w.addProfile("eda", nil, "a", "b").Windows = w.parseWindows(v1alpha1.Window{Schedule: "15 * * * *", DurationSeconds: 600})
			w.playUntil(2*time.Hour + 30*time.Minute)
		},
		"a window that closes lets a node with a permit finish": func(w *world) {
			n := w.addNode("a")
			w.addNode("b")
			n.pods = []simPod{{name: "db", unseen: true, blockedUntil: w.now.Add(24 * time.Minute)}}
			w.addProfile("eda", nil, "a", "b").Windows = w.parseWindows(v1alpha1.Window{Schedule: "15 10 * * *", DurationSeconds: 600})
			w.playUntil(40 * time.Minute)
		},
		"zones in turn, the oldest node first, and a blocked one holds up nobody for ever": func(w *world) {
			w.budget = 2
			for _, name := range []string{"y-2", "x-1", "x-2", "x-3", "y-1"} {
				w.addNode(name).Labels = map[string]string{corev1.LabelTopologyZone: name[:1]}
			}
			w.nodes["x-3"].pods = []simPod{{name: "db", unseen: true, blockedUntil: w.now.Add(time.Hour)}}
			w.addProfile("eda", func(r *v1alpha1.Rollout) {
				r.MaxUnavailable = ptr.To(intstr.FromInt32(2))
				r.Canary.SoakSeconds = ptr.To[int32](0)
			}, "x-1", "x-2", "x-3", "y-1", "y-2")
			w.playUntil(90 * time.Minute)
		},
		"two profiles share one slot in turns": func(w *world) {
			for _, name := range []string{"a-1", "a-2", "a-3", "b-1", "b-2", "b-3"} {
				w.addNode(name)
			}
			soon := func(r *v1alpha1.Rollout) { r.Canary.SoakSeconds = ptr.To[int32](0) }
			w.addProfile("alpha", soon, "a-1", "a-2", "a-3").Priority = 100
			w.addProfile("beta", soon, "b-1", "b-2", "b-3")
			w.playUntil(40 * time.Minute)
		},
		"a file that wins over ours costs a node its reboot neither before nor after": func(w *world) {
			n := w.addNode("a")
			w.addNode("b")
			p := w.addProfile("eda", nil, "a", "b")
			w.setAilment(n, p.moduleKey(), ailment{v1alpha1.SettingShadowed, v1alpha1.EffectLive})
			w.setAilment(w.nodes["b"], p.moduleKey(), ailment{v1alpha1.SettingDrifted, v1alpha1.EffectLive})
			w.playUntil(20 * time.Minute)
		},
		"a node that would not be accepted is left in service, and another one is the canary": func(w *world) {
			n := w.addNode("a")
			w.addNode("b")
			w.addNode("c")
			p := w.addProfile("eda", nil, "a", "b", "c")
			w.setAilment(n, p.moduleKey(), ailment{v1alpha1.SettingShadowed, v1alpha1.EffectReboot})
			w.playUntil(20 * time.Minute)
			w.narrate("somebody removes the file")
			w.setAilment(n, p.moduleKey(), ailment{})
			w.playUntil(10 * time.Minute)
		},
		"a setting that fails in the middle of a drain ends it before a reboot": func(w *world) {
			n := w.addNode("a")
			n.pods = []simPod{{name: "db", unseen: true, blockedUntil: w.now.Add(10 * time.Minute)}}
			p := w.addProfile("eda", nil, "a")
			w.playUntil(5 * time.Minute)
			w.setAilment(n, p.moduleKey(), ailment{v1alpha1.SettingFailed, v1alpha1.EffectLive})
			w.playUntil(10 * time.Minute)
			w.setAilment(n, p.moduleKey(), ailment{})
			w.playUntil(10 * time.Minute)
		},
		"a node whose storage server is silent is not drained, and another one is the canary": func(w *world) {
			for _, name := range []string{"a", "b", "c"} {
				w.addNode(name)
			}
			w.nodes["a"].pods = []simPod{{name: "web"}}
			w.failStorage(w.nodes["a"], 30*time.Minute)
			w.addProfile("eda", nil, "a", "b", "c")
			w.playUntil(40 * time.Minute)
			w.expectWastedEvictions(0)
		},
		"a storage server that falls silent in the middle of a drain is what the drain waits for": func(w *world) {
			n := w.addNode("a")
			n.pods = []simPod{{name: "web", unseen: true, blockedUntil: w.now.Add(2 * time.Minute)}}
			w.addProfile("eda", nil, "a")
			w.playUntil(time.Minute)
			w.failStorage(n, 25*time.Minute)
			w.playUntil(40 * time.Minute)
		},
		"a canary whose storage server falls silent while it soaks holds the others back": func(w *world) {
			w.addNode("a")
			w.addNode("b")
			w.addProfile("eda", nil, "a", "b")
			w.playUntil(2 * time.Minute)
			w.failStorage(w.nodes["a"], 10*time.Minute)
			w.playUntil(20 * time.Minute)
		},
		"a machine that is lost under its permit stops the rollout until somebody asks for a retry": func(w *world) {
			for _, name := range []string{"a", "b"} {
				w.addNode(name)
			}
			p := w.addProfile("eda", nil, "a", "b")
			p.bootsAs, w.repairAfter = bootNever, 10*time.Minute
			w.playUntil(time.Hour)
			w.narrate("somebody mends the machines, and asks for a retry")
			p.bootsAs, p.Retry = bootWell, "1"
			w.playUntil(20 * time.Minute)
		},
		"a new node that serves nothing yet goes before those that wait, and loses its taint": func(w *world) {
			for _, name := range []string{"a", "b", "c"} {
				w.addNode(name)
			}
			w.addProfile("eda", func(r *v1alpha1.Rollout) { r.Canary.SoakSeconds = ptr.To[int32](0) }, "a", "b", "c", "new")
			w.playUntil(time.Minute)
			w.narrate("a new node comes, with the taint")
			w.addNode("new").Untuned = true
			w.playUntil(30 * time.Minute)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(7)
			w.quiet, w.verbose, w.deterministic = true, true, true
			story(w)
			if w.broken != nil {
				t.Error(w.broken)
			}
			path := filepath.Join("testdata", strings.NewReplacer(" ", "-", ",", "", "'", "").Replace(name)+".golden")
			got := strings.Join(w.log, "\n") + "\n"
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("the story is another one (-want +got), run with -update if that is right:\n%s", diff)
			}
		})
	}
}

// expectWastedEvictions checks the number of pods that were evicted by drains that timed out.
func (w *world) expectWastedEvictions(want int32) {
	if w.wastedEvictions != want {
		w.fail("evicted %d pods without effect, want %d", w.wastedEvictions, want)
	}
}

// parseWindows returns windows whose times are in UTC. A story starts at 10:00.
func (w *world) parseWindows(list ...v1alpha1.Window) windows.Set {
	set, err := windows.ParseSet(list)
	if err != nil {
		w.fail("%v", err)
	}
	return set
}

// playUntil plays without faults for a given duration.
func (w *world) playUntil(d time.Duration) {
	for end := w.now.Add(d); w.now.Before(end); {
		w.playWithoutFaults()
	}
}

// bootsAs determines how the boots of a machine end.
func (w *world) bootsAs(n *simNode, kind bootKind) {
	n.machine.always = kind
}

// reportBefore lets an agent report once before it stops reporting.
func (w *world) reportBefore(n *simNode) {
	until := n.machine.silentUntil
	n.machine.silentUntil = time.Time{}
	w.followProfiles(n)
	w.runAgent(n)
	n.machine.silentUntil = until
}
