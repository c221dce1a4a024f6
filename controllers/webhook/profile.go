package webhook

import (
	"context"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/advice"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/nodesettings"
	"github.com/storageclient/operator/tuning/text"
)

// maxListed is how many problems, and how many warnings, one answer names. The API server cuts warnings off at 4 KiB.
const maxListed = 16

// profileValidator refuses profiles that can never work, by the same judgement as the controllers'.
type profileValidator struct {
	allow catalogue.AllowList
}

// ValidateCreate judges a new profile.
func (v *profileValidator) ValidateCreate(_ context.Context, profile *v1alpha1.StorageClientProfile) (admission.Warnings, error) {
	return v.judgeProfile(profile)
}

// ValidateUpdate judges a changed spec. What leaves the spec alone goes through, and so does whatever is being
// deleted: a profile that was stored by another version, or past us, must never keep its finalizer for our sake.
func (v *profileValidator) ValidateUpdate(_ context.Context, before, profile *v1alpha1.StorageClientProfile) (admission.Warnings, error) {
	if !profile.DeletionTimestamp.IsZero() || equality.Semantic.DeepEqual(before.Spec, profile.Spec) {
		return nil, nil
	}
	return v.judgeProfile(profile)
}

// ValidateDelete lets every profile go.
func (v *profileValidator) ValidateDelete(context.Context, *v1alpha1.StorageClientProfile) (admission.Warnings, error) {
	return nil, nil
}

func (v *profileValidator) judgeProfile(profile *v1alpha1.StorageClientProfile) (admission.Warnings, error) {
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
	messages := make([]string, 0, len(problems))
	for _, problem := range problems {
		messages = append(messages, problem.Error())
	}
	listed := text.Cap(messages, maxListed, "problems")
	if len(listed) == len(problems) {
		return problems
	}
	return append(problems[:maxListed], field.Invalid(field.NewPath("spec"), field.OmitValueType{}, listed[maxListed]))
}
