package integration

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testclock "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/trial"
)

// clonedObjects returns all objects of clones, in the order of their deletion.
func clonedObjects() (pods []corev1.Pod, volumeClaims []corev1.PersistentVolumeClaim, volumes []corev1.PersistentVolume) {
	GinkgoHelper()
	var podList corev1.PodList
	var claimList corev1.PersistentVolumeClaimList
	var volumeList corev1.PersistentVolumeList
	Expect(k8s.List(ctx, &podList, client.InNamespace(v1alpha1.TrialNamespace))).To(Succeed())
	Expect(k8s.List(ctx, &claimList, client.InNamespace(v1alpha1.TrialNamespace))).To(Succeed())
	Expect(k8s.List(ctx, &volumeList, client.HasLabels{v1alpha1.TrialLabel})).To(Succeed())
	return podList.Items, claimList.Items, volumeList.Items
}

// awaitClones waits until the API server has the parameters of the policies on clones, a ConfigMap and a DaemonSet. Until then the policies reject
// all of them. A policy that is recreated never finds its parameter, so the suite installs it once.
func awaitClones(manager client.Client) {
	GinkgoHelper()
	data, err := os.ReadFile("../../controllers/trial/plan/testdata/pass.golden.json")
	Expect(err).NotTo(HaveOccurred())
	pv, pod := &corev1.PersistentVolume{}, &corev1.Pod{}
	Expect(json.Unmarshal(data, &[]any{pv, nil, pod})).To(Succeed())
	Eventually(func() error { return manager.Create(ctx, pv.DeepCopy(), client.DryRunAll) }).Should(Succeed())
	pod.Spec.Containers[0].Image = "localhost/storageclient/node-agent:dev"
	Eventually(func() error { return manager.Create(ctx, pod.DeepCopy(), client.DryRunAll) }).Should(Succeed())
	pod.Spec.Containers[0].Image = "evil.example.com/a"
	Eventually(func() error { return manager.Create(ctx, pod.DeepCopy(), client.DryRunAll) }).Should(MatchError(ContainSubstring("trial runner's image")))
}

// The manager has the credentials, roles and policies of a real cluster. Kubelet, driver, agent and the controllers of volumes are
// simulated, and measurements are made up.
var _ = Describe("A trial by clones", func() {
	const node, namespace = "a", "default"
	var manager client.WithWatch
	var clock *testclock.FakeClock
	// fails returns the kubelet's error for a clone with these mount options; empty if the mount works.
	var fails func(list []string) string
	var seen map[string]*corev1.Pod

	// pass runs one reconciliation of a manager without data of the previous pass.
	pass := func() {
		GinkgoHelper()
		reconciler := &trial.Reconciler{
			Client: cached(manager), APIReader: manager, Clock: clock, Results: &trial.Results{Clock: clock},
		}
		_, err := reconciler.Reconcile(ctrl.LoggerInto(ctx, logger), ctrl.Request{})
		Expect(err).NotTo(HaveOccurred())
		clock.Step(2 * time.Second)
	}
	// collect removes the finalizers of objects that are being deleted and no longer in use.
	collect := func(pods []corev1.Pod, volumeClaims []corev1.PersistentVolumeClaim, volumes []corev1.PersistentVolume) {
		GinkgoHelper()
		for i := range pods {
			if pods[i].DeletionTimestamp != nil {
				deleteNow(&pods[i])
			}
		}
		for i := range volumeClaims {
			if volumeClaims[i].DeletionTimestamp != nil && len(pods) == 0 {
				deleteNow(&volumeClaims[i])
			}
		}
		for i := range volumes {
			if volumes[i].DeletionTimestamp != nil && len(volumeClaims) == 0 {
				deleteNow(&volumes[i])
			}
		}
	}
	run := func(pod *corev1.Pod, list []string) {
		GinkgoHelper()
		message := fails(list)
		switch {
		case message != "":
			event := &corev1.Event{
				ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: string(pod.UID)}, Reason: "FailedMount", Message: message, Type: corev1.EventTypeWarning,
				Source:         corev1.EventSource{Component: "kubelet", Host: pod.Spec.NodeName},
				InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
			}
			if err := k8s.Create(ctx, event); !apierrors.IsAlreadyExists(err) {
				Expect(err).NotTo(HaveOccurred())
			}
			return
		case pod.Status.Phase == corev1.PodPending:
			pod.Status.Phase = corev1.PodRunning
			options, protocol, server := []string{"vers=3.0"}, "SMB3.0", v1alpha1.ServerSMB
			if !slices.Contains(list, "vers=3.0") {
				options, protocol, server = list, "NFSv4.1", v1alpha1.ServerNFS
			}
			seconds := "1"
			if slices.Contains(list, "actimeo=30") {
				seconds = "30"
			}
			for _, timer := range []string{"acregmin", "acregmax", "acdirmin", "acdirmax"} {
				options = append(slices.Clone(options), timer+"="+seconds)
			}
			agentReports(node, func(s *v1alpha1.StorageClientNodeStatus) {
				s.Servers = []v1alpha1.ServerStatus{{Server: "filer", Protocol: server, State: v1alpha1.ServerAnswering}}
				s.Mounts = []v1alpha1.MountStatus{{Volume: pod.Name, MountPoint: "/m", Server: "filer", Protocol: protocol, Options: options, Connections: 1, State: v1alpha1.MountUnmanaged}}
			})
		case pod.Status.Phase == corev1.PodRunning:
			count := int64(5000)
			if slices.Contains(list, "actimeo=30") {
				count = 5
			}
			result := v1alpha1.ClonePass{Phases: []v1alpha1.TrialPassPhase{{Name: "First", Units: 5000, Microseconds: 900000}, {Name: "Repeated", Units: 5000, Microseconds: 900000}}}
			for i := range result.Phases {
				result.Phases[i].Operations = []v1alpha1.TrialOperation{{Name: "QUERY_INFO", Count: count}}
			}
			if !slices.Contains(list, "vers=3.0") {
				result.Transports = 1
			}
			pod.Status.Phase = corev1.PodSucceeded
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: pod.Spec.Containers[0].Name, State: corev1.ContainerState{
				Terminated: &corev1.ContainerStateTerminated{Reason: "Completed", Message: result.Encode()},
			}}}
		default:
			return
		}
		Expect(k8s.Status().Update(ctx, pod)).To(Succeed())
	}
	// play does the work of all components except the manager.
	play := func() {
		GinkgoHelper()
		pods, volumeClaims, volumes := clonedObjects()
		Expect(len(volumes)).To(BeNumerically("<=", 1), "number of clones at a time")
		collect(pods, volumeClaims, volumes)
		for i := range volumeClaims {
			if volumeClaims[i].Status.Phase != corev1.ClaimBound && volumeClaims[i].DeletionTimestamp == nil {
				volumeClaims[i].Status.Phase = corev1.ClaimBound
				Expect(k8s.Status().Update(ctx, &volumeClaims[i])).To(Succeed())
			}
		}
		for i := range pods {
			if pods[i].DeletionTimestamp == nil {
				seen[pods[i].Name] = pods[i].DeepCopy()
				run(&pods[i], volumes[0].Spec.MountOptions)
			}
		}
		if len(pods) == 0 {
			agentReports(node, nil)
		}
	}
	untilItEnds := func(object *v1alpha1.StorageClientTrial) {
		GinkgoHelper()
		for range 200 {
			pass()
			play()
			Expect(k8s.Get(ctx, client.ObjectKeyFromObject(object), object)).To(Succeed())
			if object.Status.CompletionTime != nil {
				break
			}
		}
		Expect(object.Status.CompletionTime).NotTo(BeNil(), "%+v", object.Status)
		for range 5 {
			pass()
			play()
		}
		pods, volumeClaims, volumes := clonedObjects()
		Expect(pods).To(BeEmpty())
		Expect(volumeClaims).To(BeEmpty())
		Expect(volumes).To(BeEmpty())
	}
	create := func(pv *volumeBuilder, rounds int32) *v1alpha1.StorageClientTrial {
		GinkgoHelper()
		volumeClaim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "projects"}}
		volumeClaim.Spec = corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}, VolumeName: "pv",
			Resources: corev1.VolumeResourceRequirements{Requests: pv.volume.Spec.Capacity},
		}
		Expect(k8s.Create(ctx, volumeClaim)).To(Succeed())
		pv.Claim(namespace, "projects").volume.Spec.ClaimRef.UID = volumeClaim.UID
		bound := pv.Create()
		bound.Status.Phase = corev1.VolumeBound
		Expect(k8s.Status().Update(ctx, bound)).To(Succeed())
		object := &v1alpha1.StorageClientTrial{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "t-"}}
		object.Spec = v1alpha1.StorageClientTrialSpec{
			ClaimName: "projects", Profile: "p", Rounds: rounds, Workload: v1alpha1.TrialWorkload{
				Name: v1alpha1.WorkloadListDirectory, Path: "src", TrialLoad: v1alpha1.TrialLoad{Workers: 4, Cached: true},
			},
			Goal: v1alpha1.TrialGoal{Metric: "QUERY_INFO"},
		}
		Expect(k8s.Create(ctx, object)).To(Succeed())
		return object
	}
	smb := func(driver string) *volumeBuilder {
		return newVolume("pv").CSI(driver, map[string]string{"source": "//filer/share"}).Options("vers=3.0", "actimeo=1")
	}

	BeforeEach(func() {
		fails, seen = func([]string) string { return "" }, map[string]*corev1.Pod{}
		installTemporarily("rbac/service_account.yaml", "rbac/role.yaml", "rbac/role_binding.yaml", "components/clones/role.yaml", "agent/trial_runner.yaml")
		clones := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.ManagerNamespace, Name: v1alpha1.ClonesConfigMap}}
		clones.Data = map[string]string{"nfs": "", "smb.csi.k8s.io": "eda/credentials"}
		Expect(k8s.Create(ctx, clones)).To(Succeed())
		manager = clientFor(managerConfig())
		awaitManagerPolicies(manager)
		awaitClones(manager)
		clock = testclock.NewFakeClock(time.Now())
		owner := newNode(node).Create()
		agent := agentPod(node)
		agent.Spec.Containers[0].Image = "localhost/storageclient/node-agent:dev"
		Expect(k8s.Update(ctx, agent)).To(Succeed())
		agent.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		Expect(k8s.Status().Update(ctx, agent)).To(Succeed())
		object := &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: node, OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "Node", Name: node, UID: owner.UID},
		}}}
		Expect(k8s.Create(ctx, object)).To(Succeed())
		agentReports(node, nil)
		newProfile("p").Volumes(v1alpha1.VolumeRule{
			Name: "r", MountOptions: []v1alpha1.MountOption{"actimeo=30"}, OnConflict: v1alpha1.ConflictUseProfile,
			Selector: v1alpha1.VolumeSelector{ClaimNamespaces: []string{namespace}},
		}).With(func(s *v1alpha1.StorageClientProfileSpec) { s.Mode = v1alpha1.ModePlan }).Create()
	})

	DescribeTable("measures each pass on a separate clone, also after a change of the manager, and leaves nothing behind, of",
		func(pv func() *volumeBuilder, before, after []string) {
			object := create(pv(), 2)
			untilItEnds(object)
			status := object.Status
			Expect(meta.IsStatusConditionTrue(status.Conditions, v1alpha1.TrialConditionComplete)).To(BeTrue(), "%+v", status.Conditions)
			Expect(status.Route).To(Equal(v1alpha1.RouteClone))
			Expect(status.Before).To(Equal(before))
			Expect(status.After).To(ConsistOf(after))
			Expect(status.Rounds).To(BeEquivalentTo(2))
			Expect(status.Passes).To(HaveLen(6))
			for _, p := range status.Passes {
				Expect(p.Node).To(Equal(node))
				Expect(p.Phases[1].Operations[0].Count).To(BeEquivalentTo(map[v1alpha1.TrialArm]int64{v1alpha1.ArmBefore: 5000, v1alpha1.ArmAgain: 5000, v1alpha1.ArmAfter: 5}[p.Arm]))
			}
			Expect(seen).To(HaveLen(6))
			for name, pod := range seen {
				Expect(name).To(HavePrefix(v1alpha1.ClonePrefix))
				Expect(pod.Spec.Containers[0].Args).To(Equal([]string{"trial-pass", "--name=ListDirectory", "--path=src", "--pause=5s", "--workers=4", "--block-kib=0", "--sync=false",
					"--direct=false", "--cached=true", "--through-client=false"}))
				Expect(pod.Spec.Containers[0].VolumeMounts[0].ReadOnly).To(BeTrue())
			}
			Expect(getNode(node).Labels).NotTo(HaveKey(v1alpha1.TrialLabel))
			Expect(findObject(node).Spec.Trial).To(BeNil())
			By("The volume itself is unchanged")
			left := &corev1.PersistentVolume{}
			Expect(k8s.Get(ctx, client.ObjectKey{Name: "pv"}, left)).To(Succeed())
			Expect(left.Spec.MountOptions).To(Equal(before))
		},
		Entry("an SMB volume", func() *volumeBuilder { return smb("smb.csi.k8s.io") }, []string{"vers=3.0", "actimeo=1"}, []string{"vers=3.0", "actimeo=30"}),
		Entry("an NFS volume with Kerberos", func() *volumeBuilder { return newVolume("pv").Options("nfsvers=4.1", "sec=krb5") },
			[]string{"nfsvers=4.1", "sec=krb5"}, []string{"nfsvers=4.1", "sec=krb5", "actimeo=30"}),
	)

	DescribeTable("fails, and reports the reason, if",
		func(driver string, failure func(list []string) string, reason, words string) {
			fails = failure
			object := create(smb(driver), 1)
			untilItEnds(object)
			failed := meta.FindStatusCondition(object.Status.Conditions, v1alpha1.TrialConditionFailed)
			Expect(failed.Status).To(Equal(metav1.ConditionTrue), "%+v", object.Status.Conditions)
			Expect(failed.Reason).To(Equal(reason))
			Expect(failed.Message).To(ContainSubstring(words))
		},
		Entry("the driver rejects the candidate", "smb.csi.k8s.io", func(list []string) string {
			if slices.Contains(list, "actimeo=30") {
				return "MountVolume.MountDevice failed for volume \"x\" : rpc error: code = Internal desc = mount failed: exit status 32\nMounting command: mount\n" +
					"Mounting arguments: -t cifs -o " + strings.Join(list, ",") + "\nOutput: mount error(22): Invalid argument"
			}
			return ""
		}, v1alpha1.TrialReasonNotMounted, "After, round 1: mount error(22): Invalid argument"),
		Entry("the volume's original options cannot be mounted", "smb.csi.k8s.io", func(list []string) string {
			if slices.Contains(list, "actimeo=1") {
				return "Output: mount error(22): Invalid argument"
			}
			return ""
		}, v1alpha1.TrialReasonNotPossible, "A clone could not be mounted with the original mount options: "),
		Entry("the driver's volumes cannot be cloned", "file.csi.azure.com", func([]string) string { return "" }, v1alpha1.TrialReasonNotPossible, "file.csi.azure.com cannot be cloned"),
	)
})
