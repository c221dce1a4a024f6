package main

import (
	"flag"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	agentmetrics "github.com/storageclient/operator/agent/metrics"
	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/cmd/internal/program"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/drivers"
)

type options struct {
	settings
	maxUnavailable, maxConcurrentLive string
}

type settings struct {
	// cluster is the UID of the cluster. Empty if it is unknown.
	cluster             types.UID
	leaderElect         bool
	webhookCertificates string
	metricsAddress      string
	probeAddress        string
	profilingAddress    string
	webhookPort         int
	untunedTaint        string
	unmanagedCountFor   time.Duration
	includeControlPlane bool
	verbosity           int
	maxUnavailable      intstr.IntOrString
	maxConcurrentLive   intstr.IntOrString
	minLiveSoak         time.Duration
	allowed             program.Strings
	allowedFilesystems  program.Strings
	leavingMarks        program.Strings
	allow               catalogue.AllowList
}

// Values of --webhook-certificates.
const (
	certificatesSelf  = "Self"
	certificatesGiven = "Given"
)

func bindFlags(flags *flag.FlagSet) *options {
	o := &options{}
	flags.BoolVar(&o.leaderElect, "leader-elect", false, "Elect a leader. Required if more than one manager can run")
	flags.StringVar(&o.metricsAddress, "metrics-bind-address", "0",
		"Address of the metrics endpoint, served over TLS to clients with permission to get /metrics. 0 disables it")
	flags.StringVar(&o.probeAddress, "health-probe-bind-address", ":8081", "Address of the health and readiness probes. 0 disables it")
	flags.StringVar(&o.profilingAddress, "pprof-bind-address", "",
		"Loopback address and port of the Go profiler, for example 127.0.0.1:6060. Empty disables it")
	flags.IntVar(&o.webhookPort, "webhook-port", 0, "Port of the webhooks. 0 disables them")
	flags.StringVar(&o.webhookCertificates, "webhook-certificates", certificatesSelf,
		"Owner of the certificate in the Secret storage-client-webhook and of the caBundle in the webhook configurations. Self: the manager. "+
			"Given: another controller or user; the manager only serves the certificate")
	flags.StringVar(&o.maxUnavailable, "max-unavailable", v1alpha1.DefaultClusterMaxUnavailable,
		"Maximum number of nodes of the cluster that can be unavailable at the same time, even if profiles allow more: at least 1, or 1% to "+
			"100%, rounded down to at least 1")
	flags.StringVar(&o.maxConcurrentLive, "max-concurrent-live", v1alpha1.DefaultClusterMaxConcurrentLive,
		"Maximum number of nodes of the cluster that can apply changed live settings at the same time, even if profiles allow more: at least "+
			"1, or 1% to 100%, rounded down to at least 1. A node with the taint of --untuned-taint does not count after its settings are proven "+
			"on another node")
	flags.DurationVar(&o.minLiveSoak, "min-live-soak", time.Minute,
		"Minimum time that the canary of changed settings must stay healthy before other nodes follow, even if profiles allow less")
	flags.DurationVar(&o.unmanagedCountFor, "unmanaged-counts-for", time.Hour,
		"Time for which a node that no profile selects counts against --max-unavailable while it is not Ready or cordoned. 0 means until it "+
			"is back")
	flags.StringVar(&o.untunedTaint, "untuned-taint", v1alpha1.UntunedTaint,
		"Key of the taint that the manager removes after a node is tuned. If you change it, also change the first toleration of "+
			"the manager and the variable untunedTaint of the ValidatingAdmissionPolicy storage-client-manager-nodes")
	flags.Var(&o.leavingMarks, "leaving-mark",
		"Key, or key=value, of a taint, an annotation or a label by which another controller announces that it will remove a node, in addition "+
			"to known ones. The rollout skips such nodes, and counts them as unavailable. Can be repeated")
	flags.Func("driver-name", "Name under which you deploy a known CSI driver, as NAME=DRIVER, for example nfs.example.com=nfs.csi.k8s.io. The "+
		"driver's volumes are handled like volumes of DRIVER. Can be repeated", drivers.AddName)
	flags.BoolVar(&o.includeControlPlane, "include-control-plane", false,
		"Include control-plane nodes if a profile has includeControlPlane: true. The component control-plane sets it, together with the agents' "+
			"DaemonSet and the policy on Nodes")
	flags.IntVar(&o.verbosity, "v", 0, "Log verbosity: 0 for operators, 1 or more for debugging")
	flags.Var(&o.allowed, "allow-parameter",
		"Regular expression of canonical keys, for example sysctl/vm\\.swappiness, that profiles can set in addition to the catalogue. With "+
			"\"=\", it matches a key and a value below the catalogue's minimum. Can be repeated. The agents need the same flag")
	flags.Var(&o.allowedFilesystems, "allow-filesystem",
		"Directory, for example /scratch, at and below which profiles can set mount options of host file systems, in addition to /mnt, "+
			"/data, /srv, and application directories in /var/lib. Can be repeated. The agents need the same flag")
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
	for _, mark := range resolved.leavingMarks {
		key, _, _ := strings.Cut(mark, "=")
		if problems := validation.IsQualifiedName(key); len(problems) > 0 {
			return resolved, fmt.Errorf("--leaving-mark %q: the key %s", mark, strings.Join(problems, "; "))
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
	if !resolved.includeControlPlane {
		resolved.allow = resolved.allow.WithoutControlPlane()
	}
	return resolved, nil
}
