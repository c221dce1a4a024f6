package plan

import (
	"encoding/json"
	"flag"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume/judge"
	"github.com/storageclient/operator/controllers/volume/optionset"
	volumeplan "github.com/storageclient/operator/controllers/volume/plan"
)

// share returns a candidate for an SMB volume, which only a clone can test.
func share(set string) volumeplan.ProbeCandidate {
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{
		Name: "pv-" + set, Labels: map[string]string{"app": "web"}, Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": "smb"},
		Finalizers: []string{"kubernetes.io/pv-protection"},
	}}
	pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	pv.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	pv.Spec.StorageClassName, pv.Spec.MountOptions = "smb", []string{"vers=3.0"}
	pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "eda", Name: "data"}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{
		Driver: "smb.csi.k8s.io", VolumeHandle: "filer/share", VolumeAttributes: map[string]string{"source": "//filer/share"},
		NodeStageSecretRef: &corev1.SecretReference{Namespace: "eda", Name: "credentials"}, ControllerExpandSecretRef: &corev1.SecretReference{Namespace: "eda", Name: "admin"},
	}
	return volumeplan.ProbeCandidate{
		ProbeKey: volumeplan.ProbeKey{Set: set, Server: "filer"}, Volume: pv, Profiles: []string{"p"},
		Target: judge.ProbeTarget{Server: "filer", Obstacle: "only NFS can be mounted in a separate network namespace", Clone: judge.CloneTarget{
			Options: []string{"vers=3.0", "actimeo=30"}, Own: []string{"vers=3.0"}, Declared: []string{"actimeo=30"}, Protocol: v1alpha1.ProtocolSMB,
		}},
	}
}

func isOwn(clone *Clone) bool { return !slices.Contains(clone.Volume.Spec.MountOptions, "actimeo=30") }

// mounts makes the mount of a clone succeed, and its node report it.
func mounts(clone *Clone, n *Node) {
	clone.Pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	n.ClientNode.Status.Mounts = append(n.ClientNode.Status.Mounts, v1alpha1.MountStatus{
		Volume: clone.Volume.Name, Server: "filer", Protocol: "SMB3.0", Options: []string{"acregmax=30", "acdirmax=30"}, Connections: 1,
	})
}

func fails(message string) func(*Clone, *Node) {
	return func(clone *Clone, _ *Node) {
		clone.Failures = append(clone.Failures, message+" Mounting arguments: -o "+strings.Join(clone.Volume.Spec.MountOptions, ","))
	}
}

// byList uses a different outcome for clones with the declared mount options and for clones with the original mount options.
func byList(declared, own func(*Clone, *Node)) func(*Clone, *Node) {
	return func(clone *Clone, n *Node) {
		if isOwn(clone) {
			own(clone, n)
			return
		}
		declared(clone, n)
	}
}

// visitClones does the work of the control plane, the kubelets and the agents: it binds claims and mounts clones.
func (w *world) visitClones(s *Snapshot) {
	if w.rejection != "" {
		s.Rejections = map[string]string{}
		for _, c := range w.candidates {
			s.Rejections[hashOf(c)] = w.rejection
		}
	}
	for _, clone := range w.clones {
		if clone.VolumeClaim != nil && !w.unbound {
			clone.VolumeClaim.Status.Phase = corev1.ClaimBound
		}
		if clone.Pod != nil && len(clone.Pod.Status.Conditions)+len(clone.Failures) == 0 && w.visit != nil {
			w.visit(clone, w.nodes[clone.Pod.Spec.NodeName])
		}
		s.Clones = append(s.Clones, *clone)
	}
}

func (w *world) create(made Clone) {
	if made.Volume != nil {
		if w.clones[made.Volume.Name] != nil {
			w.t.Errorf("created %s twice", made.Volume.Name)
		}
		made.Volume.CreationTimestamp, made.Volume.UID = metav1.NewTime(w.now), types.UID(made.Volume.Name+w.now.String())
		w.clones[made.Volume.Name] = &Clone{Volume: made.Volume, VolumeClaim: made.VolumeClaim}
		return
	}
	if made.VolumeClaim != nil {
		w.clones[made.VolumeClaim.Name].VolumeClaim = made.VolumeClaim
	}
	if made.Pod != nil {
		made.Pod.CreationTimestamp = metav1.NewTime(w.now)
		w.clones[made.Pod.Name].Pod = made.Pod
	}
}

const denied = `MountVolume.MountDevice failed for volume "x" : mount error(13): Permission denied`

func TestResultsOfAClone(t *testing.T) {
	const invalid = `MountVolume.MountDevice failed for volume "x" : mount error(22): Invalid argument`
	const down = `MountVolume.MountDevice failed for volume "x" : mount error(112): Host is down`
	ready := func(clone *Clone, _ *Node) {
		clone.Pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	}
	nextToAnother := func(clone *Clone, n *Node) {
		mounts(clone, n)
		n.ClientNode.Status.Mounts = append(n.ClientNode.Status.Mounts, v1alpha1.MountStatus{Volume: "other", Server: "filer", Protocol: "NFSv4.1"},
			v1alpha1.MountStatus{Volume: "theirs", Server: "FILER", Protocol: "SMB3.1.1"})
	}
	byHand := func(clone *Clone, n *Node) {
		mounts(clone, n)
		n.ClientNode.Status.Mounts = append(n.ClientNode.Status.Mounts, v1alpha1.MountStatus{Server: "filer", Protocol: "SMB3.1.1"})
	}
	withOtherOptions := func(clone *Clone, n *Node) {
		mounts(clone, n)
		n.ClientNode.Status.Mounts[0].Options = []string{"acregmax=1"}
	}
	for name, test := range map[string]struct {
		visit  func(*Clone, *Node)
		want   optionset.Kind
		text   string
		within time.Duration
	}{
		"it is mounted with the mount options": {mounts, optionset.ProbeWorked, "a probe on n1 has mounted a clone of pv-s with vers=3.0,actimeo=30, over 1 connection, and n2 confirmed it", 20 * time.Second},
		"mount rejects an option, and accepts the original mount options": {byList(fails(invalid), mounts), optionset.ProbeRefused,
			"a probe on n1 could not mount a clone of pv-s with vers=3.0,actimeo=30: " + invalid, 30 * time.Second},
		"mount rejects both": {fails(invalid), optionset.ProbeInconclusive, "the original mount options do not work either", 30 * time.Second},
		"it is denied, and the original mount options are not": {byList(fails(denied), mounts), optionset.ProbeRefused, "the original mount options work", cloneTimeout + 30*time.Second},
		"both are denied":    {fails(denied), optionset.ProbeInconclusive, "the original mount options do not work either", 2*cloneTimeout + 30*time.Second},
		"the server is down": {fails(down), optionset.ProbeInconclusive, "Host is down", cloneTimeout + 10*time.Second},
		"it is denied, and the original mount options are not tried": {byList(fails(denied), func(*Clone, *Node) {}), optionset.ProbeInconclusive, "Permission denied", 2*cloneTimeout + 30*time.Second},
		"no Pod ever starts":                                        {nil, optionset.ProbeInconclusive, "no Pod was Ready with a clone of pv-s within 3m0s", cloneTimeout + 10*time.Second},
		"the agent reports no mount":                                {ready, optionset.ProbeInconclusive, "a clone of pv-s was mounted, but the agent on n1 reports no mount of it", cloneTimeout + 10*time.Second},
		"the agent reports another list":                            {withOtherOptions, optionset.ProbeInconclusive, "reports its mount with acregmax=1, over 1 connection", cloneTimeout + 10*time.Second},
		"another volume of the server is mounted next to the clone": {nextToAnother, optionset.ProbeInconclusive, "theirs was mounted on n1 next to a clone of pv-s, and may keep its connections", 10 * time.Second},
		"a user mounts from the server by hand":                     {byHand, optionset.ProbeInconclusive, "a mount of filer without a PersistentVolume was on n1 next to a clone of pv-s", 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			w, c := newWorld(t, "n1", "n2"), share("s")
			w.candidates, w.visit = []volumeplan.ProbeCandidate{c}, test.visit
			start := w.now
			for w.verdict(c).Verdict == "" && w.now.Sub(start) < time.Hour {
				w.pass()
			}
			if got := w.verdict(c); got.Verdict != test.want || !strings.Contains(got.Text, test.text) {
				t.Errorf("got verdict %+v, want %s: %q", got, test.want, test.text)
			}
			if took := w.now.Sub(start); took > test.within {
				t.Errorf("got a verdict after %s, want at most %s", took, test.within)
			}
			w.run()
			w.expectClean()
			for name, n := range w.nodes {
				if n.ClientNode.Spec.Trial != nil || slices.ContainsFunc(w.log, func(step string) bool { return strings.HasPrefix(step, "label") }) {
					t.Errorf("%s: got an order or a label: %v", name, w.log)
				}
			}
		})
	}
}

func TestACloneFromStartToFinish(t *testing.T) {
	w, c := newWorld(t, "n1"), share("s")
	w.candidates, w.visit = []volumeplan.ProbeCandidate{c}, byList(fails("mount error(22): Invalid argument"), mounts)
	w.run()
	name := v1alpha1.ClonePrefix + hashOf(c)
	want := []string{
		"clone volume " + name + " with vers=3.0,actimeo=30, claim " + name, "clone pod " + name + " on n1",
		"collect volume " + name + " with vers=3.0,actimeo=30, claim " + name + ", pod " + name + " on n1",
		"clone volume " + name + " with vers=3.0, claim " + name, "clone pod " + name + " on n1",
		"collect volume " + name + " with vers=3.0, claim " + name + ", pod " + name + " on n1",
	}
	if diff := cmp.Diff(want, w.log); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
	w.candidates = nil
	w.run()
	w.expectClean()
}

func TestACloneIsMountedOnlyWhereNothingElseOfTheServerIs(t *testing.T) {
	has := func(server, address string) []v1alpha1.ServerStatus {
		return []v1alpha1.ServerStatus{{Server: server, Address: address, Protocol: v1alpha1.ServerSMB}}
	}
	for name, test := range map[string]struct {
		servers map[string][]v1alpha1.ServerStatus
		want    string
		text    string
		// mount is another mount from the server. pv-s is mounted on n1, pv-t on n3.
		mount v1alpha1.MountStatus
	}{
		"by its name":                        {servers: map[string][]v1alpha1.ServerStatus{"n1": has("Filer", "")}, want: "on n2"},
		"by an address of its name":          {servers: map[string][]v1alpha1.ServerStatus{"n1": has("10.0.0.1", "10.0.0.1:445"), "n3": has("filer", "10.0.0.1:445")}, want: "on n2"},
		"by another name":                    {servers: map[string][]v1alpha1.ServerStatus{"n1": has("nas", "[fd00::1]:445"), "n3": has("filer", "[fd00::1]:445")}, want: "on n2"},
		"among more servers than it reports": {servers: map[string][]v1alpha1.ServerStatus{"n1": make([]v1alpha1.ServerStatus, maxServers)}, want: "on n2"},
		"another protocol does not matter":   {servers: map[string][]v1alpha1.ServerStatus{"n1": {{Server: "filer", Protocol: v1alpha1.ServerNFS}}}, want: "on n1"},
		"other servers do not matter":        {servers: map[string][]v1alpha1.ServerStatus{"n1": has("other", "10.0.0.2:445")}, want: "on n1"},
		"all nodes have mounts of it": {servers: map[string][]v1alpha1.ServerStatus{"n1": has("filer", ""), "n2": has("filer", ""), "n3": has("filer", ""), "n4": has("filer", "")},
			text: "all suitable nodes have mounts of filer, and a clone would share their connections"},
		"no other node could confirm it": {servers: map[string][]v1alpha1.ServerStatus{"n2": has("filer", ""), "n3": has("filer", ""), "n4": has("filer", "")}, want: "on n1",
			text: "but no other node confirmed it: all suitable nodes have mounts of filer"},
		"by the name under which the kernel mounted it": {servers: map[string][]v1alpha1.ServerStatus{"n1": has("10.0.0.9", "10.0.0.9:445")}, want: "on n2",
			mount: v1alpha1.MountStatus{Volume: "pv-s", Server: "10.0.0.9", Protocol: "SMB3.0"}},
		"if a node has other mounts under that name": {servers: map[string][]v1alpha1.ServerStatus{"n1": has("10.0.0.9", "10.0.0.9:445"), "n2": has("10.0.0.9", "")}, want: "on n3",
			mount: v1alpha1.MountStatus{Volume: "pv-s", Server: "10.0.0.9", Protocol: "SMB3.0"}},
		"the local end of a tunnel is no name": {servers: map[string][]v1alpha1.ServerStatus{"n1": has("127.0.0.1", "127.0.0.1:20049")}, want: "on n1",
			mount: v1alpha1.MountStatus{Volume: "pv-t", Server: "127.0.0.1", Protocol: "SMB3.0"}},
		"a tunnel by name is no name": {servers: map[string][]v1alpha1.ServerStatus{"n1": has("localhost:20049", "127.0.0.1:20049")}, want: "on n1",
			mount: v1alpha1.MountStatus{Volume: "pv-t", Server: "localhost:20049", Protocol: "SMB3.0"}},
		"the port of a tunnel is no name": {servers: map[string][]v1alpha1.ServerStatus{"n1": has("127.0.0.1:20049", "127.0.0.1:20049")}, want: "on n1",
			mount: v1alpha1.MountStatus{Volume: "pv-t", Server: "127.0.0.1:20049", Protocol: "SMB3.0"}},
	} {
		t.Run(name, func(t *testing.T) {
			w, c := newWorld(t, "n1", "n2", "n3", "n4"), share("s")
			for node, servers := range test.servers {
				w.nodes[node].ClientNode.Status.Servers = servers
			}
			w.servers = map[string]string{"pv-s": "Filer", "pv-t": "filer"}
			if test.mount.Volume == "pv-s" {
				w.nodes["n1"].ClientNode.Status.Mounts = []v1alpha1.MountStatus{test.mount}
			} else if test.mount.Volume != "" {
				w.nodes["n3"].ClientNode.Status.Mounts = []v1alpha1.MountStatus{test.mount}
			}
			w.candidates, w.visit = []volumeplan.ProbeCandidate{c}, mounts
			w.run()
			log := strings.Join(w.log, "\n")
			if test.want == "" && len(w.log) > 0 || !strings.Contains(log, test.want) {
				t.Errorf("got steps %s, want %q in them", log, test.want)
			}
			if got := w.verdict(c); (test.text == "") != (got.Verdict == optionset.ProbeWorked) || !strings.Contains(got.Text, test.text) {
				t.Errorf("got verdict %+v, want %q in it", got, test.text)
			}
			w.expectClean()
		})
	}
}

// The server rejects the pod network with any options, and accepts the kubelet's mount.
func TestACloneFollowsAProbeWithoutAResult(t *testing.T) {
	reject := func(order v1alpha1.NodeTrial) *v1alpha1.NodeTrialStatus {
		return &v1alpha1.NodeTrialStatus{ID: order.ID, Phase: v1alpha1.TrialFinished, Message: "mount(2): operation not permitted", Own: &v1alpha1.TrialMount{Message: "mount(2): operation not permitted"}}
	}
	for name, change := range map[string]func(*world){
		"the server rejects its ports": func(w *world) { w.respond = reject },
		"no trial runner comes":        func(w *world) { w.runners = false },
		"an agent does not respond":    func(w *world) { w.respond = nil },
	} {
		t.Run(name, func(t *testing.T) {
			w, c := newWorld(t, "n1", "n2"), share("s")
			c.Target.Obstacle, c.Target.Options = "", []string{"vers=4.1"}
			w.candidates, w.visit = []volumeplan.ProbeCandidate{c}, mounts
			change(w)
			w.run()
			if got := w.verdict(c); got.Verdict != optionset.ProbeWorked || !strings.Contains(got.Text, "a clone of pv-s") {
				t.Errorf("got verdict %+v, steps %v; want a result of a clone", got, w.log)
			}
			w.expectClean()
		})
	}
	t.Run("mount options that the probe has shown to fail need no clone", func(t *testing.T) {
		w, c := newWorld(t, "n1"), share("s")
		c.Target.Obstacle = ""
		w.candidates, w.visit = []volumeplan.ProbeCandidate{c}, mounts
		w.respond = func(order v1alpha1.NodeTrial) *v1alpha1.NodeTrialStatus {
			return &v1alpha1.NodeTrialStatus{ID: order.ID, Phase: v1alpha1.TrialFinished, Message: "mount(2): invalid argument: nfs: Unknown parameter 'x'"}
		}
		w.run()
		if got := w.verdict(c); got.Verdict != optionset.ProbeRefused || strings.Contains(strings.Join(w.log, " "), "clone") {
			t.Errorf("got verdict %+v, steps %v; want Refused without a clone", got, w.log)
		}
	})
}

func TestARestartedManagerContinuesWithClones(t *testing.T) {
	for _, visit := range []func(*Clone, *Node){mounts, byList(fails("mount error(22): Invalid argument"), mounts)} {
		want := optionset.Kind("")
		for passes := range 12 {
			w, c := newWorld(t, "n1", "n2"), share("s")
			w.candidates, w.visit = []volumeplan.ProbeCandidate{c}, visit
			for range passes {
				w.pass()
			}
			w.memory = Memory{}
			w.run()
			if got := w.verdict(c).Verdict; got != want && want != "" || got == optionset.ProbeInconclusive {
				t.Errorf("after %d passes: got verdict %+v", passes, w.verdict(c))
			} else {
				want = got
			}
			w.expectClean()
		}
	}
}

func TestSeveralClonesFewAtATime(t *testing.T) {
	w := newWorld(t, "n1", "n2", "n3", "n4", "n5", "n6")
	w.visit = func(clone *Clone, n *Node) {
		mounts(clone, n)
		// Each clone reports another server.
		n.ClientNode.Status.Mounts[len(n.ClientNode.Status.Mounts)-1].Server = clone.Volume.Name
	}
	for _, set := range []string{"a", "b", "c", "d", "e"} {
		c := share(set)
		c.Server = "filer-" + set
		w.candidates = append(w.candidates, c)
	}
	w.run()
	for _, c := range w.candidates {
		if got := w.verdict(c); got.Verdict != optionset.ProbeWorked {
			t.Errorf("%s: got verdict %+v, want Works", c.Set, got)
		}
	}
	w.expectClean()
}

func TestClonesThatCannotBeCreatedDelayNothing(t *testing.T) {
	w, c := newWorld(t, "n1"), share("s")
	w.candidates, w.rejection = []volumeplan.ProbeCandidate{c}, "quota exceeded"
	w.run()
	if got := w.verdict(c); got.Verdict != optionset.ProbeInconclusive || got.Text != "the API server rejected a clone of pv-s: quota exceeded" {
		t.Errorf("got verdict %+v, want Unknown with the rejection", got)
	}
	w.expectClean()
}

func TestClonesThatAreNotNeededAreDeleted(t *testing.T) {
	w := newWorld(t, "n1")
	for _, set := range []string{"a", "b"} {
		c := share(set)
		w.clones[v1alpha1.ClonePrefix+hashOf(c)] = &Clone{Volume: cloneOf(originOf(c), c.Target.Clone.Options)}
	}
	w.clones[v1alpha1.ClonePrefix+hashOf(share("b"))].VolumeClaim = claimOf(originOf(share("b")))
	w.run()
	w.expectClean()
}

func TestTheObjectsOfAClone(t *testing.T) {
	c := share("s")
	n := Node{Node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, Image: "registry/node-agent:1"}
	n.tolerations = []corev1.Toleration{{Key: "dedicated", Value: "eda", Effect: corev1.TaintEffectNoSchedule}}
	trial := Trial{StorageClientTrial: newLab(t).add("a"), pv: c.Volume, Target: c.Target}
	pass := trial.originOf(v1alpha1.NodeTrialPass{Round: 1, Arm: v1alpha1.ArmAfter})
	for path, made := range map[string]struct {
		origin
		pod func(origin, Node, *corev1.PersistentVolumeClaim) *corev1.Pod
	}{"testdata/clone.golden.json": {originOf(c), probePod}, "testdata/pass.golden.json": {pass, trial.passPod}} {
		volumeClaim := claimOf(made.origin)
		pod := made.pod(made.origin, n, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: volumeClaim.Name, UID: "u"}})
		got, err := json.MarshalIndent([]any{cloneOf(made.origin, c.Target.Clone.Options), volumeClaim, pod}, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		compareGolden(t, path, string(got)+"\n")
	}
	if len(c.Volume.Labels) != 1 || c.Volume.Spec.MountOptions[0] != "vers=3.0" || len(c.Volume.Spec.MountOptions) != 1 {
		t.Errorf("got a changed volume: %+v", c.Volume)
	}
}

var update = flag.Bool("update", false, "write what is compared instead of comparing it")

func compareGolden(t *testing.T, path, got string) {
	t.Helper()
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
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

// A clone brings the volume's Secret to a node. So it goes only to a node that a pod of the claim tolerates, and tolerates no more than that pod.
func TestACloneToleratesWhatAPodOfItsClaimTolerates(t *testing.T) {
	dedicated := corev1.Taint{Key: "dedicated", Value: "eda", Effect: corev1.TaintEffectNoSchedule}
	gpu := corev1.Taint{Key: "gpu", Effect: corev1.TaintEffectNoExecute}
	toEDA := corev1.Toleration{Key: "dedicated", Operator: corev1.TolerationOpEqual, Value: "eda", Effect: corev1.TaintEffectNoSchedule}
	toGPU := corev1.Toleration{Key: "gpu", Operator: corev1.TolerationOpExists}
	for name, test := range map[string]struct {
		taints []corev1.Taint
		pods   [][]corev1.Toleration
		want   []corev1.Toleration
		never  bool
	}{
		"the node has no taints":                         {nil, [][]corev1.Toleration{{toEDA}}, nil, false},
		"a taint only advises":                           {[]corev1.Taint{{Key: "a", Effect: corev1.TaintEffectPreferNoSchedule}}, nil, nil, false},
		"a pod tolerates the taint by its value":         {[]corev1.Taint{dedicated}, [][]corev1.Toleration{{toGPU}, {toEDA}}, []corev1.Toleration{toEDA}, false},
		"a pod tolerates the taint with any value":       {[]corev1.Taint{gpu}, [][]corev1.Toleration{{toGPU}}, []corev1.Toleration{toGPU}, false},
		"one pod tolerates both taints":                  {[]corev1.Taint{dedicated, gpu}, [][]corev1.Toleration{{toGPU, toEDA}}, []corev1.Toleration{toGPU, toEDA}, false},
		"two pods tolerate one of the taints each":       {[]corev1.Taint{dedicated, gpu}, [][]corev1.Toleration{{toGPU}, {toEDA}}, nil, true},
		"no pod has the claim":                           {[]corev1.Taint{dedicated}, nil, nil, true},
		"the pods tolerate another taint":                {[]corev1.Taint{gpu}, [][]corev1.Toleration{{toEDA}}, nil, true},
		"the pods tolerate another value of the taint":   {[]corev1.Taint{{Key: "dedicated", Value: "b", Effect: corev1.TaintEffectNoSchedule}}, [][]corev1.Toleration{{toEDA}}, nil, true},
		"the pods tolerate another effect of the taint":  {[]corev1.Taint{{Key: "dedicated", Value: "eda", Effect: corev1.TaintEffectNoExecute}}, [][]corev1.Toleration{{toEDA}}, nil, true},
		"the node is not ready, and the pods stay there": {[]corev1.Taint{{Key: "node.kubernetes.io/not-ready", Effect: corev1.TaintEffectNoSchedule}}, [][]corev1.Toleration{{toEDA}}, nil, true},
	} {
		var pods []corev1.Pod
		for _, tolerations := range test.pods {
			pods = append(pods, corev1.Pod{Spec: corev1.PodSpec{Tolerations: append([]corev1.Toleration{{Operator: corev1.TolerationOpExists}}, tolerations...)}})
		}
		check := func(t *testing.T, made map[string]*corev1.Pod) {
			t.Helper()
			if len(made) == 0 != test.never {
				t.Fatalf("got %d Pods of clones, want none: %t", len(made), test.never)
			}
			for name, pod := range made {
				if diff := cmp.Diff(test.want, pod.Spec.Tolerations); diff != "" {
					t.Errorf("tolerations of %s (-want +got):\n%s", name, diff)
				}
			}
		}
		t.Run("a probe: "+name, func(t *testing.T) {
			w, c, made := newWorld(t, "n1"), share("s"), map[string]*corev1.Pod{}
			w.nodes["n1"].Node.Spec.Taints, w.claimPods = test.taints, pods
			w.candidates = []volumeplan.ProbeCandidate{c}
			w.visit = func(clone *Clone, n *Node) {
				made[clone.Pod.Name] = clone.Pod
				mounts(clone, n)
			}
			w.run()
			check(t, made)
			if got := w.verdict(c); test.never && !strings.Contains(got.Text, "whose taints the pods of the claim tolerate") {
				t.Errorf("got verdict %+v, want the reason", got)
			}
		})
		t.Run("a trial: "+name, func(t *testing.T) {
			b, made := newBay(t, "n1"), map[string]*corev1.Pod{}
			b.nodes["n1"].Node.Spec.Taints, b.claimPods = test.taints, pods
			b.add("a", func(s *v1alpha1.StorageClientTrialSpec) { s.Rounds = 1 })
			b.visit = func(clone *Clone, _ *Node) { made[clone.Pod.Name] = clone.Pod }
			for range 20 {
				b.step()
			}
			check(t, made)
		})
	}
}

// The node reports the mounts of a deleted clone for a while, and is blocked only for that time.
func TestACloneWaitsForMountsThatAreAboutToGo(t *testing.T) {
	w, c := newWorld(t, "n1", "n2"), share("s")
	for _, n := range w.nodes {
		n.ClientNode.Status.Servers = []v1alpha1.ServerStatus{{Server: "filer", Protocol: v1alpha1.ServerSMB}}
	}
	w.candidates, w.visit = []volumeplan.ProbeCandidate{c}, mounts
	for range 10 {
		w.pass()
	}
	if got := w.verdict(c); got.Verdict != "" || len(w.log) > 0 {
		t.Fatalf("got verdict %+v, steps %v; want none", got, w.log)
	}
	w.nodes["n1"].ClientNode.Status.Servers, w.nodes["n2"].ClientNode.Status.Servers = nil, nil
	w.run()
	if got := w.verdict(c); got.Verdict != optionset.ProbeWorked {
		t.Errorf("got verdict %+v, want Works", got)
	}
}

// A busy node may try the probe later. Two nodes are busy: one has mounts, the other one an order.
func TestACloneWaitsForABusyNode(t *testing.T) {
	w, c := newWorld(t, "n1", "n2", "n3"), share("s")
	w.nodes["n1"].ClientNode.Status.Servers = []v1alpha1.ServerStatus{{Server: "filer", Protocol: v1alpha1.ServerSMB}}
	w.nodes["n2"].Writable, w.nodes["n3"].Writable = false, false
	w.candidates, w.visit = []volumeplan.ProbeCandidate{c}, mounts
	for range 60 {
		w.pass()
	}
	if got := w.verdict(c); got.Verdict != "" {
		t.Fatalf("got verdict %+v, want none", got)
	}
	w.nodes["n2"].Writable, w.nodes["n3"].Writable = true, true
	w.run()
	if got := w.verdict(c); got.Verdict != optionset.ProbeWorked {
		t.Errorf("got verdict %+v, want Works", got)
	}
}
