package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	testclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/yaml"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/node"
	nodeplan "github.com/storageclient/operator/controllers/node/plan"
	"github.com/storageclient/operator/controllers/overview"
	"github.com/storageclient/operator/controllers/profile"
	"github.com/storageclient/operator/controllers/volume"
	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/tuning/nodesettings"
)

// planWorld is a random cluster with the manager's controllers. Its agents apply settings at once. Settings that require a reboot stay staged.
type planWorld struct {
	t      *testing.T
	rng    *rand.Rand
	client client.WithWatch
	clock  *testclock.FakeClock

	profiles *profile.Reconciler
	volumes  *volume.Reconciler
	nodes    *node.Reconciler
}

// noFence reports that the agent may be rolled out. noEvents discards events.
type (
	noFence  struct{}
	noEvents struct{}
)

func (noFence) Missing(context.Context) (string, error) { return "", nil }

func (noEvents) Eventf(runtime.Object, runtime.Object, string, string, string, string, ...any) {}

func newPlanWorld(t *testing.T, seed uint64) *planWorld {
	t.Helper()
	return planWorldOf(t, seed, nil)
}

// planWorldOf returns a world with the given objects, or with random ones.
func planWorldOf(t *testing.T, seed uint64, objects []client.Object) *planWorld {
	t.Helper()
	w := &planWorld{t: t, rng: rand.New(rand.NewPCG(seed, 5)), clock: testclock.NewFakeClock(at())}
	if objects == nil {
		objects = w.populate()
	}
	scheme, err := newScheme()
	check.NoError(t, err)
	w.client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithReturnManagedFields().
		WithStatusSubresource(&v1alpha1.StorageClientProfile{}, &v1alpha1.StorageClientNode{}, &corev1.Node{}).
		WithInterceptorFuncs(interceptor.Funcs{Patch: patchOrTry}).
		WithIndex(&corev1.Event{}, "reason", func(o client.Object) []string { return []string{o.(*corev1.Event).Reason} }).
		WithIndex(&corev1.Pod{}, "status.phase", func(o client.Object) []string { return []string{string(o.(*corev1.Pod).Status.Phase)} }).
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }).Build()
	w.startManager()
	return w
}

func (w *planWorld) startManager() {
	all := intstr.FromString("100%")
	w.profiles = &profile.Reconciler{
		Client: w.client, Clock: w.clock, Recorder: noEvents{}, Fence: noFence{}, MaxUnavailable: all,
	}
	w.volumes = &volume.Reconciler{Client: w.client, Clock: w.clock, Recorder: noEvents{}}
	w.nodes = &node.Reconciler{
		Client: w.client, Clock: w.clock, Fence: noFence{},
		Patience: nodeplan.NewPatience(), Limits: nodeplan.Limits{MaxConcurrentLive: all, UntunedTaint: v1alpha1.UntunedTaint},
	}
}

func pick[T any](w *planWorld, all ...T) T { return all[w.rng.IntN(len(all))] }

func (w *planWorld) chance(oneIn int) bool { return w.rng.IntN(oneIn) == 0 }

func (w *planWorld) populate() []client.Object {
	objects := []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ManagerNamespace}},
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "gold"}, Provisioner: "x", MountOptions: []string{"nconnect=4", "hard"}},
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "plain"}, Provisioner: "x"},
	}
	for i := range 2 + w.rng.IntN(4) {
		name := fmt.Sprintf("n%d", i)
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-of-" + name), CreationTimestamp: metav1.NewTime(at().Add(-time.Hour)), Labels: map[string]string{
			"pool": pick(w, "a", "b"), corev1.LabelOSStable: "linux", corev1.LabelTopologyZone: pick(w, "z1", "z2")}}}
		n.Status.NodeInfo.BootID = "boot"
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		if w.chance(8) {
			n.Annotations = map[string]string{pick(w, v1alpha1.IgnoreAnnotation, v1alpha1.NeverDisruptAnnotation): v1alpha1.True}
		}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.AgentNamespace, Name: "agent-" + name, Labels: map[string]string{"app.kubernetes.io/component": "node-agent"}}}
		pod.Spec.NodeName, pod.Status.Phase = name, corev1.PodRunning
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		objects = append(objects, n, pod)
	}
	for i := range 4 + w.rng.IntN(9) {
		objects = append(objects, w.anyVolume(i)...)
	}
	for i := range 1 + w.rng.IntN(3) {
		p := w.anyProfile(fmt.Sprintf("p%d", i))
		p.UID = types.UID("uid-of-" + p.Name)
		objects = append(objects, p)
	}
	return objects
}

// volumeSources are the kinds of volumes, with mount options that they may have.
var volumeSources = []struct {
	driver     string
	attributes map[string]string
	fsType     string
	options    [][]string
}{
	{"", nil, "", [][]string{nil, {"hard"}, {"nconnect=2", "hard"}, {"nocto", "ro"}, {"vers=4.1,nocto"}, {"soft", "timeo=50"}}},
	{"", nil, "", [][]string{nil, {"nfsvers=3"}, {"acregmax=90"}}},
	{"nfs.csi.k8s.io", map[string]string{"server": "filer"}, "", [][]string{nil, {"nfsvers=4.1"}, {"nconnect=8"}}},
	{"file.csi.azure.com", nil, "", [][]string{nil, {"actimeo=30"}, {"dir_mode=0777", "cache=strict"}}},
	{"file.csi.azure.com", map[string]string{"protocol": "nfs"}, "", [][]string{nil, {"nconnect=4"}}},
	{"smb.csi.k8s.io", nil, "", [][]string{nil, {"vers=3.1.1"}, {"actimeo=1"}}},
	{"efs.csi.aws.com", nil, "", [][]string{nil, {"tls"}}},
	{"disk.csi.azure.com", nil, "xfs", [][]string{nil, {"noatime"}}},
	{"disk.csi.azure.com", nil, "ext4", [][]string{nil, {"discard"}}},
	{"vendor.example.com", nil, "", [][]string{nil, {"nfsvers=4.1"}}},
}

// anyVolume returns a volume with its claim.
func (w *planWorld) anyVolume(i int) []client.Object {
	name, source := fmt.Sprintf("pv%02d", i), pick(w, volumeSources...)
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-of-" + name), CreationTimestamp: metav1.NewTime(at().Add(-time.Hour)), Annotations: map[string]string{},
		Labels: map[string]string{"tier": pick(w, "hot", "cold")}}}
	if source.driver == "" {
		pv.Spec.NFS = &corev1.NFSVolumeSource{Server: pick(w, "filer", "other"), Path: "/"}
	} else {
		pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: source.driver, VolumeHandle: "h", VolumeAttributes: source.attributes, FSType: source.fsType}
	}
	pv.Spec.MountOptions, pv.Spec.StorageClassName = pick(w, source.options...), pick(w, "gold", "plain", "gone", "")
	pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{pick(w, corev1.ReadWriteMany, corev1.ReadWriteOnce)}
	pv.Status.Phase = pick(w, corev1.VolumeBound, corev1.VolumeBound, corev1.VolumeAvailable, corev1.VolumeReleased)
	if w.chance(12) {
		pv.Spec.VolumeMode = ptr.To(corev1.PersistentVolumeBlock)
	}
	if w.chance(4) {
		pv.Annotations["pv.kubernetes.io/provisioned-by"] = "x"
	}
	if w.chance(12) {
		pv.Annotations[corev1.MountOptionAnnotation] = "soft"
	}
	w.declareInGit(pv, 4)
	w.toggleIgnored(pv, 12)
	pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: pick(w, "eda", "ml"), Name: name, UID: types.UID("claim-" + name)}
	volumeClaim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: pv.Spec.ClaimRef.Namespace, Name: name, UID: pv.Spec.ClaimRef.UID, Labels: map[string]string{"role": pick(w, "tools", "models")}}}
	return []client.Object{pv, volumeClaim}
}

func (w *planWorld) declareInGit(pv *corev1.PersistentVolume, oneIn int) {
	switch {
	case !w.chance(oneIn):
	case w.chance(2):
		pv.Labels["kustomize.toolkit.fluxcd.io/name"] = "app"
	default:
		pv.Annotations[corev1.LastAppliedConfigAnnotation] = `{"spec":{"mountOptions":["hard"]}}`
	}
}

func (w *planWorld) toggleIgnored(pv *corev1.PersistentVolume, oneIn int) {
	if w.chance(oneIn) {
		pv.Annotations[v1alpha1.IgnoreAnnotation] = pick(w, v1alpha1.True, "false")
	}
}

// anyProfile returns a profile. Its volume changes do not wait for mounts, which no kubelet makes here.
func (w *planWorld) anyProfile(name string) *v1alpha1.StorageClientProfile {
	p := &v1alpha1.StorageClientProfile{ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 1}}
	if w.chance(3) {
		p.Spec.AllNodes = true
	} else {
		p.Spec.NodeSelector.MatchLabels = map[string]string{"pool": pick(w, "a", "b")}
	}
	p.Spec.Priority = int32(w.rng.IntN(2))
	p.Spec.DeletionPolicy = pick(w, v1alpha1.DeletionRestore, v1alpha1.DeletionRestore, v1alpha1.DeletionRetain)
	if w.chance(8) {
		p.Spec.Mode = v1alpha1.ModePlan
	}
	p.Spec.Paused = w.chance(10)
	if !w.chance(4) {
		p.Spec.Node = w.anyNodeTuning()
	}
	for i := range w.rng.IntN(4) {
		p.Spec.Volumes = append(p.Spec.Volumes, w.anyRule(fmt.Sprintf("r%d", i)))
	}
	p.Spec.Rollout.MaxUnavailable, p.Spec.Rollout.MaxConcurrentLive = ptr.To(intstr.FromString("100%")), ptr.To(intstr.FromString("100%"))
	p.Spec.Rollout.Canary = &v1alpha1.Canary{Nodes: ptr.To(int32(1)), SoakSeconds: ptr.To(int32(w.rng.IntN(2)))}
	p.Spec.Rollout.Volumes = &v1alpha1.VolumeRollout{MaxPerStep: ptr.To(pick(w, intstr.FromString("100%"), intstr.FromInt32(2))), SoakSeconds: ptr.To(int32(w.rng.IntN(2) * 60)), OnNoEvidence: v1alpha1.NoEvidenceProceed}
	p.Spec.Rollout.Reboot.Policy = pick(w, v1alpha1.RebootOnApproval, v1alpha1.RebootOnApproval, v1alpha1.RebootNever)
	p.Spec.Rollout.Reboot.RestoreReboot = w.chance(2)
	return p
}

func (w *planWorld) anyNodeTuning() *v1alpha1.NodeTuning {
	out := &v1alpha1.NodeTuning{Sysctls: map[string]v1alpha1.SettingText{}, SysctlsAtLeast: map[string]v1alpha1.WholeNumbers{}}
	for _, key := range []string{"vm.dirty_ratio", "vm.dirty_background_ratio", "net.ipv4.tcp_slow_start_after_idle"} {
		if w.chance(2) {
			out.Sysctls[key] = pick[v1alpha1.SettingText](w, "0", "1")
		}
	}
	if w.chance(3) {
		out.SysctlsAtLeast["net.core.rmem_max"] = pick[v1alpha1.WholeNumbers](w, "8388608", "16777216")
	}
	if w.chance(2) {
		out.KernelArguments = []v1alpha1.KernelArgument{pick[v1alpha1.KernelArgument](w, "ihash_entries=8388608", "ihash_entries=16777216", "dhash_entries=8388608")}
	}
	if w.chance(3) {
		out.ReadAhead = []v1alpha1.ReadAhead{{FSTypes: []string{"nfs"}, SizeKiB: pick[int32](w, 512, 1024)}}
	}
	if w.chance(4) {
		out.Tuned = &v1alpha1.Tuned{Profile: pick(w, "latency-performance", "throughput-performance")}
	}
	return out
}

func (w *planWorld) anyRule(name string) v1alpha1.VolumeRule {
	r := v1alpha1.VolumeRule{Name: name, Selector: w.anySelector()}
	r.MountOptions = append(r.MountOptions, pick(w, [][]v1alpha1.MountOption{
		{"nocto"}, {"nconnect=4"}, {"nconnect=8", "nocto"}, {"acregmax=30"}, {"acregmax=60", "nocto"}, {"actimeo=60"}, {"actimeo=30"}, {"noatime"}, {"hard", "timeo=600"}, {"cache=none"}, nil,
	}...)...)
	if w.chance(6) {
		r.MountOptionsFrom = v1alpha1.MountOptionsFromClass
	}
	if w.chance(5) || len(r.MountOptions) == 0 && r.MountOptionsFrom == "" {
		r.ReadAheadKiB = ptr.To(pick[int32](w, 512, 1024))
	}
	r.OnConflict = pick(w, v1alpha1.ConflictKeepVolume, v1alpha1.ConflictUseProfile, v1alpha1.ConflictUseProfileOverClass)
	r.GitOpsOwned = pick(w, v1alpha1.GitOpsReportOnly, v1alpha1.GitOpsPatch)
	return r
}

func (w *planWorld) anySelector() v1alpha1.VolumeSelector {
	var s v1alpha1.VolumeSelector
	switch w.rng.IntN(9) {
	case 0:
		s.StorageClassNames = []string{pick(w, "gold", "plain")}
	case 1:
		s.Drivers = []string{pick(w, "nfs.csi.k8s.io", "kubernetes.io/nfs", "file.csi.azure.com", "disk.csi.azure.com", "vendor.example.com")}
	case 2:
		s.Servers = []string{pick(w, "filer", "other")}
	case 3:
		s.ClaimNamespaces = []string{pick(w, "eda", "ml")}
	case 4:
		s.VolumeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"tier": pick(w, "hot", "cold")}}
	case 5:
		s.ClaimSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"role": pick(w, "tools", "models")}}
	}
	if !w.chance(4) || w.rng.IntN(9) > 5 {
		s.Protocols = []v1alpha1.VolumeProtocol{pick(w, v1alpha1.ProtocolNFS, v1alpha1.ProtocolNFS, v1alpha1.ProtocolNFS, v1alpha1.ProtocolSMB, v1alpha1.ProtocolBlock)}
	}
	if len(s.Protocols) > 0 && s.Protocols[0] == v1alpha1.ProtocolBlock && w.chance(2) {
		s.FSTypes = []string{"xfs"}
	}
	if w.chance(6) {
		s.AccessModes = []string{string(corev1.ReadWriteMany)}
	}
	return s
}

// change lets users and other controllers change the cluster.
func (w *planWorld) change() {
	for _, pv := range w.listVolumes() {
		if pv.Annotations == nil {
			pv.Annotations = map[string]string{}
		}
		switch w.rng.IntN(12) {
		case 0:
			pv.Spec.MountOptions = pick(w, nil, []string{"soft"}, []string{"hard"})
		case 1:
			for key := range pv.Annotations {
				if strings.HasPrefix(key, v1alpha1.GroupVersion.Group) {
					delete(pv.Annotations, key)
				}
			}
		case 2:
			w.declareInGit(&pv, 1)
		case 3:
			w.toggleIgnored(&pv, 1)
		case 4:
			pv.Spec.StorageClassName = pick(w, "gold", "plain")
		default:
			continue
		}
		w.must(w.client.Update(w.t.Context(), &pv))
	}
	if w.chance(3) {
		class := &storagev1.StorageClass{}
		w.must(w.client.Get(w.t.Context(), client.ObjectKey{Name: "gold"}, class))
		class.MountOptions = pick(w, nil, []string{"nconnect=8"}, []string{"nocto", "hard"})
		w.must(w.client.Update(w.t.Context(), class))
	}
}

func (w *planWorld) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// settle runs the controllers until the cluster no longer changes.
func (w *planWorld) settle() {
	const maxRounds, quietRounds = 100, 4
	before, quiet := "", 0
	for round := 0; quiet < quietRounds; round++ {
		if round == maxRounds {
			w.t.Fatalf("not quiet after %d rounds", maxRounds)
		}
		w.clock.Step(2 * time.Minute)
		for _, p := range w.listProfiles() {
			w.reconcile(w.profiles, p.Name)
		}
		w.reconcile(w.volumes, "")
		for _, n := range w.listNodes() {
			w.reconcile(w.nodes, n.Name)
		}
		w.runAgents()
		after := w.fingerprint()
		if quiet++; after != before {
			before, quiet = after, 0
		}
	}
}

func (w *planWorld) reconcile(r reconcile.Reconciler, name string) {
	w.t.Helper()
	_, err := r.Reconcile(w.t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: name}})
	w.must(err)
}

// fingerprint changes with each write of the manager on volumes and nodes.
func (w *planWorld) fingerprint() string {
	var out strings.Builder
	for _, pv := range w.listVolumes() {
		out.WriteString(pv.ResourceVersion + " ")
	}
	for _, c := range w.listClientNodes() {
		fmt.Fprint(&out, c.Name, c.Spec)
	}
	for _, p := range w.listProfiles() {
		fmt.Fprint(&out, p.Status.Volumes, p.Status.Plan.NodesToReboot, p.Finalizers)
	}
	return out.String()
}

// runAgents reports the settings of each node. Settings that require a reboot wait for it, and the rollout has noted the others.
func (w *planWorld) runAgents() {
	for _, c := range w.listClientNodes() {
		rollout := &v1alpha1.RolloutStatus{Phase: v1alpha1.RolloutUpToDate, Tuned: &v1alpha1.RolloutTuned{Hash: c.Spec.Hash, Since: metav1.NewTime(at().Add(-time.Hour))}}
		status := v1alpha1.StorageClientNodeStatus{ObservedGeneration: max(c.Generation, 1), Hash: c.Spec.Hash, BootID: "boot", Restored: c.Spec.Release, Rollout: rollout}
		for _, s := range c.Spec.Settings {
			reported := v1alpha1.SettingStatus{Key: s.Key, Desired: s.Value, Observed: s.Value, State: v1alpha1.SettingInSync, TakesEffect: v1alpha1.EffectLive}
			if nodesettings.TakesEffectAtBoot(s.Key) {
				reported.State, reported.TakesEffect, reported.WaitsFor, reported.Observed = v1alpha1.SettingPending, v1alpha1.EffectReboot, v1alpha1.WaitsForBoot, ""
				status.RebootRequired, status.RebootRequiredBy = true, append(status.RebootRequiredBy, s.Key)
			}
			status.Settings = append(status.Settings, reported)
		}
		c.Status = status
		w.must(w.client.Status().Update(w.t.Context(), &c))
	}
}

func (w *planWorld) listVolumes() []corev1.PersistentVolume {
	var list corev1.PersistentVolumeList
	w.must(w.client.List(w.t.Context(), &list))
	return list.Items
}

func (w *planWorld) listProfiles() []v1alpha1.StorageClientProfile {
	var list v1alpha1.StorageClientProfileList
	w.must(w.client.List(w.t.Context(), &list))
	return list.Items
}

func (w *planWorld) listNodes() []corev1.Node {
	var list corev1.NodeList
	w.must(w.client.List(w.t.Context(), &list))
	return list.Items
}

func (w *planWorld) listClientNodes() []v1alpha1.StorageClientNode {
	var list v1alpha1.StorageClientNodeList
	w.must(w.client.List(w.t.Context(), &list))
	return list.Items
}

// run runs a command of the plugin.
func (w *planWorld) run(stdin string, args ...string) result {
	w.t.Helper()
	env := &environment{IOStreams: genericiooptions.IOStreams{In: strings.NewReader(stdin)}, connect: func() (client.WithWatch, error) { return w.client, nil }}
	return executeIn(w.t, env, interceptor.Funcs{}, nil, args...)
}

// apply applies profiles as active ones: a plan shows a profile in mode Plan, or paused, as if it were active.
func (w *planWorld) apply(profiles []*v1alpha1.StorageClientProfile) {
	for _, p := range profiles {
		acting := overview.Acting(p)
		var live v1alpha1.StorageClientProfile
		err := w.client.Get(w.t.Context(), client.ObjectKey{Name: p.Name}, &live)
		if client.IgnoreNotFound(err) != nil {
			w.t.Fatal(err)
		}
		if err != nil {
			acting.Finalizers, acting.UID = nil, types.UID("uid-of-"+p.Name)
			w.must(w.client.Create(w.t.Context(), &acting))
			continue
		}
		live.Spec, live.Generation = acting.Spec, live.Generation+1
		w.must(w.client.Update(w.t.Context(), &live))
	}
}

// manifests returns profiles as files.
func (w *planWorld) manifests(profiles []*v1alpha1.StorageClientProfile) string {
	var out []string
	for _, p := range profiles {
		data, err := yaml.Marshal(map[string]any{"apiVersion": v1alpha1.GroupVersion.String(), "kind": profileKind.Kind, "metadata": map[string]any{"name": p.Name}, "spec": p.Spec})
		w.must(err)
		out = append(out, string(data))
	}
	return strings.Join(out, "---\n")
}

// anyFiles returns profiles to plan: changed and new ones.
func (w *planWorld) anyFiles() []*v1alpha1.StorageClientProfile {
	var out []*v1alpha1.StorageClientProfile
	for i := range 4 {
		if w.chance(2) {
			out = append(out, w.anyProfile(fmt.Sprintf("p%d", i)))
		}
	}
	if len(out) == 0 {
		out = append(out, w.anyProfile("p0"))
	}
	return slices.Clip(out)
}
