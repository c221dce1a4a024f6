package webhook

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/advice"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/mountoptions"
	"github.com/storageclient/operator/tuning/nodesettings"
	"github.com/storageclient/operator/tuning/text"
)

// maxListed is the maximum number of problems, and of warnings, in one response. The API server truncates warnings at 4 KiB.
const maxListed = 16

// profileValidator rejects profiles that can never work, with the same checks as the controllers.
type profileValidator struct {
	allow catalogue.AllowList
}

// ValidateCreate validates a new profile.
func (v *profileValidator) ValidateCreate(_ context.Context, profile *v1alpha1.StorageClientProfile) (admission.Warnings, error) {
	return v.validateProfile(profile)
}

// ValidateUpdate validates a changed spec. It allows updates without a change of the spec, and updates of a deleted profile. A profile that
// another version stored, or that bypassed the webhook, must always be able to lose its finalizer.
func (v *profileValidator) ValidateUpdate(_ context.Context, before, profile *v1alpha1.StorageClientProfile) (admission.Warnings, error) {
	if !profile.DeletionTimestamp.IsZero() || equality.Semantic.DeepEqual(before.Spec, profile.Spec) {
		return nil, nil
	}
	return v.validateProfile(profile)
}

// ValidateDelete allows every deletion.
func (v *profileValidator) ValidateDelete(context.Context, *v1alpha1.StorageClientProfile) (admission.Warnings, error) {
	return nil, nil
}

func (v *profileValidator) validateProfile(profile *v1alpha1.StorageClientProfile) (admission.Warnings, error) {
	var problems field.ErrorList
	var warnings admission.Warnings
	for _, p := range nodesettings.Validate(profile, v.allow) {
		if p.Warning {
			warnings = append(warnings, p.String())
		} else {
			problems = append(problems, invalidField(p))
		}
	}
	warnings = append(warnings, consistencyWarnings(profile)...)
	for _, a := range advice.ForAdmission(profile) {
		warnings = append(warnings, a.ID+": "+a.Text)
	}
	warnings = text.Cap(warnings, maxListed, "warnings")
	if len(problems) == 0 {
		return warnings, nil
	}
	kind := v1alpha1.GroupVersion.WithKind("StorageClientProfile").GroupKind()
	return warnings, apierrors.NewInvalid(kind, profile.Name, capProblems(problems))
}

func invalidField(p nodesettings.Problem) *field.Error {
	if p.Value == "" {
		return field.Invalid(field.NewPath(p.Field), field.OmitValueType{}, p.Message)
	}
	return field.Invalid(field.NewPath(p.Field), p.Value, p.Message)
}

func capProblems(problems field.ErrorList) field.ErrorList {
	messages := lists.Each(problems, (*field.Error).Error)
	listed := text.Cap(messages, maxListed, "problems")
	if len(listed) == len(problems) {
		return problems
	}
	return append(problems[:maxListed], field.Invalid(field.NewPath("spec"), field.OmitValueType{}, listed[maxListed]))
}

// longestTimer is the longest default time that NFS caches attributes, in seconds: acregmax and acdirmax of nfs(5). SMB caches them for one
// second.
const longestTimer = 60

// looseCaches are the caches of mount.cifs(8) and the kernel that trust their content even if other clients write.
var looseCaches = []string{"loose", "ro", "singleclient"}

// consistencyWarnings reports options that give up consistency between clients. It checks rules for volumes whose owners did not request that:
// the rule neither selects by label nor selects only read-only volumes.
func consistencyWarnings(profile *v1alpha1.StorageClientProfile) []string {
	var warnings []string
	for i := range profile.Spec.Volumes {
		rule := &profile.Spec.Volumes[i]
		if advice.IsPicked(&rule.Selector) {
			continue
		}
		for j, option := range rule.MountOptions {
			if losesConsistency(string(option)) {
				warnings = append(warnings, fmt.Sprintf("spec.volumes[%d].mountOptions[%d]: %q: clients may see old data for a long time; "+
					"select PersistentVolumeClaims or volumes by label, or only accessModes [%s]", i, j, option, corev1.ReadOnlyMany))
			}
		}
	}
	return warnings
}

func losesConsistency(option string) bool {
	return slices.ContainsFunc(mountoptions.Parse([]string{option}), func(o mountoptions.Option) bool {
		switch o.Name {
		case "nocto":
			return true
		case "cache":
			return slices.Contains(looseCaches, o.Value)
		case "actimeo", "acregmin", "acregmax", "acdirmin", "acdirmax":
			seconds, err := strconv.ParseInt(o.Value, 10, 64)
			return err == nil && seconds > longestTimer
		}
		return false
	})
}
