//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/e2e/cluster"
)

const (
	// upgraded labels the spec, and is the name of its profile.
	upgraded = "upgrade"
	// formerVariable names the environment variable with the tree in which run.sh built the images and the manifest of an earlier commit.
	formerVariable = "SCO_FORMER"
	// formerTag is the tag of its images.
	formerTag = ":former"
	// staysFor is the time after a change of the operator during which no node may be disrupted.
	staysFor = 90 * time.Second
)

// expectUpgraded installs the operator of an earlier commit and upgrades it during a reboot for its profile. It then downgrades, upgrades
// again, and uninstalls. These steps must not reboot a node. The declared settings stay effective, and the hosts are restored in the end.
func expectUpgraded(ctx SpecContext) {
	former := os.Getenv(formerVariable)
	if former == "" {
		Skip("The earlier commit is not in this clone: an upgrade is NOT tried. Fetch the whole history")
	}
	Expect(nodes.Import(ctx, filepath.Join(former, "dist/images/manager.tar"), filepath.Join(former, "dist/images/node-agent.tar"))).To(Succeed())
	startApp(ctx)
	rememberOriginals(ctx)
	formerManifest, manifest := filepath.Join(former, "dist/install.yaml"), "../../dist/e2e.yaml"
	installVersion(ctx, formerManifest, true)
	watched.watchRollouts()
	mustKubectl(ctx, "apply", "-f", "testdata/upgrade.yaml")
	eventually(ctx, rebootAll, "a node is out of service for its reboot", func(g Gomega) {
		g.Expect(slices.ContainsFunc(nodes.Nodes, func(m *cluster.Machine) bool { return stateOf(getNode(ctx, g, m.Name)).disrupted })).To(BeTrue())
	})
	daemonSet := agentDaemonSet(ctx).UID
	hashes := hashesNow(ctx)

	By("the operator is upgraded during a rollout")
	installVersion(ctx, manifest, false)
	waitUntilUpgradedReady(ctx)
	waitForAgents(ctx, false)
	Expect(agentDaemonSet(ctx).UID).To(Equal(daemonSet), "the agents' DaemonSet is the same")
	Expect(hashes).NotTo(BeEmpty())
	for name, previous := range hashes {
		Expect(hashesNow(ctx)).To(HaveKeyWithValue(name, previous), "hashes of a node with an unchanged profile")
	}
	expectBootsSince(original.boots, 1)
	Expect(watched.unavailableTogether()).To(BeEmpty(), "nodes out of service at the same time")
	expectUpgradeInForce(ctx)

	By("the operator is downgraded")
	hashes = hashesNow(ctx)
	Expect(hashes).To(HaveLen(len(nodes.Members())))
	before := bootsNow()
	began := time.Now()
	volume := getVolume(ctx, Default, appName)
	installVersion(ctx, formerManifest, true)
	waitForAgents(ctx, true)
	expectUndisturbed(ctx, began, before, hashes)
	Expect(agentDaemonSet(ctx).UID).To(Equal(daemonSet))
	describeUpgrade(ctx, "downgraded")
	expectUpgradeInForce(ctx)

	By("the operator is upgraded again")
	began = time.Now()
	installVersion(ctx, manifest, false)
	waitForAgents(ctx, false)
	waitUntilUpgradedReady(ctx)
	expectUndisturbed(ctx, began, before, hashes)
	Expect(getVolume(ctx, Default, appName).Spec.MountOptions).To(Equal(volume.Spec.MountOptions))
	describeUpgrade(ctx, "upgraded again")
	expectUpgradeInForce(ctx)

	By("the operator is removed by hack/uninstall.sh")
	uninstall(ctx, manifest)
	expectBootsSince(original.boots, 2)
	Expect(watched.unavailableTogether()).To(BeEmpty(), "nodes out of service at the same time")
	for _, m := range nodes.Members() {
		expectNodeAsBefore(ctx, m.Name)
		expectHostAsBefore(m.Name, factsOf(ctx, m))
	}
	restored := getVolume(ctx, Default, appName)
	Expect(restored.Spec.MountOptions).To(Equal(original.options))
	Expect(operatorAnnotations(restored.Annotations)).To(BeEmpty())
}

const (
	// charted labels the spec.
	charted = "chart"
	// helmVariable names the environment variable with the Helm that run.sh built.
	helmVariable = "SCO_HELM"
	chartFile    = "../../dist/chart/storage-client-operator-0.0.0-dev.tgz"
)

// expectChart installs the operator with Helm as in docs/install.md, and uninstalls it as in docs/upgrade.md.
func expectChart(ctx SpecContext) {
	if os.Getenv(helmVariable) == "" {
		Skip("Helm was not built: the chart is NOT tried. Set SCO_E2E_LABELS")
	}
	startApp(ctx)
	rememberOriginals(ctx)
	helm(ctx, "install", "storage-client-operator", chartFile, "--namespace", "kube-system")
	waitForManagers(ctx, 2)
	watched.watchRollouts()
	mustKubectl(ctx, "apply", "-f", "testdata/upgrade.yaml")
	waitUntilUpgradedReady(ctx)
	expectUpgradeInForce(ctx)
	before := bootsNow()
	began := time.Now()

	By("helm upgrade makes no change")
	hashes := hashesNow(ctx)
	helm(ctx, "upgrade", "storage-client-operator", chartFile, "--namespace", "kube-system")
	waitForManagers(ctx, 2)
	expectUndisturbed(ctx, began, before, hashes)
	expectUpgradeInForce(ctx)

	By("the operator is removed: the profiles first, then the release; the definitions stay")
	mustKubectl(ctx, "delete", "storageclientprofile", upgraded, "--wait=false")
	waitUntilGone(ctx, rebootAll, upgraded)
	eventually(ctx, podStart, "no StorageClientNode is left", func(g Gomega) {
		var left v1alpha1.StorageClientNodeList
		g.Expect(api.List(ctx, &left)).To(Succeed())
		g.Expect(left.Items).To(BeEmpty())
	})
	helm(ctx, "uninstall", "storage-client-operator", "--namespace", "kube-system")
	expectNamespacesGone(ctx)
	mustKubectl(ctx, "get", "crd", "storageclientprofiles.tuning.storageclient.dev")
	for _, m := range nodes.Members() {
		expectNodeAsBefore(ctx, m.Name)
		expectHostAsBefore(m.Name, factsOf(ctx, m))
	}
	volume := getVolume(ctx, Default, appName)
	Expect(volume.Spec.MountOptions).To(Equal(original.options))
	Expect(operatorAnnotations(volume.Annotations)).To(BeEmpty())
}

func helm(ctx context.Context, args ...string) {
	GinkgoHelper()
	cmd := exec.CommandContext(ctx, os.Getenv(helmVariable), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+dirs.Kubeconfig())
	out, err := cmd.CombinedOutput()
	GinkgoWriter.Println(string(out))
	Expect(err).NotTo(HaveOccurred(), "%s", out)
}

// installVersion applies a manifest, and waits only for its managers.
func installVersion(ctx context.Context, manifest string, isFormer bool) {
	GinkgoHelper()
	mustKubectl(ctx, "apply", "--server-side", "--force-conflicts", "-f", manifest)
	waitForManagers(ctx, 2)
	eventually(ctx, podStart, "only managers of "+manifest+" run", func(g Gomega) {
		for _, pod := range podsIn(ctx, g, v1alpha1.ManagerNamespace, "app.kubernetes.io/component=manager") {
			g.Expect(isOf(pod, isFormer)).To(BeTrue(), "%s has %s", pod.Name, pod.Spec.Containers[0].Image)
		}
	})
}

// waitForAgents waits until each node has a Ready agent of a version that reports the running boot.
func waitForAgents(ctx context.Context, isFormer bool) {
	GinkgoHelper()
	eventually(ctx, podStart, "each node has an agent of this version", func(g Gomega) {
		agents := podsIn(ctx, g, v1alpha1.AgentNamespace, "app.kubernetes.io/component=node-agent")
		g.Expect(agents).To(HaveLen(len(nodes.Members())))
		for _, pod := range agents {
			g.Expect(isOf(pod, isFormer)).To(BeTrue(), "%s has %s", pod.Name, pod.Spec.Containers[0].Image)
			g.Expect(isReady(pod)).To(BeTrue(), pod.Name)
		}
	})
}

func podsIn(ctx context.Context, g Gomega, namespace, selector string) []corev1.Pod {
	GinkgoHelper()
	parsed, err := metav1.ParseToLabelSelector(selector)
	g.Expect(err).NotTo(HaveOccurred())
	selected, err := metav1.LabelSelectorAsSelector(parsed)
	g.Expect(err).NotTo(HaveOccurred())
	var pods corev1.PodList
	g.Expect(api.List(ctx, &pods, client.InNamespace(namespace), client.MatchingLabelsSelector{Selector: selected})).To(Succeed())
	g.Expect(pods.Items).NotTo(BeEmpty(), "pods with %s in %s", selector, namespace)
	return pods.Items
}

func isOf(pod corev1.Pod, former bool) bool {
	return strings.HasSuffix(pod.Spec.Containers[0].Image, formerTag) == former
}

func agentDaemonSet(ctx context.Context) *appsv1.DaemonSet {
	GinkgoHelper()
	daemonSet := &appsv1.DaemonSet{}
	Expect(api.Get(ctx, client.ObjectKey{Namespace: v1alpha1.AgentNamespace, Name: v1alpha1.AgentDaemonSet}, daemonSet)).To(Succeed())
	return daemonSet
}

// nodeHashes are the hashes of a node's desired settings.
type nodeHashes struct{ settings, boot string }

// hashesNow returns the hashes of the nodes that the rollout has reached.
func hashesNow(ctx context.Context) map[string]nodeHashes {
	GinkgoHelper()
	var list v1alpha1.StorageClientNodeList
	Expect(api.List(ctx, &list)).To(Succeed())
	found := map[string]nodeHashes{}
	for _, clientNode := range list.Items {
		Expect(clientNode.Spec.Hash).NotTo(BeEmpty())
		found[clientNode.Name] = nodeHashes{settings: clientNode.Spec.Hash, boot: clientNode.Spec.BootHash}
	}
	return found
}

// expectUndisturbed checks that no node has been out of service since a given time, and that all stay in service for a while.
func expectUndisturbed(ctx context.Context, since time.Time, before map[string]boots, hashes map[string]nodeHashes) {
	GinkgoHelper()
	Consistently(func(g Gomega) {
		for _, m := range nodes.Members() {
			g.Expect(watched.outOfService(m.Name, since)).To(BeEmpty(), m.Name)
		}
		g.Expect(hashesNow(ctx)).To(Equal(hashes))
	}).WithContext(ctx).WithTimeout(staysFor).WithPolling(5 * time.Second).Should(Succeed())
	expectBootsSince(before, 0)
}

func waitUntilUpgradedReady(ctx context.Context) {
	GinkgoHelper()
	eventually(ctx, rebootAll, "the profile is Ready", func(g Gomega) {
		profile := getProfile(ctx, g, upgraded)
		ready := conditionOf(g, profile, v1alpha1.ConditionReady)
		g.Expect(ready.Status).To(Equal(metav1.ConditionTrue), "%s: %s", ready.Reason, ready.Message)
		g.Expect(profile.Status.Nodes.UpToDate).To(BeEquivalentTo(len(nodes.Members())))
	})
}

// expectUpgradeInForce reads the values from the nodes and the volume.
func expectUpgradeInForce(ctx context.Context) {
	GinkgoHelper()
	for _, m := range nodes.Nodes {
		f := factsOf(ctx, m)
		Expect(f.arguments()).To(ContainElement("ihash_entries=16777216"), "on %s", m.Name)
		Expect(sysctls(f["sysctls"])).To(Equal(tunedSysctls), "on %s", m.Name)
		Expect(sysctls(f["slots"])).To(Equal(map[string]string{"sunrpc.tcp_slot_table_entries": "16", "sunrpc.tcp_max_slot_table_entries": "128"}), "on %s", m.Name)
	}
	Expect(getVolume(ctx, Default, appName).Spec.MountOptions).To(Equal(slices.Concat(original.options, profileOptions)))
}

// describeUpgrade prints the operator's status of the profile and its nodes.
func describeUpgrade(ctx context.Context, when string) {
	GinkgoHelper()
	var lines []string
	for _, c := range getProfile(ctx, Default, upgraded).Status.Conditions {
		lines = append(lines, fmt.Sprintf("%s %s %s: %s", c.Type, c.Status, c.Reason, c.Message))
	}
	for _, m := range nodes.Members() {
		status := getSCN(ctx, Default, m.Name).Status
		lines = append(lines, fmt.Sprintf("%s: %+v", m.Name, status.Rollout))
		for _, setting := range status.Settings {
			lines = append(lines, fmt.Sprintf("  %s = %s: %s %s", setting.Key, setting.Observed, setting.State, setting.Message))
		}
	}
	By(when + ":\n  " + strings.Join(lines, "\n  "))
}

// uninstall runs hack/uninstall.sh.
func uninstall(ctx context.Context, manifest string) {
	GinkgoHelper()
	cmd := exec.CommandContext(ctx, "../../hack/uninstall.sh", manifest)
	cmd.Env = append(os.Environ(), "KUBECTL="+dirs.Kubectl()+" --kubeconfig="+dirs.Kubeconfig())
	out, err := cmd.CombinedOutput()
	GinkgoWriter.Println(string(out))
	Expect(err).NotTo(HaveOccurred(), "%s", out)
	operatorInstalled = false
	var left v1alpha1.StorageClientNodeList
	Expect(api.List(ctx, &left)).NotTo(Succeed(), "the definitions must be deleted")
	expectNamespacesGone(ctx)
}

func expectNamespacesGone(ctx context.Context) {
	GinkgoHelper()
	for _, name := range []string{v1alpha1.ManagerNamespace, v1alpha1.AgentNamespace} {
		eventually(ctx, podStart, "namespace "+name+" is gone", func(g Gomega) {
			g.Expect(client.IgnoreNotFound(api.Get(ctx, types.NamespacedName{Name: name}, &corev1.Namespace{}))).To(Succeed())
			g.Expect(api.Get(ctx, types.NamespacedName{Name: name}, &corev1.Namespace{})).NotTo(Succeed())
		})
	}
}
