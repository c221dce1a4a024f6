package metrics

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/agentpod"
	"github.com/storageclient/operator/controllers/internal/read"
)

const (
	// collectTimeout limits one read of the cache, which responds at once unless it is still being filled.
	collectTimeout = 5 * time.Second
	// maxFailedNodes limits the one metric that names nodes. A rollout stops long before.
	maxFailedNodes = 100
)

// described contains all descriptors of the collector.
var described []*prometheus.Desc

// describe adds a descriptor with the given labels, which are separated by spaces.
func describe(name, labels, help string) *prometheus.Desc {
	described = append(described, prometheus.NewDesc(name, help, strings.Fields(labels), nil))
	return described[len(described)-1]
}

var (
	profileCondition = describe("storageclient_profile_condition", "profile condition status",
		"Status of a profile's condition: 1 for the current status, 0 for the other two.")
	profileNodes = describe("storageclient_profile_nodes", "profile state",
		"Nodes of a profile, as in its status.nodes. The states overlap; matched is the total.")
	profileVolumes = describe("storageclient_profile_volumes", "profile state",
		"PersistentVolumes of a profile, as in its status.volumes. The states overlap; matched is the total.")
	profileStaleMounts = describe("storageclient_profile_stale_mounts", "profile",
		"Mounts of a profile's volumes that still have old options.")
	profileWaitsForEvidence = describe("storageclient_profile_waiting_for_evidence", "profile",
		"1 if a profile waits for a pod to mount a volume with its new options, otherwise 0.")
	nodes = describe("storageclient_nodes", "state",
		"Managed nodes: all, and the Ready nodes with a silent agent, whose last report may be outdated.")
	settings = describe("storageclient_settings", "state",
		"Settings of all managed nodes by state, from the last reports of their agents.")
	rolloutNodes = describe("storageclient_rollout_nodes", "phase",
		"Managed nodes by phase of the rollout.")
	rolloutBudget = describe("storageclient_rollout_budget_nodes", "",
		"Maximum number of nodes in the cluster that may be out of service at a time (--max-unavailable, resolved).")
	rolloutClaims = describe("storageclient_rollout_claims", "",
		"Nodes that use the budget: cordoned, or about to be cordoned.")
	rolloutOldestClaim = describe("storageclient_rollout_oldest_claim_timestamp_seconds", "",
		"Time of the oldest claim, in seconds since 1970. Absent if there is no claim.")
	nodeFailed = describe("storageclient_node_failed_info", "node reason",
		"1 for each node in phase Failed, and for each failed node that no longer exists, with the rollout's reason; the first 100 by name.")
	serverNodes = describe("storageclient_server_nodes", "server protocol state",
		"Nodes by server state: Answering, Idle, Silent or Stuck. Up to 200 servers, failing servers first; nodes with a silent agent are excluded.")
	serverConnections = describe("storageclient_server_connections", "server protocol",
		"Connections of all nodes to a storage server.")
	serverForgetting = describe("storageclient_server_forgetting_nodes", "server protocol",
		"Nodes whose NFSv4 client a storage server keeps discarding because another client uses the same client ID.")
	serverStale = describe("storageclient_server_stale_nodes", "server protocol",
		"Nodes with mounts whose file handles a storage server no longer accepts: stale handles.")
	serverVolumes = describe("storageclient_server_volumes", "server protocol",
		"PersistentVolumes that managed nodes have mounted from a storage server.")
	serverRequests = describe("storageclient_server_requests_possible", "server protocol",
		"Maximum requests in flight at a storage server from all nodes' volumes: connection slots, or session slots for NFSv4.1 and 4.2. 0 for SMB.")
	serverVariants = describe("storageclient_server_option_variants", "server protocol",
		"Mount options with different values on volumes of one storage server; kubectl storageclient servers lists them.")
	serverVersion = describe("storageclient_server_protocol_version_info", "server protocol version",
		"1 for each protocol version of the mounted volumes of a storage server.")
	serverLimit = describe("storageclient_server_limit", "server protocol resource",
		"Lowest connection and request limits that profiles declare for a server (annotation tuning.storageclient.dev/server-limits). Absent if unset.")
	nodesNamesakes = describe("storageclient_nfs_client_namesakes", "name",
		"Managed nodes that share an NFSv4 client ID, by that ID; absent if every ID is unique. The first 100 IDs.")
	collected = describe("storageclient_collector_success", "",
		"1 if all of the above metrics could be read from the manager's cache, otherwise 0: a metric that could not be read is absent.")
)

// Collector reads the cache at each scrape.
type Collector struct {
	// Reader is the manager's cache.
	Reader client.Reader
	// MaxUnavailable is the cluster's budget: nodes, or a percentage of all Nodes.
	MaxUnavailable intstr.IntOrString
	// ManagerNamespace is the namespace of the budget's claims, AgentNamespace the namespace of the agent's Pods.
	ManagerNamespace, AgentNamespace string
	// Leading is closed once this manager leads; no metric is reported before.
	Leading <-chan struct{}
	// Log receives read errors.
	Log logr.Logger
}

// Describe sends all descriptors.
func (c *Collector) Describe(descriptors chan<- *prometheus.Desc) {
	for _, d := range described {
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
	sink{out}.gauge(collected, success)
}

type sink struct{ out chan<- prometheus.Metric }

func (s sink) gauge(d *prometheus.Desc, value float64, labels ...string) {
	s.out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
}

func (c *Collector) collectProfiles(ctx context.Context, s sink) error {
	profiles, err := read.Profiles(ctx, c.Reader)
	for i := range profiles {
		s.addProfile(&profiles[i])
	}
	return err
}

func (s sink) addProfile(p *v1alpha1.StorageClientProfile) {
	for _, condition := range p.Status.Conditions {
		for _, status := range []metav1.ConditionStatus{metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown} {
			s.gauge(profileCondition, numberOf(condition.Status == status), p.Name, condition.Type, string(status))
		}
	}
	reconciling := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReconciling)
	isWaiting := reconciling != nil && reconciling.Status == metav1.ConditionTrue && reconciling.Reason == v1alpha1.ReasonWaitingForEvidence
	s.gauge(profileWaitsForEvidence, numberOf(isWaiting), p.Name)
	counts := p.Status.Nodes
	for state, count := range map[string]int32{
		"matched": counts.Matched, "up_to_date": counts.UpToDate, "exceptions": counts.Exceptions,
		"pending_reboot": counts.PendingReboot, "disrupted": counts.Disrupted, "failed": counts.Failed, "drifted": counts.Drifted,
	} {
		s.gauge(profileNodes, float64(count), p.Name, state)
	}
	for state, count := range map[string]int32{
		"matched": p.Status.Volumes.Matched, "up_to_date": p.Status.Volumes.UpToDate,
		"exceptions": p.Status.Volumes.Exceptions, "blocked": p.Status.Volumes.Blocked,
	} {
		s.gauge(profileVolumes, float64(count), p.Name, state)
	}
	s.gauge(profileStaleMounts, float64(p.Status.Volumes.StaleMounts), p.Name)
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
	all, err := read.FleetSnapshot(ctx, c.Reader, nil, c.AgentNamespace)
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
	s.gauge(nodes, float64(t.managed), "managed")
	s.gauge(nodes, float64(t.silent), "silent")
	for phase, count := range t.phases {
		s.gauge(rolloutNodes, float64(count), string(phase))
	}
	for state, count := range t.states {
		s.gauge(settings, float64(count), string(state))
	}
	profiles, err := read.Profiles(ctx, c.Reader)
	if err != nil {
		return err
	}
	lost := findLost(profiles)
	t.failed = append(t.failed, lost...)
	slices.SortFunc(t.failed, func(a, b failure) int { return cmp.Or(cmp.Compare(a.node, b.node), cmp.Compare(a.reason, b.reason)) })
	t.failed = slices.Compact(t.failed)
	for _, f := range t.failed[:min(len(t.failed), maxFailedNodes)] {
		s.gauge(nodeFailed, 1, f.node, f.reason)
	}
	s.addServers(t.servers)
	s.addServerMap(believed, profiles)
	s.gauge(rolloutBudget, float64(v1alpha1.ResolveShare(c.MaxUnavailable, len(all.Nodes))))
	return nil
}

// findLost finds the nodes that failed and are gone. Several profiles may name the same node.
func findLost(profiles []v1alpha1.StorageClientProfile) []failure {
	var out []failure
	for i := range profiles {
		for _, node := range profiles[i].Status.LostNodes {
			out = append(out, failure{node.Name, node.Reason})
		}
	}
	return out
}

// collectClaims reports zero claims if there is no budget yet: the first rollout creates it.
func (c *Collector) collectClaims(ctx context.Context, s sink) error {
	var budget corev1.ConfigMap
	key := client.ObjectKey{Namespace: c.ManagerNamespace, Name: v1alpha1.BudgetConfigMap}
	if err := c.Reader.Get(ctx, key, &budget); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("get ConfigMap %s: %w", key, err)
	}
	s.gauge(rolloutClaims, float64(len(budget.Data)))
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
		s.gauge(rolloutOldestClaim, float64(oldest.Unix()))
	}
	return nil
}
