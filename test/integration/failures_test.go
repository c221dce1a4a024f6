package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
)

var _ = Describe("Failures", func() {
	It("are recorded for a Node that is deleted with a permit, shown, and cleared on request", func() {
		pool("a", "b")
		newNode("spare").Create()
		s := newStory(k8s, k8s)
		lost := loseNode(s, "a")
		s.passes(3)

		Expect(claims()).To(BeEmpty())
		Expect(failures("eda").Boots).To(ConsistOf(HaveField("Nodes", ConsistOf(And(
			HaveField("Name", "a"), HaveField("UID", lost), HaveField("Reason", v1alpha1.RolloutReasonNodeLost))))))
		Expect(findObject("b").Status.Rollout).To(And(HaveField("Reason", v1alpha1.RolloutReasonFailureThreshold),
			HaveField("Message", "StorageClientProfile eda stopped after 1 node failed: a (gone); "+
				"change settings that require a reboot, or retry: kubectl storageclient retry eda")))
		Expect(s.emitted()).To(ContainElement(HavePrefix("Warning NodeLost a: The Node was deleted while it had a reboot permit")))

		Expect(newKeeper(k8s).round([]string{"eda"}, nil)).To(Succeed())
		profile := &v1alpha1.StorageClientProfile{}
		Expect(k8s.Get(ctx, client.ObjectKey{Name: "eda"}, profile)).To(Succeed())
		status := profile.Status
		Expect(status.Nodes.Failed).To(BeEquivalentTo(1))
		Expect(status.LostNodes).To(ConsistOf(And(HaveField("Name", "a"), HaveField("Reason", v1alpha1.RolloutReasonNodeLost), HaveField("Since", Not(BeNil())))))
		Expect(status.Conditions).To(ContainElement(And(HaveField("Type", v1alpha1.ConditionStalled), HaveField("Reason", v1alpha1.ReasonFailureThreshold))))

		Expect(retryUpdate("eda", func(p *v1alpha1.StorageClientProfile) {
			p.Annotations = map[string]string{v1alpha1.RetryAnnotation: "2026-11-22T12:00:00Z"}
		})).To(Succeed())
		s.play()
		Expect(failures("eda")).To(Equal(v1alpha1.ProfileFailures{Retry: "2026-11-22T12:00:00Z"}))
		Expect(getNode("b").Status.NodeInfo.BootID).To(Equal("boot-2"))
	})

	It("are recorded once if the manager dies between any two writes", func() {
		for writes := 0; ; writes++ {
			By(fmt.Sprintf("dying before write %d", writes+1))
			pool("a", "b")
			loseNode(newStory(k8s, k8s), "a")
			dying := newMortal(writes)
			first := newStory(dying.Client, dying.Client)
			for range 4 {
				if _, err := first.pass(); err != nil {
					Expect(err).To(MatchError(errDead))
				}
			}
			newStory(k8s, k8s).passes(3)
			Expect(failures("eda").Boots).To(ConsistOf(And(HaveField("Nodes", HaveLen(1)), HaveField("More", 0))))
			Expect(claims()).To(BeEmpty())
			if !dying.Died() {
				Expect(writes).To(BeNumerically(">=", 3), "number of writes, at least for the failure, the claim and a note")
				return
			}
			deleteAll()
		}
	})
})

var _ = Describe("An immutable ConfigMap of the rollout", func() {
	It("stalls the profile until a user runs the command in its condition", func() {
		pool("a")
		remembered := v1alpha1.ProfileFailures{Retry: "2026-11-22T12:00:00Z"}
		Expect(retryUpdate("eda", func(p *v1alpha1.StorageClientProfile) {
			p.Annotations = map[string]string{v1alpha1.RetryAnnotation: remembered.Retry}
		})).To(Succeed())
		for name, data := range map[string]map[string]string{v1alpha1.BudgetConfigMap: nil, v1alpha1.FailuresConfigMap: {"eda": remembered.Encode()}} {
			memory := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.ManagerNamespace, Name: name}, Data: data, Immutable: new(true)}
			Expect(k8s.Create(ctx, memory)).To(Succeed())
		}
		s := newStory(k8s, k8s)
		s.passes(2)
		Expect(findObject("a").Status.Rollout.Reason).To(Equal(v1alpha1.RolloutReasonConfigMapImmutable))
		Expect(newKeeper(k8s).round([]string{"eda"}, nil)).To(Succeed())
		condition := stalledOf("eda")
		Expect(condition.Reason).To(Equal(v1alpha1.ReasonConfigMapImmutable))

		_, typed, found := strings.Cut(condition.Message, "recreate it: ")
		Expect(found).To(BeTrue(), condition.Message)
		shell := exec.CommandContext(ctx, "sh", "-c", `kubectl() { "$KUBECTL" "$@"; }; `+typed)
		shell.Dir = GinkgoT().TempDir()
		shell.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig(), "KUBECTL="+filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl"))
		output, err := shell.CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(output))

		Expect(failures("eda")).To(Equal(remembered))
		Expect(newKeeper(k8s).round([]string{"eda"}, nil)).To(Succeed())
		Expect(stalledOf("eda").Status).To(Equal(metav1.ConditionFalse))
		s.play()
		Expect(getNode("a").Status.NodeInfo.BootID).To(Equal("boot-2"))
	})
})

func stalledOf(profile string) metav1.Condition {
	GinkgoHelper()
	object := &v1alpha1.StorageClientProfile{}
	Expect(k8s.Get(ctx, client.ObjectKey{Name: profile}, object)).To(Succeed())
	condition := meta.FindStatusCondition(object.Status.Conditions, v1alpha1.ConditionStalled)
	Expect(condition).NotTo(BeNil())
	return *condition
}

// loseNode runs the story until a node has its permit, and then deletes its Node and dependent objects. It returns the Node's UID.
func loseNode(s *story, name string) string {
	GinkgoHelper()
	for range 20 {
		s.passes(1)
		if claims()[name].Permit != nil {
			break
		}
		s.turn()
	}
	Expect(findObject(name).Spec.RebootPermit).NotTo(BeNil())
	node := getNode(name)
	deleteNow(node)
	deleteNow(findObject(name))
	return string(node.UID)
}

func failures(profile string) v1alpha1.ProfileFailures {
	GinkgoHelper()
	all := &corev1.ConfigMap{}
	Expect(k8s.Get(ctx, client.ObjectKey{Namespace: v1alpha1.ManagerNamespace, Name: v1alpha1.FailuresConfigMap}, all)).To(Succeed())
	out, err := v1alpha1.DecodeFailures(all.Data[profile])
	Expect(err).NotTo(HaveOccurred())
	return out
}
