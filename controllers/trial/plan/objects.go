package plan

import (
	"cmp"
	_ "embed"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume/judge"
	volumeplan "github.com/storageclient/operator/controllers/volume/plan"
	"github.com/storageclient/operator/tuning/embedded"
)

const (
	// podLifetime is the maximum lifetime of a Pod in seconds, in case it is not deleted.
	podLifetime = 10 * 60
	// cloneContainer is the name of the only container of the Pod (pod.yaml).
	cloneContainer = "clone"
)

//go:embed pod.yaml
var podYAML []byte

// podSpec is the part that the Pods of all clones have in common.
var podSpec = embedded.Parse[corev1.PodSpec]("Pods of clones", podYAML)

// origin is the source of a clone, with the identity of its objects.
type origin struct {
	// Name is the name of all its objects. Hash, in their labels, identifies the candidate or trial.
	Name, Hash string
	Volume     *corev1.PersistentVolume
	Server     string
	Protocol   v1alpha1.VolumeProtocol
}

// originOf returns the origin of a candidate's clone. There is one at a time.
func originOf(c volumeplan.ProbeCandidate) origin {
	return origin{Name: v1alpha1.ClonePrefix + hashOf(c), Hash: hashOf(c), Volume: c.Volume, Server: c.Server, Protocol: c.Target.Clone.Protocol}
}

func metaOf(o origin) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: o.Name, Labels: map[string]string{
		v1alpha1.TrialLabel: o.Hash, "app.kubernetes.io/name": "storage-client-operator", "app.kubernetes.io/component": "clone",
	}}
}

// cloneOf returns a volume with the same source and the given mount options.
func cloneOf(o origin, options []string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{ObjectMeta: metaOf(o), Spec: judge.CloneSpec(o.Volume, o.Name, options)}
}

func claimOf(o origin) *corev1.PersistentVolumeClaim {
	meta := metaOf(o)
	meta.Namespace = v1alpha1.TrialNamespace
	return &corev1.PersistentVolumeClaim{ObjectMeta: meta, Spec: corev1.PersistentVolumeClaimSpec{
		VolumeName: meta.Name, StorageClassName: ptr.To(""), AccessModes: o.Volume.Spec.AccessModes, VolumeMode: o.Volume.Spec.VolumeMode,
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: o.Volume.Spec.Capacity[corev1.ResourceStorage]}},
	}}
}

// probePod returns a Pod that keeps running, and is Ready after it has read the clone's root.
func probePod(o origin, n Node, volumeClaim *corev1.PersistentVolumeClaim) *corev1.Pod {
	pod := podOf(o, n, volumeClaim, runAsUser)
	container := &pod.Spec.Containers[0]
	container.Args = []string{"trial-hold"}
	container.ReadinessProbe = &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"/node-agent", "trial-read"}}},
		PeriodSeconds: 2, TimeoutSeconds: 10,
	}
	return pod
}

// passPod returns a Pod that does the work of a trial's pass once, and writes the counters to its termination message.
func (t Trial) passPod(o origin, n Node, volumeClaim *corev1.PersistentVolumeClaim) *corev1.Pod {
	pod, work := podOf(o, n, volumeClaim, t.Spec.User()), t.Spec.Workload
	container := &pod.Spec.Containers[0]
	container.Args = []string{"trial-pass", "--name=" + string(work.Name), "--path=" + cmp.Or(work.Path, "."), "--pause=" + t.pause().String()}
	if load := work.TrialLoad; load != (v1alpha1.TrialLoad{}) {
		container.Args = append(container.Args, fmt.Sprintf("--workers=%d", cmp.Or(load.Workers, 1)), fmt.Sprintf("--block-kib=%d", load.BlockKiB),
			fmt.Sprintf("--sync=%t", load.Sync), fmt.Sprintf("--direct=%t", load.Direct), fmt.Sprintf("--cached=%t", load.Cached),
			fmt.Sprintf("--through-client=%t", load.ThroughClient))
	}
	if work.AllowWrites {
		container.Args = append(container.Args, "--allow-writes")
		container.VolumeMounts[0].ReadOnly = false
	}
	// Same as the trial runner: the kernel's cache of the volume counts too.
	container.Resources.Limits[corev1.ResourceMemory] = resource.MustParse("512Mi")
	return pod
}

// podOf returns a Pod that mounts the clone on a node. The claim is not read-only, so that the driver adds no options; the container cannot write.
// The claim owns the Pod, and no controller creates the Pod again: a drain of the node may delete it.
func podOf(o origin, n Node, volumeClaim *corev1.PersistentVolumeClaim, user int64) *corev1.Pod {
	meta := metaOf(o)
	meta.Namespace = v1alpha1.TrialNamespace
	meta.Annotations = map[string]string{"cluster-autoscaler.kubernetes.io/safe-to-evict": v1alpha1.True}
	meta.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "v1", Kind: "PersistentVolumeClaim", Name: volumeClaim.Name, UID: volumeClaim.UID, Controller: ptr.To(true),
	}}
	pod := &corev1.Pod{ObjectMeta: meta, Spec: *podSpec.DeepCopy()}
	pod.Spec.NodeName, pod.Spec.ImagePullSecrets, pod.Spec.Tolerations = n.Node.Name, n.PullSecrets, n.tolerations
	pod.Spec.ActiveDeadlineSeconds = ptr.To[int64](podLifetime)
	pod.Spec.SecurityContext.RunAsUser, pod.Spec.SecurityContext.RunAsGroup = ptr.To(user), ptr.To(user)
	pod.Spec.Containers[0].Image = n.Image
	pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = volumeClaim.Name
	return pod
}
