package plan

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume/judge"
	volumeplan "github.com/storageclient/operator/controllers/volume/plan"
	"github.com/storageclient/operator/test/check"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func nodeVolume(name string, kib int32, options ...string) v1alpha1.NodeVolume {
	v := v1alpha1.NodeVolume{Name: name, MountOptions: options}
	if kib > 0 {
		v.ReadAheadKiB = ptr.To(kib)
	}
	return v
}

func ahead(kib int32) *judge.ReadAhead { return &judge.ReadAhead{KiB: kib, Profile: "p", Rule: "r"} }

// nodeWith returns a writable node that has volumes mounted with a read-ahead of 128 KiB.
func nodeWith(name string, volumes ...string) Node {
	clientNode := &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 1}}
	clientNode.Status.ObservedGeneration = 1
	for _, v := range volumes {
		clientNode.Status.Mounts = append(clientNode.Status.Mounts, v1alpha1.MountStatus{MountPoint: "/" + v, Volume: v, ReadAheadKiB: 128})
	}
	return Node{Node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, ClientNode: clientNode, Writable: true}
}

func (m Node) with(volumes ...v1alpha1.NodeVolume) Node {
	m.ClientNode.Spec.Volumes = volumes
	return m
}

func TestNodesGetTheVolumesThatTheyHaveMounted(t *testing.T) {
	declared := volumeplan.Mounted{Options: []string{"nocto"}}
	tests := map[string]struct {
		node    Node
		mounted map[string]volumeplan.Mounted
		// users are the nodes with pods of a volume; nil: unknown.
		users map[string]sets.Set[string]
		// want is nil if the plan must not write the node.
		want []v1alpha1.NodeVolume
	}{
		"volumes of profiles, sorted, each once": {
			node: nodeWith("n", "b", "a", "other", "b", ""), mounted: map[string]volumeplan.Mounted{"a": declared, "b": declared, "away": declared},
			want: []v1alpha1.NodeVolume{nodeVolume("a", 0, "nocto"), nodeVolume("b", 0, "nocto")},
		},
		"nothing that it knows already": {
			node: nodeWith("n", "a").with(nodeVolume("a", 0, "nocto")), mounted: map[string]volumeplan.Mounted{"a": declared},
		},
		"that no profile selects a volume any longer": {
			node:    nodeWith("n", "a", "b").with(nodeVolume("a", 64, "nocto"), nodeVolume("b", 0, "nocto")),
			mounted: map[string]volumeplan.Mounted{"b": declared},
			want:    []v1alpha1.NodeVolume{nodeVolume("b", 0, "nocto")},
		},
		"that a volume was unmounted": {
			node: nodeWith("n", "b").with(nodeVolume("a", 0, "nocto"), nodeVolume("b", 0, "nocto")), mounted: map[string]volumeplan.Mounted{"a": declared, "b": declared},
			want: []v1alpha1.NodeVolume{nodeVolume("b", 0, "nocto")},
		},
		"nothing while the object may not be written": {
			node: func() Node { m := nodeWith("n", "a"); m.Writable = false; return m }(), mounted: map[string]volumeplan.Mounted{"a": declared},
		},
		"nothing new of a volume that is held": {
			node: nodeWith("n", "a", "b").with(nodeVolume("a", 64, "hard")), mounted: map[string]volumeplan.Mounted{"a": {Keep: true, KeepReadAhead: true}, "b": {Keep: true, KeepReadAhead: true}},
		},
		"the read-ahead of a volume whose options wait": {
			node: nodeWith("n", "a").with(nodeVolume("a", 0, "hard")), mounted: map[string]volumeplan.Mounted{"a": {Keep: true, ReadAhead: ahead(1024)}},
			want: []v1alpha1.NodeVolume{nodeVolume("a", 1024, "hard")},
		},
		"a volume whose options wait, with its read-ahead": {
			node: nodeWith("n", "a"), mounted: map[string]volumeplan.Mounted{"a": {Keep: true, ReadAhead: ahead(1024)}},
			want: []v1alpha1.NodeVolume{nodeVolume("a", 1024)},
		},
		"nothing of a volume whose options and read-ahead wait": {
			node: nodeWith("n", "a"), mounted: map[string]volumeplan.Mounted{"a": {Keep: true, ReadAhead: ahead(1024)}}, users: map[string]sets.Set[string]{},
		},
		"options of a volume about whose read-ahead profiles disagree": {
			node:    nodeWith("n", "a").with(nodeVolume("a", 64, "hard")),
			mounted: map[string]volumeplan.Mounted{"a": {Options: []string{"nocto"}, KeepReadAhead: true}},
			want:    []v1alpha1.NodeVolume{nodeVolume("a", 64, "nocto")},
		},
		"that a read-ahead is no longer declared": {
			node: nodeWith("n", "a").with(nodeVolume("a", 1024, "nocto")), mounted: map[string]volumeplan.Mounted{"a": declared},
			want: []v1alpha1.NodeVolume{nodeVolume("a", 0, "nocto")},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			lists := For(Snapshot{Nodes: []Node{test.node}, Mounted: test.mounted, Users: test.users, Rollouts: rollouts(), Now: noon}).Lists
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

// A read-ahead changes nodes in service: first the canary, then at most as many nodes as the limit allows.
func TestAReadAheadPassesTheCanary(t *testing.T) {
	nodes := []Node{nodeWith("a", "v"), nodeWith("b", "v"), nodeWith("c", "v"), nodeWith("d", "v"), nodeWith("e")}
	p := Snapshot{Nodes: nodes, Mounted: map[string]volumeplan.Mounted{"v": {ReadAhead: ahead(1024)}}, Rollouts: rollouts(), Now: noon}
	// pass writes the lists. Each node observes and reports its list immediately, unless the node is slow.
	slow := map[string]bool{}
	pass := func() (names []string) {
		next := For(p)
		p.Since = next.Since
		for _, n := range nodes {
			list, written := next.Lists[n.Node.Name]
			if !written {
				continue
			}
			n.ClientNode.Spec.Volumes = list
			if list[0].ReadAheadKiB != nil {
				names = append(names, n.Node.Name)
			}
			if !slow[n.Node.Name] {
				n.ClientNode.Status.Mounts[0].ReadAheadKiB = ptr.Deref(list[0].ReadAheadKiB, 128)
			}
		}
		return names
	}
	expect := func(moment string, want ...string) {
		t.Helper()
		check.Equal(t, moment, want, pass(), cmpopts.EquateEmpty())
	}
	slow["a"], slow["b"] = true, true
	expect("the canary", "a")
	p.Now = p.Now.Add(time.Hour)
	expect("the canary does not report the value, so no other node gets it")
	nodes[0].ClientNode.Status.Mounts[0].ReadAheadKiB = 1024
	expect("it soaks")
	if next := For(p).Next; next != time.Minute {
		t.Errorf("got the next pass after %s, want the rest of the soak", next)
	}
	p.Now = p.Now.Add(time.Minute)
	expect("as many as the limit", "b", "c")
	expect("one of them has not applied the value", "d")
	p.Mounted["v"] = volumeplan.Mounted{ReadAhead: ahead(2048)}
	expect("another value is tested on the canary again", "a")
	p.Mounted["v"] = volumeplan.Mounted{}
	expect("the original value is restored on all nodes at once")
	for _, n := range nodes[:4] {
		if n.ClientNode.Spec.Volumes[0].ReadAheadKiB != nil {
			t.Errorf("got the read-ahead still on %s", n.Node.Name)
		}
	}
}

// A kubelet may set most labels of its Node. Such a node must not prove a read-ahead for the volumes of others.
func TestALabelThatAKubeletMaySetMakesNoCanary(t *testing.T) {
	for key, want := range map[string][]string{
		"example.com/canary": {"a"}, "canary": {"a"}, "topology.kubernetes.io/zone": {"a"}, "node.kubernetes.io/canary": {"a"},
		"node-restriction.kubernetes.io/canary": {"c"},
	} {
		nodes := []Node{nodeWith("a", "v"), nodeWith("b", "v"), nodeWith("c", "v")}
		nodes[2].Node.Labels = map[string]string{key: "true"}
		byLabel := rollouts(func(r *v1alpha1.Rollout) {
			r.Canary = &v1alpha1.Canary{NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{key: "true"}}}
		})
		next := For(Snapshot{Nodes: nodes, Mounted: map[string]volumeplan.Mounted{"v": {ReadAhead: ahead(1024)}}, Rollouts: byLabel, Now: noon})
		var canaries []string
		for name, list := range next.Lists {
			if list[0].ReadAheadKiB != nil {
				canaries = append(canaries, name)
			}
		}
		if diff := cmp.Diff(want, canaries); diff != "" {
			t.Errorf("%s: canaries (-want +got):\n%s", key, diff)
		}
		if byLabel["p"].Canary.NodeSelector == nil {
			t.Errorf("%s: the profile's selector was removed", key)
		}
	}
}

func TestTheKernelRoundsAWindowDown(t *testing.T) {
	p := Snapshot{Mounted: map[string]volumeplan.Mounted{"v": {ReadAhead: ahead(1023)}}}
	for observed, want := range map[int32]bool{1023: true, 1020: true, 960: true, 959: false, 1024: false, 128: false, 0: true} {
		n := nodeWith("n", "v")
		n.ClientNode.Status.Mounts[0].ReadAheadKiB = observed
		if got, _, _ := p.problemOf(n, *ahead(1023)); (got == "") != want {
			t.Errorf("%d KiB: got problem %q", observed, got)
		}
	}
}
