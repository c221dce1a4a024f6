package v1alpha1

import (
	"testing"

	"k8s.io/apimachinery/pkg/util/intstr"
)

func TestParseShare(t *testing.T) {
	for text, want := range map[string]intstr.IntOrString{
		"1": intstr.FromInt32(1), "250": intstr.FromInt32(250), "1%": intstr.FromString("1%"), "100%": intstr.FromString("100%"),
	} {
		got, err := ParseShare(text)
		if err != nil || got != want {
			t.Errorf("%s: got %v, %v", text, got, err)
		}
	}
}
