package daemonset

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTemplateIsTheSameForTheSameImage(t *testing.T) {
	encode := func(image string, allowed ...string) string {
		data, err := json.Marshal(daemonSet("ns", image, agentArguments(allowed, "")))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	if diff := cmp.Diff(encode("agent:1", "a"), encode("agent:1", "a")); diff != "" {
		t.Errorf("two templates of one image differ, every agent would be replaced:\n%s", diff)
	}
	if encode("agent:1") == encode("agent:2") || encode("agent:1") == encode("agent:1", "a") {
		t.Error("another image or parameter does not show")
	}
}

func TestAgentArguments(t *testing.T) {
	for address, want := range map[string][]string{
		"":               {"run", "--allow-parameter=a"},
		"0":              {"run", "--allow-parameter=a"},
		"127.0.0.1:9810": {"run", "--metrics-bind-address=127.0.0.1:9810", "--allow-parameter=a"},
	} {
		if diff := cmp.Diff(want, agentArguments([]string{"a"}, address)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", address, diff)
		}
	}
}
