package integration

import (
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
)

// nodeBuilder builds a Node. It starts as a Ready Linux worker with the boot ID "boot-1".
type nodeBuilder struct {
	node  corev1.Node
	ready corev1.ConditionStatus
}

func newNode(name string) *nodeBuilder {
	b := &nodeBuilder{ready: corev1.ConditionTrue}
	b.node.Name = name
	b.node.Labels = map[string]string{corev1.LabelHostname: name, corev1.LabelOSStable: "linux"}
	b.node.Annotations = map[string]string{}
	b.node.Status.NodeInfo.BootID = "boot-1"
	b.node.Status.NodeInfo.OperatingSystem = "linux"
	return b
}

func (b *nodeBuilder) Label(key, value string) *nodeBuilder { b.node.Labels[key] = value; return b }
func (b *nodeBuilder) Annotate(key, value string) *nodeBuilder {
	b.node.Annotations[key] = value
	return b
}
func (b *nodeBuilder) BootID(id string) *nodeBuilder { b.node.Status.NodeInfo.BootID = id; return b }
func (b *nodeBuilder) Unschedulable() *nodeBuilder   { b.node.Spec.Unschedulable = true; return b }
func (b *nodeBuilder) NotReady() *nodeBuilder        { b.ready = corev1.ConditionFalse; return b }
func (b *nodeBuilder) Taint(t corev1.Taint) *nodeBuilder {
	b.node.Spec.Taints = append(b.node.Spec.Taints, t)
	return b
}

func (b *nodeBuilder) ControlPlane() *nodeBuilder {
	return b.Label("node-role.kubernetes.io/control-plane", "")
}

// Create creates the Node and returns the stored object.
func (b *nodeBuilder) Create() *corev1.Node {
	GinkgoHelper()
	node, status := b.node.DeepCopy(), b.node.Status
	Expect(k8s.Create(ctx, node)).To(Succeed())
	node.Status = status
	node.Status.Conditions = []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: b.ready, Reason: "Test",
		LastTransitionTime: metav1.NewTime(fakeClock.Now()), LastHeartbeatTime: metav1.NewTime(fakeClock.Now()),
	}}
	Expect(k8s.Status().Update(ctx, node)).To(Succeed())
	// Admission adds the not-ready taint, which the node lifecycle controller would remove again.
	node.Spec.Taints = b.node.Spec.Taints
	Expect(k8s.Update(ctx, node)).To(Succeed())
	return node
}

// reboot gives the Node a new boot ID and the given readiness, as its kubelet would after a boot.
func reboot(name, bootID string, ready corev1.ConditionStatus) {
	GinkgoHelper()
	node := &corev1.Node{}
	Expect(k8s.Get(ctx, client.ObjectKey{Name: name}, node)).To(Succeed())
	node.Status.NodeInfo.BootID = bootID
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == corev1.NodeReady && node.Status.Conditions[i].Status != ready {
			node.Status.Conditions[i].Status = ready
			node.Status.Conditions[i].LastTransitionTime = metav1.NewTime(fakeClock.Now())
		}
	}
	Expect(k8s.Status().Update(ctx, node)).To(Succeed())
}

// profileBuilder builds a StorageClientProfile. It starts without settings, and selects every worker.
type profileBuilder struct{ profile v1alpha1.StorageClientProfile }

func newProfile(name string) *profileBuilder {
	b := &profileBuilder{}
	b.profile.Name, b.profile.Spec.AllNodes = name, true
	return b
}

// Select adds a label to the profile's node selector.
func (b *profileBuilder) Select(key, value string) *profileBuilder {
	b.profile.Spec.AllNodes = false
	metav1.AddLabelToSelector(&b.profile.Spec.NodeSelector, key, value)
	return b
}

func (b *profileBuilder) Annotate(key, value string) *profileBuilder {
	metav1.SetMetaDataAnnotation(&b.profile.ObjectMeta, key, value)
	return b
}

func (b *profileBuilder) Sysctl(key, value string) *profileBuilder {
	tuning := b.tuning()
	if tuning.Sysctls == nil {
		tuning.Sysctls = map[string]v1alpha1.SettingText{}
	}
	tuning.Sysctls[key] = v1alpha1.SettingText(value)
	return b
}

func (b *profileBuilder) KernelArgument(argument string) *profileBuilder {
	tuning := b.tuning()
	tuning.KernelArguments = append(tuning.KernelArguments, v1alpha1.KernelArgument(argument))
	return b
}

func (b *profileBuilder) Volumes(rule v1alpha1.VolumeRule) *profileBuilder {
	b.profile.Spec.Volumes = append(b.profile.Spec.Volumes, rule)
	return b
}

func (b *profileBuilder) RebootPolicy(policy v1alpha1.RebootPolicy) *profileBuilder {
	b.profile.Spec.Rollout.Reboot.Policy = policy
	return b
}

// With applies any other change.
func (b *profileBuilder) With(change func(*v1alpha1.StorageClientProfileSpec)) *profileBuilder {
	change(&b.profile.Spec)
	return b
}

func (b *profileBuilder) tuning() *v1alpha1.NodeTuning {
	if b.profile.Spec.Node == nil {
		b.profile.Spec.Node = &v1alpha1.NodeTuning{}
	}
	return b.profile.Spec.Node
}

// Build returns the profile without creating it.
func (b *profileBuilder) Build() *v1alpha1.StorageClientProfile { return b.profile.DeepCopy() }

// Create creates the profile and returns the stored object.
func (b *profileBuilder) Create() *v1alpha1.StorageClientProfile {
	GinkgoHelper()
	profile := b.Build()
	Expect(k8s.Create(ctx, profile)).To(Succeed())
	return profile
}

// podBuilder builds a running Pod of a ReplicaSet. Pods are deleted immediately, because no kubelet runs.
type podBuilder struct{ pod corev1.Pod }

func newPod(namespace, name string) *podBuilder {
	b := &podBuilder{}
	b.pod.Namespace, b.pod.Name = namespace, name
	b.pod.Labels, b.pod.Annotations = map[string]string{}, map[string]string{}
	b.pod.Spec.TerminationGracePeriodSeconds = ptr.To[int64](0)
	b.pod.Spec.Containers = []corev1.Container{{Name: "main", Image: "main"}}
	b.pod.Status.Phase = corev1.PodRunning
	return b.OwnedBy("apps/v1", "ReplicaSet", "replicas")
}

func (b *podBuilder) On(node string) *podBuilder          { b.pod.Spec.NodeName = node; return b }
func (b *podBuilder) Label(key, value string) *podBuilder { b.pod.Labels[key] = value; return b }
func (b *podBuilder) Annotate(key, value string) *podBuilder {
	b.pod.Annotations[key] = value
	return b
}
func (b *podBuilder) Finalizer(name string) *podBuilder {
	b.pod.Finalizers = append(b.pod.Finalizers, name)
	return b
}
func (b *podBuilder) Bare() *podBuilder { b.pod.OwnerReferences = nil; return b }

// OwnedBy sets the controller of the Pod. It need not exist.
func (b *podBuilder) OwnedBy(apiVersion, kind, name string) *podBuilder {
	b.pod.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: apiVersion, Kind: kind, Name: name, UID: types.UID(strings.ToLower(kind) + "-" + name), Controller: ptr.To(true),
	}}
	return b
}

// Claim mounts a PersistentVolumeClaim.
func (b *podBuilder) Claim(name string) *podBuilder {
	volume := corev1.Volume{Name: name}
	volume.PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}
	b.pod.Spec.Volumes = append(b.pod.Spec.Volumes, volume)
	return b
}

// Started has the scheduler bind the Pod and its kubelet start it, both at the time of the fake clock.
func (b *podBuilder) Started() *podBuilder {
	now := metav1.NewTime(fakeClock.Now())
	b.pod.Status.StartTime = &now
	b.pod.Status.Conditions = append(b.pod.Status.Conditions, corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: now})
	b.pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}}}}
	return b
}

// With applies any other change.
func (b *podBuilder) With(change func(*corev1.Pod)) *podBuilder { change(&b.pod); return b }

// Create creates the Pod and returns the stored object. A running Pod is Ready.
func (b *podBuilder) Create() *corev1.Pod {
	GinkgoHelper()
	pod, status := b.pod.DeepCopy(), b.pod.Status
	Expect(k8s.Create(ctx, pod)).To(Succeed())
	pod.Status = status
	if status.Phase == corev1.PodRunning {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue})
	}
	Expect(k8s.Status().Update(ctx, pod)).To(Succeed())
	return pod
}

// agentPod returns a Ready agent Pod on a node, so that the agent counts as alive.
func agentPod(node string) *corev1.Pod {
	GinkgoHelper()
	return newPod(v1alpha1.AgentNamespace, v1alpha1.AgentDaemonSet+"-"+node).On(node).
		OwnedBy("apps/v1", "DaemonSet", v1alpha1.AgentDaemonSet).
		Label("app.kubernetes.io/component", "node-agent").
		With(func(p *corev1.Pod) { p.Spec.ServiceAccountName = v1alpha1.AgentServiceAccount }).
		Create()
}

// volumeBuilder builds a PersistentVolume. It starts as an in-tree NFS volume without a class.
type volumeBuilder struct{ volume corev1.PersistentVolume }

func newVolume(name string) *volumeBuilder {
	b := &volumeBuilder{}
	b.volume.Name = name
	b.volume.Annotations = map[string]string{}
	b.volume.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	b.volume.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	b.volume.Spec.NFS = &corev1.NFSVolumeSource{Server: "filer", Path: "/" + name}
	return b
}

func (b *volumeBuilder) Label(key, value string) *volumeBuilder {
	metav1.SetMetaDataLabel(&b.volume.ObjectMeta, key, value)
	return b
}

func (b *volumeBuilder) Annotate(key, value string) *volumeBuilder {
	b.volume.Annotations[key] = value
	return b
}

func (b *volumeBuilder) Class(name string) *volumeBuilder {
	b.volume.Spec.StorageClassName = name
	return b
}

func (b *volumeBuilder) Options(options ...string) *volumeBuilder {
	b.volume.Spec.MountOptions = options
	return b
}

// CSI changes it to a volume of a CSI driver.
func (b *volumeBuilder) CSI(driver string, attributes map[string]string) *volumeBuilder {
	b.volume.Spec.NFS = nil
	b.volume.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: b.volume.Name, VolumeAttributes: attributes}
	return b
}

// Claim sets the claim that the volume is bound to.
func (b *volumeBuilder) Claim(namespace, name string) *volumeBuilder {
	b.volume.Spec.ClaimRef = &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: namespace, Name: name}
	return b
}

// Create creates the PersistentVolume and returns the stored object. It passes on other options, such as client.FieldOwner.
func (b *volumeBuilder) Create(options ...client.CreateOption) *corev1.PersistentVolume {
	GinkgoHelper()
	volume := b.volume.DeepCopy()
	Expect(k8s.Create(ctx, volume, options...)).To(Succeed())
	return volume
}

// agentReports writes a StorageClientNode's status as its agent would. By default every setting is effective in the Node's current boot.
// Then it applies the change, which may be nil.
func agentReports(node string, change func(*v1alpha1.StorageClientNodeStatus)) *v1alpha1.StorageClientNode {
	GinkgoHelper()
	owner, object := &corev1.Node{}, &v1alpha1.StorageClientNode{}
	Expect(k8s.Get(ctx, client.ObjectKey{Name: node}, owner)).To(Succeed())
	Expect(k8s.Get(ctx, client.ObjectKey{Name: node}, object)).To(Succeed())
	status := v1alpha1.StorageClientNodeStatus{
		ObservedGeneration: object.Generation,
		Hash:               object.Spec.Hash,
		BootID:             owner.Status.NodeInfo.BootID,
		KernelVersion:      "6.12.0",
		Bootloader:         &v1alpha1.Bootloader{Type: v1alpha1.BootloaderGrubDebian, Proven: true},
		Settings:           inForce(object.Spec.Settings),
		Restored:           object.Spec.Release,
		Rollout:            object.Status.Rollout,
	}
	if change != nil {
		change(&status)
	}
	object.Status = status
	Expect(k8s.Status().Update(ctx, object, client.FieldOwner(v1alpha1.AgentFieldManager))).To(Succeed())
	return object
}

func inForce(settings []v1alpha1.NodeSetting) []v1alpha1.SettingStatus {
	var states []v1alpha1.SettingStatus
	for _, setting := range settings {
		state := v1alpha1.SettingStatus{
			Key: setting.Key, Desired: setting.Value, Observed: setting.Value,
			State: v1alpha1.SettingInSync, TakesEffect: v1alpha1.EffectLive,
		}
		if strings.HasPrefix(setting.Key, "kernelArgument/") {
			state.TakesEffect = v1alpha1.EffectReboot
		}
		states = append(states, state)
	}
	return states
}

// rebootDue returns a change for agentReports: the settings with these keys are staged and require a reboot.
func rebootDue(keys ...string) func(*v1alpha1.StorageClientNodeStatus) {
	return func(status *v1alpha1.StorageClientNodeStatus) {
		status.RebootRequired, status.RebootRequiredBy = true, keys
		for i := range status.Settings {
			if setting := &status.Settings[i]; slices.Contains(keys, setting.Key) {
				setting.State, setting.Observed = v1alpha1.SettingPending, ""
				setting.Message = "Staged, takes effect at the next boot"
			}
		}
	}
}
