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
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/e2e/cluster"
)

const (
	profileName = "azure-files-large-directories"
	appName     = "content" // of the namespace's Deployment, claim and PodDisruptionBudget, and of the volume
	appSpace    = "app"
	greeting    = "written before the first reboot"

	// tunedHash is the line that the document from Microsoft refers to.
	tunedHash = "Inode-cache hash table entries: 16777216 (order: 15, 134217728 bytes, linear)"

	// podStart is the maximum time for pods to start. Half a minute is normal, several minutes under emulation on a busy machine.
	podStart = 10 * time.Minute
	// rebootAll is the maximum time for the drain, reboot and return of both nodes: four minutes under emulation.
	rebootAll = 15 * time.Minute
)

// The settings that the profile of the test declares in addition to the kernel argument.
var (
	tunedSysctls = map[string]string{
		"net.core.rmem_max": "16777216", "net.ipv4.tcp_rmem": "4096 1048576 16777216", "vm.dirty_background_ratio": "5",
	}
	tunedSlots = map[string]string{"sunrpc.tcp_slot_table_entries": "16", "sunrpc.tcp_max_slot_table_entries": "65536"}
)

// original contains the state of the nodes and the volume before the profile, by the node's name.
var original struct {
	facts   map[string]facts
	nodes   map[string]*corev1.Node
	boots   map[string]boots
	options []string
}

const oneByOne = "drains and reboots one node, then the other, and returns them to service; a package manager at work is waited for"

var _ = Describe("A profile for large directories", Ordered, func() {
	It("survives an upgrade of the operator during a reboot, a downgrade and another upgrade, and is removed with the operator", Label(upgraded), expectUpgraded)

	It("is applied by an operator that Helm installed, which leaves only the definitions", Label(charted), expectChart)

	It("is preceded by the operator with its components, from dist/e2e.yaml", func(ctx SpecContext) {
		installOperator(ctx)
	})

	It("is preceded by an application with a volume for each group of rows of the documents", prepareDocuments)

	It("is preceded by an application with its data on an NFS volume", func(ctx SpecContext) {
		startApp(ctx)
		mustKubectl(ctx, "exec", "-n", appSpace, "deployment/"+appName, "--", "/workload", "write", "/data/greeting", greeting)
		rememberOriginals(ctx)
	})

	It("is preceded by one with all that the documents recommend, which waits for an approval of its reboot", expectDocumentsApplied)

	It(oneByOne, func(ctx SpecContext) {
		holdPackageLock(ctx, nodes.Nodes[0])
		mustKubectl(ctx, "apply", "-k", "testdata/profile")
		approveDocuments(ctx)
		expectHostBusy(ctx, nodes.Nodes[0])
		eventually(ctx, rebootAll, "both nodes have been rebooted and the profile is Ready", func(g Gomega) {
			profile := getProfile(ctx, g, profileName)
			if stalled := meta.FindStatusCondition(profile.Status.Conditions, v1alpha1.ConditionStalled); stalled != nil && stalled.Status == metav1.ConditionTrue {
				StopTrying("the profile is stalled: " + stalled.Message).Now()
			}
			ready := conditionOf(g, profile, v1alpha1.ConditionReady)
			g.Expect(ready.Status).To(Equal(metav1.ConditionTrue), "%s: %s", ready.Reason, ready.Message)
			g.Expect(profile.Status.Nodes.UpToDate).To(BeEquivalentTo(len(nodes.Members())))
		})
		expectReboots(1)
		expectInService(ctx)
		Expect(watched.rollouts()).To(ContainElement(ContainSubstring("PodDisruptionBudget "+appSpace+"/"+appName)),
			"the PodDisruptionBudget that delayed a drain is named in a rollout's status")
		for _, m := range nodes.Members() {
			node := getNode(ctx, Default, m.Name)
			Expect(conditionStatus(node, v1alpha1.TunedNodeCondition)).To(Equal(corev1.ConditionTrue))
			Expect(node.Labels).To(HaveKeyWithValue(v1alpha1.ManagedLabel, v1alpha1.True))
		}
	})

	It("took effect in each node's kernel", func(ctx SpecContext) {
		all := allFacts(ctx)
		for _, m := range nodes.Nodes {
			f := all[m.Name]
			By(m.Name + ": " + f["cmdline"])
			Expect(slices.DeleteFunc(f.arguments(), func(word string) bool { return !strings.HasPrefix(word, "ihash_entries") })).
				To(Equal([]string{"ihash_entries=16777216"}), "on %s", m.Name)
			Expect(f["inodeHash"]).To(Equal(tunedHash), "on %s", m.Name)
			expectTunedValues(m, f)
			normal, recovery := f.menuEntries()
			Expect(normal).To(HaveEach(ContainSubstring(" ihash_entries=16777216")), "on %s", m.Name)
			Expect(recovery).To(HaveEach(Not(ContainSubstring("ihash_entries"))), "on %s", m.Name)
			Expect(f["trial"]).To(BeEmpty(), "trial entry on %s after the node is back", m.Name)
		}
	})

	It("took effect in each node's mount of the volume", func(ctx SpecContext) {
		volume := getVolume(ctx, Default, appName)
		Expect(volume.Spec.MountOptions).To(Equal(slices.Concat(original.options, profileOptions)))
		spreadReplicas(ctx)
		all := allFacts(ctx)
		for _, m := range nodes.Nodes {
			f := all[m.Name]
			Expect(f.mountLines(appName)).To(HaveEach(And(ContainSubstring(",nconnect=4,"), ContainSubstring("vers=4.1,"))), "on %s", m.Name)
			mounts := f.volumeMounts(appName)
			Expect(mounts).NotTo(BeEmpty(), "on %s: %s", m.Name, f["mounts"])
			for _, mount := range mounts {
				Expect(mount.options).To(ContainElements("acregmin=30", "acregmax=30", "acdirmin=30", "acdirmax=30",
					"nconnect=4", "vers=4.1", "hard", "timeo=600"), "on %s", m.Name)
				Expect(mount.transports).To(Equal(4), "transports on %s", m.Name)
			}
		}
		eventually(ctx, 2*time.Minute, "each StorageClientNode reports the mount with four connections", func(g Gomega) {
			for _, m := range nodes.Nodes {
				g.Expect(getSCN(ctx, g, m.Name).Status.Mounts).To(ContainElement(And(HaveField("Volume", appName), HaveField("Connections", int32(4)))))
			}
		})
		Expect(mustKubectl(ctx, "exec", "-n", appSpace, "deployment/"+appName, "--", "/workload", "cat", "/data/greeting")).To(Equal(greeting))
	})

	It("gives a new volume its options before its first mount", expectFirstMountTuned)

	It("leaves a new volume to the controller while the webhook is down", expectCaughtUp)

	It("rejects bad input", expectRefused)

	It("stalls on bad input that bypassed the webhook, and makes no change", expectInvalid)

	It("stays effective if another profile of equal priority disagrees", expectConflict)

	It("has kept every row of the documents across the reboot", expectDocumentsPersisted)

	It("restores the documents' values after drift caused by hand", expectDocumentsHealed)

	It("needs no limit of slots with all 16 connections of document C's example", expectSixteen)

	It("is deleted with the documents' profile, and each node is rebooted once to remove the kernel arguments", func(ctx SpecContext) {
		mustKubectl(ctx, "delete", "storageclientprofile", profileName, documents, "--wait=false")
		waitUntilGone(ctx, rebootAll, profileName)
		waitUntilGone(ctx, rebootAll, documents)
		expectReboots(2)
		expectInService(ctx)
	})

	It("leaves no row of the documents behind", expectDocumentsUndone)

	It("leaves nothing behind", func(ctx SpecContext) {
		eventually(ctx, 2*time.Minute, "no StorageClientNode and no agent is left", func(g Gomega) {
			var scns v1alpha1.StorageClientNodeList
			g.Expect(api.List(ctx, &scns)).To(Succeed())
			g.Expect(scns.Items).To(BeEmpty())
			var agents appsv1.DaemonSet
			g.Expect(api.Get(ctx, client.ObjectKey{Namespace: v1alpha1.AgentNamespace, Name: v1alpha1.AgentDaemonSet}, &agents)).To(Succeed())
			g.Expect(agents.Status.DesiredNumberScheduled).To(BeZero(), "nodes of the agent's DaemonSet")
			var pods corev1.PodList
			g.Expect(api.List(ctx, &pods, client.InNamespace(v1alpha1.AgentNamespace))).To(Succeed())
			g.Expect(pods.Items).To(BeEmpty())
		})
		for name, options := range map[string][]string{appName: original.options, freshName: freshOptions, lateName: lateOptions} {
			volume := getVolume(ctx, Default, name)
			Expect(volume.Spec.MountOptions).To(Equal(options), "of PersistentVolume %s", name)
			Expect(operatorAnnotations(volume.Annotations)).To(BeEmpty(), "of PersistentVolume %s", name)
		}
		all := allFacts(ctx)
		for _, m := range nodes.Members() {
			expectNodeAsBefore(ctx, m.Name)
			expectHostAsBefore(m.Name, all[m.Name])
		}
		Expect(mustKubectl(ctx, "exec", "-n", appSpace, "deployment/"+appName, "--", "/workload", "cat", "/data/greeting")).To(Equal(greeting))
		cleanUpDocuments(ctx, rows.node)
		rememberHosts(ctx)
	})

	It("skips a node whose memory is too small for the hash, and reports the largest value that fits", Label(clamped), expectClamped)

	It("is followed by every known mount option, compared with the option that the kernel shows", Label(mountOptions), expectMountOptions)

	It("is followed by one whose sysctl another file of the node overrides at each boot: an exception, and no failed reboot", Label(shadowed), expectShadowed)

	It("is followed by one whose options are probed: options that the kernel rejects reach no volume, accepted options reach all", Label(probed), expectProbed)

	It("is followed by trials of a volume that pods use: they find a known effect, and report no difference without an effect", Label(tried), expectTrials)

	It("reports the setting that helps against each planted bottleneck, or that none helps, and makes no report about a healthy mount", Label(sampled), expectSamples)

	It("is preceded by measurements of the effects that the source documents claim", Label(effects), expectEffects)

	It("is preceded by known problems of the nodes' kernel, each with its cause and with its cure", Label(known), expectKnownBad)

	It("is followed by one for volumes of the CSI drivers of NFS and SMB", Label(csiDrivers), expectDrivers)

	It("is followed by one without a probe: it waits for a mount by a pod, and reverts only options that caused a failed mount", Label(evident), expectEvidence)

	It("is followed by one whose first node a PodDisruptionBudget blocks: the node is skipped, and no pod is evicted in vain", Label(inVain), expectPassedOver)

	It("is followed by one whose first node is the only one for pods, then for the manager, and then is kept by a budget that its owner lifts "+
		"after the cordon: one eviction, and none of a pod that would start again there; the node's clock is five minutes slow", Label(owned), expectOwnersAsked)

	It("is followed by one whose live value breaks new connections: the node reverts it", Label(confirmed), expectConfirmed)

	It("is followed by one whose kernel argument prevents a node from booting: the rollout stops", Label(failingBoot), expectStopped)

	It("boots that node with its old boot entry after a power cut, and returns it to service when the profile is gone", Label(failingBoot), expectRecovered)

	It("is followed by one whose node is deleted while it panics, and registers again: the failure stays recorded, and no other node is rebooted", Label(reRegistered), expectRemembered)
})

// failingBoot labels the specs that end with a node that panics. run.sh skips them by default.
const failingBoot = "failing-boot"

// installOperator installs the operator, unless an earlier spec has done so.
func installOperator(ctx context.Context) {
	GinkgoHelper()
	if operatorInstalled {
		return
	}
	mustKubectl(ctx, "apply", "--server-side", "--force-conflicts", "-f", "../../dist/e2e.yaml")
	waitForManagers(ctx, 2)
	eventually(ctx, podStart, "the API server knows the guardrails", func(g Gomega) {
		_, err := kubectl(ctx, "create", "--dry-run=server", "-f", "testdata/upgrade.yaml")
		g.Expect(err).NotTo(HaveOccurred())
	})
	watched.watchRollouts()
	operatorInstalled = true
}

var operatorInstalled bool

func waitForManagers(ctx context.Context, count int32) {
	GinkgoHelper()
	eventually(ctx, podStart, fmt.Sprintf("%d managers are ready", count), func(g Gomega) {
		var managers appsv1.Deployment
		key := client.ObjectKey{Namespace: v1alpha1.ManagerNamespace, Name: v1alpha1.ManagerDeployment}
		g.Expect(api.Get(ctx, key, &managers)).To(Succeed())
		g.Expect(managers.Status.ObservedGeneration).To(Equal(managers.Generation))
		g.Expect(managers.Status.Replicas).To(Equal(count))
		g.Expect(managers.Status.ReadyReplicas).To(Equal(count))
	})
}

func startApp(ctx context.Context) {
	GinkgoHelper()
	createApp(ctx)
	spreadReplicas(ctx)
}

// createApp creates the application unless an earlier spec has done so. It does not use apply, because the operator does not change mount
// options of another field manager.
func createApp(ctx context.Context) {
	GinkgoHelper()
	run(ctx, nodes.Server, "test -e "+cluster.ServerExport+"/greeting || echo empty >"+cluster.ServerExport+"/greeting")
	createUnlessThere(ctx, "testdata/app.yaml")
}

func createUnlessThere(ctx context.Context, file string) {
	GinkgoHelper()
	if _, err := kubectl(ctx, "get", "-f", file); err != nil {
		mustKubectl(ctx, "create", "-f", file)
	}
}

// waitForReplicas waits until both replicas of the application are ready, one on each node.
func waitForReplicas(ctx context.Context) {
	GinkgoHelper()
	eventually(ctx, podStart, "both replicas of the application are ready, one on each node", func(g Gomega) {
		on := map[string]int{}
		for _, pod := range replicas(ctx, g) {
			if isReady(pod) {
				on[pod.Spec.NodeName]++
			}
		}
		g.Expect(on).To(Equal(map[string]int{nodes.Nodes[0].Name: 1, nodes.Nodes[1].Name: 1}))
	})
}

// spreadReplicas moves a replica to the node that was drained last. No controller does that.
func spreadReplicas(ctx context.Context) {
	GinkgoHelper()
	on := map[string][]corev1.Pod{}
	for _, pod := range replicas(ctx, Default) {
		on[pod.Spec.NodeName] = append(on[pod.Spec.NodeName], pod)
	}
	delete(on, "") // not scheduled yet
	for _, pods := range on {
		for _, extra := range pods[1:] {
			Expect(api.Delete(ctx, &extra)).To(Succeed())
		}
	}
	waitForReplicas(ctx)
}

func replicas(ctx context.Context, g Gomega) []corev1.Pod {
	GinkgoHelper()
	var pods corev1.PodList
	g.Expect(api.List(ctx, &pods, client.InNamespace(appSpace), client.MatchingLabels{"app": appName})).To(Succeed())
	return pods.Items
}

func isReady(pod corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

func rememberOriginals(ctx context.Context) {
	GinkgoHelper()
	rememberHosts(ctx)
	original.options = getVolume(ctx, Default, appName).Spec.MountOptions
	Expect(original.options).To(Equal([]string{"vers=4.1", "hard", "timeo=600"}))
}

func rememberHosts(ctx context.Context) {
	GinkgoHelper()
	original.facts, original.nodes, original.boots = allFacts(ctx), map[string]*corev1.Node{}, bootsNow()
	for _, m := range nodes.Members() {
		original.nodes[m.Name] = getNode(ctx, Default, m.Name)
	}
}

// boots contains how often a node has booted, by its boot IDs and by GRUB's output on the console.
type boots struct{ ids, starts int }

func bootsNow() map[string]boots {
	GinkgoHelper()
	found := map[string]boots{}
	for _, m := range nodes.Members() {
		starts, err := m.GRUBStarts()
		Expect(err).NotTo(HaveOccurred())
		found[m.Name] = boots{ids: len(watched.boots(m.Name)), starts: starts}
	}
	return found
}

// expectBootsSince checks that both nodes with enough memory for the hash have booted count times since then.
func expectBootsSince(before map[string]boots, count int) {
	GinkgoHelper()
	now := bootsNow()
	for _, m := range nodes.Nodes {
		Expect(now[m.Name]).To(Equal(boots{ids: before[m.Name].ids + count, starts: before[m.Name].starts + count}), "boots of %s", m.Name)
	}
}

// expectReboots checks that both nodes with enough memory for the hash have been rebooted count times since the saved counts. They must
// never be out of service at the same time. The operator must not reboot the third node, if there is one, because a reboot would have no
// effect.
func expectReboots(count int) {
	GinkgoHelper()
	expectBootsSince(original.boots, count)
	Expect(watched.unavailableTogether()).To(BeEmpty(), "nodes out of service at the same time")
	if small := nodes.Small; small != nil {
		Expect(bootsNow()[small.Name]).To(Equal(original.boots[small.Name]), "boots of %s", small.Name)
		Expect(watched.outOfService(small.Name, time.Time{})).To(BeEmpty(), "%s is left in service", small.Name)
	}
}

// expectTunedValues checks sysctls and slot tables. The first node has the values of the documents, because their profile has the higher
// priority.
func expectTunedValues(m *cluster.Machine, f facts) {
	GinkgoHelper()
	wantSysctls, wantSlots := tunedSysctls, tunedSlots
	if m == nodes.Nodes[0] {
		wantSysctls, wantSlots = maps.Clone(wantSysctls), maps.Clone(wantSlots)
		wantSysctls["net.ipv4.tcp_rmem"] = "1048576 8388608 16777216"
		wantSlots["sunrpc.tcp_max_slot_table_entries"] = "512"
	}
	Expect(sysctls(f["sysctls"])).To(Equal(wantSysctls), "on %s", m.Name)
	Expect(sysctls(f["slots"])).To(Equal(wantSlots), "on %s", m.Name)
}

// expectInService waits until both nodes accept pods again, and no trace of a disruption remains on them.
func expectInService(ctx context.Context) {
	GinkgoHelper()
	eventually(ctx, time.Minute, "all nodes are in service", func(g Gomega) {
		for _, m := range nodes.Members() {
			node := getNode(ctx, g, m.Name)
			g.Expect(stateOf(node).available()).To(BeTrue(), "%s: %s", m.Name, stateOf(node))
			g.Expect(node.Annotations).NotTo(HaveKey(v1alpha1.DisruptionAnnotation), "on %s", m.Name)
		}
	})
}

// expectNodeAsBefore checks that no changes of the operator remain on a Node, and that its original content is there.
func expectNodeAsBefore(ctx context.Context, name string) {
	GinkgoHelper()
	node, before := getNode(ctx, Default, name), original.nodes[name]
	Expect(node.Labels).To(Equal(before.Labels), "labels of %s", name)
	Expect(operatorAnnotations(node.Annotations)).To(BeEmpty(), "annotations of %s", name)
	Expect(node.Spec.Taints).To(Equal(before.Spec.Taints), "taints of %s", name)
	Expect(conditionTypes(node)).To(ConsistOf(conditionTypes(before)), "conditions of %s", name)
}

// expectHostAsBefore checks values, files and boot menu of a node with data from the node.
func expectHostAsBefore(name string, now facts) {
	GinkgoHelper()
	for _, section := range []string{"sysctls", "slots", "etc", "grub", "menu", "cmdline", "inodeHash"} {
		Expect(now[section]).To(Equal(original.facts[name][section]), "%s of %s", section, name)
	}
	Expect(now["ours"]).To(BeEmpty(), "files of the operator on %s", name)
}

func getProfile(ctx context.Context, g Gomega, name string) *v1alpha1.StorageClientProfile {
	GinkgoHelper()
	var profile v1alpha1.StorageClientProfile
	g.Expect(api.Get(ctx, client.ObjectKey{Name: name}, &profile)).To(Succeed())
	return &profile
}

// conditionOf returns a condition of a profile for the current generation.
func conditionOf(g Gomega, profile *v1alpha1.StorageClientProfile, kind string) metav1.Condition {
	GinkgoHelper()
	condition := meta.FindStatusCondition(profile.Status.Conditions, kind)
	g.Expect(condition).NotTo(BeNil(), kind)
	g.Expect(condition.ObservedGeneration).To(Equal(profile.Generation), kind)
	return *condition
}

// waitUntilGone waits until the operator has restored nodes and volumes of a deleted profile.
func waitUntilGone(ctx context.Context, within time.Duration, name string) {
	GinkgoHelper()
	eventually(ctx, within, "profile "+name+" is gone", func(g Gomega) {
		var profile v1alpha1.StorageClientProfile
		err := api.Get(ctx, client.ObjectKey{Name: name}, &profile)
		g.Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v, conditions %+v", err, profile.Status.Conditions)
	})
}

func getSCN(ctx context.Context, g Gomega, name string) *v1alpha1.StorageClientNode {
	GinkgoHelper()
	var scn v1alpha1.StorageClientNode
	g.Expect(api.Get(ctx, client.ObjectKey{Name: name}, &scn)).To(Succeed())
	return &scn
}

func getNode(ctx context.Context, g Gomega, name string) *corev1.Node {
	GinkgoHelper()
	var node corev1.Node
	g.Expect(api.Get(ctx, client.ObjectKey{Name: name}, &node)).To(Succeed())
	return &node
}

func getVolume(ctx context.Context, g Gomega, name string) *corev1.PersistentVolume {
	GinkgoHelper()
	var volume corev1.PersistentVolume
	g.Expect(api.Get(ctx, client.ObjectKey{Name: name}, &volume)).To(Succeed())
	return &volume
}

func conditionStatus(node *corev1.Node, kind corev1.NodeConditionType) corev1.ConditionStatus {
	for _, c := range node.Status.Conditions {
		if c.Type == kind {
			return c.Status
		}
	}
	return ""
}

func conditionTypes(node *corev1.Node) []string {
	var types []string
	for _, c := range node.Status.Conditions {
		types = append(types, string(c.Type))
	}
	return types
}

// operatorAnnotations returns the annotations that the operator sets.
func operatorAnnotations(annotations map[string]string) []string {
	var found []string
	for key := range annotations {
		if strings.Contains(key, v1alpha1.GroupVersion.Group) {
			found = append(found, key)
		}
	}
	return found
}

// sysctls parses the output of sysctl, and joins runs of blanks within a value.
func sysctls(text string) map[string]string {
	values := map[string]string{}
	for _, line := range strings.Split(text, "\n") {
		if key, value, ok := strings.Cut(line, " = "); ok {
			values[key] = strings.Join(strings.Fields(value), " ")
		}
	}
	return values
}
