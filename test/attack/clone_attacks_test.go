//go:build attack

package attack

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
)

const (
	// agentImage is the image in the manifests.
	agentImage = "localhost/storageclient/node-agent:dev"
	// clonesConfigMap lists the drivers and Secrets of clones.
	clonesConfigMap = "storage-client-clones"
	// listedSecret is the Secret that the list of the tests contains for the SMB driver, as NAMESPACE/NAME.
	listedSecret = "eda/credentials"
)

// cloneList is the administrator's list of drivers and Secrets.
var cloneList = map[string]string{"nfs": "", "nfs.csi.k8s.io": "", "smb.csi.k8s.io": "# of the department\n" + listedSecret + "\n"}

// goldenClone returns the objects of a clone as the manager creates them, from a golden file of its code.
func goldenClone(name string) (*corev1.PersistentVolume, *corev1.PersistentVolumeClaim, *corev1.Pod) {
	pv, volumeClaim, pod := &corev1.PersistentVolume{}, &corev1.PersistentVolumeClaim{}, &corev1.Pod{}
	data, err := os.ReadFile(filepath.Join(root, "controllers/trial/plan/testdata", name+".golden.json"))
	if err == nil {
		err = json.Unmarshal(data, &[]any{pv, volumeClaim, pod})
	}
	if err != nil {
		panic(err)
	}
	pod.Spec.NodeName, pod.Spec.Containers[0].Image = "node-1", agentImage
	return pv, volumeClaim, pod
}

// clonedVolume returns a clone of an SMB volume as a probe creates it.
func clonedVolume(changes ...func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
	pv, _, _ := goldenClone("clone")
	for _, change := range changes {
		change(pv)
	}
	return pv
}

func clonedClaim(changes ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	_, volumeClaim, _ := goldenClone("clone")
	for _, change := range changes {
		change(volumeClaim)
	}
	return volumeClaim
}

func clonePod(changes ...func(*corev1.Pod)) *corev1.Pod {
	_, _, pod := goldenClone("clone")
	for _, change := range changes {
		change(pod)
	}
	return pod
}

// asNFS changes a clone to a volume of the kubelet.
func asNFS(pv *corev1.PersistentVolume) {
	pv.Spec.CSI, pv.Spec.MountOptions = nil, []string{"nfsvers=4.1"}
	pv.Spec.NFS = &corev1.NFSVolumeSource{Server: "filer.example.com", Path: "/export"}
}

// asNFSDriver changes a clone to a volume of the NFS driver.
func asNFSDriver(pv *corev1.PersistentVolume) {
	pv.Spec.MountOptions = []string{"nfsvers=4.1"}
	pv.Spec.CSI.Driver, pv.Spec.CSI.NodeStageSecretRef = "nfs.csi.k8s.io", nil
	pv.Spec.CSI.VolumeAttributes = map[string]string{"server": "filer", "share": "/export", "mountPermissions": "0", "csi.storage.k8s.io/pv/name": "pv-1"}
}

// passPod returns the Pod of a trial's pass, which only reads.
func passPod(changes ...func(*corev1.Pod)) *corev1.Pod {
	_, _, pod := goldenClone("pass")
	for _, change := range changes {
		change(pod)
	}
	return pod
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
	volumeTwin, claimTwin := create(clonedVolume()), create(clonedClaim())
	pv := func(change func(*corev1.PersistentVolume)) func(*actor) error { return create(clonedVolume(change)) }
	volumeClaim := func(change func(*corev1.PersistentVolumeClaim)) func(*actor) error {
		return create(clonedClaim(change))
	}
	return slices.Concat([]attack{
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
				pv.Spec.CSI, pv.Spec.HostPath, pv.Spec.MountOptions = nil, &corev1.HostPathVolumeSource{Path: "/etc"}, nil
			})},
		{id: "manager-clone-of-class", by: manager, tries: "give a clone a StorageClass, so that other controllers manage it",
			stop: fence, want: "with only its source", twin: volumeTwin, try: pv(func(pv *corev1.PersistentVolume) { pv.Spec.StorageClassName = "fast" })},
		{id: "manager-clone-annotated", by: manager, tries: "have a provisioner treat a clone as its own volume, and delete it",
			stop: fence, want: "annotations", twin: volumeTwin,
			try: pv(func(pv *corev1.PersistentVolume) {
				pv.Annotations = map[string]string{"pv.kubernetes.io/provisioned-by": "nfs.csi.k8s.io"}
			})},
		{id: "manager-clone-finalizer", by: manager, tries: "keep a clone from being deleted",
			stop: fence, want: "finalizers", twin: volumeTwin, try: pv(func(pv *corev1.PersistentVolume) { pv.Finalizers = []string{"example.com/stay"} })},
		{id: "manager-clone-label", by: manager, tries: "have another controller select a clone by a label",
			stop: fence, want: "exactly the labels of a clone", twin: volumeTwin, try: pv(func(pv *corev1.PersistentVolume) { pv.Labels["app"] = "web" })},
		{id: "manager-clone-unlabelled", by: manager, tries: "create a clone that the operator treats as a user's volume",
			stop: fence, want: "clones for probes and trials", twin: volumeTwin, try: pv(func(pv *corev1.PersistentVolume) { pv.Labels = nil })},
		{id: "manager-clone-secret", by: manager, tries: "let a kubelet read any Secret, by a clone that names it",
			stop: fence, want: "does not list Secret tenant/database", twin: volumeTwin,
			try: pv(func(pv *corev1.PersistentVolume) {
				pv.Spec.CSI.NodeStageSecretRef = &corev1.SecretReference{Namespace: tenantNamespace, Name: "database"}
			})},
		{id: "manager-clone-publish-secret", by: manager, tries: "let a kubelet read any Secret, by a clone that names it for publish",
			stop: fence, want: "does not list Secret tenant/database", twin: create(clonedVolume(func(pv *corev1.PersistentVolume) {
				pv.Spec.CSI.NodePublishSecretRef = pv.Spec.CSI.NodeStageSecretRef
			})),
			try: pv(func(pv *corev1.PersistentVolume) {
				pv.Spec.CSI.NodePublishSecretRef = &corev1.SecretReference{Namespace: tenantNamespace, Name: "database"}
			})},
		{id: "manager-clone-expand-secret", by: manager, tries: "let a kubelet read any Secret, by a clone that names it for the expansion on the node",
			stop: fence, want: "only driver, handle", twin: volumeTwin,
			try: pv(func(pv *corev1.PersistentVolume) {
				pv.Spec.CSI.NodeExpandSecretRef = &corev1.SecretReference{Namespace: tenantNamespace, Name: "database"}
			})},
		{id: "manager-clone-controller-secret", by: manager, tries: "let a CSI controller use any Secret, by a clone that names it",
			stop: fence, want: "only driver, handle", twin: volumeTwin,
			try: pv(func(pv *corev1.PersistentVolume) {
				pv.Spec.CSI.ControllerPublishSecretRef = &corev1.SecretReference{Namespace: tenantNamespace, Name: "database"}
			})},
		{id: "manager-clone-secret-of-another-driver", by: manager, tries: "have a driver use a Secret that is listed for another driver",
			stop: fence, want: "does not list Secret " + listedSecret, twin: create(clonedVolume(asNFSDriver)),
			try: pv(func(pv *corev1.PersistentVolume) {
				secret := pv.Spec.CSI.NodeStageSecretRef
				asNFSDriver(pv)
				pv.Spec.CSI.NodeStageSecretRef = secret
			})},
		{id: "manager-clone-driver", by: manager, tries: "have a driver mount a clone that no administrator has listed",
			stop: fence, want: "lists no driver secrets-store.csi.k8s.io", twin: volumeTwin,
			try: pv(func(pv *corev1.PersistentVolume) {
				pv.Spec.CSI.Driver, pv.Spec.CSI.NodeStageSecretRef = "secrets-store.csi.k8s.io", nil
			})},
		{id: "manager-clone-attribute", by: manager, tries: "have the SMB driver read a Secret by an attribute of a clone",
			stop: fence, want: "attributes", twin: volumeTwin,
			try: pv(func(pv *corev1.PersistentVolume) { pv.Spec.CSI.VolumeAttributes["secretName"] = "database" })},
		{id: "manager-clone-permissions", by: manager, tries: "have the NFS driver change the permissions of an export",
			stop: fence, want: "attributes", twin: create(clonedVolume(asNFSDriver)),
			try: create(clonedVolume(asNFSDriver, func(pv *corev1.PersistentVolume) { pv.Spec.CSI.VolumeAttributes["mountPermissions"] = "0777" }))},
		{id: "manager-clone-attribute-options", by: manager, tries: "give a clone mount options by an attribute",
			stop: fence, want: "attributes", twin: create(clonedVolume(asNFSDriver)),
			try: create(clonedVolume(asNFSDriver, func(pv *corev1.PersistentVolume) { pv.Spec.CSI.VolumeAttributes["MountOptions"] = "suid" }))},
		{id: "manager-clone-handle", by: manager, tries: "have a kubelet take a clone for another volume by its handle",
			stop: fence, want: "the handle must end", twin: volumeTwin, try: pv(func(pv *corev1.PersistentVolume) { pv.Spec.CSI.VolumeHandle = "filer/share" })},
		{id: "manager-clone-option", by: manager, tries: "have a driver bind a directory of its container instead of a share",
			stop: fence, want: "mount option bind", twin: volumeTwin,
			try: pv(func(pv *corev1.PersistentVolume) {
				pv.Spec.CSI.VolumeAttributes["source"], pv.Spec.MountOptions = "//var/lib/kubelet", []string{"vers=3.0,bind"}
			})},
		{id: "manager-clone-credentials", by: manager, tries: "have mount.cifs read a file of the node as credentials",
			stop: fence, want: "mount option credentials", twin: volumeTwin,
			try: pv(func(pv *corev1.PersistentVolume) { pv.Spec.MountOptions = []string{"credentials=/etc/shadow"} })},
		{id: "manager-clone-nfs-suid", by: manager, tries: "mount a clone of an NFS volume with suid",
			stop: fence, want: "mount option suid", twin: create(clonedVolume(asNFS)),
			try: create(clonedVolume(asNFS, func(pv *corev1.PersistentVolume) { pv.Spec.MountOptions = []string{"suid"} }))},
		{id: "manager-clone-changed", by: manager, tries: "give a clone such mount options after its creation",
			stop: fence, want: "the spec of a clone", twin: options,
			try: func(a *actor) error {
				must(a.t, create(clonedVolume())(a))
				return merge(clonedVolume(), `{"spec":{"mountOptions":["bind"]}}`)(a)
			}},
		{id: "manager-clone-list", by: manager, tries: "list a Secret for clones itself",
			stop: fence, want: "may write only the ConfigMaps", twin: options,
			try: overwrite(configMap(v1alpha1.ManagerNamespace, clonesConfigMap), func(c *corev1.ConfigMap) { c.Data["smb.csi.k8s.io"] = "tenant/database" })},
		{id: "manager-claim-at-tenant", by: manager, tries: "create a PersistentVolumeClaim in another namespace",
			stop: byRBAC, want: `cannot create resource "persistentvolumeclaims"`, twin: claimTwin,
			try: volumeClaim(func(c *corev1.PersistentVolumeClaim) { c.Namespace = tenantNamespace })},
		{id: "manager-claim-of-volume", by: manager, tries: "claim another user's volume in the namespace of clones",
			stop: fence, want: "the volume with its name", twin: claimTwin, try: volumeClaim(func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "pv-1" })},
		{id: "manager-claim-of-class", by: manager, tries: "have a StorageClass provision a volume for it",
			stop: fence, want: "no StorageClass", twin: claimTwin, try: volumeClaim(func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = ptr.To("fast") })},
		{id: "manager-claim-of-copy", by: manager, tries: "have a claim filled with the data of another claim",
			stop: fence, want: "only its modes and size", twin: claimTwin, try: volumeClaim(func(c *corev1.PersistentVolumeClaim) {
				c.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "data"}
			})},
		{id: "manager-claim-annotated", by: manager, tries: "have another controller act on the claim of a clone",
			stop: fence, want: "annotations", twin: claimTwin, try: volumeClaim(func(c *corev1.PersistentVolumeClaim) {
				c.Annotations = map[string]string{"volume.kubernetes.io/storage-provisioner": "nfs.csi.k8s.io"}
			})},
		{id: "manager-claim-finalizer", by: manager, tries: "keep the claim of a clone from being deleted",
			stop: fence, want: "finalizers", twin: claimTwin, try: volumeClaim(func(c *corev1.PersistentVolumeClaim) { c.Finalizers = []string{"example.com/stay"} })},
	}, managerAttacksOnClonePods(), []attack{
		{id: "manager-clone-pass", by: manager, tries: "read any volume of a listed driver for up to ten minutes as any user except root, or write a directory into it, and receive counts and times",
			stop: notStopped, try: create(passPod(writesADirectory...))},
		{id: "manager-clone-of-anything", by: manager, tries: "have any share mounted with a listed Secret, on any node, for a Pod that does not return its data", stop: notStopped,
			try: pv(func(pv *corev1.PersistentVolume) { pv.Spec.CSI.VolumeAttributes["source"] = "//evil.example.com/share" })},
	})
}

// writesADirectory allows a pass to write.
var writesADirectory = []func(*corev1.Pod){passArgument(1, "--name=CreateUnlink"), passArgument(4, "--allow-writes"), writable}

func managerAttacksOnClonePods() []attack {
	fence := byManagerFence
	podTwin, passTwin, writeTwin := create(clonePod()), create(passPod()), create(passPod(writesADirectory...))
	pod := func(change func(*corev1.Pod)) func(*actor) error { return create(clonePod(change)) }
	pass := func(changes ...func(*corev1.Pod)) func(*actor) error { return create(passPod(changes...)) }
	container := func(change func(*corev1.Container)) func(*actor) error {
		return pod(func(p *corev1.Pod) { change(&p.Spec.Containers[0]) })
	}
	return []attack{
		{id: "manager-clone-pod-program", by: manager, tries: "run a program from the clone, mounted over the agent's program",
			stop: fence, want: "once, at /volume", twin: podTwin, try: container(func(c *corev1.Container) {
				c.VolumeMounts = []corev1.VolumeMount{{Name: "volume", MountPath: "/node-agent", SubPath: "evil", ReadOnly: true}}
			})},
		{id: "manager-clone-pass-program", by: manager, tries: "run a program from the clone in a pass that may write",
			stop: fence, want: "once, at /volume", twin: writeTwin, try: pass(append(slices.Clone(writesADirectory), func(p *corev1.Pod) {
				p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: "volume", MountPath: "/node-agent", SubPath: "evil"})
			})...)},
		{id: "manager-clone-pod-mount-path", by: manager, tries: "mount the clone over a directory of the image",
			stop: fence, want: "once, at /volume", twin: podTwin, try: container(func(c *corev1.Container) { c.VolumeMounts[0].MountPath = "/etc" })},
		{id: "manager-clone-pod-sub-path", by: manager, tries: "mount another directory of the clone",
			stop: fence, want: "without a subPath", twin: podTwin, try: container(func(c *corev1.Container) { c.VolumeMounts[0].SubPath = "a" })},
		{id: "manager-clone-pod-propagation", by: manager, tries: "have mounts of the node appear in the clone's Pod",
			stop: fence, want: "once, at /volume", twin: podTwin, try: container(func(c *corev1.Container) {
				c.VolumeMounts[0].MountPropagation = ptr.To(corev1.MountPropagationHostToContainer)
			})},
		{id: "manager-clone-pod-annotation", by: manager, tries: "have the network or the container runtime give devices to the Pod of a clone, by annotations",
			stop: fence, want: "its only annotation", twin: podTwin, try: pod(func(p *corev1.Pod) {
				p.Annotations["k8s.v1.cni.cncf.io/networks"], p.Annotations["io.kubernetes.cri-o.Devices"] = "kube-system/storage-net", "/dev/sda"
			})},
		{id: "manager-clone-pod-label", by: manager, tries: "have a Service send requests to the Pod of a clone, by a label",
			stop: fence, want: "exactly the labels", twin: podTwin, try: pod(func(p *corev1.Pod) { p.Labels["app"] = "web" })},
		{id: "manager-clone-pod-finalizer", by: manager, tries: "keep the Pod of a clone from being deleted",
			stop: fence, want: "no finalizers", twin: podTwin, try: pod(func(p *corev1.Pod) { p.Finalizers = []string{"example.com/forever"} })},
		{id: "manager-clone-pod-owner", by: manager, tries: "have the Pod of a clone belong to another object",
			stop: fence, want: "owned by the claim", twin: podTwin, try: pod(func(p *corev1.Pod) {
				p.OwnerReferences = append(p.OwnerReferences, metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "u"})
			})},
		{id: "manager-clone-pod-resources", by: manager, tries: "take the GPUs of a node",
			stop: fence, want: "no other resource", twin: podTwin, try: container(func(c *corev1.Container) {
				c.Resources.Requests["nvidia.com/gpu"], c.Resources.Limits["nvidia.com/gpu"] = resource.MustParse("8"), resource.MustParse("8")
			})},
		{id: "manager-clone-pod-cpu", by: manager, tries: "take the CPUs of a node",
			stop: fence, want: "at most 1 CPU", twin: podTwin, try: container(func(c *corev1.Container) { c.Resources.Requests[corev1.ResourceCPU] = resource.MustParse("60") })},
		{id: "manager-clone-pod-memory", by: manager, tries: "use the memory of a node without a limit",
			stop: fence, want: "a memory limit", twin: podTwin, try: container(func(c *corev1.Container) { c.Resources.Limits = nil })},
		{id: "manager-clone-pod-logs", by: manager, tries: "receive the output of a clone's Pod in its status",
			stop: fence, want: "may run only", twin: podTwin, try: container(func(c *corev1.Container) {
				c.TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
			})},
		{id: "manager-clone-pod-selinux", by: manager, tries: "give the Pod of a clone another SELinux level",
			stop: fence, want: "SELinux", twin: podTwin, try: pod(func(p *corev1.Pod) { p.Spec.SecurityContext.SELinuxOptions = &corev1.SELinuxOptions{Level: "s0:c1,c2"} })},
		{id: "manager-clone-pod-groups", by: manager, tries: "read files of groups that the trial's user is not in",
			stop: fence, want: "without other groups", twin: podTwin, try: pod(func(p *corev1.Pod) { p.Spec.SecurityContext.SupplementalGroups = []int64{0, 6} })},
		{id: "manager-clone-pass-group", by: manager, tries: "have a pass work in the group of root",
			stop: fence, want: "the group with its number", twin: passTwin, try: pass(func(p *corev1.Pod) { p.Spec.SecurityContext.RunAsGroup = ptr.To[int64](0) })},
		{id: "manager-clone-pod-user", by: manager, tries: "have a probe read a clone as a user of the server",
			stop: fence, want: "65534 for a probe", twin: podTwin, try: pod(func(p *corev1.Pod) {
				p.Spec.SecurityContext.RunAsUser, p.Spec.SecurityContext.RunAsGroup = ptr.To[int64](1000), ptr.To[int64](1000)
			})},
		{id: "manager-clone-pod-fs-group", by: manager, tries: "have the kubelet change the owner of a volume's files",
			stop: fence, want: "without other groups", twin: podTwin, try: pod(func(p *corev1.Pod) { p.Spec.SecurityContext.FSGroup = ptr.To[int64](1000) })},
		{id: "manager-clone-pod-hosts", by: manager, tries: "give the Pod of a clone other names of hosts",
			stop: fence, want: "host aliases", twin: podTwin, try: pod(func(p *corev1.Pod) {
				p.Spec.HostAliases = []corev1.HostAlias{{IP: "192.0.2.1", Hostnames: []string{"filer"}}}
			})},
		{id: "manager-clone-pod-dns", by: manager, tries: "give the Pod of a clone another name server",
			stop: fence, want: "DNS", twin: podTwin, try: pod(func(p *corev1.Pod) { p.Spec.DNSConfig = &corev1.PodDNSConfig{Nameservers: []string{"192.0.2.1"}} })},
		{id: "manager-clone-pod-process-namespace", by: manager, tries: "have the containers of a clone's Pod see each other's processes",
			stop: fence, want: "only what a mount needs", twin: podTwin, try: pod(func(p *corev1.Pod) { p.Spec.ShareProcessNamespace = ptr.To(true) })},
		{id: "manager-clone-pod-tolerates", by: manager, tries: "have the Pod of a clone tolerate every taint",
			stop: fence, want: "name the keys", twin: podTwin, try: pod(func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}} })},
		{id: "manager-clone-pod-image", by: manager, tries: "run another image in the Pod of a clone",
			stop: fence, want: "trial runner's image", twin: podTwin, try: container(func(c *corev1.Container) { c.Image = "evil.example.com/a" })},
		{id: "manager-clone-pod-command", by: manager, tries: "run another command in the Pod of a clone",
			stop: fence, want: "may run only", twin: podTwin, try: container(func(c *corev1.Container) { c.Args = []string{"run"} })},
		{id: "manager-clone-pod-entrypoint", by: manager, tries: "run another program of the image in the Pod of a clone",
			stop: fence, want: "may run only", twin: podTwin, try: container(func(c *corev1.Container) { c.Command = []string{"/bin/sh"} })},
		{id: "manager-clone-pod-directory", by: manager, tries: "run the agent in the clone's directory",
			stop: fence, want: "may run only", twin: podTwin, try: container(func(c *corev1.Container) { c.WorkingDir = "/volume" })},
		{id: "manager-clone-pod-port", by: manager, tries: "open a port of the node for the Pod of a clone",
			stop: fence, want: "may run only", twin: podTwin, try: container(func(c *corev1.Container) { c.Ports = []corev1.ContainerPort{{ContainerPort: 8080}} })},
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
	}
}

// unlistedAttacks run without the administrator's list.
func unlistedAttacks() []attack {
	return []attack{{id: "unlisted-clone", by: manager, tries: "clone a volume before an administrator has listed a driver", stop: byManagerFence, want: "no params found", twin: options,
		try: create(clonedVolume())}}
}

// defaultAttacks run without config/components/clones.
func defaultAttacks() []attack {
	return []attack{
		{id: "default-clone", by: manager, tries: "clone a volume, without `config/components/clones`",
			stop: byRBAC, want: `cannot create resource "persistentvolumes"`, twin: options, try: create(clonedVolume())},
		{id: "default-claim", by: manager, tries: "create the claim of a clone, without `config/components/clones`",
			stop: byRBAC, want: `cannot create resource "persistentvolumeclaims"`, twin: options, try: create(clonedClaim())},
		{id: "default-pod", by: manager, tries: "create the Pod of a clone, without `config/components/clones`",
			stop: byRBAC, want: `cannot create resource "pods"`, twin: options, try: create(clonePod())},
	}
}

// playClone creates and deletes the manager's objects for a probe and for a pass of a trial, from its golden files.
func (w *world) playClone(t *testing.T, a *actor) {
	t.Helper()
	for _, name := range []string{"clone", "pass"} {
		t.Run("the manager creates a "+name+" of a volume", func(t *testing.T) {
			pv, volumeClaim, pod := goldenClone(name)
			objects := []client.Object{pv, volumeClaim, pod}
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
	w.reset(t)
}

// playSecrets has the manager and the kubelet of a node work together, for a Secret that the list does not contain, and for a listed one.
func (w *world) playSecrets(t *testing.T, people map[string]*actor) {
	t.Helper()
	for name, test := range map[string]struct {
		namespace, name string
		want            bool
	}{
		"the kubelet cannot read an unlisted Secret by a clone": {v1alpha1.ManagerNamespace, "registry", false},
		"the kubelet can read a listed Secret by a clone":       {"eda", "credentials", true},
	} {
		t.Run(name, func(t *testing.T) {
			defer w.reset(t)
			m, k := people[manager].as(t), people[nodeOne].as(t)
			created := create(clonedVolume(func(pv *corev1.PersistentVolume) {
				pv.Spec.CSI.NodeStageSecretRef = &corev1.SecretReference{Namespace: test.namespace, Name: test.name}
			}))(m)
			if (created == nil) != test.want {
				t.Errorf("create the volume: got error %v, want allowed=%t", created, test.want)
			}
			must(t, create(clonedClaim())(m))
			must(t, create(clonePod())(m))
			reads := func() bool { return get(secret(test.namespace, test.name))(k) == nil }
			if created == nil && waitFor(t, reads) != test.want || created != nil && reads() {
				t.Errorf("the kubelet reads the Secret: want %t", test.want)
			}
		})
	}
}

// listForClones sets the administrator's list, or deletes it, and waits until it is effective.
func listForClones(t *testing.T, c *cluster, manager *actor, listed map[string]string) {
	t.Helper()
	object := configMap(v1alpha1.ManagerNamespace, clonesConfigMap)
	must(t, c.admin.Get(t.Context(), client.ObjectKeyFromObject(object), object))
	if listed == nil {
		must(t, c.admin.Delete(t.Context(), object))
		await(t, "the list to be gone", func() bool { return onlyTry(create(clonedVolume()))(manager.as(t)) != nil })
		return
	}
	object.Data = listed
	must(t, c.admin.Update(t.Context(), object))
	var err error
	if !waitFor(t, func() bool {
		err = errors.Join(onlyTry(create(clonedVolume()))(manager.as(t)), onlyTry(create(clonePod()))(manager.as(t)))
		return err == nil
	}) {
		t.Fatalf("the list is not effective: %v", err)
	}
}

// playWithoutList shows that a missing list stops neither another user nor the removal of a clone.
func (w *world) playWithoutList(t *testing.T, c *cluster, m *actor) {
	t.Helper()
	pv, other := clonedVolume(), clonedVolume(func(pv *corev1.PersistentVolume) { pv.Name, pv.Labels = "of-a-user", nil })
	must(t, c.admin.Create(t.Context(), pv))
	listForClones(t, c, m, nil)
	defer w.reset(t)
	must(t, c.admin.Create(t.Context(), other, client.DryRunAll))
	must(t, remove(pv)(m.as(t)))
	must(t, c.admin.Patch(t.Context(), pv, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
}

// dropClones removes the objects of the component.
func dropClones(t *testing.T, c *cluster, manager *actor) {
	t.Helper()
	for _, object := range render(t, "clones") {
		if object.GetLabels()["app.kubernetes.io/component"] == "clones" {
			must(t, client.IgnoreNotFound(c.admin.Delete(t.Context(), object)))
		}
	}
	await(t, "rights and policies to be gone", func() bool {
		return stoppedBy(onlyTry(create(clonePod()))(manager.as(t))) == byRBAC && c.admin.Create(t.Context(), clonedVolume(), client.DryRunAll) == nil
	})
}

// playFormerClone has the manager delete a clone of the previous release, whose objects the current policies would not accept.
func (w *world) playFormerClone(t *testing.T, c *cluster, m *actor) {
	t.Helper()
	t.Run("the manager deletes a clone of the previous release", func(t *testing.T) {
		objects := []client.Object{
			clonedVolume(func(pv *corev1.PersistentVolume) { pv.Annotations = map[string]string{"a": "b"} }), clonedClaim(),
			clonePod(func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}} }),
		}
		for _, object := range objects {
			object.SetName(v1alpha1.ClonePrefix + "1")
			object.SetLabels(map[string]string{v1alpha1.TrialLabel: "1"})
			must(t, c.admin.Create(t.Context(), object))
		}
		for _, object := range slices.Backward(objects) {
			must(t, remove(object)(m.as(t)))
			deleteNow(t, c.admin, object)
		}
		w.reset(t)
	})
}

// An error in the list is reported to its author.
func playList(t *testing.T, c *cluster) {
	t.Helper()
	for name, test := range map[string]struct {
		data map[string]string
		want string
	}{
		"a driver whose volumes cannot be cloned": {map[string]string{"file.csi.azure.com": ""}, "volumes of driver file.csi.azure.com cannot be cloned"},
		"a line that is no Secret":                {map[string]string{"smb.csi.k8s.io": "credentials"}, "smb.csi.k8s.io must contain Secrets as NAMESPACE/NAME"},
		"a Secret by a pattern":                   {map[string]string{"smb.csi.k8s.io": "eda/*"}, "smb.csi.k8s.io must contain Secrets as NAMESPACE/NAME"},
		"nothing wrong":                           {map[string]string{"rook-ceph.nfs.csi.ceph.com": "# none\n\n", "smb.csi.k8s.io": "a/b\n  c/d.e "}, ""},
	} {
		t.Run("the list contains "+name, func(t *testing.T) {
			object := configMap(v1alpha1.ManagerNamespace, clonesConfigMap)
			must(t, c.admin.Get(t.Context(), client.ObjectKeyFromObject(object), object))
			object.Data = test.data
			err := c.admin.Update(t.Context(), object, client.DryRunAll)
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("got error %v, want %q", err, test.want)
			}
		})
	}
}
