package integration

import (
	"os/exec"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
)

// Each role allows its tasks in the plugin, and no others.
var _ = Describe("The roles for users", Ordered, func() {
	var binary string

	BeforeAll(func() {
		binary = buildPlugin()
	})

	plugin := func(user string, args ...string) (string, error) {
		GinkgoHelper()
		output, err := exec.CommandContext(ctx, binary, append([]string{"--kubeconfig", kubeconfig(), "--as", user}, args...)...).CombinedOutput()
		return string(output), err
	}

	// rolledOut creates a profile with a plan that waits for its approval, over two nodes and a volume. The volume keeps a value that its
	// owner set.
	rolledOut := func() string {
		GinkgoHelper()
		manager, nodes := newKeeper(k8s), []string{"node-1", "node-2"}
		for _, node := range nodes {
			newNode(node).Label("agentpool", "eda").Create()
			agentPod(node)
		}
		newVolume("share").Options("nconnect=2").Create()
		newProfile("eda").Select("agentpool", "eda").KernelArgument("ihash_entries=16777216").Volumes(nfsRule("nconnect=4")).Create()
		for range 4 {
			for _, node := range nodes {
				if findObject(node) != nil {
					agentReports(node, rebootDue("kernelArgument/ihash_entries"))
				}
			}
			fakeClock.Step(2 * time.Minute)
			manager.settle([]string{"eda"}, nodes)
		}
		profile := &v1alpha1.StorageClientProfile{}
		Expect(k8s.Get(ctx, client.ObjectKey{Name: "eda"}, profile)).To(Succeed())
		Expect(profile.Status.Plan.NodesToReboot).To(BeEquivalentTo(2))
		Expect(profile.Status.Volumes.Exceptions).To(BeEquivalentTo(1))
		return profile.Status.Plan.Hash
	}

	It("let all users view, and only approvers approve", func() {
		for role, verb := range map[string]string{
			"storage-client-viewer": "list", "storage-client-profile-author": "patch", v1alpha1.ApproverRole: "approve", "storage-client-profile-editor": "approve",
		} {
			userWith(role, verb)
		}
		// The API server needs a moment to compile a new policy.
		Eventually(func() error {
			_, err := plugin("storage-client-profile-author", "approve", "nobody")
			return err
		}).Should(HaveOccurred())
		hash := rolledOut()

		roles := []string{"storage-client-viewer", "storage-client-profile-author", v1alpha1.ApproverRole, "storage-client-profile-editor"}
		for _, role := range roles {
			status, err := plugin(role, "status", "eda")
			Expect(err).NotTo(HaveOccurred(), status)
			Expect(status).To(And(ContainSubstring("Nodes of eda"), Not(ContainSubstring("Cannot read"))), role)
			plan, err := plugin(role, "plan", "eda")
			Expect(err).NotTo(HaveOccurred(), plan)
			Expect(plan).To(And(ContainSubstring("2 nodes would reboot"), ContainSubstring("share: VolumeKeepsOwnValue: nconnect stays 2 (profile wants 4; onConflict: KeepVolume)"),
				Not(ContainSubstring("Cannot read"))), role)
		}

		By("All users see the complete output of all commands")
		for _, role := range roles {
			for _, args := range []string{"status", "get eda", "volumes eda", "diff eda", "node node-1"} {
				shown, err := plugin(role, strings.Fields(args)...)
				Expect(err).NotTo(HaveOccurred(), shown)
				// Names of pods are visible only to users who may list the pods of all namespaces.
				missing := strings.ReplaceAll(shown, "names of pods (UIDs are shown instead): list Pods on Node node-1: pods is forbidden", "")
				Expect(missing).To(And(Not(ContainSubstring("forbidden")), Not(ContainSubstring("you may not"))), role+": "+args)
			}
		}

		for _, role := range []string{"storage-client-viewer", "storage-client-profile-author"} {
			output, err := plugin(role, "approve", "eda", "--plan", hash)
			Expect(err).To(HaveOccurred(), role)
			Expect(output).To(And(ContainSubstring("reboots 2 nodes"), ContainSubstring("ClusterRole storage-client-approver"), Not(ContainSubstring("Approved"))))
		}
		output, err := plugin("storage-client-viewer", "pause", "eda")
		Expect(err).To(HaveOccurred(), output)
		for _, command := range []string{"pause", "resume"} {
			done, err := plugin("storage-client-profile-author", command, "eda")
			Expect(err).NotTo(HaveOccurred(), done)
		}

		approved, err := plugin(v1alpha1.ApproverRole, "approve", "eda", "--plan", hash)
		Expect(err).NotTo(HaveOccurred(), approved)
		Expect(approved).To(And(ContainSubstring("reboots 2 nodes"), ContainSubstring("node-1"), ContainSubstring("node-2"), ContainSubstring("Approved plan "+hash)))
		profile := &v1alpha1.StorageClientProfile{}
		Expect(k8s.Get(ctx, client.ObjectKey{Name: "eda"}, profile)).To(Succeed())
		Expect(profile.Annotations).To(HaveKeyWithValue(v1alpha1.ApprovedPlanAnnotation, hash))
		Expect(profile.ManagedFields).To(ContainElement(And(HaveField("Manager", v1alpha1.PluginFieldManager), HaveField("Operation", metav1.ManagedFieldsOperationUpdate))))
	})

	// Flux removes fields that only kubectl's field managers own.
	It("own the fields that the plugin sets, also if an earlier plugin set the same", func() {
		userWith("storage-client-profile-author", "patch")
		newProfile("eda").Select("agentpool", "eda").Volumes(nfsRule("hard")).Create()
		profile := &v1alpha1.StorageClientProfile{ObjectMeta: metav1.ObjectMeta{Name: "eda"}}
		paused := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"tuning.storageclient.dev/paused":"true"}}}`))
		Expect(k8s.Patch(ctx, profile, paused, client.FieldOwner("kubectl-storageclient"))).To(Succeed())
		Eventually(func() error {
			_, err := plugin("storage-client-profile-author", "pause", "eda")
			return err
		}).Should(Succeed())
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(profile), profile)).To(Succeed())
		Expect(profile.Annotations).To(HaveKeyWithValue(v1alpha1.PausedAnnotation, "true"))
		Expect(profile.ManagedFields).To(ContainElement(And(HaveField("Manager", v1alpha1.PluginFieldManager),
			HaveField("FieldsV1.GetRawString()", ContainSubstring("f:tuning.storageclient.dev/paused")))))

		resumed, err := plugin("storage-client-profile-author", "resume", "eda")
		Expect(err).NotTo(HaveOccurred(), resumed)
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(profile), profile)).To(Succeed())
		Expect(profile.Annotations).NotTo(HaveKey(v1alpha1.PausedAnnotation))
	})
})
