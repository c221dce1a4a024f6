package profile

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/agentpod"
	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/tuning/nodesettings"
)

// These constants are the sizes of the simulated cluster, and the number of mounted volumes on each node.
const (
	benchNodes, benchVolumes, benchMounts = 5_000, 20_000, 8
)

// BenchmarkPasses measures the report of one node and then a pass over one profile or over all profiles. The cluster has one profile for
// all nodes and volumes, or many profiles that share them. The baseline is the time that a cache needs to list the same objects.
func BenchmarkPasses(b *testing.B) {
	for _, profiles := range []int{1, 50, 500} {
		w := newBenchWorld(profiles, benchNodes, benchVolumes)
		b.Run(fmt.Sprintf("%d profiles/list", profiles), func(b *testing.B) {
			defer reportCPU(b)()
			b.ReportAllocs()
			for b.Loop() {
				w.listAll(b)
			}
		})
		r := w.newReconciler()
		w.pass(b, r, 0)
		b.Run(fmt.Sprintf("%d profiles/one", profiles), func(b *testing.B) {
			defer reportCPU(b)()
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				w.reportNode(r, i)
				w.pass(b, r, i%profiles)
			}
		})
		b.Run(fmt.Sprintf("%d profiles/all", profiles), func(b *testing.B) {
			defer reportCPU(b)()
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				w.reportNode(r, i)
				for k := range w.profiles {
					w.pass(b, r, k)
				}
			}
		})
	}
}

// reportCPU reports the CPU time of an operation, including the garbage collector. Other processes on the machine hardly affect this time.
func reportCPU(b *testing.B) func() {
	used := func() time.Duration {
		var usage syscall.Rusage
		check.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
		return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	}
	before := used()
	return func() { b.ReportMetric((used()-before).Seconds()*1000/float64(b.N), "cpu-ms/op") }
}

// benchWorld is an in-memory cluster whose nodes and volumes already match the profiles. Like the manager's cache, it lists objects without
// deep copies.
type benchWorld struct {
	client.Client
	profiles    []v1alpha1.StorageClientProfile
	nodes       []corev1.Node
	clientNodes []v1alpha1.StorageClientNode
	agents      []corev1.Pod
	volumes     []corev1.PersistentVolume
	claims      []metav1.PartialObjectMetadata
	classes     []storagev1.StorageClass
	clock       *clocktesting.FakePassiveClock
	versions    int
	// readings is the number of times that the volumes were listed.
	readings int
	// readingTakes is the duration of one list of the volumes.
	readingTakes time.Duration
}

func newBenchWorld(profiles, nodes, volumes int) *benchWorld {
	w := &benchWorld{clock: clocktesting.NewFakePassiveClock(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))}
	for i := range profiles {
		p := v1alpha1.StorageClientProfile{ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("profile-%03d", i), UID: types.UID(fmt.Sprintf("p%d", i)), ResourceVersion: w.version(), Generation: 1,
			Finalizers: []string{v1alpha1.Finalizer},
		}}
		p.Spec.NodeSelector.MatchLabels = map[string]string{"pool": strconv.Itoa(i)}
		p.Spec.Node = &v1alpha1.NodeTuning{Sysctls: map[string]v1alpha1.SettingText{
			"net.core.rmem_max": "16777216", "net.core.wmem_max": "16777216", "net.core.somaxconn": "8192", "vm.dirty_ratio": "20",
			"vm.dirty_background_ratio": "5",
		}}
		p.Spec.Volumes = []v1alpha1.VolumeRule{{
			Name: "nfs", MountOptions: []v1alpha1.MountOption{"nconnect=4", "nocto", "actimeo=30"},
			Selector: v1alpha1.VolumeSelector{StorageClassNames: []string{className(i)}},
		}}
		w.profiles = append(w.profiles, p)
		class := storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: className(i)}, Provisioner: "nfs.csi.k8s.io"}
		w.classes = append(w.classes, class)
	}
	for i := range nodes {
		w.addNode(i, &w.profiles[i%profiles], volumes)
	}
	for i := range volumes {
		w.addVolume(i, i%profiles)
	}
	return w
}

func className(i int) string { return fmt.Sprintf("class-%03d", i) }

func (w *benchWorld) version() string {
	w.versions++
	return strconv.Itoa(w.versions)
}

func (w *benchWorld) addNode(i int, p *v1alpha1.StorageClientProfile, volumes int) {
	name := fmt.Sprintf("node-%05d", i)
	node := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), ResourceVersion: w.version(), Labels: map[string]string{
		corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64", corev1.LabelHostname: name, corev1.LabelTopologyZone: "zone-" + strconv.Itoa(i%3),
		corev1.LabelInstanceTypeStable: "large", v1alpha1.ManagedLabel: v1alpha1.True, "pool": p.Spec.NodeSelector.MatchLabels["pool"],
	}}}
	node.Status.NodeInfo.BootID = "boot-" + name
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	w.nodes = append(w.nodes, node)

	clientNode := v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: types.UID("c" + name), ResourceVersion: w.version(), Generation: 1,
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: name, UID: node.UID}},
	}}
	clientNode.Spec.Settings = nodesettings.Settings(p)
	clientNode.Spec.Hash, clientNode.Spec.BootHash = nodesettings.Hashes(clientNode.Spec.Settings)
	clientNode.Status = v1alpha1.StorageClientNodeStatus{Hash: clientNode.Spec.Hash, BootID: node.Status.NodeInfo.BootID, ObservedGeneration: 1}
	for _, setting := range clientNode.Spec.Settings {
		clientNode.Status.Settings = append(clientNode.Status.Settings, v1alpha1.SettingStatus{
			Key: setting.Key, Desired: setting.Value, State: v1alpha1.SettingInSync,
		})
	}
	for j := range benchMounts {
		volume := fmt.Sprintf("pv-%05d", (i*benchMounts+j)%volumes)
		clientNode.Status.Mounts = append(clientNode.Status.Mounts, v1alpha1.MountStatus{
			MountPoint: "/var/lib/kubelet/pods/" + name + "/volumes/kubernetes.io~nfs/" + volume, Volume: volume, Server: "filer", Protocol: "NFSv4.1",
			Options: []string{"rw", "hard", "nocto", "nconnect=4", "actimeo=30"}, Connections: 4, State: v1alpha1.MountEffective,
		})
		clientNode.Spec.Volumes = append(clientNode.Spec.Volumes, v1alpha1.NodeVolume{Name: volume, MountOptions: []string{"nconnect=4", "nocto", "actimeo=30"}})
	}
	w.clientNodes = append(w.clientNodes, clientNode)

	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.AgentNamespace, Name: "agent-" + name, ResourceVersion: w.version(),
		Labels: map[string]string{agentpod.ComponentLabel: agentpod.Component}}}
	pod.Spec.NodeName = name
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	w.agents = append(w.agents, pod)
}

func (w *benchWorld) addVolume(i, profile int) {
	name := fmt.Sprintf("pv-%05d", i)
	pv := corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: types.UID(name), ResourceVersion: w.version(), Annotations: map[string]string{
			v1alpha1.OriginalMountOptionsAnnotation: `["hard"]`, v1alpha1.AppliedMountOptionsAnnotation: `["hard","nconnect=4","nocto","actimeo=30"]`,
			v1alpha1.ProfilesAnnotation: w.profiles[profile].Name,
		},
	}}
	pv.Spec.NFS = &corev1.NFSVolumeSource{Server: "filer-" + strconv.Itoa(i%100), Path: "/" + name}
	pv.Spec.StorageClassName = className(profile)
	pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "eda", Name: name, UID: types.UID("claim-" + name)}
	pv.Spec.MountOptions = []string{"hard", "nconnect=4", "nocto", "actimeo=30"}
	w.volumes = append(w.volumes, pv)
	claim := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "eda", Name: name, UID: pv.Spec.ClaimRef.UID, ResourceVersion: w.version()}}
	w.claims = append(w.claims, claim)
}

// reportNode simulates a report of one node that does not affect its profile, such as a new mount.
func (w *benchWorld) reportNode(r *Reconciler, i int) {
	w.clock.SetTime(w.clock.Now().Add(readEvery))
	r.cluster.changes.Add(1)
	clientNode := &w.clientNodes[i%len(w.clientNodes)]
	clientNode.ResourceVersion = w.version()
	clientNode.Status.Mounts = slices.Clone(clientNode.Status.Mounts)
}

func (w *benchWorld) newReconciler() *Reconciler {
	return &Reconciler{
		Client: w, Clock: w.clock, Fence: fenced{}, Recorder: &events.FakeRecorder{}, cluster: clusterReader{isWatching: true},
		MaxUnavailable: intstr.FromString("5%"),
	}
}

type fenced struct{}

func (fenced) Missing(context.Context) (string, error) { return "", nil }

func (w *benchWorld) pass(b *testing.B, r *Reconciler, i int) {
	b.Helper()
	delete(r.passes, w.profiles[i].Name)
	if _, err := r.Reconcile(b.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: w.profiles[i].Name}}); err != nil {
		b.Fatal(err)
	}
	if got, want := w.profiles[i].Status.Nodes.UpToDate, benchNodes/len(w.profiles); int(got) != want {
		b.Fatalf("%s: got %d nodes up to date, want %d: %+v", w.profiles[i].Name, got, want, w.profiles[i].Status)
	}
	if got, want := w.profiles[i].Status.Volumes.UpToDate, benchVolumes/len(w.profiles); int(got) != want {
		b.Fatalf("%s: got %d volumes up to date, want %d: %+v", w.profiles[i].Name, got, want, w.profiles[i].Status)
	}
}

func (w *benchWorld) listAll(b *testing.B) {
	b.Helper()
	claims := &metav1.PartialObjectMetadataList{}
	for _, list := range []client.ObjectList{
		&v1alpha1.StorageClientProfileList{}, &corev1.NodeList{}, &v1alpha1.StorageClientNodeList{}, &corev1.PodList{}, &corev1.PersistentVolumeList{}, claims,
	} {
		check.NoError(b, w.List(b.Context(), list))
	}
}

func (w *benchWorld) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	var items any
	switch list.(type) {
	case *v1alpha1.StorageClientProfileList:
		items = w.profiles
	case *corev1.NodeList:
		items = w.nodes
	case *v1alpha1.StorageClientNodeList:
		items = w.clientNodes
	case *corev1.PodList:
		items = w.agents
	case *corev1.PersistentVolumeList:
		w.readings++
		w.clock.SetTime(w.clock.Now().Add(w.readingTakes))
		items = w.volumes
	case *metav1.PartialObjectMetadataList:
		items = w.claims
	case *storagev1.StorageClassList:
		items = w.classes
	case *corev1.ConfigMapList:
		return nil
	default:
		return fmt.Errorf("unexpected list of %T", list)
	}
	target, err := meta.GetItemsPtr(list)
	if err != nil {
		return err
	}
	from := reflect.ValueOf(items)
	to := reflect.MakeSlice(from.Type(), from.Len(), from.Len())
	reflect.Copy(to, from)
	reflect.ValueOf(target).Elem().Set(to)
	return nil
}

func (w *benchWorld) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	switch object := object.(type) {
	case *v1alpha1.StorageClientProfile:
		for i := range w.profiles {
			if w.profiles[i].Name == key.Name {
				w.profiles[i].DeepCopyInto(object)
			}
		}
	case *corev1.Namespace, *corev1.ConfigMap:
	default:
		return fmt.Errorf("unexpected get of %T", object)
	}
	return nil
}

func (w *benchWorld) Status() client.SubResourceWriter { return benchStatus{world: w} }

type benchStatus struct {
	client.SubResourceWriter
	world *benchWorld
}

func (s benchStatus) Patch(_ context.Context, object client.Object, patch client.Patch, _ ...client.SubResourcePatchOption) error {
	data, err := patch.Data(object)
	if err != nil {
		return err
	}
	for i := range s.world.profiles {
		if s.world.profiles[i].Name != object.GetName() {
			continue
		}
		stored := s.world.profiles[i].DeepCopy()
		if err := json.Unmarshal(data, stored); err != nil {
			return err
		}
		stored.SetResourceVersion(s.world.version())
		s.world.profiles[i] = *stored
		*object.(*v1alpha1.StorageClientProfile) = *stored.DeepCopy()
	}
	return nil
}
