package main

import (
	"flag"
	"io"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

func resolve(t *testing.T, args ...string) (settings, error) {
	t.Helper()
	flags := flag.NewFlagSet("manager", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	o := bindFlags(flags)
	check.NoError(t, flags.Parse(args))
	return o.resolve()
}

func TestResolve(t *testing.T) {
	got, err := resolve(t, "--allow-parameter=sysctl/vm\\.swappiness", "--allow-parameter=module/foo/.*", "--allow-filesystem=/scratch")
	check.NoError(t, err)
	check.Equal(t, "default of the webhook port", 0, got.webhookPort)
	if got.maxUnavailable != intstr.FromString("5%") || got.untunedTaint != v1alpha1.UntunedTaint {
		t.Errorf("defaults: %+v", got)
	}
	if got.maxConcurrentLive != intstr.FromString("10%") || got.minLiveSoak != time.Minute {
		t.Errorf("defaults of live changes: got %+v", got)
	}
	if err := got.allow.Check("sysctl/vm.swappiness", "10"); err != nil {
		t.Errorf("an allowed parameter is rejected: %v", err)
	}
	if err := got.allow.Check("filesystem/scratch/*", ":noatime"); err != nil {
		t.Errorf("an allowed file system is rejected: %v", err)
	}
}

func TestResolveProfiler(t *testing.T) {
	for value, want := range map[string]string{"127.0.0.1:6060": "127.0.0.1:6060", "[::1]:6060": "[::1]:6060", "": "", "0": "0"} {
		got, err := resolve(t, "--pprof-bind-address="+value)
		if err != nil || got.profilingAddress != want {
			t.Errorf("%q: got %q, %v", value, got.profilingAddress, err)
		}
	}
}

func TestResolveCertificates(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		keep bool
	}{
		"the manager manages them by default":     {nil, true},
		"the manager manages them":                {[]string{"--webhook-certificates=Self"}, true},
		"another controller or user manages them": {[]string{"--webhook-certificates=Given"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := resolve(t, append(test.args, "--webhook-port=9443")...)
			check.NoError(t, err)
			if webhooks := newWebhooks(got); webhooks.KeepCertificates != test.keep || webhooks.Port != 9443 {
				t.Errorf("got %+v", webhooks)
			}
		})
	}
}

func TestResolveRejectsInvalidFlags(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"the root as a file system":        {[]string{"--allow-filesystem=/"}, "--allow-filesystem"},
		"an invalid port":                  {[]string{"--webhook-port=65536"}, "--webhook-port"},
		"a profiler on a public address":   {[]string{"--pprof-bind-address=0.0.0.0:6060"}, "--pprof-bind-address"},
		"a profiler on all addresses":      {[]string{"--pprof-bind-address=:6060"}, "--pprof-bind-address"},
		"a profiler by a name":             {[]string{"--pprof-bind-address=localhost:6060"}, "--pprof-bind-address"},
		"a profiler without a port":        {[]string{"--pprof-bind-address=127.0.0.1"}, "--pprof-bind-address"},
		"an unknown owner of certificates": {[]string{"--webhook-certificates=self"}, `--webhook-certificates "self": must be Self or Given`},
		"a budget of 0":                    {[]string{"--max-unavailable=0"}, "--max-unavailable"},
		"more than all":                    {[]string{"--max-unavailable=101%"}, "--max-unavailable"},
		"an invalid share":                 {[]string{"--max-unavailable=half"}, "--max-unavailable"},
		"a share of 0% for live changes":   {[]string{"--max-concurrent-live=0%"}, "--max-concurrent-live"},
		"a negative soak":                  {[]string{"--min-live-soak=-1s"}, "--min-live-soak"},
		"a negative time":                  {[]string{"--unmanaged-counts-for=-1s"}, "--unmanaged-counts-for"},
		"an invalid taint key":             {[]string{"--untuned-taint=a b"}, "--untuned-taint"},
		"an invalid key of a mark":         {[]string{"--leaving-mark=example.com/retire", "--leaving-mark=a b=x"}, "--leaving-mark \"a b=x\""},
		"an expression that fails":         {[]string{"--allow-parameter=("}, "--allow-parameter"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := resolve(t, test.args...); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want an error that names %s", err, test.want)
			}
		})
	}
}

func TestAnInvalidNameOfADriverIsRejected(t *testing.T) {
	flags := flag.NewFlagSet("manager", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	bindFlags(flags)
	if err := flags.Parse([]string{"--driver-name=nfs2.example.com=nfs.csi.k8s.io"}); err != nil {
		t.Error(err)
	}
	if err := flags.Parse([]string{"--driver-name=nfs2.example.com"}); err == nil || !strings.Contains(err.Error(), "must be NAME=DRIVER") {
		t.Errorf("got %v", err)
	}
}
