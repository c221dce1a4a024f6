package nodevolumes

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume/judge"
	"github.com/storageclient/operator/controllers/volume/plan"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func told(name string, kib int32, options ...string) v1alpha1.NodeVolume {
	v := v1alpha1.NodeVolume{Name: name, MountOptions: options}
	if kib > 0 {
		v.ReadAheadKiB = ptr.To(kib)
	}
	return v
}

func ahead(kib int32) *judge.ReadAhead { return &judge.ReadAhead{KiB: kib, Profile: "p", Rule: "r"} }

// on is a node that has volumes mounted with a read-ahead of 128 KiB, and may be written.
func on(name string, volumes ...string) managed {
	clientNode := &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 1}}
	clientNode.Status.ObservedGeneration = 1
	for _, v := range volumes {
		clientNode.Status.Mounts = append(clientNode.Status.Mounts, v1alpha1.MountStatus{MountPoint: "/" + v, Volume: v, ReadAheadKiB: 128})
	}
	return managed{node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, clientNode: clientNode, open: true}
}

func (m managed) with(volumes ...v1alpha1.NodeVolume) managed {
	m.clientNode.Spec.Volumes = volumes
	return m
}

func TestNodesAreToldWhatTheyHaveMounted(t *testing.T) {
	declared := plan.Mounted{Options: []string{"nocto"}}
	tests := map[string]struct {
		node    managed
		mounted map[string]plan.Mounted
		// want is nil where nothing is to be written.
		want []v1alpha1.NodeVolume
	}{
		"volumes of profiles, sorted, each once": {
			node: on("n", "b", "a", "other", "b", ""), mounted: map[string]plan.Mounted{"a": declared, "b": declared, "away": declared},
			want: []v1alpha1.NodeVolume{told("a", 0, "nocto"), told("b", 0, "nocto")},
		},
		"nothing that it knows already": {
			node: on("n", "a").with(told("a", 0, "nocto")), mounted: map[string]plan.Mounted{"a": declared},
		},
		"that a volume is no profile's any more": {
			node: on("n", "a", "b").with(told("a", 64, "nocto"), told("b", 0, "nocto")), mounted: map[string]plan.Mounted{"b": declared},
			want: []v1alpha1.NodeVolume{told("b", 0, "nocto")},
		},
		"that a volume is gone": {
			node: on("n", "b").with(told("a", 0, "nocto"), told("b", 0, "nocto")), mounted: map[string]plan.Mounted{"a": declared, "b": declared},
			want: []v1alpha1.NodeVolume{told("b", 0, "nocto")},
		},
		"nothing while the object may not be written": {
			node: func() managed { m := on("n", "a"); m.open = false; return m }(), mounted: map[string]plan.Mounted{"a": declared},
		},
		"nothing new of a volume that is held": {
			node: on("n", "a", "b").with(told("a", 64, "hard")), mounted: map[string]plan.Mounted{"a": {Keep: true, KeepReadAhead: true}, "b": {Keep: true, KeepReadAhead: true}},
		},
		"the read-ahead of a volume whose options wait": {
			node: on("n", "a").with(told("a", 0, "hard")), mounted: map[string]plan.Mounted{"a": {Keep: true, ReadAhead: ahead(1024)}},
			want: []v1alpha1.NodeVolume{told("a", 1024, "hard")},
		},
		"options of a volume about whose read-ahead profiles disagree": {
			node: on("n", "a").with(told("a", 64, "hard")), mounted: map[string]plan.Mounted{"a": {Options: []string{"nocto"}, KeepReadAhead: true}},
			want: []v1alpha1.NodeVolume{told("a", 64, "nocto")},
		},
		"that a read-ahead is no longer declared": {
			node: on("n", "a").with(told("a", 1024, "nocto")), mounted: map[string]plan.Mounted{"a": declared},
			want: []v1alpha1.NodeVolume{told("a", 0, "nocto")},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p := &planner{nodes: []managed{test.node}, mounted: test.mounted, profiles: rollouts(), now: noon, since: map[carrier]time.Time{}}
			lists, _ := p.planLists()
			if diff := cmp.Diff(test.want, lists["n"], cmpopts.EquateEmpty()); diff != "" || (test.want == nil) != (len(lists) == 0) {
				t.Errorf("list (-want +got):\n%s", diff)
			}
		})
	}
}

func rollouts(change ...func(*v1alpha1.Rollout)) map[string]v1alpha1.Rollout {
	spec := v1alpha1.StorageClientProfileSpec{}
	spec.Rollout.Canary = &v1alpha1.Canary{Nodes: ptr.To[int32](1), SoakSeconds: ptr.To[int32](60)}
	spec.Rollout.MaxConcurrentLive = ptr.To(intstr.FromInt32(2))
	for _, c := range change {
		c(&spec.Rollout)
	}
	return map[string]v1alpha1.Rollout{"p": spec.WithDefaults().Rollout}
}

// A read-ahead is a change of nodes in service: the canary first, then no more at a time than the limit.
func TestAReadAheadPassesTheCanary(t *testing.T) {
	nodes := []managed{on("a", "v"), on("b", "v"), on("c", "v"), on("d", "v"), on("e")}
	p := &planner{nodes: nodes, mounted: map[string]plan.Mounted{"v": {ReadAhead: ahead(1024)}}, profiles: rollouts(), now: noon, since: map[carrier]time.Time{}}
	// pass writes the lists; a node that is told has it seen and shows it at once, unless it is slow.
	slow := map[string]bool{}
	pass := func() (names []string) {
		lists, _ := p.planLists()
		for _, n := range nodes {
			list, written := lists[n.node.Name]
			if !written {
				continue
			}
			n.clientNode.Spec.Volumes = list
			if list[0].ReadAheadKiB != nil {
				names = append(names, n.node.Name)
			}
			if !slow[n.node.Name] {
				n.clientNode.Status.Mounts[0].ReadAheadKiB = ptr.Deref(list[0].ReadAheadKiB, 128)
			}
		}
		return names
	}
	expect := func(when string, want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, pass(), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	slow["a"], slow["b"] = true, true
	expect("the canary", "a")
	p.now = p.now.Add(time.Hour)
	expect("the canary does not show it: nobody else")
	nodes[0].clientNode.Status.Mounts[0].ReadAheadKiB = 1024
	expect("it soaks")
	_, next := p.planLists()
	if next != time.Minute {
		t.Errorf("looks again after %s, want the rest of the soak", next)
	}
	p.now = p.now.Add(time.Minute)
	expect("as many as the limit", "b", "c")
	expect("one of them has not taken it", "d")
	p.mounted["v"] = plan.Mounted{ReadAhead: ahead(2048)}
	expect("another value is proven anew", "a")
	p.mounted["v"] = plan.Mounted{}
	expect("and put back everywhere at once")
	for _, n := range nodes[:4] {
		if n.clientNode.Spec.Volumes[0].ReadAheadKiB != nil {
			t.Errorf("%s still has it", n.node.Name)
		}
	}
}

func TestTheKernelRoundsAWindowDown(t *testing.T) {
	p := &planner{mounted: map[string]plan.Mounted{"v": {ReadAhead: ahead(1023)}}}
	for shown, want := range map[int32]bool{1023: true, 1020: true, 960: true, 959: false, 1024: false, 128: false, 0: true} {
		n := on("n", "v")
		n.clientNode.Status.Mounts[0].ReadAheadKiB = shown
		if got := p.hasTaken(n.clientNode, *ahead(1023)); got != want {
			t.Errorf("%d KiB: taken is %v", shown, got)
		}
	}
}

func TestAnObjectIsWrittenOnlyWhereNobodyWaits(t *testing.T) {
	tests := map[string]struct {
		change func(*corev1.Node, *v1alpha1.StorageClientNode)
		silent bool
		want   bool
	}{
		"in service":                       {want: true},
		"the agent has not seen the last":  {change: func(_ *corev1.Node, s *v1alpha1.StorageClientNode) { s.Generation = 2 }},
		"the agent is not there":           {silent: true},
		"the agent speaks of another boot": {change: func(n *corev1.Node, _ *v1alpha1.StorageClientNode) { n.Status.NodeInfo.BootID = "boot-2" }},
		"the node is not Ready":            {change: func(n *corev1.Node, _ *v1alpha1.StorageClientNode) { n.Status.Conditions = nil }},
		"the node is paused": {change: func(n *corev1.Node, _ *v1alpha1.StorageClientNode) {
			n.Annotations = map[string]string{v1alpha1.PausedAnnotation: "true"}
		}},
		"a permit": {change: func(_ *corev1.Node, s *v1alpha1.StorageClientNode) {
			s.Spec.RebootPermit = &v1alpha1.RebootPermit{ID: "x"}
		}},
		"our cordon": {change: func(n *corev1.Node, _ *v1alpha1.StorageClientNode) {
			n.Annotations = map[string]string{v1alpha1.DisruptionAnnotation: "{}"}
		}},
		"a claim": {change: func(_ *corev1.Node, s *v1alpha1.StorageClientNode) {
			s.Status.Rollout = &v1alpha1.RolloutStatus{Phase: v1alpha1.RolloutClaimed}
		}},
		"a release": {change: func(_ *corev1.Node, s *v1alpha1.StorageClientNode) { s.Spec.Release = true }},
		"a reboot that waits holds nothing": {change: func(_ *corev1.Node, s *v1alpha1.StorageClientNode) {
			s.Status.Rollout = &v1alpha1.RolloutStatus{Phase: v1alpha1.RolloutWaiting}
		}, want: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := on("n")
			m.node.Status.NodeInfo.BootID, m.clientNode.Status.BootID = "boot-1", "boot-1"
			m.node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
			if test.change != nil {
				test.change(m.node, m.clientNode)
			}
			if got := isWritable(m.node, m.clientNode, !test.silent); got != test.want {
				t.Errorf("writable is %v", got)
			}
		})
	}
}

func TestReportsOfOtherThingsAreNoReasonToLook(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*v1alpha1.StorageClientNode)
		want   bool
	}{
		"a setting":       {func(s *v1alpha1.StorageClientNode) { s.Status.Settings = []v1alpha1.SettingStatus{{Key: "k"}} }, false},
		"a mount's state": {func(s *v1alpha1.StorageClientNode) { s.Status.Mounts[0].State = v1alpha1.MountStale }, false},
		"a new mount": {func(s *v1alpha1.StorageClientNode) {
			s.Status.Mounts = append(s.Status.Mounts, v1alpha1.MountStatus{MountPoint: "/w", Volume: "w"})
		}, true},
		"a read-ahead": {func(s *v1alpha1.StorageClientNode) { s.Status.Mounts[0].ReadAheadKiB = 64 }, true},
		"the end of a disruption": {func(s *v1alpha1.StorageClientNode) {
			s.Status.Rollout = &v1alpha1.RolloutStatus{Phase: v1alpha1.RolloutDraining}
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			after := on("n", "v").clientNode
			test.change(after)
			if got := clientNodeChanged(event.UpdateEvent{ObjectOld: on("n", "v").clientNode, ObjectNew: after}); got != test.want {
				t.Errorf("changed is %v", got)
			}
		})
	}
}
