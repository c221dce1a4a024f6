//go:build attack

package attack

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
)

const (
	cloneName = v1alpha1.ClonePrefix + "1"
	// agentImage is the image in the manifests.
	agentImage = "localhost/storageclient/node-agent:dev"
)

var cloneLabels = map[string]string{v1alpha1.TrialLabel: "1"}

// clonedVolume returns a clone as a probe creates it.
func clonedVolume(changes ...func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
	pv := volumeOf(cloneName)
	pv.Labels, pv.Annotations, pv.Finalizers = cloneLabels, nil, nil
	pv.Spec.ClaimRef = &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: v1alpha1.TrialNamespace, Name: cloneName}
	pv.Status = corev1.PersistentVolumeStatus{}
	for _, change := range changes {
		change(pv)
	}
	return pv
}

func clonedClaim(changes ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	volumeClaim := volumeClaimOf(cloneName, cloneName)
	volumeClaim.Namespace, volumeClaim.Labels, volumeClaim.Status = v1alpha1.TrialNamespace, cloneLabels, corev1.PersistentVolumeClaimStatus{}
	for _, change := range changes {
		change(volumeClaim)
	}
	return volumeClaim
}

func clonePod(changes ...func(*corev1.Pod)) *corev1.Pod {
	pod := podOf(v1alpha1.TrialNamespace, cloneName, "node-1", "")
	pod.Labels = cloneLabels
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "PersistentVolumeClaim", Name: cloneName, UID: "u", Controller: ptr.To(true)}}
	pod.Spec.AutomountServiceAccountToken, pod.Spec.ActiveDeadlineSeconds = ptr.To(false), ptr.To[int64](600)
	pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	pod.Spec.SecurityContext.RunAsUser = ptr.To[int64](65534)
	main := &pod.Spec.Containers[0]
	main.Image, main.Args = agentImage, []string{"trial-hold"}
	main.ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"/node-agent", "trial-read"}}}}
	main.VolumeMounts = []corev1.VolumeMount{{Name: "volume", MountPath: "/volume", ReadOnly: true}}
	pod.Spec.Volumes = []corev1.Volume{{Name: "volume", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: cloneName},
	}}}
	for _, change := range changes {
		change(pod)
	}
	return pod
}

// passPod returns the Pod of a trial's pass, which only reads.
func passPod(changes ...func(*corev1.Pod)) *corev1.Pod {
	return clonePod(append([]func(*corev1.Pod){func(p *corev1.Pod) {
		p.Spec.Containers[0].Args, p.Spec.Containers[0].ReadinessProbe = []string{"trial-pass", "--name=ListDirectory", "--path=a", "--pause=5s"}, nil
	}}, changes...)...)
}

// passArgument changes an argument. Index 4 adds one.
func passArgument(i int, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		container := &p.Spec.Containers[0]
		container.Args = append(append(slices.Clone(container.Args[:i]), value), container.Args[min(i+1, len(container.Args)):]...)
	}
}

func writable(p *corev1.Pod) { p.Spec.Containers[0].VolumeMounts[0].ReadOnly = false }

func managerAttacksOnClones() []attack {
	fence := byManagerFence
	passTwin, writeTwin := create(passPod()), create(passPod(passArgument(1, "--name=CreateUnlink"), passArgument(4, "--allow-writes"), writable))
	pass := func(changes ...func(*corev1.Pod)) func(*actor) error { return create(passPod(changes...)) }
	volumeTwin, claimTwin, podTwin := create(clonedVolume()), create(clonedClaim()), create(clonePod())
	pv := func(change func(*corev1.PersistentVolume)) func(*actor) error { return create(clonedVolume(change)) }
	volumeClaim := func(change func(*corev1.PersistentVolumeClaim)) func(*actor) error {
		return create(clonedClaim(change))
	}
	pod := func(change func(*corev1.Pod)) func(*actor) error { return create(clonePod(change)) }
	container := func(change func(*corev1.Container)) func(*actor) error {
		return pod(func(p *corev1.Pod) { change(&p.Spec.Containers[0]) })
	}
	return []attack{
		{id: "manager-clone-for-tenant", by: manager, tries: "give a clone of a volume to a claim in another namespace",
			stop: fence, want: "the claim with its name", twin: volumeTwin, try: pv(func(pv *corev1.PersistentVolume) { pv.Spec.ClaimRef.Namespace = tenantNamespace })},
		{id: "manager-clone-deletes", by: manager, tries: "have a volume's data deleted with a clone of it",
			stop: fence, want: "the reclaim policy Retain", twin: volumeTwin,
			try: pv(func(pv *corev1.PersistentVolume) {
				pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
			})},
		{id: "manager-clone-of-host", by: manager, tries: "create a volume of a node's files, under a clone's name",
			stop: fence, want: "a CSI or an NFS volume", twin: volumeTwin,
			try: pv(func(pv *corev1.PersistentVolume) {
				pv.Spec.NFS, pv.Spec.HostPath, pv.Spec.MountOptions = nil, &corev1.HostPathVolumeSource{Path: "/etc"}, nil
			})},
		{id: "manager-clone-of-class", by: manager, tries: "give a clone a StorageClass, so that other controllers manage it",
			stop: fence, want: "with only its source", twin: volumeTwin, try: pv(func(pv *corev1.PersistentVolume) { pv.Spec.StorageClassName = "fast" })},
		{id: "manager-clone-annotated", by: manager, tries: "have a provisioner treat a clone as its own volume, and delete it",
			stop: fence, want: "annotations", twin: volumeTwin,
			try: pv(func(pv *corev1.PersistentVolume) {
				pv.Annotations = map[string]string{"pv.kubernetes.io/provisioned-by": "nfs.csi.k8s.io"}
			})},
		{id: "manager-clone-unlabelled", by: manager, tries: "create a clone that the operator treats as a user's volume",
			stop: fence, want: "clones for probes and trials", twin: volumeTwin, try: pv(func(pv *corev1.PersistentVolume) { pv.Labels = nil })},
		{id: "manager-claim-at-tenant", by: manager, tries: "create a PersistentVolumeClaim in another namespace",
			stop: byRBAC, want: `cannot create resource "persistentvolumeclaims"`, twin: claimTwin,
			try: volumeClaim(func(c *corev1.PersistentVolumeClaim) { c.Namespace = tenantNamespace })},
		{id: "manager-claim-of-volume", by: manager, tries: "claim another user's volume in the namespace of clones",
			stop: fence, want: "the volume with its name", twin: claimTwin, try: volumeClaim(func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "pv-1" })},
		{id: "manager-claim-of-class", by: manager, tries: "have a StorageClass provision a volume for it",
			stop: fence, want: "no StorageClass", twin: claimTwin, try: volumeClaim(func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = ptr.To("fast") })},
		{id: "manager-clone-pod-image", by: manager, tries: "run another image in the Pod of a clone",
			stop: fence, want: "trial runner's image", twin: podTwin, try: container(func(c *corev1.Container) { c.Image = "evil.example.com/a" })},
		{id: "manager-clone-pod-command", by: manager, tries: "run another command in the Pod of a clone",
			stop: fence, want: "may run only", twin: podTwin, try: container(func(c *corev1.Container) { c.Args = []string{"run"} })},
		{id: "manager-clone-pod-probe", by: manager, tries: "run another command as the probe of a clone's Pod",
			stop: fence, want: "may run only", twin: podTwin, try: container(func(c *corev1.Container) { c.ReadinessProbe.Exec.Command = []string{"/node-agent", "run"} })},
		{id: "manager-clone-pod-secret", by: manager, tries: "give a Secret to the Pod of a clone",
			stop: fence, want: "only one volume", twin: podTwin,
			try: pod(func(p *corev1.Pod) {
				p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "s", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s"}}})
			})},
		{id: "manager-clone-pod-pull-secret", by: manager, tries: "have the Pod of a clone pull its image with a Secret that the trial runner does not have",
			stop: fence, want: "secrets other", twin: podTwin,
			try: pod(func(p *corev1.Pod) { p.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "s"}} })},
		{id: "manager-clone-pod-writes", by: manager, tries: "write to a clone",
			stop: fence, want: "must not write", twin: podTwin, try: container(func(c *corev1.Container) { c.VolumeMounts[0].ReadOnly = false })},
		{id: "manager-clone-pod-token", by: manager, tries: "give the Pod of a clone a token",
			stop: fence, want: "a token", twin: podTwin, try: pod(func(p *corev1.Pod) { p.Spec.AutomountServiceAccountToken = ptr.To(true) })},
		{id: "manager-clone-pod-stays", by: manager, tries: "have the Pod of a clone run without an end",
			stop: fence, want: "a deadline of at most", twin: podTwin, try: pod(func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = nil })},
		{id: "manager-clone-pod-drives-away", by: manager, tries: "have the Pod of a clone preempt other Pods",
			stop: fence, want: "a priority", twin: podTwin, try: pod(func(p *corev1.Pod) { p.Spec.PriorityClassName = "system-node-critical" })},
		{id: "manager-clone-pod-privileged", by: manager, tries: "run the Pod of a clone with privileges",
			stop: byPodSecurity, want: "restricted", twin: podTwin,
			try: container(func(c *corev1.Container) {
				c.SecurityContext.Privileged, c.SecurityContext.AllowPrivilegeEscalation = ptr.To(true), ptr.To(true)
			})},
		{id: "manager-clone-pass-work", by: manager, tries: "run other work than a trial's in the Pod of a clone",
			stop: fence, want: "may run only", twin: passTwin, try: pass(passArgument(1, "--name=Delete"))},
		{id: "manager-clone-pass-path", by: manager, tries: "have a pass work outside of the clone",
			stop: fence, want: "may run only", twin: passTwin, try: pass(passArgument(2, "--path=a/../../proc"))},
		{id: "manager-clone-pass-root", by: manager, tries: "have a pass work anywhere in its container",
			stop: fence, want: "may run only", twin: passTwin, try: pass(passArgument(2, "--path=/proc"))},
		{id: "manager-clone-pass-pause", by: manager, tries: "have a pass run longer",
			stop: fence, want: "may run only", twin: passTwin, try: pass(passArgument(3, "--pause=9h"))},
		{id: "manager-clone-pass-argument", by: manager, tries: "give a pass another argument",
			stop: fence, want: "may run only", twin: passTwin, try: pass(passArgument(4, "--host-root=/"))},
		{id: "manager-clone-pass-probe", by: manager, tries: "run another command next to a pass",
			stop: fence, want: "may run only", twin: passTwin, try: pass(func(p *corev1.Pod) {
				p.Spec.Containers[0].ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"/node-agent", "trial-read"}}}}
			})},
		{id: "manager-clone-pass-tells", by: manager, tries: "have the kubelet return another file from a pass's container",
			stop: fence, want: "may run only", twin: passTwin, try: pass(func(p *corev1.Pod) { p.Spec.Containers[0].TerminationMessagePath = "/volume/secret" })},
		{id: "manager-clone-pass-writes", by: manager, tries: "write to the clone of a read-only trial",
			stop: fence, want: "must not write", twin: writeTwin, try: pass(passArgument(1, "--name=CreateUnlink"), writable)},
		{id: "manager-clone-pass-as-root", by: manager, tries: "have a pass work as root",
			stop: byPodSecurity, want: "restricted", twin: passTwin, try: pass(func(p *corev1.Pod) {
				p.Spec.SecurityContext.RunAsUser, p.Spec.SecurityContext.RunAsNonRoot = ptr.To[int64](0), ptr.To(false)
			})},
		{id: "manager-clone-pass", by: manager, tries: "read any volume for up to ten minutes as any user except root, or write a directory into it, and receive counts and times", stop: notStopped,
			try: writeTwin},
		{id: "manager-clone-of-anything", by: manager, tries: "have another user's data mounted read-only, with another user's Secret, for a Pod that does not return it", stop: notStopped,
			try: pv(func(pv *corev1.PersistentVolume) {
				pv.Spec.NFS, pv.Spec.CSI = nil, &corev1.CSIPersistentVolumeSource{Driver: "smb.csi.k8s.io", VolumeHandle: "h",
					NodeStageSecretRef: &corev1.SecretReference{Namespace: tenantNamespace, Name: "database"}}
			})},
	}
}

// playClone creates and deletes the manager's objects for a probe and for a pass of a trial, from its golden files.
func (w *world) playClone(t *testing.T, a *actor) {
	t.Helper()
	for _, name := range []string{"clone", "pass"} {
		t.Run("the manager creates a "+name+" of a volume", func(t *testing.T) {
			data, err := os.ReadFile(filepath.Join(root, "controllers/trial/plan/testdata", name+".golden.json"))
			must(t, err)
			pv, volumeClaim, pod := &corev1.PersistentVolume{}, &corev1.PersistentVolumeClaim{}, &corev1.Pod{}
			objects := []client.Object{pv, volumeClaim, pod}
			var texts []json.RawMessage
			must(t, json.Unmarshal(data, &texts))
			for i, object := range objects {
				must(t, json.Unmarshal(texts[i], object))
			}
			pod.Spec.NodeName, pod.Spec.Containers[0].Image = "node-1", agentImage
			w.reset(t)
			actor := a.as(t)
			for _, object := range objects {
				must(t, actor.client.Create(actor.ctx, object))
			}
			for _, object := range slices.Backward(objects) {
				must(t, actor.client.Delete(actor.ctx, object))
			}
		})
	}
}
