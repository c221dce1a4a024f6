// Package metrics exports the state of profiles, nodes and the rollout to Prometheus. States are read from the manager's cache at each scrape, so
// that they never differ from the objects. Events are counted from the changes of StorageClientNodes. Only the leading manager reports: sums over
// replicas count everything once.
//
// Labels are bounded: profiles, and the words of the API. Only one label names nodes; it covers failed nodes, up to a maximum. docs/reference.md is
// generated from the declarations here.
package metrics

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/agentpod"
	"github.com/storageclient/operator/controllers/internal/fleet"
	"github.com/storageclient/operator/controllers/internal/read"
	"github.com/storageclient/operator/controllers/internal/watch"
	"github.com/storageclient/operator/tuning/embedded"
	"github.com/storageclient/operator/tuning/servermap"
)

const (
	// collectTimeout limits one read of the cache, which responds at once unless it is still being filled.
	collectTimeout = 5 * time.Second
	// maxFailedNodes limits the one metric that names nodes. A rollout stops long before.
	maxFailedNodes = 100
)

//go:embed metrics.yaml
var metricsYAML []byte

var gauges = map[string]*prometheus.Desc{}

func init() {
	for name, g := range embedded.Parse[map[string]struct{ Labels, Help string }]("metrics.yaml", metricsYAML) {
		gauges[name] = prometheus.NewDesc(name, g.Help, strings.Fields(g.Labels), nil)
	}
}

// Collector reads the cache at each scrape.
type Collector struct {
	// Reader is the manager's cache.
	Reader client.Reader
	// MaxUnavailable is the cluster's budget: nodes, or a percentage of all Nodes.
	MaxUnavailable intstr.IntOrString
	// Leading is closed once this manager leads; no metric is reported before.
	Leading <-chan struct{}
	// Log receives read errors.
	Log logr.Logger
}

// Describe sends all descriptors.
func (c *Collector) Describe(descriptors chan<- *prometheus.Desc) {
	for _, d := range gauges {
		descriptors <- d
	}
}

// Collect reports the data in the cache. Data that cannot be read is omitted, because an error here would fail the whole scrape.
func (c *Collector) Collect(out chan<- prometheus.Metric) {
	select {
	case <-c.Leading:
	default:
		return
	}
	// Prometheus passes no context to a collector.
	ctx, cancel := context.WithTimeout(context.Background(), collectTimeout)
	defer cancel()
	success := 1.0
	for _, part := range []func(context.Context, sink) error{c.collectProfiles, c.collectNodes, c.collectClaims} {
		if err := part(ctx, sink{out}); err != nil {
			c.Log.Error(err, "Some metrics are missing from this scrape")
			success = 0
		}
	}
	sink{out}.gauge("storageclient_collector_success", success)
}

type sink struct{ out chan<- prometheus.Metric }

func (s sink) gauge(name string, value float64, labels ...string) {
	s.out <- prometheus.MustNewConstMetric(gauges[name], prometheus.GaugeValue, value, labels...)
}

func (c *Collector) collectProfiles(ctx context.Context, s sink) error {
	profiles, err := read.Profiles(ctx, c.Reader)
	for _, profile := range profiles {
		s.addProfile(profile)
	}
	return err
}

func (s sink) addProfile(p *v1alpha1.StorageClientProfile) {
	for _, condition := range p.Status.Conditions {
		for _, status := range []metav1.ConditionStatus{metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown} {
			s.gauge("storageclient_profile_condition", numberOf(condition.Status == status), p.Name, condition.Type, string(status))
		}
	}
	reconciling := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReconciling)
	isWaiting := reconciling != nil && reconciling.Status == metav1.ConditionTrue && reconciling.Reason == v1alpha1.ReasonWaitingForEvidence
	s.gauge("storageclient_profile_waiting_for_evidence", numberOf(isWaiting), p.Name)
	counts := p.Status.Nodes
	for state, count := range map[string]int32{
		"matched": counts.Matched, "up_to_date": counts.UpToDate, "exceptions": counts.Exceptions,
		"pending_reboot": counts.PendingReboot, "disrupted": counts.Disrupted, "failed": counts.Failed, "drifted": counts.Drifted,
	} {
		s.gauge("storageclient_profile_nodes", float64(count), p.Name, state)
	}
	for state, count := range map[string]int32{
		"matched": p.Status.Volumes.Matched, "up_to_date": p.Status.Volumes.UpToDate,
		"exceptions": p.Status.Volumes.Exceptions, "blocked": p.Status.Volumes.Blocked,
	} {
		s.gauge("storageclient_profile_volumes", float64(count), p.Name, state)
	}
	s.gauge("storageclient_profile_stale_mounts", float64(p.Status.Volumes.StaleMounts), p.Name)
}

func numberOf(value bool) float64 {
	if value {
		return 1
	}
	return 0
}

type tally struct {
	managed, silent int
	phases          map[v1alpha1.RolloutPhase]int
	states          map[v1alpha1.SettingState]int
	failed          []failure
	servers         map[serverKey]*serverTally
}

type failure struct{ node, reason string }

// newTally initializes all phases and states, so that those without nodes are reported as 0 and not as absent.
func newTally() tally {
	t := tally{phases: map[v1alpha1.RolloutPhase]int{}, states: map[v1alpha1.SettingState]int{}, servers: map[serverKey]*serverTally{}}
	for _, phase := range []v1alpha1.RolloutPhase{
		v1alpha1.RolloutApplying, v1alpha1.RolloutUpToDate, v1alpha1.RolloutWaiting, v1alpha1.RolloutClaimed, v1alpha1.RolloutDraining,
		v1alpha1.RolloutRebooting, v1alpha1.RolloutSettling, v1alpha1.RolloutFailed, v1alpha1.RolloutReleasing,
	} {
		t.phases[phase] = 0
	}
	for _, state := range []v1alpha1.SettingState{
		v1alpha1.SettingInSync, v1alpha1.SettingPending, v1alpha1.SettingDrifted, v1alpha1.SettingShadowed,
		v1alpha1.SettingClamped, v1alpha1.SettingUnsupported, v1alpha1.SettingFailed,
	} {
		t.states[state] = 0
	}
	return t
}

// addNode adds a node. believed is true if the report of the node's agent is current.
func (t *tally) addNode(node *corev1.Node, clientNode *v1alpha1.StorageClientNode, agentReady bool) (believed bool) {
	t.managed++
	believed = agentpod.SilentReason(node, clientNode, agentReady) == ""
	if agentpod.IsNodeReady(node) && !believed {
		t.silent++
	}
	if believed {
		t.addServers(clientNode)
	}
	for _, setting := range clientNode.Status.Settings {
		t.states[setting.State]++
	}
	rollout := clientNode.Status.Rollout
	if rollout == nil || rollout.Phase == "" {
		return believed
	}
	t.phases[rollout.Phase]++
	if rollout.Phase == v1alpha1.RolloutFailed {
		t.failed = append(t.failed, failure{node.Name, rollout.Reason})
	}
	return believed
}

func (c *Collector) collectNodes(ctx context.Context, s sink) error {
	all, err := read.FleetSnapshot(ctx, c.Reader, nil)
	if err != nil {
		return err
	}
	t := newTally()
	var believed []v1alpha1.StorageClientNode
	for _, node := range all.Nodes {
		if clientNode := all.ClientNodes[node.Name]; clientNode != nil {
			if t.addNode(node, clientNode, all.Ready[node.Name]) {
				believed = append(believed, *clientNode)
			}
		}
	}
	s.gauge("storageclient_nodes", float64(t.managed), "managed")
	s.gauge("storageclient_nodes", float64(t.silent), "silent")
	for phase, count := range t.phases {
		s.gauge("storageclient_rollout_nodes", float64(count), string(phase))
	}
	for state, count := range t.states {
		s.gauge("storageclient_settings", float64(count), string(state))
	}
	profiles, err := read.Profiles(ctx, c.Reader)
	if err != nil {
		return err
	}
	// Several profiles may name the same node.
	for _, profile := range profiles {
		for _, lost := range profile.Status.LostNodes {
			t.failed = append(t.failed, failure{lost.Name, lost.Reason})
		}
	}
	slices.SortFunc(t.failed, func(a, b failure) int { return cmp.Or(cmp.Compare(a.node, b.node), cmp.Compare(a.reason, b.reason)) })
	t.failed = slices.Compact(t.failed)
	for _, f := range t.failed[:min(len(t.failed), maxFailedNodes)] {
		s.gauge("storageclient_node_failed_info", 1, f.node, f.reason)
	}
	s.addServers(t.servers)
	s.addServerMap(believed, profiles)
	s.gauge("storageclient_rollout_budget_nodes", float64(v1alpha1.ResolveShare(c.MaxUnavailable, len(all.Nodes))))
	return nil
}

// collectClaims reports zero claims if there is no budget yet: the first rollout creates it.
func (c *Collector) collectClaims(ctx context.Context, s sink) error {
	var budget corev1.ConfigMap
	key := client.ObjectKey{Namespace: v1alpha1.ManagerNamespace, Name: v1alpha1.BudgetConfigMap}
	if err := client.IgnoreNotFound(c.Reader.Get(ctx, key, &budget)); err != nil {
		return fmt.Errorf("get ConfigMap %s: %w", key, err)
	}
	s.gauge("storageclient_rollout_claims", float64(len(budget.Data)))
	var oldest time.Time
	for _, value := range budget.Data {
		claim, err := v1alpha1.DecodeDisruption(value)
		if err != nil || claim.Since.IsZero() {
			continue // it counts, and the rollout logs the problem
		}
		if oldest.IsZero() || claim.Since.Time.Before(oldest) {
			oldest = claim.Since.Time
		}
	}
	if !oldest.IsZero() {
		s.gauge("storageclient_rollout_oldest_claim_timestamp_seconds", float64(oldest.Unix()))
	}
	return nil
}

// Reporter adds the metrics to a manager. It reads only objects that the controllers read, and needs no additional rights.
type Reporter struct {
	// Registry is the registry that the manager serves.
	Registry prometheus.Registerer
	// MaxUnavailable is the cluster's budget: nodes, or a percentage of all Nodes.
	MaxUnavailable intstr.IntOrString
}

// SetupWithManager registers the metrics and watches StorageClientNodes.
func (r *Reporter) SetupWithManager(mgr ctrl.Manager) error {
	transitions := NewTransitions()
	for _, c := range []prometheus.Collector{transitions, &Collector{
		Reader: mgr.GetCache(), MaxUnavailable: r.MaxUnavailable, Leading: mgr.Elected(), Log: mgr.GetLogger().WithName("metrics"),
	}} {
		if err := r.Registry.Register(c); err != nil {
			return fmt.Errorf("register metrics: %w", err)
		}
	}
	return watch.ClientNodeUpdates(mgr, transitions.CountChanges)
}

const (
	// maxServers is the maximum number of storage servers in the metrics, maxNamesakes the maximum number of client names that nodes share.
	maxServers   = 200
	maxNamesakes = 100
)

type serverKey struct {
	server   string
	protocol v1alpha1.ServerProtocol
}

type serverTally struct {
	states                  map[v1alpha1.ServerState]int
	connections, forgetting int
	stale                   int
	failing                 bool
}

func (t *tally) addServers(clientNode *v1alpha1.StorageClientNode) {
	for _, s := range clientNode.Status.Servers {
		key := serverKey{servermap.NameOn(clientNode.Name, s.Server), s.Protocol}
		server := t.servers[key]
		if server == nil {
			server = &serverTally{states: map[v1alpha1.ServerState]int{
				v1alpha1.ServerAnswering: 0, v1alpha1.ServerIdle: 0, v1alpha1.ServerSilent: 0, v1alpha1.ServerStuck: 0,
			}}
			t.servers[key] = server
		}
		server.states[s.State]++
		server.connections += int(s.Connections)
		server.failing = server.failing || fleet.IsFailing(s)
		if s.Forgetting {
			server.forgetting++
		}
		if fleet.IsStale(s) {
			server.stale++
		}
	}
}

func (s sink) addServers(servers map[serverKey]*serverTally) {
	rank := func(key serverKey) int {
		if servers[key].failing || servers[key].forgetting > 0 || servers[key].stale > 0 {
			return 0
		}
		return 1
	}
	keys := slices.SortedFunc(maps.Keys(servers), func(a, b serverKey) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.server, b.server), cmp.Compare(a.protocol, b.protocol))
	})
	for _, key := range keys[:min(len(keys), maxServers)] {
		server, protocol := servers[key], string(key.protocol)
		for state, count := range server.states {
			s.gauge("storageclient_server_nodes", float64(count), key.server, protocol, string(state))
		}
		s.gauge("storageclient_server_connections", float64(server.connections), key.server, protocol)
		s.gauge("storageclient_server_forgetting_nodes", float64(server.forgetting), key.server, protocol)
		s.gauge("storageclient_server_stale_nodes", float64(server.stale), key.server, protocol)
	}
}

// addServerMap adds the data of the plugin's server map, for servers whose volumes managed nodes mount.
func (s sink) addServerMap(clientNodes []v1alpha1.StorageClientNode, profiles []*v1alpha1.StorageClientProfile) {
	servers := servermap.Build(clientNodes, profiles)
	for _, server := range servers[:min(len(servers), maxServers)] {
		protocol := string(server.Protocol)
		s.gauge("storageclient_server_volumes", float64(len(server.Volumes)), server.Server, protocol)
		s.gauge("storageclient_server_requests_possible", float64(server.RequestsPossible), server.Server, protocol)
		s.gauge("storageclient_server_option_variants", float64(len(server.Variants)), server.Server, protocol)
		for _, version := range server.Versions {
			s.gauge("storageclient_server_protocol_version_info", 1, server.Server, protocol, version)
		}
		for resource, limit := range map[string]int64{"connections": server.ConnectionsLimit, "requests": server.RequestsLimit} {
			if limit > 0 {
				s.gauge("storageclient_server_limit", float64(limit), server.Server, protocol, resource)
			}
		}
	}
	namesakes := servermap.FindDuplicateClientIDs(clientNodes)
	for _, same := range namesakes[:min(len(namesakes), maxNamesakes)] {
		s.gauge("storageclient_nfs_client_namesakes", float64(len(same.Nodes)), same.Name)
	}
}
