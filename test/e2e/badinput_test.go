//go:build e2e

package e2e

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
)

// badInput is an invalid profile, and the expected error for its author: the field, the value, and the correct form.
type badInput struct {
	name string
	node *v1alpha1.NodeTuning
	// mountOption is an option in the only rule for volumes.
	mountOption v1alpha1.MountOption
	drain       *v1alpha1.Drain
	told        []string
}

// beyondShape contains input that is valid by its schema, and invalid by the catalogue.
var beyondShape = []badInput{
	{name: "unknown-mount-option", mountOption: "nconect=4",
		told: []string{"spec.volumes[0].mountOptions[0]", `"nconect=4"`, "Did you mean nconnect?"}},
	{name: "too-many-connections", mountOption: "nconnect=17",
		told: []string{"spec.volumes[0].mountOptions[0]", `"nconnect=17"`, "must be 1 to 16"}},
	{name: "sysctl-beyond-the-catalogue", node: &v1alpha1.NodeTuning{Sysctls: map[string]v1alpha1.SettingText{"kernel.core_pattern": "core"}},
		told: []string{"spec.node.sysctls[kernel.core_pattern]", `"core"`, "--allow-parameter"}},
	{name: "boot-argument-with-a-suffix", node: &v1alpha1.NodeTuning{KernelArguments: []v1alpha1.KernelArgument{"ihash_entries=16M"}},
		told: []string{"spec.node.kernelArguments[0]", `"16M"`, "write 16777216"}},
}

// malformed is rejected by the API's schema, even if the operator does not run.
var malformed = badInput{
	name: "two-boot-arguments-in-one",
	node: &v1alpha1.NodeTuning{KernelArguments: []v1alpha1.KernelArgument{"ihash_entries=1048576 init=/bin/sh"}},
	told: []string{"spec.node.kernelArguments[0]", `"ihash_entries=1048576 init=/bin/sh"`, "one token of printable ASCII without spaces"},
}

// beyondCeiling is rejected by the administrator's guardrails.
var beyondCeiling = badInput{
	name: "beyond-a-ceiling", drain: &v1alpha1.Drain{DeleteEmptyDirData: true},
	told: []string{"spec.rollout.drain.deleteEmptyDirData is true", "rollout.drain.deleteEmptyDirData.allowed is false", "storage-client-guardrails"},
}

func (b badInput) profile() *v1alpha1.StorageClientProfile {
	profile := &v1alpha1.StorageClientProfile{
		ObjectMeta: metav1.ObjectMeta{Name: b.name},
		Spec:       v1alpha1.StorageClientProfileSpec{NodeSelector: allNodes(), Node: b.node},
	}
	if b.drain != nil {
		profile.Spec.Rollout.Drain = *b.drain
	}
	if b.mountOption != "" {
		profile.Spec.Volumes = []v1alpha1.VolumeRule{ruleFor(b.mountOption)}
	}
	return profile
}

func allNodes() metav1.LabelSelector {
	return metav1.LabelSelector{MatchLabels: map[string]string{"agentpool": "azfiles"}}
}

// ruleFor returns a rule that selects the same volumes as the test's profile.
func ruleFor(options ...v1alpha1.MountOption) v1alpha1.VolumeRule {
	return v1alpha1.VolumeRule{Name: "nfs", MountOptions: options, Selector: v1alpha1.VolumeSelector{
		Drivers: []string{"kubernetes.io/nfs"}, Protocols: []v1alpha1.VolumeProtocol{v1alpha1.ProtocolNFS},
	}}
}

// steady contains the observations of the nodes before the first bad input.
var steady map[string]facts

// expectRefused tries bad input while all parts of the operator run.
func expectRefused(ctx SpecContext) {
	steady = allFacts(ctx)
	for _, bad := range append([]badInput{malformed, beyondCeiling}, beyondShape...) {
		expectCreationRefused(ctx, bad)
	}
	expectNothingChanged(ctx)
}

// expectInvalid creates bad input while no webhook validates profiles.
func expectInvalid(ctx SpecContext) {
	removeValidation(ctx)
	expectCreationRefused(ctx, malformed)
	for _, bad := range beyondShape {
		eventually(ctx, time.Minute, bad.name+" is created", func(g Gomega) { g.Expect(api.Create(ctx, bad.profile())).To(Succeed()) })
	}
	for _, bad := range beyondShape {
		eventually(ctx, time.Minute, bad.name+" is stalled", func(g Gomega) {
			profile := getProfile(ctx, g, bad.name)
			stalled := conditionOf(g, profile, v1alpha1.ConditionStalled)
			g.Expect(stalled.Status).To(Equal(metav1.ConditionTrue))
			g.Expect(stalled.Reason).To(Equal(v1alpha1.ReasonInvalid))
			expectReported(g, stalled.Message, bad)
			g.Expect(conditionOf(g, profile, v1alpha1.ConditionReady).Status).To(Equal(metav1.ConditionFalse))
		})
	}
	expectNothingChanged(ctx)
	for _, bad := range beyondShape {
		Expect(api.Delete(ctx, bad.profile())).To(Succeed())
		waitUntilGone(ctx, time.Minute, bad.name)
	}
}

// expectConflict applies a profile of the same priority that declares other values for effective settings.
func expectConflict(ctx SpecContext) {
	options := getVolume(ctx, Default, appName).Spec.MountOptions
	rival := badInput{name: "rival", node: &v1alpha1.NodeTuning{Sysctls: map[string]v1alpha1.SettingText{"vm.dirty_background_ratio": "10"}},
		mountOption: "actimeo=60"}.profile()
	Expect(api.Create(ctx, rival)).To(Succeed())
	for _, name := range []string{rival.Name, profileName} {
		eventually(ctx, 2*time.Minute, "profile "+name+" reports the conflict", func(g Gomega) {
			profile := getProfile(ctx, g, name)
			conflict := conditionOf(g, profile, v1alpha1.ConditionConflict)
			g.Expect(conflict.Status).To(Equal(metav1.ConditionTrue))
			g.Expect(conflict.Reason).To(Equal(v1alpha1.ReasonSettingConflict))
			g.Expect(conflict.Message).To(And(ContainSubstring("vm.dirty_background_ratio"),
				ContainSubstring("profiles "+profileName+", rival want 5 and 10 (keeping 5)"),
				ContainSubstring("volumes: "+appName+": VolumeConflict: Profiles of equal priority disagree: actimeo=30")))
			g.Expect(conditionOf(g, profile, v1alpha1.ConditionReady).Status).To(Equal(metav1.ConditionFalse))
		})
	}
	expectNothingChanged(ctx)
	Expect(getVolume(ctx, Default, appName).Spec.MountOptions).To(Equal(options))

	Expect(api.Delete(ctx, rival)).To(Succeed())
	waitUntilGone(ctx, 2*time.Minute, rival.Name)
	eventually(ctx, time.Minute, "the other profile is Ready again", func(g Gomega) {
		profile := getProfile(ctx, g, profileName)
		g.Expect(conditionOf(g, profile, v1alpha1.ConditionConflict).Status).To(Equal(metav1.ConditionFalse))
		ready := conditionOf(g, profile, v1alpha1.ConditionReady)
		g.Expect(ready.Status).To(Equal(metav1.ConditionTrue), ready.Message)
	})
	expectNothingChanged(ctx)
}

func expectCreationRefused(ctx context.Context, bad badInput) {
	GinkgoHelper()
	err := api.Create(ctx, bad.profile())
	// A policy returns Forbidden, the schema and the webhook return Invalid.
	Expect(apierrors.IsInvalid(err) || (bad.drain != nil && apierrors.IsForbidden(err))).To(BeTrue(), "%s: %v", bad.name, err)
	By(err.Error())
	expectReported(Default, err.Error(), bad)
}

func expectReported(g Gomega, text string, bad badInput) {
	GinkgoHelper()
	for _, told := range bad.told {
		g.Expect(text).To(ContainSubstring(told), bad.name)
	}
}

// removeValidation removes the validating webhook until the spec ends.
func removeValidation(ctx context.Context) {
	GinkgoHelper()
	var config admissionregistrationv1.ValidatingWebhookConfiguration
	Expect(api.Get(ctx, client.ObjectKey{Name: "storage-client-webhook"}, &config)).To(Succeed())
	Expect(api.Delete(ctx, &config)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) {
		config.ObjectMeta = metav1.ObjectMeta{Name: config.Name, Labels: config.Labels, Annotations: config.Annotations}
		Expect(api.Create(ctx, &config)).To(Succeed())
		eventually(ctx, time.Minute, "profiles are validated again", func(g Gomega) {
			g.Expect(api.Create(ctx, beyondShape[0].profile(), client.DryRunAll)).NotTo(Succeed())
		})
	})
}

// expectNothingChanged compares values, files and boot menu of every node with the earlier ones.
func expectNothingChanged(ctx context.Context) {
	GinkgoHelper()
	now := allFacts(ctx)
	for _, m := range nodes.Members() {
		for _, section := range []string{"sysctls", "slots", "etc", "grub", "cmdline"} {
			Expect(now[m.Name][section]).To(Equal(steady[m.Name][section]), "%s of %s", section, m.Name)
		}
	}
}
