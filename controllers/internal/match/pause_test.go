package match

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/builders"
)

func annotatedWith(value string) *metav1.ObjectMeta {
	return &metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.PausedAnnotation: value}}
}

// The integration tests compare the admission policies with the same values.
func TestEveryValueExceptFalseStops(t *testing.T) {
	if v1alpha1.IsStopped(&metav1.ObjectMeta{}, v1alpha1.PausedAnnotation) {
		t.Error("an object without the annotation is stopped")
	}
	for value, want := range builders.StopValues {
		if got := v1alpha1.IsStopped(annotatedWith(value), v1alpha1.PausedAnnotation); got != want {
			t.Errorf("%q stops: %t, want %t", value, got, want)
		}
		if v1alpha1.IsStopped(annotatedWith(value), v1alpha1.IgnoreAnnotation) {
			t.Errorf("%q of another annotation stops", value)
		}
	}
}

func TestTheRuleIsThatOfThePolicies(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.OneOf(rapid.String(), rapid.StringMatching("(?i) ?fa[lL][sſ]e?")).Draw(t, "value")
		// The policies compare lowerAscii(), which changes only the letters of ASCII.
		lower := strings.Map(func(r rune) rune {
			if r >= 'A' && r <= 'Z' {
				return r + 'a' - 'A'
			}
			return r
		}, value)
		if got, want := v1alpha1.IsStopped(annotatedWith(value), v1alpha1.PausedAnnotation), lower != "" && lower != "false"; got != want {
			t.Errorf("%q stops: %t, the policies say %t", value, got, want)
		}
	})
}

func TestOnlyAnOddStopIsNamed(t *testing.T) {
	for value, want := range map[string]string{
		"": "", "false": "", "FALSE": "", "true": "", "True": "",
		"yes":                   `="yes" (counts as true; use true or false)`,
		"\x1b[2J":               `="\x1b[2J" (counts as true; use true or false)`,
		strings.Repeat("a", 99): `="` + strings.Repeat("a", 32) + `" (counts as true; use true or false)`,
	} {
		if got := v1alpha1.OddStop(annotatedWith(value), v1alpha1.PausedAnnotation); got != want {
			t.Errorf("%q: got %q, want %q", value, got, want)
		}
	}
}

func TestEveryValueExceptFalsePauses(t *testing.T) {
	for value, want := range builders.StopValues {
		profile := &v1alpha1.StorageClientProfile{}
		profile.Annotations = map[string]string{v1alpha1.PausedAnnotation: value}
		if IsPaused(profile) != want || IsProfilePaused(profile) != want {
			t.Errorf("%q pauses: %t, want %t", value, IsPaused(profile), want)
		}
		profile.Spec.Paused = true
		if !IsProfilePaused(profile) {
			t.Errorf("the annotation %q ends the pause of the field", value)
		}
	}
}
