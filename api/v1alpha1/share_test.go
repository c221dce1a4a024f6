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

func TestParseShareRejects(t *testing.T) {
	for name, text := range map[string]string{
		"an empty text": "", "no number": "many", "zero": "0", "a negative number": "-1", "a fraction": "1.5",
		"zero percent": "0%", "more than all": "101%", "two signs": "5%%", "more than 32 bits": "4294967297",
	} {
		if got, err := ParseShare(text); err == nil {
			t.Errorf("%s: %q is accepted as %v", name, text, got)
		}
	}
}
