//go:build e2e

package e2e

import (
	"context"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/e2e/cluster"
)

const (
	// probed labels the spec, and is the name of its profile.
	probed = "probe"
	// probedWithin is the maximum duration of a probe: the trial runners of two nodes start and mount, one after the other.
	probedWithin = 8 * time.Minute
)

var (
	contentOptions = []string{"vers=4.1", "hard", "timeo=600"}
	probedOptions  = []string{"actimeo=30", "nconnect=4"}
)

// expectProbed declares options that the nodes' kernel rejects, and then options that it accepts. The first never reach a volume, the
// second reach all. During the probe, the nodes' mounts do not change, and no pod restarts.
func expectProbed(ctx SpecContext) {
	installOperator(ctx)
	_, err := nodes.Server.Run(ctx, "echo empty >"+cluster.ServerExport+"/greeting")
	Expect(err).NotTo(HaveOccurred())
	startApp(ctx)
	createUnlessThere(ctx, "testdata/fresh.yaml")
	waitUntilRunning(ctx, freshName)
	pods := appPods(ctx)
	before := map[string]string{}
	for _, member := range nodes.Nodes {
		before[member.Name] = factsOf(ctx, member)["mounts"]
	}

	mustKubectl(ctx, "create", "-f", "testdata/probe.yaml")
	eventually(ctx, probedWithin, "a probe stalls the profile, with the kernel's error", func(g Gomega) {
		stalled := conditionOf(g, getProfile(ctx, g, probed), v1alpha1.ConditionStalled)
		g.Expect(stalled.Status).To(Equal(metav1.ConditionTrue), stalled.Message)
		g.Expect(stalled.Message).To(And(ContainSubstring("a probe on node"), ContainSubstring("alignwrite"), ContainSubstring("Unknown parameter")))
	})
	By(conditionOf(Default, getProfile(ctx, Default, probed), v1alpha1.ConditionStalled).Message)
	untouched := func(g Gomega) {
		for name, options := range map[string][]string{appName: contentOptions, freshName: freshOptions} {
			volume := getVolume(ctx, g, name)
			g.Expect(volume.Spec.MountOptions).To(Equal(options), "of PersistentVolume %s", name)
			g.Expect(operatorAnnotations(volume.Annotations)).To(BeEmpty(), "of PersistentVolume %s", name)
		}
	}
	Consistently(untouched).WithContext(ctx).WithTimeout(time.Minute).WithPolling(5 * time.Second).Should(Succeed())
	expectNoTrial(ctx)

	mustKubectl(ctx, "patch", "storageclientprofile", probed, "--type=json",
		`-p=[{"op": "replace", "path": "/spec/volumes/0/mountOptions", "value": ["actimeo=30", "nconnect=4"]}]`)
	var tried *v1alpha1.NodeTrialStatus
	eventually(ctx, probedWithin, "both volumes have the mount options that work", func(g Gomega) {
		for _, member := range nodes.Nodes {
			if trial := getSCN(ctx, g, member.Name).Status.Trial; trial != nil && trial.Succeeded {
				tried = trial
			}
		}
		for name, options := range map[string][]string{appName: contentOptions, freshName: freshOptions} {
			volume := getVolume(ctx, g, name)
			g.Expect(volume.Spec.MountOptions).To(Equal(slices.Concat(options, probedOptions)), "of PersistentVolume %s", name)
		}
	})
	if tried != nil {
		Expect(tried.Transports).To(Equal(int32(4)))
		Expect(tried.Proofs).To(HaveEach(HaveField("Holds", BeTrue())))
	}
	expectNoTrial(ctx)

	By("no pod has restarted, and no mount of the nodes has changed")
	Expect(appPods(ctx)).To(Equal(pods))
	for _, member := range nodes.Nodes {
		f := factsOf(ctx, member)
		Expect(f.mountLines(appName)).To(Equal(facts{"mounts": before[member.Name]}.mountLines(appName)), member.Name)
		Expect(f.transports(appName)).To(Equal([]int{1}), "the probe's connections are its own")
	}

	mustKubectl(ctx, "delete", "storageclientprofile", probed, "--wait=false")
	waitUntilGone(ctx, podStart, probed)
	untouched(Default)
}

// appPods returns the pods of the application, with the restart counts of their containers.
func appPods(ctx context.Context) map[types.UID]int32 {
	GinkgoHelper()
	var pods corev1.PodList
	Expect(api.List(ctx, &pods, client.InNamespace(appSpace))).To(Succeed())
	found := map[types.UID]int32{}
	for _, pod := range pods.Items {
		found[pod.UID] = pod.Status.ContainerStatuses[0].RestartCount
	}
	return found
}

// expectNoTrial waits until no trace of a trial remains: no request, no label, no runner.
func expectNoTrial(ctx context.Context) {
	GinkgoHelper()
	eventually(ctx, podStart, "no object of a trial is left", func(g Gomega) {
		for _, member := range nodes.Nodes {
			g.Expect(getSCN(ctx, g, member.Name).Spec.Trial).To(BeNil(), member.Name)
			g.Expect(getNode(ctx, g, member.Name).Labels).NotTo(HaveKey(v1alpha1.TrialLabel), member.Name)
		}
		var runners corev1.PodList
		g.Expect(api.List(ctx, &runners, client.InNamespace(v1alpha1.AgentNamespace), client.MatchingLabels{"app.kubernetes.io/component": "trial-runner"})).To(Succeed())
		g.Expect(runners.Items).To(BeEmpty())
	})
}
