//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/e2e/cluster"
	"github.com/storageclient/operator/test/patience"
)

const (
	// evident labels the spec, and is the name of its profile and namespace.
	evident = "evidence"
	// Unreachable addresses of the server machine: one rejects packets, one drops them, and no machine has the third.
	refusingAddress, droppingAddress, absentAddress = "10.99.0.61", "10.99.0.62", "10.99.0.63"
	// restoredWithin is the maximum time until innocent mount options return. Pods must first fail with the original options, five
	// minutes after these are restored (retryWithin in controllers/volume).
	restoredWithin = 12 * time.Minute
)

var (
	evidentOptions  = []string{"vers=4.2", "hard"}
	declaredOptions = []string{"actimeo=30"}
)

// mishap is a volume whose pod cannot mount it. The cause is not a mount option.
type mishap struct {
	name     string
	source   corev1.PersistentVolumeSource
	original []string
	// cause is part of the message of the event.
	cause string
	// disk means a local volume. The disk rule declares noatime for it.
	disk bool
}

// missing contains missing volumes that the pods of two mishaps mount in addition to their own.
var missing = map[string][]corev1.Volume{
	"no-secret":    {{Name: "missing", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "missing"}}}},
	"no-configmap": {{Name: "missing", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "missing"}}}}},
}

func nfsSource(server, path string) corev1.PersistentVolumeSource {
	return corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: server, Path: path}}
}

func mishaps() []mishap {
	xfs := "xfs"
	return []mishap{
		{name: "server-down", source: nfsSource(refusingAddress, "/srv/evidence/a"), cause: "Connection refused"},
		{name: "firewall", source: nfsSource(droppingAddress, "/srv/evidence/a"), cause: "timed out"},
		{name: "no-host", source: nfsSource(absentAddress, "/srv/evidence/a"), cause: "No route to host"},
		{name: "no-directory", source: nfsSource(cluster.ServerAddress, "/srv/evidence/missing"), cause: "No such file or directory"},
		{name: "unexported", source: nfsSource(cluster.ServerAddress, "/srv/unexported"), original: []string{"vers=3", "nolock"},
			cause: "access denied by server"},
		{name: "no-name", source: nfsSource("filer.invalid", "/srv/evidence/a"), cause: "Resource temporarily unavailable"},
		{name: "no-driver", source: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "file.csi.azure.com", VolumeHandle: "group#account#share",
			VolumeAttributes: map[string]string{"server": cluster.ServerAddress, "protocol": "nfs"}}}, original: []string{"hard"},
			cause: "not found in the list of registered CSI drivers"},
		{name: "no-secret", source: nfsSource(cluster.ServerAddress, "/srv/evidence/a"), cause: `secret "missing" not found`},
		{name: "other-file-system", source: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/dev/loop7", FSType: &xfs}},
			original: []string{}, disk: true, cause: "wrong fs type"},
		{name: "no-disk", source: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/mnt/no-disk", FSType: &xfs}},
			original: []string{}, disk: true, cause: "does not exist"},
		{name: "no-configmap", source: nfsSource(cluster.ServerAddress, "/srv/evidence/a"), cause: `configmap "missing" not found`},
	}
}

// expectEvidence follows mount options through a cluster whose profile has no probe. One volume has them until a pod proves them.
// Unrelated failures and a forged event have no lasting effect. A failure that the options cause reverts them. Deleting the profile
// restores volumes even without their annotations.
func expectEvidence(ctx SpecContext) {
	installOperator(ctx)
	serveEvidence(ctx)
	DeferCleanup(cleanUpEvidence, NodeTimeout(patience.Of(6*time.Minute)))
	mustKubectl(ctx, "create", "namespace", evident)
	for i, name := range []string{"a", "b", "c"} {
		createEvident(ctx, name, nfsSource(cluster.ServerAddress, "/srv/evidence/"+name), evidentOptions, nodes.Nodes[i%2].Name)
		createPod(ctx, name, nodes.Nodes[i%2].Name)
	}
	waitUntilAllRun(ctx, "a", "b", "c")
	pods := podsOf(ctx)

	mustKubectl(ctx, "create", "-f", "testdata/evidence.yaml")
	expectFirstWaits(ctx, pods)
	pods = podsOf(ctx)

	plantMishaps(ctx)
	expectForgedIgnored(ctx)
	expectAcquitted(ctx, pods)

	expectCured(ctx)
	expectStrippedRestored(ctx)
}

// serveEvidence exports a directory for each volume, and sets up two unreachable addresses.
func serveEvidence(ctx context.Context) {
	GinkgoHelper()
	_, err := nodes.Server.Run(ctx, fmt.Sprintf(`
for name in a b c late; do
	mkdir -p /srv/evidence/$name
	grep -q "^/srv/evidence/$name " /etc/exports || echo "/srv/evidence/$name *(rw,no_root_squash,no_subtree_check,insecure,fsid=$(printf %%d "'$name"))" >>/etc/exports
done
mkdir -p /srv/unexported
exportfs -ra
device=$(ip -o -4 address show | awk '/ 10\.99\.0\.13\// {print $2}')
for address in %[1]s %[2]s; do ip address replace $address/24 dev "$device"; done
iptables -A INPUT -d %[1]s -p tcp -j REJECT --reject-with tcp-reset
iptables -A INPUT -d %[2]s -j DROP
`, refusingAddress, droppingAddress))
	Expect(err).NotTo(HaveOccurred())
	_, err = nodes.Nodes[0].Run(ctx, "truncate -s 64M /var/lib/evidence.disk; mkfs.ext4 -q -F /var/lib/evidence.disk; losetup /dev/loop7 >/dev/null 2>&1 || losetup /dev/loop7 /var/lib/evidence.disk")
	Expect(err).NotTo(HaveOccurred())
}

var evidentSize = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}

// evidentVolume returns a volume for a claim of the same name.
func evidentVolume(name string, source corev1.PersistentVolumeSource, options []string, node string) *corev1.PersistentVolume {
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"for": evident}}, Spec: corev1.PersistentVolumeSpec{
		Capacity: evidentSize, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
		MountOptions: options, ClaimRef: &corev1.ObjectReference{Namespace: evident, Name: name}, PersistentVolumeSource: source,
	}}
	if source.Local != nil {
		volume.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}}}}}}
	}
	return volume
}

// createEvident creates a volume with its claim.
func createEvident(ctx context.Context, name string, source corev1.PersistentVolumeSource, options []string, node string) {
	GinkgoHelper()
	createEvidentClaim(ctx, name)
	Expect(api.Create(ctx, evidentVolume(name, source, options, node))).To(Succeed())
}

// createEvidentClaim creates the claim alone.
func createEvidentClaim(ctx context.Context, name string) {
	GinkgoHelper()
	none := ""
	Expect(api.Create(ctx, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: evident}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}, StorageClassName: &none, VolumeName: name,
		Resources: corev1.VolumeResourceRequirements{Requests: evidentSize},
	}})).To(Succeed())
}

// createPod creates a pod with the name of the volume that it mounts. It also mounts the other volumes, if any.
func createPod(ctx context.Context, name, node string, others ...corev1.Volume) {
	GinkgoHelper()
	grace := int64(1)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: evident}, Spec: corev1.PodSpec{
		NodeName: node, TerminationGracePeriodSeconds: &grace,
		Containers: []corev1.Container{{Name: "main", Image: cluster.WorkloadImage, ImagePullPolicy: corev1.PullNever,
			// It writes once, because the operator ignores an unused mount.
			Args:         []string{"serve", "/data/greeting"},
			VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}}},
		Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}}},
	}}
	for _, other := range others {
		pod.Spec.Volumes = append(pod.Spec.Volumes, other)
		// A kubelet ignores a volume that no container mounts.
		main := &pod.Spec.Containers[0]
		main.VolumeMounts = append(main.VolumeMounts, corev1.VolumeMount{Name: other.Name, MountPath: "/" + other.Name})
	}
	Expect(api.Create(ctx, pod)).To(Succeed())
}

func waitUntilAllRun(ctx context.Context, names ...string) {
	GinkgoHelper()
	eventually(ctx, podStart, "pods "+strings.Join(names, ", ")+" run", func(g Gomega) {
		for _, name := range names {
			var pod corev1.Pod
			g.Expect(api.Get(ctx, client.ObjectKey{Namespace: evident, Name: name}, &pod)).To(Succeed())
			g.Expect(pod.Status.Phase).To(Equal(corev1.PodRunning), "%s: %+v", name, pod.Status.Conditions)
		}
	})
}

// podsOf returns the running pods of the namespace by name, with the restart counts of their containers.
func podsOf(ctx context.Context) map[string]string {
	GinkgoHelper()
	var pods corev1.PodList
	Expect(api.List(ctx, &pods, client.InNamespace(evident))).To(Succeed())
	found := map[string]string{}
	for _, pod := range pods.Items {
		if len(pod.Status.ContainerStatuses) > 0 && pod.Status.ContainerStatuses[0].State.Running != nil {
			found[pod.Name] = fmt.Sprintf("%s %d", pod.UID, pod.Status.ContainerStatuses[0].RestartCount)
		}
	}
	return found
}

// optionsOf returns the mount options of volumes.
func optionsOf(ctx context.Context, g Gomega, names ...string) map[string]string {
	GinkgoHelper()
	lists := map[string]string{}
	for _, name := range names {
		lists[name] = strings.Join(getVolume(ctx, g, name).Spec.MountOptions, ",")
	}
	return lists
}

// expectFirstWaits expects that one volume is written, and that the others wait until its pod restarts.
func expectFirstWaits(ctx context.Context, pods map[string]string) {
	GinkgoHelper()
	original, declared := strings.Join(evidentOptions, ","), strings.Join(slices.Concat(evidentOptions, declaredOptions), ",")
	first := ""
	waits := func(g Gomega) {
		var written []string
		for name, list := range optionsOf(ctx, g, "a", "b", "c") {
			if list == declared {
				written = append(written, name)
				continue
			}
			g.Expect(list).To(Equal(original), name)
		}
		g.Expect(written).To(HaveLen(1), "volumes with the mount options")
		first = written[0]
		reconciling := conditionOf(g, getProfile(ctx, g, evident), v1alpha1.ConditionReconciling)
		g.Expect(reconciling.Reason).To(Equal(v1alpha1.ReasonWaitingForEvidence), reconciling.Message)
		g.Expect(reconciling.Message).To(ContainSubstring(evident + "/" + first))
	}
	eventually(ctx, 3*time.Minute, "one volume has the mount options, and the profile reports which mount it waits for", waits)
	By(conditionOf(Default, getProfile(ctx, Default, evident), v1alpha1.ConditionReconciling).Message)
	Consistently(waits).WithContext(ctx).WithTimeout(30 * time.Second).WithPolling(5 * time.Second).Should(Succeed())

	By("the pod of " + first + " starts again")
	mustKubectl(ctx, "delete", "pod", "-n", evident, first)
	createPod(ctx, first, nodes.Nodes[slices.Index([]string{"a", "b", "c"}, first)%2].Name)
	waitUntilAllRun(ctx, first)
	eventually(ctx, 4*time.Minute, "the other volumes also have the mount options", func(g Gomega) {
		g.Expect(slices.Collect(maps.Values(optionsOf(ctx, g, "a", "b", "c")))).To(HaveEach(declared))
	})
	after := podsOf(ctx)
	delete(after, first)
	delete(pods, first)
	Expect(after).To(Equal(pods), "pods of the other volumes, and their restart counts")
}

// plantMishaps creates volumes and pods that cannot mount them. The volumes have the declared options before their pods exist.
func plantMishaps(ctx context.Context) {
	GinkgoHelper()
	mustKubectl(ctx, "create", "-f", "testdata/evidence-driver.yaml")
	node := nodes.Nodes[0].Name
	for _, m := range mishaps() {
		original := m.original
		if original == nil {
			original = []string{"vers=4.2", "hard", "retry=0"}
		}
		createEvident(ctx, m.name, m.source, original, node)
		eventually(ctx, time.Minute, m.name+" has its mount options, from the webhook or soon after", func(g Gomega) {
			g.Expect(getVolume(ctx, g, m.name).Spec.MountOptions).To(Equal(m.declared()), m.name)
		})
		createPod(ctx, m.name, node, missing[m.name]...)
	}
	eventually(ctx, 8*time.Minute, "every pod's event contains the expected reason", func(g Gomega) {
		messages := failedMountMessages(ctx, g)
		for _, m := range mishaps() {
			g.Expect(messages[m.name]).To(ContainElement(ContainSubstring(m.cause)), m.name)
		}
	})
}

// declared returns the volume's options with the declared ones.
func (m mishap) declared() []string {
	original := m.original
	if original == nil {
		original = []string{"vers=4.2", "hard", "retry=0"}
	}
	if m.disk {
		return append(slices.Clone(original), "noatime")
	}
	return slices.Concat(original, declaredOptions)
}

// failedMountMessages returns the messages of all events of failed mounts, by pod.
func failedMountMessages(ctx context.Context, g Gomega) map[string][]string {
	GinkgoHelper()
	var events corev1.EventList
	g.Expect(api.List(ctx, &events, client.InNamespace(evident))).To(Succeed())
	messages := map[string][]string{}
	for _, e := range events.Items {
		if e.Reason == "FailedMount" {
			messages[e.InvolvedObject.Name] = append(messages[e.InvolvedObject.Name], e.Message)
		}
	}
	return messages
}

// expectForgedIgnored creates forged kubelet events which claim that running pods could not mount. Any user who can edit the namespace
// can do that.
func expectForgedIgnored(ctx context.Context) {
	GinkgoHelper()
	mustKubectl(ctx, "create", "rolebinding", "editor", "-n", evident, "--clusterrole=edit", "--user=mallory")
	var pod corev1.Pod
	Expect(api.Get(ctx, client.ObjectKey{Namespace: evident, Name: "a"}, &pod)).To(Succeed())
	for i, uid := range []types.UID{pod.UID, "11111111-2222-3333-4444-555555555555"} {
		now := metav1.Now()
		event := &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Namespace: evident, Name: fmt.Sprintf("forged-%d", i)},
			InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: evident, Name: pod.Name, UID: uid},
			Reason:         "FailedMount", Type: corev1.EventTypeWarning, Source: corev1.EventSource{Component: "kubelet", Host: pod.Spec.NodeName},
			FirstTimestamp: now, LastTimestamp: now, Count: 5,
			Message: `MountVolume.SetUp failed for volume "a" : mount failed: exit status 32 Output: mount.nfs: an incorrect mount option was specified`,
		}
		config, err := nodes.RESTConfig()
		Expect(err).NotTo(HaveOccurred())
		config.Impersonate.UserName = "mallory"
		mallory, err := client.New(config, client.Options{Scheme: scheme})
		Expect(err).NotTo(HaveOccurred())
		Expect(mallory.Create(ctx, event)).To(Succeed())
	}
}

// expectAcquitted waits until the options return that were reverted for a failure with an unknown cause. No other change is allowed.
func expectAcquitted(ctx context.Context, pods map[string]string) {
	GinkgoHelper()
	declared := strings.Join(slices.Concat(evidentOptions, declaredOptions), ",")
	untouched := func(g Gomega) {
		g.Expect(slices.Collect(maps.Values(optionsOf(ctx, g, "a", "b", "c")))).To(HaveEach(declared))
	}
	seen := map[string]bool{}
	suspected := func(g Gomega) {
		untouched(g)
		for _, m := range mishaps() {
			if getVolume(ctx, g, m.name).Annotations[v1alpha1.FailedMountOptionsAnnotation] != "" {
				seen[m.name] = true
			}
		}
		g.Expect(seen).To(HaveKey("unexported"))
		g.Expect(seen).To(HaveKey("other-file-system"))
	}
	eventually(ctx, 4*time.Minute, "both failures with an unknown cause are retried with the original mount options", suspected)
	eventually(ctx, restoredWithin, "every volume has its mount options again, and the profile continues", func(g Gomega) {
		untouched(g)
		for _, m := range mishaps() {
			volume := getVolume(ctx, g, m.name)
			if volume.Annotations[v1alpha1.FailedMountOptionsAnnotation] != "" {
				seen[m.name] = true
			}
			g.Expect(volume.Spec.MountOptions).To(Equal(m.declared()), m.name)
		}
		stalled := meta.FindStatusCondition(getProfile(ctx, g, evident).Status.Conditions, v1alpha1.ConditionStalled)
		g.Expect(stalled == nil || stalled.Status != metav1.ConditionTrue).To(BeTrue(), "%+v", stalled)
	})
	Expect(slices.Sorted(maps.Keys(seen))).To(Equal([]string{"other-file-system", "unexported"}), "volumes with reverted mount options")
	after := podsOf(ctx)
	Expect(after).To(Equal(pods), "pods, and their restart counts")
	for _, m := range mishaps() {
		mustKubectl(ctx, "delete", "pod", "-n", evident, m.name, "--wait=false")
		mustKubectl(ctx, "delete", "persistentvolumeclaim", "-n", evident, m.name, "--wait=false")
		mustKubectl(ctx, "delete", "persistentvolume", m.name, "--wait=false")
	}
	eventually(ctx, podStart, "the pods that never ran are gone", func(g Gomega) {
		var all corev1.PodList
		g.Expect(api.List(ctx, &all, client.InNamespace(evident))).To(Succeed())
		g.Expect(all.Items).To(HaveLen(3))
	})
}

// expectCured declares an option that the nodes' kernel rejects, for the volume of one claim. No other volume can give evidence, so the webhook
// reserves this volume as the canary, and it gets the option at its creation.
func expectCured(ctx context.Context) {
	GinkgoHelper()
	createEvidentClaim(ctx, "late")
	mustKubectl(ctx, "label", "persistentvolumeclaim", "-n", evident, "late", "late=true")
	mustKubectl(ctx, "patch", "storageclientprofile", evident, "--type=json",
		`-p=[{"op": "add", "path": "/spec/volumes/-", "value": {"name": "late", "selector": {"claimSelector": {"matchLabels": {"late": "true"}}}, "mountOptions": ["alignwrite"]}}]`)
	var claim corev1.PersistentVolumeClaim
	Expect(api.Get(ctx, client.ObjectKey{Namespace: evident, Name: "late"}, &claim)).To(Succeed())
	late := evidentVolume("late", nfsSource(cluster.ServerAddress, "/srv/evidence/late"), evidentOptions, "")
	late.Spec.ClaimRef.UID = claim.UID
	eventually(ctx, time.Minute, "a new volume is the canary of the profile's option", func(g Gomega) {
		tried := late.DeepCopy()
		g.Expect(api.Create(ctx, tried)).To(Succeed())
		if !slices.Contains(tried.Spec.MountOptions, "alignwrite") { // the webhook's cache does not contain the rule or the label yet
			g.Expect(api.Delete(ctx, tried)).To(Succeed())
		}
		g.Expect(tried.Spec.MountOptions).To(ContainElement("alignwrite"))
	})
	createPod(ctx, "late", nodes.Nodes[1].Name)
	eventually(ctx, 8*time.Minute, "the new volume has its original mount options again, and its pod runs", func(g Gomega) {
		g.Expect(getVolume(ctx, g, "late").Spec.MountOptions).To(Equal(evidentOptions))
		var pod corev1.Pod
		g.Expect(api.Get(ctx, client.ObjectKey{Namespace: evident, Name: "late"}, &pod)).To(Succeed())
		g.Expect(pod.Status.Phase).To(Equal(corev1.PodRunning), "%+v", pod.Status.Conditions)
	})
	eventually(ctx, 2*time.Minute, "the profile is stalled, and names the volume and the failed mount options", func(g Gomega) {
		stalled := conditionOf(g, getProfile(ctx, g, evident), v1alpha1.ConditionStalled)
		g.Expect(stalled.Status).To(Equal(metav1.ConditionTrue), stalled.Message)
		g.Expect(stalled.Message).To(And(ContainSubstring("late"), ContainSubstring("incorrect mount option")))
	})
	By(conditionOf(Default, getProfile(ctx, Default, evident), v1alpha1.ConditionStalled).Message)
	By("the failure is also recorded outside the volumes")
	Expect(mustKubectl(ctx, "get", "configmap", "-n", v1alpha1.ManagerNamespace, "-o", "yaml")).To(ContainSubstring("failed."))
}

// expectStrippedRestored removes the annotations of two volumes, as Terraform does, and deletes the profile. Each volume must have its
// original options.
func expectStrippedRestored(ctx context.Context) {
	GinkgoHelper()
	mustKubectl(ctx, "patch", "storageclientprofile", evident, "--type=json", `-p=[{"op": "remove", "path": "/spec/volumes/2"}]`)
	declared := strings.Join(slices.Concat(evidentOptions, declaredOptions), ",")
	eventually(ctx, 4*time.Minute, "all volumes have the mount options that work", func(g Gomega) {
		g.Expect(slices.Collect(maps.Values(optionsOf(ctx, g, "a", "b", "c", "late")))).To(HaveEach(declared))
	})
	strip(ctx, "b")
	eventually(ctx, 2*time.Minute, "the original options are recorded on the volume again", func(g Gomega) {
		volume := getVolume(ctx, g, "b")
		g.Expect(volume.Annotations).To(HaveKeyWithValue(v1alpha1.OriginalMountOptionsAnnotation, `["vers=4.2","hard"]`))
		g.Expect(strings.Join(volume.Spec.MountOptions, ",")).To(Equal(declared))
	})
	strip(ctx, "c")
	mustKubectl(ctx, "delete", "storageclientprofile", evident, "--wait=false")
	waitUntilGone(ctx, podStart, evident)
	for _, name := range []string{"a", "b", "c", "late"} {
		volume := getVolume(ctx, Default, name)
		Expect(volume.Spec.MountOptions).To(Equal(evidentOptions), name)
		Expect(operatorAnnotations(volume.Annotations)).To(BeEmpty(), name)
	}
}

// strip removes all annotations of the operator in one write.
func strip(ctx context.Context, name string) {
	GinkgoHelper()
	args := []string{"annotate", "persistentvolume", name}
	for _, key := range operatorAnnotations(getVolume(ctx, Default, name).Annotations) {
		args = append(args, key+"-")
	}
	mustKubectl(ctx, args...)
}

func cleanUpEvidence(ctx context.Context) {
	mustKubectl(ctx, "delete", "storageclientprofile", evident, "--ignore-not-found", "--timeout=90s")
	mustKubectl(ctx, "delete", "namespace", evident, "--ignore-not-found", "--timeout=3m")
	mustKubectl(ctx, "delete", "persistentvolume", "--selector=for="+evident, "--timeout=60s")
	mustKubectl(ctx, "delete", "-f", "testdata/evidence-driver.yaml", "--ignore-not-found")
	_, err := nodes.Server.Run(ctx, fmt.Sprintf("iptables -D INPUT -d %s -p tcp -j REJECT --reject-with tcp-reset; iptables -D INPUT -d %s -j DROP", refusingAddress, droppingAddress))
	Expect(err).NotTo(HaveOccurred())
}
