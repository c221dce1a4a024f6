//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/e2e/cluster"
)

// Volumes that are created while the profile is effective. Each has a claim and a pod of the same name.
const (
	freshName = "fresh"
	lateName  = "late"
)

var (
	freshOptions = []string{"vers=4.1", "hard"}
	lateOptions  = []string{"vers=4.0", "hard"}
	// profileOptions contains the options that the profile declares for every volume of the server.
	profileOptions = []string{"actimeo=30", "nconnect=4"}
)

// expectFirstMountTuned creates a volume together with its pod while the webhook is up. Mounts of another volume have proven the options.
func expectFirstMountTuned(ctx SpecContext) {
	mustKubectl(ctx, "create", "-f", "testdata/fresh.yaml")
	expectOptions(ctx, Default, freshName, slices.Concat(freshOptions, profileOptions))
	By("the manager has not written the volume: the webhook added its options at the creation")
	Expect(getVolume(ctx, Default, freshName).ManagedFields).NotTo(ContainElement(HaveField("Manager", v1alpha1.VolumesFieldManager)))
	waitUntilRunning(ctx, freshName)
	expectTunedMount(ctx, nodes.Nodes[1], freshName, "vers=4.1")
	mustKubectl(ctx, "delete", "pod", "-n", appSpace, freshName)
}

// expectCaughtUp creates a volume together with its pod while no manager runs.
func expectCaughtUp(ctx SpecContext) {
	scaleManagers(ctx, 0)
	By("without the webhook, a profile is denied, and a volume is admitted")
	_, err := kubectl(ctx, "create", "-f", "testdata/failing-boot.yaml")
	Expect(err).To(MatchError(ContainSubstring("failed calling webhook")))
	mustKubectl(ctx, "create", "-f", "testdata/late.yaml")
	volume := getVolume(ctx, Default, lateName)
	Expect(volume.Spec.MountOptions).To(Equal(lateOptions))
	Expect(operatorAnnotations(volume.Annotations)).To(BeEmpty())
	waitUntilRunning(ctx, lateName)
	expectPlainMount(ctx)

	By("the managers return, with permission for the kernel argument of the last profile")
	admitFailingArgument(ctx)
	scaleManagers(ctx, 2)
	eventually(ctx, 3*time.Minute, "the volume has its options, and the running pod's mount is reported as stale", func(g Gomega) {
		expectOptions(ctx, g, lateName, slices.Concat(lateOptions, profileOptions))
		effective := conditionOf(g, getProfile(ctx, g, profileName), v1alpha1.ConditionMountsEffective)
		g.Expect(effective.Status).To(Equal(metav1.ConditionFalse), effective.Message)
		g.Expect(effective.Reason).To(Equal(v1alpha1.ReasonStaleMounts))
		g.Expect(effective.Message).To(ContainSubstring(nodes.Nodes[0].Name))
	})
	expectPlainMount(ctx)

	By("the pod starts again")
	mustKubectl(ctx, "delete", "pod", "-n", appSpace, lateName)
	mustKubectl(ctx, "create", "-f", "testdata/late.yaml", "--selector=app="+lateName)
	waitUntilRunning(ctx, lateName)
	expectTunedMount(ctx, nodes.Nodes[0], lateName, "vers=4.0")
	eventually(ctx, 2*time.Minute, "no mount is stale", func(g Gomega) {
		effective := conditionOf(g, getProfile(ctx, g, profileName), v1alpha1.ConditionMountsEffective)
		g.Expect(effective.Status).To(Equal(metav1.ConditionTrue), effective.Message)
	})
	// A pod without a controller would block every drain.
	mustKubectl(ctx, "delete", "pod", "-n", appSpace, lateName)
}

func expectOptions(ctx context.Context, g Gomega, name string, options []string) {
	GinkgoHelper()
	volume := getVolume(ctx, g, name)
	g.Expect(volume.Spec.MountOptions).To(Equal(options), "of PersistentVolume %s", name)
	g.Expect(volume.Annotations).To(HaveKeyWithValue(v1alpha1.ProfilesAnnotation, profileName), "of PersistentVolume %s", name)
}

// expectTunedMount checks a pod's mount with data from its node.
func expectTunedMount(ctx context.Context, node *cluster.Machine, name, version string) {
	GinkgoHelper()
	f := factsOf(ctx, node)
	Expect(f.mountLines(name)).To(ConsistOf(And(ContainSubstring(version+","), ContainSubstring(",nconnect=4,"),
		ContainSubstring(",acregmin=30,acregmax=30,acdirmax=30,"))), "in /proc/mounts: %s", f["mounts"])
	Expect(f.transports(name)).To(Equal([]int{4}))
}

// expectPlainMount checks that the mount of the late volume has only its original options.
func expectPlainMount(ctx context.Context) {
	GinkgoHelper()
	f := factsOf(ctx, nodes.Nodes[0])
	Expect(f.mountLines(lateName)).To(ConsistOf(And(ContainSubstring("vers=4.0,"), Not(ContainSubstring("nconnect")),
		Not(ContainSubstring("acregmin")))), "in /proc/mounts: %s", f["mounts"])
	Expect(f.transports(lateName)).To(Equal([]int{1}))
}

func waitUntilRunning(ctx context.Context, pod string) {
	GinkgoHelper()
	eventually(ctx, podStart, "pod "+pod+" runs", func(g Gomega) {
		var found corev1.Pod
		g.Expect(api.Get(ctx, client.ObjectKey{Namespace: appSpace, Name: pod}, &found)).To(Succeed())
		g.Expect(found.Status.Phase).To(Equal(corev1.PodRunning), "%+v", found.Status.Conditions)
	})
}

// scaleManagers scales the managers and waits until count are ready. With 0, it waits until the last one is gone.
func scaleManagers(ctx context.Context, count int32) {
	GinkgoHelper()
	mustKubectl(ctx, "scale", "deployment", "-n", v1alpha1.ManagerNamespace, v1alpha1.ManagerDeployment, fmt.Sprintf("--replicas=%d", count))
	waitForManagers(ctx, count)
	eventually(ctx, podStart, "no other manager is left", func(g Gomega) {
		var pods corev1.PodList
		g.Expect(api.List(ctx, &pods, client.InNamespace(v1alpha1.ManagerNamespace))).To(Succeed())
		g.Expect(pods.Items).To(HaveLen(int(count)))
	})
}
