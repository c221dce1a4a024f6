package main

import (
	"flag"
	"io"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/storageclient/operator/api/v1alpha1"
)

func resolve(t *testing.T, args ...string) (settings, error) {
	t.Helper()
	flags := flag.NewFlagSet("manager", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	o := bindFlags(flags)
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	return o.resolve()
}

func TestResolve(t *testing.T) {
	got, err := resolve(t, "--agent-image=agent:1", "--allow-parameter=sysctl/vm\\.swappiness", "--allow-parameter=module/foo/.*")
	if err != nil {
		t.Fatal(err)
	}
	if got.webhookPort != 0 {
		t.Errorf("webhooks by default: port %d", got.webhookPort)
	}
	if got.maxUnavailable != intstr.FromString("5%") || got.agentNamespace != v1alpha1.AgentNamespace || got.untunedTaint != v1alpha1.UntunedTaint {
		t.Errorf("defaults: %+v", got)
	}
	if err := got.allow.Check("sysctl/vm.swappiness", "10"); err != nil {
		t.Errorf("an allowed parameter is refused: %v", err)
	}
}

func TestResolveRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"no image of the agent":       {nil, "--agent-image"},
		"a port that is none":         {[]string{"--agent-image=a", "--webhook-port=65536"}, "--webhook-port"},
		"a budget of nothing":         {[]string{"--agent-image=a", "--max-unavailable=0"}, "--max-unavailable"},
		"agents that anybody may ask": {[]string{"--agent-image=a", "--agent-metrics-bind-address=0.0.0.0:9810"}, "--agent-metrics-bind-address"},
		"more than all":               {[]string{"--agent-image=a", "--max-unavailable=101%"}, "--max-unavailable"},
		"a share that is no share":    {[]string{"--agent-image=a", "--max-unavailable=half"}, "--max-unavailable"},
		"a time that is none":         {[]string{"--agent-image=a", "--unmanaged-counts-for=-1s"}, "--unmanaged-counts-for"},
		"a taint that is no key":      {[]string{"--agent-image=a", "--untuned-taint=a b"}, "--untuned-taint"},
		"a namespace that is none":    {[]string{"--agent-image=a", "--agent-namespace=A_B"}, "--agent-namespace"},
		"an expression that fails":    {[]string{"--agent-image=a", "--allow-parameter=("}, "--allow-parameter"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := resolve(t, test.args...); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want an error that names %s", err, test.want)
			}
		})
	}
}
