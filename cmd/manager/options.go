package main

import (
	"flag"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	agentmetrics "github.com/storageclient/operator/agent/metrics"
	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/catalogue"
)

// options are the raw flags.
type options struct {
	settings
	maxUnavailable, maxConcurrentLive string
}

// settings are the parsed flags.
type settings struct {
	leaderElect         bool
	webhookCertificates string
	metricsAddress      string
	probeAddress        string
	profilingAddress    string
	webhookPort         int
	untunedTaint        string
	unmanagedCountFor   time.Duration
	verbosity           int
	maxUnavailable      intstr.IntOrString
	maxConcurrentLive   intstr.IntOrString
	minLiveSoak         time.Duration
	allowed             patterns
	allowedFilesystems  patterns
	allow               catalogue.AllowList
}

// Values of --webhook-certificates.
const (
	certificatesSelf  = "Self"
	certificatesGiven = "Given"
)

// patterns is the value of a flag that can be repeated.
type patterns []string

func (p *patterns) String() string { return strings.Join(*p, ",") }

func (p *patterns) Set(value string) error {
	*p = append(*p, value)
	return nil
}

func bindFlags(flags *flag.FlagSet) *options {
	o := &options{}
	flags.BoolVar(&o.leaderElect, "leader-elect", false, "Elect a leader among several managers. Required wherever more than one may run.")
	flags.StringVar(&o.metricsAddress, "metrics-bind-address", "0", "Address of the metrics endpoint, served over TLS to those whom the API server lets read /metrics. 0: none.")
	flags.StringVar(&o.probeAddress, "health-probe-bind-address", ":8081", "Address of the health and readiness probes. 0: none.")
	flags.StringVar(&o.profilingAddress, "pprof-bind-address", "", "Loopback address and port of the Go profiler, e.g. 127.0.0.1:6060, for finding out what the manager is busy with. Empty: none.")
	flags.IntVar(&o.webhookPort, "webhook-port", 0, "Port of the webhooks. 0: no webhook.")
	flags.StringVar(&o.webhookCertificates, "webhook-certificates", certificatesSelf, "Who keeps the webhooks' certificate, in the Secret storage-client-webhook, and the caBundle of their configurations. Self: the manager. Given: somebody else; the manager serves what it finds there.")
	flags.StringVar(&o.maxUnavailable, "max-unavailable", v1alpha1.DefaultClusterMaxUnavailable, "How many of the cluster's nodes may be out of service at a time, whatever profiles allow: at least 1, or 1% to 100%, rounded down and never under 1.")
	flags.StringVar(&o.maxConcurrentLive, "max-concurrent-live", v1alpha1.DefaultClusterMaxConcurrentLive, "How many of the cluster's nodes may take changed live settings at a time, whatever profiles allow: at least 1, or 1% to 100%, rounded down and never under 1. A node that still bears the taint of --untuned-taint takes no place once its settings are proven elsewhere.")
	flags.DurationVar(&o.minLiveSoak, "min-live-soak", time.Minute, "For how long at least the canary of changed settings stays well before other nodes follow, whatever profiles say.")
	flags.DurationVar(&o.unmanagedCountFor, "unmanaged-counts-for", time.Hour, "For how long a node that no profile selects uses up --max-unavailable while it is not Ready or cordoned. 0: until it is back.")
	flags.StringVar(&o.untunedTaint, "untuned-taint", v1alpha1.UntunedTaint, "Key of the taint that is removed once a node is tuned. Another key has to stand in the variable untunedTaint of the ValidatingAdmissionPolicy storage-client-manager-nodes as well.")
	flags.IntVar(&o.verbosity, "v", 0, "Log verbosity: 0 for operators, 1 and more for debugging.")
	flags.Var(&o.allowed, "allow-parameter", "Regular expression of canonical keys, e.g. sysctl/vm\\.swappiness, that profiles may set beyond the catalogue. With a \"=\", of a key and a value below the catalogue's floor. May be given more than once. The agents need the same flag.")
	flags.Var(&o.allowedFilesystems, "allow-filesystem", "Directory, e.g. /scratch, at and below which profiles may set mount options of host file systems, beyond /mnt, /data, /srv and applications' directories in /var/lib. May be given more than once. The agents need the same flag.")
	return o
}

func (o *options) resolve() (settings, error) {
	resolved := o.settings
	if resolved.webhookPort < 0 || resolved.webhookPort > 65535 {
		return resolved, fmt.Errorf("--webhook-port %d: must be 0 to 65535", resolved.webhookPort)
	}
	if mode := resolved.webhookCertificates; mode != certificatesSelf && mode != certificatesGiven {
		return resolved, fmt.Errorf("--webhook-certificates %q: must be %s or %s", mode, certificatesSelf, certificatesGiven)
	}
	if address := resolved.profilingAddress; address != "" {
		if err := agentmetrics.CheckAddress(address); err != nil {
			return resolved, fmt.Errorf("--pprof-bind-address %w", err)
		}
	}
	if resolved.minLiveSoak < 0 {
		return resolved, fmt.Errorf("--min-live-soak %s: must be 0 or more", resolved.minLiveSoak)
	}
	if resolved.unmanagedCountFor < 0 {
		return resolved, fmt.Errorf("--unmanaged-counts-for %s: must be 0 or more", resolved.unmanagedCountFor)
	}
	for _, problem := range validation.IsQualifiedName(resolved.untunedTaint) {
		return resolved, fmt.Errorf("--untuned-taint %q: %s", resolved.untunedTaint, problem)
	}
	var err error
	if resolved.maxUnavailable, err = v1alpha1.ParseShare(o.maxUnavailable); err != nil {
		return resolved, fmt.Errorf("--max-unavailable %q: %w", o.maxUnavailable, err)
	}
	if resolved.maxConcurrentLive, err = v1alpha1.ParseShare(o.maxConcurrentLive); err != nil {
		return resolved, fmt.Errorf("--max-concurrent-live %q: %w", o.maxConcurrentLive, err)
	}
	if resolved.allow, err = catalogue.NewAllowList(resolved.allowed); err != nil {
		return resolved, fmt.Errorf("--allow-parameter: %w", err)
	}
	if resolved.allow, err = resolved.allow.WithFilesystems(resolved.allowedFilesystems); err != nil {
		return resolved, fmt.Errorf("--allow-filesystem: %w", err)
	}
	return resolved, nil
}
