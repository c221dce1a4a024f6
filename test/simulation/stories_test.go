package simulation

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/memapi"
	"github.com/storageclient/operator/test/play"
)

func noSoak(p *v1alpha1.StorageClientProfile) { p.Spec.Rollout.Canary.SoakSeconds = ptr.To[int32](0) }

func twoAtATime(p *v1alpha1.StorageClientProfile) {
	noSoak(p)
	p.Spec.Rollout.MaxUnavailable = ptr.To(intstr.FromInt32(2))
}

func threshold(failures int32) func(*v1alpha1.StorageClientProfile) {
	return func(p *v1alpha1.StorageClientProfile) { p.Spec.Rollout.FailureThreshold = ptr.To(failures) }
}

func window(schedule string, seconds int32) func(*v1alpha1.StorageClientProfile) {
	return func(p *v1alpha1.StorageClientProfile) {
		p.Spec.Rollout.Windows = []v1alpha1.Window{{Schedule: schedule, DurationSeconds: seconds}}
	}
}

func inZone(zone string) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Labels[corev1.LabelTopologyZone] = zone }
}

// stories play rollouts. Each starts at 10:00 UTC. TestStories compares their logs.
var stories = map[string]func(*story){
	"canary first, then by age, the manager's own node last": func(s *story) {
		s.nodes("a", "b", "c")
		s.managerNode = "b"
		s.addManagerPod(nil)
		s.profile("eda", nil, "a", "b", "c")
		s.play(40 * time.Minute)
	},
	"a canary that the profile selects goes before older nodes": func(s *story) {
		s.nodes("a", "b")
		s.node("c", func(n *corev1.Node) { n.Labels["canary"] = "yes" })
		s.profile("eda", func(p *v1alpha1.StorageClientProfile) {
			p.Spec.Rollout.Canary.Nodes = nil
			p.Spec.Rollout.Canary.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"canary": "yes"}}
		}, "a", "b", "c")
		s.prepare()
		s.play(20 * time.Minute)
	},
	"a budget of two takes two at a time": func(s *story) {
		s.maxUnavailable = intstr.FromInt32(2)
		s.nodes("a", "b", "c", "d")
		s.profile("eda", twoAtATime, "a", "b", "c", "d")
		s.play(20 * time.Minute)
	},
	"a drain that times out is released and tried again": func(s *story) {
		s.nodes("a", "z")
		s.unseen("db", "a", 18*time.Minute)
		s.profile("eda", nil, "a")
		s.play(40 * time.Minute)
	},
	"a budget that never allows costs no eviction, and another node is the canary": func(s *story) {
		s.nodes("a", "b", "c")
		s.pod("web", "a")
		s.blocked("db", "a", 1000*time.Hour)
		s.profile("eda", nil, "a", "b", "c")
		s.play(24 * time.Hour)
		s.wantEvictions(0)
	},
	"a budget that no dry run shows is met less and less often": func(s *story) {
		s.nodes("a", "b", "c")
		s.unseen("db", "a", 1000*time.Hour)
		s.profile("eda", nil, "a", "b", "c")
		s.play(24 * time.Hour)
		s.wantEvictions(0)
	},
	"jobs that run for days cost no eviction, and another node is the canary": func(s *story) {
		s.nodes("a", "b", "c")
		s.pod("web", "a")
		s.job("job", "a", 1000*time.Hour)
		s.profile("eda", nil, "a", "b", "c")
		s.play(24 * time.Hour)
		s.wantEvictions(0)
	},
	"where every node runs jobs, one waits for them": func(s *story) {
		s.nodes("a", "b")
		s.job("job-a", "a", 12*time.Minute)
		s.job("job-b", "b", 12*time.Minute)
		s.profile("eda", nil, "a", "b")
		s.play(40 * time.Minute)
		s.wantEvictions(0)
	},
	"a user requests a retry of a node that is left alone": func(s *story) {
		s.nodes("a", "z")
		db := s.unseen("db", "a", 45*time.Minute)
		s.machines["a"].mounted = s.now.Add(36 * time.Minute)
		s.profile("eda", nil, "a")
		s.play(36 * time.Minute)
		db.blockedUntil = s.now
		s.narrate("a user requests a retry")
		s.retry("eda", "1")
		s.play(10 * time.Minute)
	},
	"a boot without effect stops the rollout until the profile changes": func(s *story) {
		s.nodes("a", "b")
		s.profile("eda", nil, "a", "b")
		s.machines["a"].always = bootWithoutEffect
		s.play(15 * time.Minute)
		s.narrate("a user corrects the profile")
		s.edit("eda", func(p *v1alpha1.StorageClientProfile) { s.setVersion(p, 2) })
		s.machines["a"].always = bootWell
		s.play(30 * time.Minute)
	},
	"a node that never comes back holds its budget": func(s *story) {
		s.nodes("a", "b")
		s.profile("eda", threshold(2), "a", "b")
		s.machines["a"].always = bootNever
		s.play(30 * time.Minute)
	},
	"a user uncordons a node whose agent has a permit": func(s *story) {
		s.nodes("a", "z")
		s.profile("eda", nil, "a")
		s.untilSilent("a", 8*time.Minute)
		s.narrate("a user uncordons a")
		s.changeNode(byPeople, "a", func(n *corev1.Node) { n.Spec.Unschedulable = false })
		s.play(25 * time.Minute)
	},
	"a deleted profile with restoreReboot is rebooted away": func(s *story) {
		s.nodes("a", "b")
		s.profile("eda", func(p *v1alpha1.StorageClientProfile) { p.Spec.Rollout.Reboot.RestoreReboot = true }, "a", "b")
		s.play(30 * time.Minute)
		s.narrate("a user deletes the profile")
		s.api.Delete(byPeople, s.world.profile("eda"))
		s.play(30 * time.Minute)
	},
	"a pause releases what has no permit": func(s *story) {
		s.nodes("a", "z")
		s.unseen("db", "a", time.Hour)
		s.profile("eda", nil, "a")
		s.play(2 * time.Minute)
		s.narrate("a user pauses the profile")
		s.edit("eda", func(p *v1alpha1.StorageClientProfile) { p.Spec.Paused = true })
		s.play(2 * time.Minute)
	},
	"a window that closes in the middle of a drain ends it until the next": func(s *story) {
		s.nodes("a", "b")
		s.unseen("db", "a", 75*time.Minute)
		s.profile("eda", window("15 * * * *", 600), "a", "b")
		s.play(2*time.Hour + 30*time.Minute)
	},
	"a window that closes lets a node with a permit finish": func(s *story) {
		s.nodes("a", "b")
		s.unseen("db", "a", 24*time.Minute)
		s.profile("eda", window("15 10 * * *", 600), "a", "b")
		s.play(40 * time.Minute)
	},
	"zones in turn, the oldest node first, and a blocked node does not delay other zones for long": func(s *story) {
		s.maxUnavailable = intstr.FromInt32(2)
		names := []string{"y-2", "x-1", "x-2", "x-3", "y-1"}
		for _, name := range names {
			s.node(name, inZone(name[:1]))
		}
		s.unseen("db", "x-3", time.Hour)
		s.profile("eda", twoAtATime, names...)
		s.play(90 * time.Minute)
	},
	"two profiles share one slot in turns": func(s *story) {
		a, b := []string{"a-1", "a-2", "a-3"}, []string{"b-1", "b-2", "b-3"}
		s.nodes(append(a, b...)...)
		s.profile("alpha", func(p *v1alpha1.StorageClientProfile) {
			noSoak(p)
			p.Spec.Priority = 100
		}, a...)
		s.profile("beta", noSoak, b...)
		s.play(40 * time.Minute)
	},
	"a file that overrides a live value costs a node its reboot neither before nor after": func(s *story) {
		s.nodes("a", "b")
		s.profile("eda", nil, "a", "b")
		s.ail("a", ailment{v1alpha1.SettingShadowed, v1alpha1.EffectLive})
		s.play(30 * time.Minute)
	},
	"a node that would not be accepted is left in service, and another one is the canary": func(s *story) {
		s.nodes("a", "b", "c")
		s.profile("eda", nil, "a", "b", "c")
		s.ail("a", ailment{v1alpha1.SettingShadowed, v1alpha1.EffectReboot})
		s.play(30 * time.Minute)
		s.narrate("a user removes the file")
		clear(s.machines["a"].ailments)
		s.play(15 * time.Minute)
	},
	"a setting that fails in the middle of a drain ends it before a reboot": func(s *story) {
		s.nodes("a", "z")
		s.unseen("db", "a", 10*time.Minute)
		s.profile("eda", nil, "a")
		s.play(5 * time.Minute)
		s.ail("a", ailment{v1alpha1.SettingFailed, v1alpha1.EffectLive})
		s.play(10 * time.Minute)
		clear(s.machines["a"].ailments)
		s.play(10 * time.Minute)
	},
	"a node whose storage server is silent is not drained, and another one is the canary": func(s *story) {
		s.nodes("a", "b", "c")
		s.pod("web", "a")
		s.failStorage(s.machines["a"], 30*time.Minute)
		s.profile("eda", nil, "a", "b", "c")
		s.play(50 * time.Minute)
		s.wantEvictions(0)
	},
	"a drain waits for a storage server that becomes silent": func(s *story) {
		s.nodes("a", "z")
		s.unseen("web", "a", 2*time.Minute)
		s.profile("eda", nil, "a")
		s.play(time.Minute)
		s.failStorage(s.machines["a"], 25*time.Minute)
		s.play(40 * time.Minute)
	},
	"a canary whose storage server becomes silent while it soaks delays the others": func(s *story) {
		s.nodes("a", "b")
		s.profile("eda", nil, "a", "b")
		s.until("a soaks", func() bool { return s.note("a").Phase == v1alpha1.RolloutUpToDate })
		s.failStorage(s.machines["a"], 10*time.Minute)
		s.play(30 * time.Minute)
	},
	"a machine that is lost under its permit stops the rollout until a user requests a retry": func(s *story) {
		s.nodes("a", "b")
		s.profile("eda", nil, "a", "b")
		s.setBoots(bootNever)
		s.repairAfter(10*time.Minute, false, time.Hour)
		s.narrate("a user repairs the machines, and requests a retry")
		s.setBoots(bootWell)
		s.retry("eda", "1")
		s.play(30 * time.Minute)
	},
	"a new node that serves no pods yet goes before the waiting nodes, and loses its taint": func(s *story) {
		s.nodes("a", "b", "c")
		s.profile("eda", noSoak, "a", "b", "c")
		s.play(time.Minute)
		s.narrate("a new node joins, with the taint")
		s.node("new", untuned)
		s.selectNode("eda", "new")
		s.play(30 * time.Minute)
	},
}

// TestStories compares the whole log of each story, so that every change of behavior is visible in review.
func TestStories(t *testing.T) {
	for name, script := range stories {
		t.Run(name, func(t *testing.T) {
			s := tell(t)
			script(s)
			play.Compare(t, name, s.log)
		})
	}
}

// wantEvictions checks the number of pods that drains evicted before they timed out.
func (s *story) wantEvictions(want int) {
	s.t.Helper()
	if s.inVain != want {
		s.t.Errorf("got %d pods evicted in vain, want %d", s.inVain, want)
	}
}

// ail gives the live value of a profile an ailment.
func (s *story) ail(node string, a ailment) {
	s.narrate("%s: the live value is %s (%s)", node, a.state, a.effect)
	m := s.machines[node]
	m.ailments["sysctl/"+s.values["eda"]] = a
	m.foul++
}

// setBoots sets how all machines boot.
func (s *story) setBoots(end bootEnd) {
	for _, m := range s.machines {
		m.always = end
	}
}

// untilSilent plays until a node gets its permit. Its agent is silent then, and does not use the permit for a while.
func (s *story) untilSilent(node string, d time.Duration) {
	s.t.Helper()
	s.until("a permit of "+node, func() bool {
		if _, claimed := s.claims()[node]; claimed && s.machines[node].silentUntil.IsZero() {
			s.machines[node].silentUntil = s.now.Add(d)
		}
		return s.isPermitted(node)
	})
	s.setAgentReady(node, false)
}

// repairAfter plays a cloud that replaces each machine that has been down for a while, under its old name or a new one.
func (s *story) repairAfter(d time.Duration, isRenamed bool, until time.Duration) {
	s.start()
	s.stopAt = s.now.Add(until)
	for s.now.Before(s.stopAt) && s.broken == nil {
		for _, name := range s.names(memapi.Nodes) {
			if m := s.machines[name]; !m.up && !s.now.Before(m.turned.Add(d)) && !isReadyNode(s.world.node(name)) {
				s.replace(name, isRenamed)
			}
		}
		s.turn()
	}
}

// replace replaces a machine.
func (s *story) replace(name string, isRenamed bool) {
	node, m := s.world.node(name), s.machines[name]
	s.noteLoss(node)
	s.narrate("a cloud replaces %s", name)
	s.api.Remove(byCluster, node)
	delete(s.machines, name)
	s.collectGarbage()
	if isRenamed {
		name += "x"
	}
	s.node(name, func(n *corev1.Node) { n.Labels = node.Labels }).always = m.always
}
