package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/builders"
)

const askAnApprover = "ask a user with the ClusterRole storage-client-approver"

var _ = Describe("The approval of reboots", func() {
	var author, approver, editor client.Client

	BeforeEach(func() {
		author, approver, editor = userWith("storage-client-profile-author", "patch"), userWith(v1alpha1.ApproverRole, "approve"), userWith("storage-client-profile-editor", "approve")
		// The API server needs a moment to compile a new policy.
		Eventually(func() error {
			return author.Create(ctx, automatic("early"), client.DryRunAll)
		}).Should(MatchError(ContainSubstring(askAnApprover)))
	})

	annotation := func(plan string) string {
		return `{"metadata":{"annotations":{"tuning.storageclient.dev/approved-plan":` + plan + `}}}`
	}
	reboot := func(field string) string { return `{"spec":{"rollout":{"reboot":{` + field + `}}}}` }

	DescribeTable("needs the verb approve if a write approves",
		func(before func(*v1alpha1.StorageClientProfileSpec), patch, refusal string) {
			newProfile("p").KernelArgument("ihash_entries=16777216").Annotate(v1alpha1.ApprovedPlanAnnotation, "1111").With(before).Create()
			err := mergePatch(author, "p", patch)
			expectRejected(err, refusal)
			Expect(err).To(MatchError(And(ContainSubstring("user storage-client-profile-author may not approve reboots of StorageClientProfile p"), ContainSubstring(askAnApprover))))
			Expect(mergePatch(approver, "p", patch)).To(Succeed())
		},
		Entry("by the annotation", onApproval, annotation(`"2222"`), "metadata.annotations[tuning.storageclient.dev/approved-plan]: "),
		Entry("by the field", onApproval, reboot(`"approvedPlan":"1111"`), "spec.rollout.reboot.approvedPlan: "),
		Entry("by policy Automatic", onApproval, reboot(`"policy":"Automatic"`), "spec.rollout.reboot.policy: Automatic: "),
		Entry("by policy Automatic, from Never", func(s *v1alpha1.StorageClientProfileSpec) { s.Rollout.Reboot.Policy = v1alpha1.RebootNever },
			reboot(`"policy":"Automatic"`), "spec.rollout.reboot.policy: Automatic: "),
		Entry("another plan under policy Automatic", onAutomatic, `{"spec":{"allNodes":null,"nodeSelector":{"matchLabels":{"pool":"all"}}}}`,
			"the change can lead to reboots because spec.rollout.reboot.policy is Automatic: "),
		Entry("mode Enforce under policy Automatic", inPlan, `{"spec":{"mode":"Enforce"}}`, "spec.mode: the change can lead to reboots"),
		Entry("the default mode under policy Automatic", inPlan, `{"spec":{"mode":null}}`, "spec.mode: the change can lead to reboots"),
		Entry("the end of a pause under policy Automatic", paused, `{"spec":{"paused":false}}`, "spec.paused: the change can lead to reboots"),
		Entry("a pause that is removed under policy Automatic", paused, `{"spec":{"paused":null}}`, "spec.paused: the change can lead to reboots"),
		Entry("a pause that moves to the annotation with another value", paused,
			`{"metadata":{"annotations":{"tuning.storageclient.dev/paused":"yes"}},"spec":{"paused":null}}`, "spec.paused: the change can lead to reboots"),
		Entry("a retry under policy Automatic", onAutomatic, `{"metadata":{"annotations":{"tuning.storageclient.dev/retry":"now"}}}`,
			"metadata.annotations[tuning.storageclient.dev/retry]: the change can lead to reboots"),
		Entry("an annotation of the operator that the list does not name", onAutomatic, `{"metadata":{"annotations":{"tuning.storageclient.dev/new":"x"}}}`,
			"metadata.annotations[tuning.storageclient.dev/new]: the change can lead to reboots"),
		Entry("a stricter budget, which makes a new plan", onAutomatic, `{"spec":{"rollout":{"maxUnavailable":1}}}`,
			"spec.rollout.maxUnavailable: the change can lead to reboots"),
		Entry("an older approval, from Automatic", onAutomatic, reboot(`"policy":"OnApproval"`), "spec.rollout.reboot.policy: OnApproval: an older approval"),
		Entry("an older approval, from Never", func(s *v1alpha1.StorageClientProfileSpec) { s.Rollout.Reboot.Policy = v1alpha1.RebootNever },
			reboot(`"policy":null`), "spec.rollout.reboot.policy: OnApproval: an older approval"),
	)

	DescribeTable("needs the verb approve to end a pause by annotation under policy Automatic", func(value string) {
		newProfile("p").KernelArgument("ihash_entries=16777216").Annotate(v1alpha1.PausedAnnotation, "true").With(onAutomatic).Create()
		patch := `{"metadata":{"annotations":{"tuning.storageclient.dev/paused":` + value + `}}}`
		expectRejected(mergePatch(author, "p", patch), "metadata.annotations[tuning.storageclient.dev/paused]: the change can lead to reboots")
		Expect(mergePatch(approver, "p", patch)).To(Succeed())
		Expect(mergePatch(author, "p", `{"metadata":{"annotations":{"tuning.storageclient.dev/paused":"true"}}}`)).To(Succeed())
	},
		Entry("removed", "null"), Entry("false", `"false"`), Entry("false in another case", `"fAlSe"`), Entry("an empty value", `""`),
	)

	It("needs the verb approve to end a pause, by the values that pause for the manager", func() {
		newProfile("p").KernelArgument("ihash_entries=16777216").With(onAutomatic).Create()
		for value, pauses := range builders.StopValues {
			data, err := json.Marshal(value)
			Expect(err).NotTo(HaveOccurred())
			set := `{"metadata":{"annotations":{"tuning.storageclient.dev/paused":` + string(data) + `}}}`
			Expect(mergePatch(approver, "p", `{"metadata":{"annotations":{"tuning.storageclient.dev/paused":"true"}}}`)).To(Succeed())
			err = mergePatch(author, "p", set)
			if !pauses {
				expectRejected(err, "metadata.annotations[tuning.storageclient.dev/paused]: the change can lead to reboots")
				Expect(mergePatch(approver, "p", set)).To(Succeed())
			} else {
				Expect(err).NotTo(HaveOccurred(), "%q", value)
			}
			err = mergePatch(author, "p", `{"metadata":{"annotations":{"tuning.storageclient.dev/paused":null}}}`)
			Expect(err != nil).To(Equal(pauses), "%q: %v", value, err)
		}
	})

	It("needs the verb approve to create an approved profile", func() {
		byAnnotation := newProfile("a").Annotate(v1alpha1.ApprovedPlanAnnotation, "1111").Build()
		byField := newProfile("b").With(func(s *v1alpha1.StorageClientProfileSpec) { s.Rollout.Reboot.ApprovedPlan = "1111" }).Build()
		unnamed := automatic("")
		unnamed.GenerateName = "c-"
		for profile, refusal := range map[*v1alpha1.StorageClientProfile]string{
			byAnnotation: "StorageClientProfile a: ", byField: "StorageClientProfile b: ", automatic("d"): "StorageClientProfile d: ", unnamed: "StorageClientProfile c-",
		} {
			expectRejected(author.Create(ctx, profile.DeepCopy()), refusal)
			Expect(editor.Create(ctx, profile.DeepCopy())).To(Succeed())
		}
		Expect(author.Create(ctx, newProfile("e").KernelArgument("ihash_entries=16777216").Build())).To(Succeed())
	})

	It("covers each part of the plan if the policy is Automatic", func() {
		newProfile("p").KernelArgument("ihash_entries=16777216").With(onAutomatic).Create()
		for _, spec := range []string{
			`"allNodes":null,"nodeSelector":{"matchLabels":{"pool":"all"}}`, `"includeControlPlane":true`, `"priority":1`, `"deletionPolicy":"Restore"`,
			`"node":{"kernelArguments":["ihash_entries=1"]}`, `"node":null`, `"rollout":null`,
			`"rollout":{"maxUnavailable":"100%"}`, `"rollout":{"canary":{"soakSeconds":0}}`, `"rollout":{"failureThreshold":9}`,
			`"rollout":{"settleSeconds":0}`,
			`"rollout":{"windows":[{"schedule":"0 2 * * *","durationSeconds":3600}]}`, `"rollout":{"drain":{"deleteEmptyDirData":true}}`,
			`"rollout":{"drain":{"waitForPodSelector":{}}}`, `"rollout":{"reboot":{"timeoutSeconds":1}}`, `"rollout":{"reboot":{"restoreReboot":true}}`,
		} {
			err := mergePatch(author, "p", `{"spec":{`+spec+`}}`)
			if spec == `"rollout":null` {
				Expect(err).NotTo(HaveOccurred(), "without a policy the profile waits for an approval")
				Expect(mergePatch(editor, "p", reboot(`"policy":"Automatic"`))).To(Succeed())
				continue
			}
			Expect(err).To(MatchError(ContainSubstring("use OnApproval in the same change, or "+askAnApprover)), spec)
		}
	})

	DescribeTable("is not required if a write approves nothing new",
		func(before func(*v1alpha1.StorageClientProfileSpec), patch string) {
			newProfile("p").KernelArgument("ihash_entries=16777216").Annotate(v1alpha1.ApprovedPlanAnnotation, "1111").With(before).Create()
			Expect(mergePatch(author, "p", patch)).To(Succeed())
		},
		Entry("the same approval again", onApproval, annotation(`"1111"`)),
		Entry("a withdrawn approval", onApproval, annotation("null")),
		Entry("an approval that becomes empty", onApproval, annotation(`""`)),
		Entry("a withdrawn approval by the field", func(s *v1alpha1.StorageClientProfileSpec) { s.Rollout.Reboot.ApprovedPlan = "1111" }, reboot(`"approvedPlan":null`)),
		Entry("another plan, which waits for an approval", onApproval, `{"spec":{"allNodes":null,"nodeSelector":{"matchLabels":{"pool":"all"}}}}`),
		Entry("another plan that leaves Automatic", onAutomatic,
			`{"metadata":{"annotations":{"tuning.storageclient.dev/approved-plan":null}},"spec":{"priority":1,"rollout":{"reboot":{"policy":"OnApproval"}}}}`),
		Entry("an end of all reboots", onAutomatic, reboot(`"policy":"Never"`)),
		Entry("mode Plan under Automatic", onAutomatic, `{"spec":{"mode":"Plan"}}`),
		Entry("the default mode under Automatic, written out", onAutomatic, `{"spec":{"mode":"Enforce","paused":false}}`),
		Entry("a pause by annotation under Automatic", onAutomatic, `{"metadata":{"annotations":{"tuning.storageclient.dev/paused":"true"}}}`),
		Entry("labels and annotations of others under Automatic", onAutomatic, `{"metadata":{"labels":{"a":"b"},"annotations":{"argocd.argoproj.io/tracking-id":"x"}}}`),
		Entry("a withdrawn approval under Automatic", onAutomatic, annotation("null")),
		Entry("Automatic that stays", onAutomatic, reboot(`"policy":"Automatic"`)),
		Entry("a live setting under Automatic", onAutomatic, `{"spec":{"node":{"sysctls":{"vm.dirty_ratio":"10"}}}}`),
		Entry("a pause under Automatic", onAutomatic, `{"spec":{"paused":true}}`),
		Entry("a finalizer, as the manager writes it", onAutomatic, `{"metadata":{"finalizers":["tuning.storageclient.dev/restore"]}}`),
	)

	It("is not required from a GitOps controller that applies an approved profile repeatedly", func() {
		declared := &unstructured.Unstructured{Object: map[string]any{
			"metadata": map[string]any{"name": "p", "annotations": map[string]any{v1alpha1.ApprovedPlanAnnotation: "1111"}},
			"spec": map[string]any{
				"nodeSelector": map[string]any{"matchLabels": map[string]any{"pool": "eda"}},
				"node":         map[string]any{"kernelArguments": []any{"ihash_entries=16777216"}},
				"rollout":      map[string]any{"reboot": map[string]any{"approvedPlan": "1111", "policy": "Automatic"}, "drain": map[string]any{"deleteEmptyDirData": true}},
			},
		}}
		declared.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("StorageClientProfile"))
		apply := func(c client.Client) error {
			return c.Apply(ctx, client.ApplyConfigurationFromUnstructured(declared.DeepCopy()), client.FieldOwner("argocd-controller"), client.ForceOwnership)
		}
		expectRejected(apply(author), askAnApprover)
		Expect(apply(editor)).To(Succeed())
		Expect(apply(author)).To(Succeed())
	})

	DescribeTable("is required for a deletion that reboots",
		func(before func(*v1alpha1.StorageClientProfileSpec), rejected bool) {
			profile := newProfile("p").KernelArgument("ihash_entries=16777216").With(before).Build()
			profile.Finalizers = []string{v1alpha1.Finalizer}
			Expect(k8s.Create(ctx, profile)).To(Succeed())
			one, all := author.Delete(ctx, profile.DeepCopy()), userWithRule("collector", "deletecollection").DeleteAllOf(ctx, &v1alpha1.StorageClientProfile{})
			for _, err := range []error{one, all} {
				if rejected {
					expectRejected(err, "set the policy to OnApproval first, or "+askAnApprover)
				} else {
					Expect(err).NotTo(HaveOccurred())
				}
			}
			Expect(editor.Delete(ctx, profile.DeepCopy())).To(Succeed())
			Expect(author.Delete(ctx, profile.DeepCopy())).To(Succeed(), "a second deletion needs no approval")
		},
		Entry("under policy Automatic", restoring(v1alpha1.RebootAutomatic, v1alpha1.DeletionRestore), true),
		Entry("but not under policy OnApproval", restoring(v1alpha1.RebootOnApproval, v1alpha1.DeletionRestore), false),
		Entry("but not if nothing is restored", restoring(v1alpha1.RebootAutomatic, v1alpha1.DeletionRetain), false),
		Entry("but not without a reboot", onAutomatic, false),
	)

	It("is granted by name, and does not let an approver create or delete", func() {
		newProfile("p").Create()
		newProfile("q").Create()
		ofP := userWithRule("approver-of-p", "patch", "approve/p")
		Expect(mergePatch(ofP, "p", annotation(`"1111"`))).To(Succeed())
		expectRejected(mergePatch(ofP, "q", annotation(`"1111"`)), "may not approve reboots of StorageClientProfile q")
		expectRejected(approver.Create(ctx, newProfile("r").Build()), `User "storage-client-approver" cannot create`)
		expectRejected(approver.Delete(ctx, newProfile("p").Build()), `User "storage-client-approver" cannot delete`)
	})

	It("is recorded with its user in the audit log", func() {
		newProfile("audited").With(onApproval).Create()
		Expect(mergePatch(approver, "audited", annotation(`"4711"`))).To(Succeed())
		expectRejected(mergePatch(author, "audited", annotation(`"4712"`)), askAnApprover)
		Expect(mergePatch(author, "audited", `{"spec":{"paused":true}}`)).To(Succeed())
		Expect(mergePatch(editor, "audited", reboot(`"policy":"Automatic","approvedPlan":"4713"`))).To(Succeed())
		Expect(mergePatch(editor, "audited", `{"spec":{"priority":1}}`)).To(Succeed())
		Expect(approvalsOf("audited")).To(Equal([]string{
			"200: user storage-client-approver approves plan 4711 of StorageClientProfile audited",
			"403: user storage-client-profile-author approves plan 4712 of StorageClientProfile audited",
			"200: user storage-client-profile-editor approves plan 4713, policy Automatic of StorageClientProfile audited",
			"200: user storage-client-profile-editor approves a change under policy Automatic of StorageClientProfile audited",
		}))
	})
})

func onApproval(s *v1alpha1.StorageClientProfileSpec) {
	s.Rollout.Reboot.Policy = v1alpha1.RebootOnApproval
}

func onAutomatic(s *v1alpha1.StorageClientProfileSpec) {
	s.Rollout.Reboot.Policy = v1alpha1.RebootAutomatic
}

func inPlan(s *v1alpha1.StorageClientProfileSpec) {
	s.Mode = v1alpha1.ModePlan
	onAutomatic(s)
}

func paused(s *v1alpha1.StorageClientProfileSpec) {
	s.Paused = true
	onAutomatic(s)
}

func restoring(policy v1alpha1.RebootPolicy, deletion v1alpha1.DeletionPolicy) func(*v1alpha1.StorageClientProfileSpec) {
	return func(s *v1alpha1.StorageClientProfileSpec) {
		s.Rollout.Reboot.Policy, s.Rollout.Reboot.RestoreReboot, s.DeletionPolicy = policy, true, deletion
	}
}

func automatic(name string) *v1alpha1.StorageClientProfile {
	return newProfile(name).RebootPolicy(v1alpha1.RebootAutomatic).Build()
}

func mergePatch(c client.Client, profile, patch string) error {
	object := &v1alpha1.StorageClientProfile{ObjectMeta: metav1.ObjectMeta{Name: profile}}
	return c.Patch(ctx, object, client.RawPatch(types.MergePatchType, []byte(patch)))
}

// userWith returns a client of a user with the name of the role and only that ClusterRole. It waits until the API server grants the verb.
func userWith(role, verb string) client.WithWatch {
	GinkgoHelper()
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "user-" + role}}
	binding.RoleRef = rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}
	binding.Subjects = []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: role}}
	Expect(k8s.Create(ctx, binding)).To(Succeed())
	DeferCleanup(func() { deleteNow(binding) })
	config := rest.CopyConfig(restConfig)
	config.Impersonate = rest.ImpersonationConfig{UserName: role}
	c := clientFor(config)
	// The authorizer needs a moment to see a binding; every user queries their own rights.
	Eventually(func(g Gomega) {
		review := &authorizationv1.SelfSubjectAccessReview{}
		review.Spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
			Group: v1alpha1.GroupVersion.Group, Resource: "storageclientprofiles", Verb: verb,
		}
		g.Expect(c.Create(ctx, review)).To(Succeed())
		g.Expect(review.Status.Allowed).To(BeTrue())
	}).Should(Succeed())
	return c
}

// userWithRule returns a client of a user with only these verbs on profiles. "verb/name" limits a verb to one name.
func userWithRule(name string, verbs ...string) client.Client {
	GinkgoHelper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, verb := range verbs {
		rule := rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"storageclientprofiles"}}
		verb, profile, named := strings.Cut(verb, "/")
		rule.Verbs = []string{verb}
		if named {
			rule.ResourceNames = []string{profile}
		}
		role.Rules = append(role.Rules, rule)
	}
	Expect(k8s.Create(ctx, role)).To(Succeed())
	DeferCleanup(func() { deleteNow(role) })
	verb, _, _ := strings.Cut(verbs[0], "/")
	return userWith(name, verb)
}

var auditLog string

// auditApprovals has the API server write an audit log of profiles, with the annotations of admission policies.
func auditApprovals(arguments *envtest.Arguments) {
	GinkgoHelper()
	dir := GinkgoT().TempDir()
	policy := filepath.Join(dir, "policy.yaml")
	auditLog = filepath.Join(dir, "audit.log")
	Expect(os.WriteFile(policy, []byte(`apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  verbs: [create, patch, update, delete]
  resources: [{group: tuning.storageclient.dev, resources: [storageclientprofiles]}]
- level: None
`), 0o600)).To(Succeed())
	arguments.Append("audit-policy-file", policy).Append("audit-log-path", auditLog)
}

// approvalsOf returns the approvals of a profile in the audit log, with the API server's response.
func approvalsOf(profile string) []string {
	GinkgoHelper()
	content, err := os.ReadFile(auditLog)
	Expect(err).NotTo(HaveOccurred())
	var out []string
	for _, event := range parseManifests(content) {
		annotations, _, _ := unstructured.NestedStringMap(event.Object, "annotations")
		if text := annotations[v1alpha1.ApprovalPolicy+"/approves"]; strings.HasSuffix(text, " "+profile) {
			code, _, _ := unstructured.NestedInt64(event.Object, "responseStatus", "code")
			out = append(out, fmt.Sprintf("%d: %s", code, text))
		}
	}
	return out
}
