package plan

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume/judge"
	volumeplan "github.com/storageclient/operator/controllers/volume/plan"
)

const (
	// podLifetime ends a Pod that nobody collects.
	podLifetime = 10 * 60
	// mountPath is where a clone is mounted in its Pod: its program reads it there (cmd/node-agent).
	mountPath = "/volume"
)

// metaOf is that of all objects of a candidate's clone. There is one at a time.
func metaOf(c volumeplan.ProbeCandidate) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: v1alpha1.ClonePrefix + hashOf(c), Labels: map[string]string{
		v1alpha1.TrialLabel: hashOf(c), "app.kubernetes.io/name": "storage-client-operator", "app.kubernetes.io/component": "clone",
	}}
}

// cloneOf is a volume of the candidate's source, with a list.
func cloneOf(c volumeplan.ProbeCandidate, list []string) *corev1.PersistentVolume {
	meta := metaOf(c)
	return &corev1.PersistentVolume{ObjectMeta: meta, Spec: judge.CloneSpec(c.Volume, meta.Name, list)}
}

// claimOf is the claim that the clone is bound to.
func claimOf(c volumeplan.ProbeCandidate) *corev1.PersistentVolumeClaim {
	meta := metaOf(c)
	meta.Namespace = v1alpha1.TrialNamespace
	return &corev1.PersistentVolumeClaim{ObjectMeta: meta, Spec: corev1.PersistentVolumeClaimSpec{
		VolumeName: meta.Name, StorageClassName: ptr.To(""), AccessModes: c.Volume.Spec.AccessModes, VolumeMode: c.Volume.Spec.VolumeMode,
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: c.Volume.Spec.Capacity[corev1.ResourceStorage]}},
	}}
}

// podOf mounts the clone on a node. The claim is not read-only, so that the driver adds nothing to the list; what runs in the Pod cannot
// write. It belongs to the claim, which nobody makes anew: whoever drains the node may delete it.
func podOf(c volumeplan.ProbeCandidate, n Node, volumeClaim *corev1.PersistentVolumeClaim) *corev1.Pod {
	meta := metaOf(c)
	meta.Namespace = v1alpha1.TrialNamespace
	meta.Annotations = map[string]string{"cluster-autoscaler.kubernetes.io/safe-to-evict": v1alpha1.True}
	meta.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "v1", Kind: "PersistentVolumeClaim", Name: volumeClaim.Name, UID: volumeClaim.UID, Controller: ptr.To(true),
	}}
	return &corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{
		NodeName: n.Node.Name, RestartPolicy: corev1.RestartPolicyNever, ActiveDeadlineSeconds: ptr.To[int64](podLifetime),
		TerminationGracePeriodSeconds: ptr.To[int64](5), AutomountServiceAccountToken: ptr.To(false), EnableServiceLinks: ptr.To(false),
		ImagePullSecrets: n.PullSecrets, Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To[int64](runAsUser), RunAsGroup: ptr.To[int64](runAsUser),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Containers: []corev1.Container{{
			Name: "clone", Image: n.Image, ImagePullPolicy: corev1.PullIfNotPresent, Args: []string{"trial-hold"},
			ReadinessProbe: &corev1.Probe{
				ProbeHandler:  corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"/node-agent", "trial-read"}}},
				PeriodSeconds: 2, TimeoutSeconds: 10,
			},
			Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1m"), corev1.ResourceMemory: resource.MustParse("16Mi")},
				Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")},
			},
			SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: ptr.To(false), ReadOnlyRootFilesystem: ptr.To(true), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			},
			VolumeMounts: []corev1.VolumeMount{{Name: "volume", MountPath: mountPath, ReadOnly: true}},
		}},
		Volumes: []corev1.Volume{{Name: "volume", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: volumeClaim.Name},
		}}},
	}}
}
