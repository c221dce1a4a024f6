package integration

import (
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	testclock "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/trial"
)

var _ = Describe("The shape of a trial", func() {
	const good = `claimName: projects, profile: p, workload: {name: ListDirectory, path: src/a}`
	create := func(old, by string) error {
		GinkgoHelper()
		object := shape("StorageClientTrial", strings.Replace(good, old, by, 1))
		object.SetNamespace("default")
		return k8s.Create(ctx, object, client.DryRunAll)
	}

	DescribeTable("is rejected, and the error names the field, for",
		func(old, by, field string) { expectInvalid(create(old, by), field) },
		Entry("no claim", "claimName: projects, ", "", "spec.claimName"),
		Entry("work without a candidate", "profile: p, ", "", "spec.workload"),
		Entry("work with two", "profile: p, ", "profile: p, mountOptions: [nocto], ", "spec.workload"),
		Entry("work with a profile and a read-ahead", "profile: p, ", "profile: p, readAheadKiB: 1024, ", "spec.workload"),
		Entry("a read-ahead below a page", "profile: p, ", "readAheadKiB: 3, ", "spec.readAheadKiB"),
		Entry("Observe with a read-ahead", good, "claimName: projects, readAheadKiB: 1024, workload: {name: Observe}", "spec.workload"),
		Entry("work with a profile and sysctls", "profile: p, ", "profile: p, sysctls: {net.ipv4.tcp_sack: '0'}, ", "spec.workload"),
		Entry("Observe with sysctls", good, "claimName: projects, sysctls: {net.ipv4.tcp_sack: '0'}, workload: {name: Observe}", "spec.workload"),
		Entry("a sysctl without a dot", "profile: p, ", "sysctls: {ihash_entries: '1'}, ", "spec.sysctls"),
		Entry("a sysctl without a value", "profile: p, ", "sysctls: {net.ipv4.tcp_sack: ''}, ", "spec.sysctls"),
		Entry("too many sysctls", "profile: p, ", "sysctls: {"+list(17, "net.ipv4.a%d: '1'")+"}, ", "spec.sysctls"),
		Entry("Observe with a candidate", "ListDirectory, path: src/a", "Observe", "spec.workload"),
		Entry("a window of work that mounts", "path: src/a", "windowSeconds: 60", "spec.workload.windowSeconds"),
		Entry("a window that is too short", good, "claimName: projects, workload: {name: Observe, windowSeconds: 9}", "spec.workload.windowSeconds"),
		Entry("a window that is too long", good, "claimName: projects, workload: {name: Observe, windowSeconds: 3601}, timeoutSeconds: 86400", "spec.workload.windowSeconds"),
		Entry("a window that does not fit", good, "claimName: projects, workload: {name: Observe, windowSeconds: 241}, timeoutSeconds: 300",
			"spec.workload.windowSeconds: Invalid value: windowSeconds 241 plus 60 s to query the nodes exceeds timeoutSeconds 300: choose a shorter window or a longer timeout"),
		Entry("the default window, which does not fit", good, "claimName: projects, workload: {name: Observe}, timeoutSeconds: 119", "windowSeconds 60 plus 60 s"),
		Entry("unknown work", "ListDirectory", "/bin/sh", "spec.workload.name"),
		Entry("creation without permission", "ListDirectory", "CreateUnlink", "spec.workload.allowWrites"),
		Entry("writing without permission", "ListDirectory", "WriteSequential", "spec.workload.allowWrites"),
		Entry("copies without permission", "ListDirectory", "CopyFiles", "spec.workload.allowWrites"),
		Entry("too many workers", "src/a", "a, workers: 65", "spec.workload.workers"),
		Entry("fewer workers than one", "src/a", "a, workers: -1", "spec.workload.workers"),
		Entry("workers of a mount", "ListDirectory, path: src/a", "Mount, workers: 2", "spec.workload.workers"),
		Entry("a block that is not a multiple of 4 KiB", "ListDirectory, path: src/a", "ReadRandom, blockKiB: 6", "spec.workload.blockKiB"),
		Entry("a block that is too large", "ListDirectory, path: src/a", "ReadRandom, blockKiB: 16388", "spec.workload.blockKiB"),
		Entry("buffers that are too large", "ListDirectory, path: src/a", "ReadRandom, workers: 64, blockKiB: 1028", "workers times blockKiB exceeds 65536 KiB"),
		Entry("blocks of a list", "src/a", "a, blockKiB: 64", "spec.workload.blockKiB"),
		Entry("blocks of a copy by the server", "ListDirectory, path: src/a", "CopyFiles, allowWrites: true, blockKiB: 64", "spec.workload.blockKiB"),
		Entry("reads that wait", "ListDirectory, path: src/a", "ReadSequential, sync: true", "spec.workload.sync"),
		Entry("a list without the page cache", "src/a", "a, direct: true", "spec.workload.direct"),
		Entry("a cached write", "ListDirectory, path: src/a", "WriteSequential, allowWrites: true, cached: true", "spec.workload.cached"),
		Entry("a cached read without the page cache", "ListDirectory, path: src/a", "ReadRandom, direct: true, cached: true", "spec.workload.cached"),
		Entry("a list through the client", "src/a", "a, throughClient: true", "spec.workload.throughClient"),
		Entry("an absolute path", "src/a", "/etc", "spec.workload.path"),
		Entry("a path that leads out", "src/a", "src/../../etc", "spec.workload.path"),
		Entry("root", "src/a", "a, runAsUser: 0", "spec.workload.runAsUser"),
		Entry("two options in one", "profile: p", "mountOptions: ['hard,suid']", "spec.mountOptions[0]"),
		Entry("too many rounds", "profile: p", "profile: p, rounds: 41", "spec.rounds"),
		Entry("no time", "profile: p", "profile: p, timeoutSeconds: 5", "spec.timeoutSeconds"),
		Entry("an invalid metric", "profile: p", "profile: p, goal: {metric: 'a b'}", "spec.goal.metric"),
		Entry("more than a hundred percent", "profile: p", "profile: p, goal: {betterByPercent: 100}", "spec.goal.betterByPercent"),
	)

	It("keeps the requested fields, and observing needs no candidate", func() {
		Expect(create("", "")).To(Succeed())
		Expect(create("profile: p, ", "mountOptions: [actimeo=30, nocto], ")).To(Succeed())
		Expect(create("profile: p, ", "mountOptions: [rsize=1048576], readAheadKiB: 1024, ")).To(Succeed())
		Expect(create("profile: p, ", "readAheadKiB: 1024, ")).To(Succeed())
		Expect(create("profile: p, ", "sysctls: {net.ipv4.tcp_rmem: 4096 1048576 16777216}, ")).To(Succeed())
		Expect(create("profile: p, ", "mountOptions: [nocto], readAheadKiB: 1024, sysctls: {net.ipv4.tcp_sack: '0'}, ")).To(Succeed())
		Expect(create("profile: p, ", "profile: p, sysctls: {}, ")).To(Succeed())
		Expect(create(good, "claimName: projects, workload: {name: Observe}")).To(Succeed())
		Expect(create(good, "claimName: projects, workload: {name: Observe, windowSeconds: 240}, timeoutSeconds: 300")).To(Succeed())
		Expect(create(good, "claimName: projects, workload: {name: Observe, windowSeconds: 3600}, timeoutSeconds: 3660")).To(Succeed())
		Expect(create("ListDirectory, path: src/a", "CreateUnlink, allowWrites: true, runAsUser: 1000")).To(Succeed())
		for _, workload := range []string{
			"Interleaved, workers: 64, cached: true", "ListNames, workers: 1, sync: false, direct: false, cached: false, throughClient: false", "Mount, workers: 1",
			"ReadRandom, workers: 64, blockKiB: 4, direct: true", "ReadSequential, blockKiB: 16384, workers: 4, cached: true",
			"WriteSequential, allowWrites: true, blockKiB: 8, sync: true, direct: true", "CopyFiles, allowWrites: true, cached: true",
			"CopyFiles, allowWrites: true, throughClient: true, blockKiB: 1024",
		} {
			Expect(create("ListDirectory, path: src/a", workload)).To(Succeed(), workload)
		}
	})

	It("is immutable, and is not observed at first", func() {
		object := &v1alpha1.StorageClientTrial{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "still"}}
		object.Spec = v1alpha1.StorageClientTrialSpec{ClaimName: "projects", Profile: "p", Workload: v1alpha1.TrialWorkload{Name: v1alpha1.WorkloadMount}}
		Expect(k8s.Create(ctx, object)).To(Succeed())
		Expect(object.Status.ObservedGeneration).To(BeEquivalentTo(-1))
		expectInvalid(k8s.Patch(ctx, object, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"profile":"q"}}`))), "a trial is immutable")
	})

	DescribeTable("is rejected in spec.trial, and the error names the field, for",
		func(old, by, field string) {
			const order = `trial: {id: a-1, kind: Trial, volume: pv, server: filer, path: /e, fsType: nfs, runAsUser: 1000, timeoutSeconds: 600, ` +
				`work: {name: ListDirectory, path: a, pauseSeconds: 5}, passes: [{round: 1, arm: Before}]}`
			Expect(createShape("StorageClientNode", order)).To(Succeed())
			expectInvalid(createShape("StorageClientNode", strings.Replace(order, old, by, 1)), field)
		},
		Entry("no work", "work: {name: ListDirectory, path: a, pauseSeconds: 5}, ", "", "spec.trial"),
		Entry("no passes", "passes: [{round: 1, arm: Before}]", "passes: []", "spec.trial"),
		Entry("too many passes", "{round: 1, arm: Before}", list(7, "{round: %d, arm: Before}"), "spec.trial.passes"),
		Entry("work of a probe", "kind: Trial", "kind: Probe", "spec.trial"),
		Entry("root", "runAsUser: 1000", "runAsUser: 0", "spec.trial"),
		Entry("writing without permission", "name: ListDirectory", "name: CreateUnlink", "spec.trial.work"),
		Entry("a path that leads out", "path: a", "path: ../a", "spec.trial.work.path"),
		Entry("too many workers", "path: a", "path: a, workers: 65", "spec.trial.work.workers"),
		Entry("a read-ahead below a page", "arm: Before", "arm: Before, readAheadKiB: 3", "spec.trial.passes[0].readAheadKiB"),
		Entry("copies without permission", "name: ListDirectory", "name: CopyFiles", "spec.trial.work"),
		Entry("sysctls of a probe", "kind: Trial, ", "kind: Probe, sysctls: {net.ipv4.tcp_sack: '0'}, ", "spec.trial"),
		Entry("a sysctl with a slash", "kind: Trial, ", "kind: Trial, sysctls: {net/ipv4: '0'}, ", "spec.trial.sysctls"),
	)
})

// Manager, agent and users have the credentials and roles of a real cluster, under all policies. Measurements are made up.
var _ = Describe("A trial", func() {
	const node, namespace = "a", "default"
	var reconciler *trial.Reconciler
	var agent client.Client
	var clock *testclock.FakeClock

	pass := func() {
		GinkgoHelper()
		_, err := reconciler.Reconcile(ctrl.LoggerInto(ctx, logger), ctrl.Request{})
		Expect(err).NotTo(HaveOccurred())
		clock.Step(2 * time.Second)
	}
	// work responds to the agent's request like its runner: the candidate sends few GETATTR. If failure is set, the mount fails.
	work := func(failure string) {
		GinkgoHelper()
		Expect(retry.RetryOnConflict(retry.DefaultRetry, func() error {
			object := &v1alpha1.StorageClientNode{}
			if err := agent.Get(ctx, client.ObjectKey{Name: node}, object); err != nil {
				return err
			}
			object.Status.ObservedGeneration, object.Status.Trial = object.Generation, nil
			if order := object.Spec.Trial; order != nil {
				status := &v1alpha1.NodeTrialStatus{ID: order.ID, Phase: v1alpha1.TrialFinished, Succeeded: failure == "", Message: failure}
				for _, p := range order.Passes {
					count := int64(5000)
					if p.Arm == v1alpha1.ArmAfter {
						count = 5
					}
					phase := v1alpha1.TrialPassPhase{Name: "Repeated", Units: 5000, Microseconds: 900000, Operations: []v1alpha1.TrialOperation{{Name: "GETATTR", Count: count}}}
					if failure == "" {
						status.Passes = append(status.Passes, v1alpha1.TrialPass{Round: p.Round, Arm: p.Arm, Phases: []v1alpha1.TrialPassPhase{phase}})
					}
				}
				object.Status.Trial = status
			}
			return agent.Status().Update(ctx, object)
		})).To(Succeed())
	}
	// runner creates the trial runner's Pod on the node with the label.
	runner := func() {
		GinkgoHelper()
		if _, labelled := getNode(node).Labels[v1alpha1.TrialLabel]; !labelled {
			return
		}
		pod := newPod(v1alpha1.AgentNamespace, "runner").On(node).OwnedBy("apps/v1", "DaemonSet", v1alpha1.TrialDaemonSet).Label("app.kubernetes.io/component", "trial-runner")
		if err := k8s.Get(ctx, client.ObjectKey{Namespace: v1alpha1.AgentNamespace, Name: "runner"}, &corev1.Pod{}); err != nil {
			pod.Create()
		}
	}
	as := func(user string) client.WithWatch {
		config := rest.CopyConfig(restConfig)
		config.Impersonate = rest.ImpersonationConfig{UserName: user}
		return clientFor(config)
	}
	grant := func(user, role string) {
		GinkgoHelper()
		binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: user}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}}}
		Expect(k8s.Create(ctx, binding)).To(Succeed())
		DeferCleanup(func() { deleteNow(binding) })
	}
	create := func(by client.Client, change func(*v1alpha1.StorageClientTrialSpec)) (*v1alpha1.StorageClientTrial, error) {
		object := &v1alpha1.StorageClientTrial{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "t-"}}
		object.Spec = v1alpha1.StorageClientTrialSpec{
			ClaimName: "projects", Profile: "p", Rounds: 3, Workload: v1alpha1.TrialWorkload{Name: v1alpha1.WorkloadListDirectory}, Goal: v1alpha1.TrialGoal{Metric: "GETATTR"},
		}
		change(&object.Spec)
		return object, by.Create(ctx, object)
	}
	untilItEnds := func(object *v1alpha1.StorageClientTrial, failure string) {
		GinkgoHelper()
		for range 40 {
			pass()
			runner()
			work(failure)
			Expect(k8s.Get(ctx, client.ObjectKeyFromObject(object), object)).To(Succeed())
			if object.Status.CompletionTime != nil {
				break
			}
		}
		Expect(object.Status.CompletionTime).NotTo(BeNil(), "%+v", object.Status)
		pass()
		work("")
		pass()
		Expect(findObject(node).Spec.Trial).To(BeNil())
		Expect(getNode(node).Labels).NotTo(HaveKey(v1alpha1.TrialLabel))
	}

	BeforeEach(func() {
		installTemporarily("rbac/service_account.yaml", "rbac/role.yaml", "rbac/role_binding.yaml")
		manager := clientFor(managerConfig())
		awaitManagerPolicies(manager)
		clock = testclock.NewFakeClock(time.Now())
		reconciler = &trial.Reconciler{
			Client: cached(manager), Clock: clock, Results: &trial.Results{Clock: clock},
		}
		owner := newNode(node).Create()
		agent = clientWithToken(tokenFor(agentPod(node)))
		object := &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: node, OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "Node", Name: node, UID: owner.UID},
		}}}
		Expect(k8s.Create(ctx, object)).To(Succeed())
		agentReports(node, func(*v1alpha1.StorageClientNodeStatus) {})
		profile := newProfile("p").Volumes(v1alpha1.VolumeRule{
			Name: "r", MountOptions: []v1alpha1.MountOption{"actimeo=30"}, Selector: v1alpha1.VolumeSelector{ClaimNamespaces: []string{namespace}},
		}).With(func(s *v1alpha1.StorageClientProfileSpec) { s.Mode = v1alpha1.ModePlan })
		profile.Create()
		volumeClaim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "projects"}}
		volumeClaim.Spec = corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}, VolumeName: "pv",
			Resources: corev1.VolumeResourceRequirements{Requests: newVolume("pv").volume.Spec.Capacity},
		}
		Expect(k8s.Create(ctx, volumeClaim)).To(Succeed())
		pv := newVolume("pv").Options("nfsvers=4.1").Claim(namespace, "projects")
		pv.volume.Spec.ClaimRef.UID = volumeClaim.UID
		bound := pv.Create()
		bound.Status.Phase = corev1.VolumeBound
		Expect(k8s.Status().Update(ctx, bound)).To(Succeed())
	})

	It("compares the options that a profile in mode Plan would set, and leaves nothing behind", func() {
		grant("ida", "storage-client-trial-editor")
		ida := as("ida")
		var object *v1alpha1.StorageClientTrial
		Eventually(func() (err error) {
			object, err = create(ida, func(*v1alpha1.StorageClientTrialSpec) {})
			return err
		}).Should(Succeed())
		before := findObject(node)
		untilItEnds(object, "")
		status := object.Status
		Expect(meta.IsStatusConditionTrue(status.Conditions, v1alpha1.TrialConditionComplete)).To(BeTrue(), "%+v", status.Conditions)
		Expect(status.Before).To(Equal([]string{"nfsvers=4.1"}))
		Expect(status.After).To(ConsistOf("nfsvers=4.1", "actimeo=30"))
		Expect(status.Rounds).To(BeEquivalentTo(3))
		Expect(status.Passes).To(HaveLen(9))
		Expect(status.Passes[0].Node).To(Equal(node))
		Expect(status.Verdict).NotTo(BeEmpty())
		Expect(status.Results).NotTo(BeEmpty())
		Expect(status.ObservedGeneration).To(Equal(object.Generation))
		Expect(findObject(node).Spec).To(Equal(before.Spec))

		By("A user may not write its results")
		expectRejected(ida.Status().Patch(ctx, object.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"status":{"verdict":"Better"}}`))), "cannot patch resource")
		By("The manager may not change its spec")
		expectRejected(reconciler.Patch(ctx, object.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`))), "cannot patch resource")
	})

	It("accepts a user's own options only with the verb try", func() {
		own := func(s *v1alpha1.StorageClientTrialSpec) {
			s.Profile, s.MountOptions = "", []v1alpha1.MountOption{"nocto"}
		}
		grant("ida", "storage-client-trial-editor")
		grant("tom", "storage-client-trial-editor")
		role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "tries"}, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"storageclientprofiles"}, Verbs: []string{"try"}},
		}}
		binding := &rbacv1.ClusterRoleBinding{ObjectMeta: role.ObjectMeta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "tom"}}}
		for _, object := range []client.Object{role, binding} {
			Expect(k8s.Create(ctx, object)).To(Succeed())
			DeferCleanup(func() { deleteNow(object) })
		}
		ida, tom := as("ida"), as("tom")
		Eventually(func() error {
			_, err := create(ida, own)
			return err
		}).Should(MatchError(ContainSubstring("user ida may not try their own mount options")))
		_, err := create(ida, func(s *v1alpha1.StorageClientTrialSpec) { s.Profile, s.ReadAheadKiB = "", 1024 })
		expectRejected(err, "spec.readAheadKiB: user ida may not try their own read-ahead")
		var object *v1alpha1.StorageClientTrial
		Eventually(func() (err error) {
			object, err = create(tom, own)
			return err
		}).Should(Succeed())
		untilItEnds(object, "")
		Expect(object.Status.After).To(ConsistOf("nfsvers=4.1", "nocto"))
	})

	DescribeTable("fails, and reports the reason, if",
		func(change func(*v1alpha1.StorageClientTrialSpec), failure, reason, words string) {
			object, err := create(k8s, change)
			Expect(err).NotTo(HaveOccurred())
			untilItEnds(object, failure)
			failed := meta.FindStatusCondition(object.Status.Conditions, v1alpha1.TrialConditionFailed)
			Expect(failed.Status).To(Equal(metav1.ConditionTrue))
			Expect(failed.Reason).To(Equal(reason))
			Expect(failed.Message).To(ContainSubstring(words))
			Expect(object.Status.Verdict).To(BeEmpty())
		},
		Entry("the options cannot be mounted", func(*v1alpha1.StorageClientTrialSpec) {}, "After, round 1: mount(2): invalid argument: nfs: bad", v1alpha1.TrialReasonNotMounted, "nfs: bad"),
		Entry("an option is unknown", func(s *v1alpha1.StorageClientTrialSpec) {
			s.Profile, s.MountOptions = "", []v1alpha1.MountOption{"turbo"}
		}, "", v1alpha1.TrialReasonNotPossible, "turbo"),
		Entry("an option is rejected", func(s *v1alpha1.StorageClientTrialSpec) {
			s.Profile, s.MountOptions = "", []v1alpha1.MountOption{"suid"}
		},
			"", v1alpha1.TrialReasonNotPossible, "suid"),
		Entry("the volume already has the options", func(s *v1alpha1.StorageClientTrialSpec) {
			s.Profile, s.MountOptions = "", []v1alpha1.MountOption{"nfsvers=4.1"}
		},
			"", v1alpha1.TrialReasonNotPossible, "already"),
		Entry("it observes a volume that is not mounted", func(s *v1alpha1.StorageClientTrialSpec) { s.Profile, s.Workload.Name = "", v1alpha1.WorkloadObserve },
			"", v1alpha1.TrialReasonNotPossible, "start a pod that uses the volume"),
	)

	It("keeps the stronger options of the volume", func() {
		object, err := create(k8s, func(s *v1alpha1.StorageClientTrialSpec) {
			s.Profile, s.MountOptions = "", []v1alpha1.MountOption{"nocto", "rw"}
		})
		Expect(err).NotTo(HaveOccurred())
		pv := &corev1.PersistentVolume{}
		Expect(k8s.Get(ctx, client.ObjectKey{Name: "pv"}, pv)).To(Succeed())
		pv.Spec.MountOptions = []string{"nfsvers=4.1", "ro"}
		Expect(k8s.Update(ctx, pv)).To(Succeed())
		untilItEnds(object, "")
		Expect(object.Status.After).To(And(ContainElement("ro"), Not(ContainElement("rw"))), fmt.Sprint(object.Status.Conditions))
	})
})
