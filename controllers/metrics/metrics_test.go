package metrics

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/agentpod"
	"github.com/storageclient/operator/controllers/internal/watch"
	"github.com/storageclient/operator/test/check"
)

var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

func newReader(t *testing.T, funcs interceptor.Funcs, objects ...client.Object) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		check.NoError(t, add(scheme))
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(funcs).Build()
}

func newCollector(reader client.Reader) *Collector {
	return &Collector{
		Reader: reader, MaxUnavailable: intstr.FromString("50%"),
		Leading: closed, Log: logr.Discard(),
	}
}

func node(name string, ready bool) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	n.Status.NodeInfo.BootID = "boot-1"
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}
	return n
}

func object(name string, phase v1alpha1.RolloutPhase, reason string, states ...v1alpha1.SettingState) *v1alpha1.StorageClientNode {
	clientNode := &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: name}}
	clientNode.Status.BootID = "boot-1"
	clientNode.Status.Rollout = &v1alpha1.RolloutStatus{Phase: phase, Reason: reason}
	for i, state := range states {
		clientNode.Status.Settings = append(clientNode.Status.Settings, v1alpha1.SettingStatus{Key: fmt.Sprint("sysctl/k", i), State: state})
	}
	return clientNode
}

func agent(node string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.AgentNamespace, Name: node, Labels: map[string]string{agentpod.ComponentLabel: agentpod.Component}}}
	pod.Spec.NodeName = node
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	return pod
}

func profile() *v1alpha1.StorageClientProfile {
	p := &v1alpha1.StorageClientProfile{ObjectMeta: metav1.ObjectMeta{Name: "eda"}}
	p.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionStalled, Status: metav1.ConditionTrue}}
	p.Status.Nodes = v1alpha1.NodeCounts{Matched: 7, UpToDate: 1, Exceptions: 2, PendingReboot: 3, Disrupted: 4, Failed: 5, Drifted: 6}
	p.Status.Volumes = v1alpha1.VolumeCounts{Matched: 9, UpToDate: 8, Blocked: 1, StaleMounts: 3}
	return p
}

func claims(data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.ManagerNamespace, Name: v1alpha1.BudgetConfigMap}, Data: data}
}

// values returns the samples by name and labels, without zeros.
func values(t *testing.T, collectors ...prometheus.Collector) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(collectors...)
	families, err := registry.Gather()
	check.NoError(t, err)
	got := map[string]float64{}
	for _, family := range families {
		for _, m := range family.Metric {
			words := []string{strings.TrimPrefix(family.GetName(), "storageclient_")}
			for _, label := range m.Label {
				words = append(words, label.GetValue())
			}
			name := strings.Join(words, " ")
			value := m.GetGauge().GetValue() + m.GetCounter().GetValue()
			if m.Histogram != nil {
				value = m.Histogram.GetSampleSum()
			}
			if value != 0 {
				got[name] = value
			}
		}
	}
	return got
}

func TestCollectReportsTheStateOfObjects(t *testing.T) {
	reader := newReader(t, interceptor.Funcs{}, profile(),
		node("a", true), object("a", v1alpha1.RolloutUpToDate, "", v1alpha1.SettingInSync, v1alpha1.SettingDrifted), agent("a"),
		node("b", true), object("b", v1alpha1.RolloutFailed, v1alpha1.RolloutReasonRebootWithoutEffect), // without an agent
		node("c", false), object("c", v1alpha1.RolloutRebooting, v1alpha1.RolloutReasonRebootStarted), // down, so its agent is not missing
		node("d", true), // not managed
		object("gone", v1alpha1.RolloutFailed, v1alpha1.RolloutReasonRebootTimedOut),
		claims(map[string]string{
			"b": `{"profile":"eda","bootHash":"h","since":"2026-08-01T00:00:10Z"}`,
			"c": `{"profile":"eda","bootHash":"h","since":"2026-08-01T00:00:00Z"}`, "d": `{`,
		}))
	want := map[string]float64{
		"profile_condition Stalled eda True": 1,
		"profile_nodes eda matched":          7, "profile_nodes eda up_to_date": 1, "profile_nodes eda exceptions": 2, "profile_nodes eda pending_reboot": 3,
		"profile_nodes eda disrupted": 4, "profile_nodes eda failed": 5, "profile_nodes eda drifted": 6,
		"profile_volumes eda matched": 9, "profile_volumes eda up_to_date": 8, "profile_volumes eda blocked": 1, "profile_stale_mounts eda": 3,
		"nodes managed": 3, "nodes silent": 1, "settings InSync": 1, "settings Drifted": 1,
		"rollout_nodes UpToDate": 1, "rollout_nodes Failed": 1, "rollout_nodes Rebooting": 1,
		"node_failed_info b RebootWithoutEffect": 1, "rollout_budget_nodes": 2, "rollout_claims": 3,
		"rollout_oldest_claim_timestamp_seconds": float64(time.Date(2026, 8, 1, 0, 0, 0, 0, time.UTC).Unix()),
		"collector_success":                      1,
	}
	check.Equal(t, "result", want, values(t, newCollector(reader)))
}

func TestCollectCountsNodesByServerState(t *testing.T) {
	at := func(name string, servers ...v1alpha1.ServerStatus) *v1alpha1.StorageClientNode {
		clientNode := object(name, v1alpha1.RolloutUpToDate, "")
		clientNode.Status.Servers = servers
		return clientNode
	}
	server := func(name string, state v1alpha1.ServerState, connections int32) v1alpha1.ServerStatus {
		return v1alpha1.ServerStatus{Server: name, Protocol: v1alpha1.ServerNFS, State: state, Connections: connections}
	}
	forgetting := server("filer2", v1alpha1.ServerAnswering, 1)
	forgetting.Forgetting = true
	stale := server("filer3", v1alpha1.ServerAnswering, 1)
	stale.Reason = v1alpha1.ServerReasonStaleHandles
	got := values(t, newCollector(newReader(t, interceptor.Funcs{},
		node("a", true), at("a", server("filer1", v1alpha1.ServerSilent, 4), forgetting), agent("a"),
		node("b", true), at("b", server("filer1", v1alpha1.ServerSilent, 2), stale), agent("b"),
		node("c", true), at("c", server("filer1", v1alpha1.ServerAnswering, 1)), agent("c"),
		node("d", true), at("d", server("filer1", v1alpha1.ServerStuck, 1)), // without an agent, so its report is outdated
	)))
	want := map[string]float64{
		"server_nodes NFS filer1 Silent": 2, "server_nodes NFS filer1 Answering": 1, "server_nodes NFS filer2 Answering": 1,
		"server_connections NFS filer1": 7, "server_connections NFS filer2": 1, "server_forgetting_nodes NFS filer2": 1,
		"server_nodes NFS filer3 Answering": 1, "server_connections NFS filer3": 1, "server_stale_nodes NFS filer3": 1,
	}
	for name := range got {
		if !strings.HasPrefix(name, "server_") {
			delete(got, name)
		}
	}
	check.Equal(t, "result", want, got)
}

func TestCollectReportsTheServerMapAndItsLimits(t *testing.T) {
	at := func(name, clientName string, mounts ...v1alpha1.MountStatus) *v1alpha1.StorageClientNode {
		clientNode := object(name, v1alpha1.RolloutUpToDate, "")
		clientNode.Status.NFS4ClientName, clientNode.Status.Mounts = clientName, mounts
		return clientNode
	}
	mount := func(volume, protocol string, options ...string) v1alpha1.MountStatus {
		return v1alpha1.MountStatus{MountPoint: "/" + volume, Server: "filer1", Protocol: protocol, Volume: volume, Connections: 2, SlotLimit: 16, Options: options}
	}
	limits := profile()
	limits.Annotations = map[string]string{v1alpha1.ServerLimitsAnnotation: "connections=3"}
	got := values(t, newCollector(newReader(t, interceptor.Funcs{}, limits,
		node("a", true), at("a", "node1", mount("pv1", "NFSv3", "hard"), mount("pv2", "NFSv4.1", "soft")), agent("a"),
		node("b", true), at("b", "node1", mount("pv1", "NFSv3", "hard")), agent("b"),
		node("c", true), at("c", "id/node1"), agent("c"),
		node("d", true), at("d", "node1"), // without an agent
	)))
	want := map[string]float64{
		"server_volumes NFS filer1": 2, "server_requests_possible NFS filer1": 2*16 + 64 + 2*16, "server_option_variants NFS filer1": 2,
		"server_protocol_version_info NFS filer1 NFSv3": 1, "server_protocol_version_info NFS filer1 NFSv4.1": 1,
		"server_limit NFS connections filer1": 3, "nfs_client_namesakes node1": 2,
	}
	for name := range got {
		if !strings.HasPrefix(name, "server_") && !strings.HasPrefix(name, "nfs_") {
			delete(got, name)
		}
	}
	check.Equal(t, "result", want, got)
}

func TestCollectLimitsTheNumberOfServers(t *testing.T) {
	clientNode := object("a", v1alpha1.RolloutUpToDate, "")
	for i := range maxServers + 5 {
		clientNode.Status.Servers = append(clientNode.Status.Servers, v1alpha1.ServerStatus{
			Server: fmt.Sprintf("s%03d", i), Protocol: v1alpha1.ServerNFS, State: v1alpha1.ServerIdle, Connections: 1,
		})
	}
	last := &clientNode.Status.Servers[maxServers+4]
	last.State = v1alpha1.ServerSilent
	servers := 0
	got := values(t, newCollector(newReader(t, interceptor.Funcs{}, node("a", true), clientNode, agent("a"))))
	for name := range got {
		if strings.HasPrefix(name, "server_connections ") {
			servers++
		}
	}
	if servers != maxServers || got["server_nodes NFS "+last.Server+" Silent"] != 1 {
		t.Errorf("got %d servers, want %d including the Silent one", servers, maxServers)
	}
}

func TestCollectReportsProfilesThatWaitForAMount(t *testing.T) {
	for reason, want := range map[string]float64{v1alpha1.ReasonWaitingForEvidence: 1, v1alpha1.ReasonRollingOut: 0} {
		waiting := profile()
		waiting.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReconciling, Status: metav1.ConditionTrue, Reason: reason}}
		if got := values(t, newCollector(newReader(t, interceptor.Funcs{}, waiting)))["profile_waiting_for_evidence eda"]; got != want {
			t.Errorf("with reason %s: got %v, want %v", reason, got, want)
		}
	}
}

// Two profiles report the same deleted node, and one profile reports a deleted node with the name of an existing node.
func TestCollectNamesFailedNodesThatAreGone(t *testing.T) {
	eda, smb := profile(), profile()
	smb.Name = "smb"
	lost := v1alpha1.LostNode{Name: "z", Reason: v1alpha1.RolloutReasonNodeLost}
	eda.Status.LostNodes = []v1alpha1.LostNode{lost, {Name: "a", Reason: v1alpha1.RolloutReasonRebootTimedOut}}
	smb.Status.LostNodes = []v1alpha1.LostNode{lost}
	got := values(t, newCollector(newReader(t, interceptor.Funcs{}, eda, smb, node("a", true), object("a", v1alpha1.RolloutFailed, v1alpha1.RolloutReasonRebootTimedOut))))
	for _, name := range []string{"node_failed_info a RebootTimedOut", "node_failed_info z NodeLost", "rollout_nodes Failed", "collector_success"} {
		if got[name] != 1 {
			t.Errorf("%s is %v, want 1", name, got[name])
		}
	}
}

func TestCollectLimitsTheNumberOfFailedNodes(t *testing.T) {
	var objects []client.Object
	for i := range maxFailedNodes + 5 {
		name := fmt.Sprintf("n%03d", i)
		objects = append(objects, node(name, true), object(name, v1alpha1.RolloutFailed, v1alpha1.RolloutReasonRebootTimedOut))
	}
	collector := newCollector(newReader(t, interceptor.Funcs{}, objects...))
	got, named := values(t, collector), 0
	for name := range got {
		if strings.HasPrefix(name, "node_failed_info ") {
			named++
		}
	}
	if named != maxFailedNodes || got["rollout_nodes Failed"] != maxFailedNodes+5 {
		t.Errorf("got %d nodes named and %v counted, want %d and %d", named, got["rollout_nodes Failed"], maxFailedNodes, maxFailedNodes+5)
	}
}

func TestCollectIfTheCacheFails(t *testing.T) {
	funcs := interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		if _, isNodes := list.(*corev1.NodeList); isNodes {
			return errors.New("no cache")
		}
		return c.List(ctx, list, opts...)
	}}
	got := values(t, newCollector(newReader(t, funcs, profile())))
	if _, found := got["collector_success"]; found || got["profile_nodes eda matched"] != 7 {
		t.Errorf("got %v, want the profile's counts and no collector_success", got)
	}
}

func TestOnlyTheLeaderReports(t *testing.T) {
	collector := newCollector(newReader(t, interceptor.Funcs{}, profile()))
	follower := make(chan struct{})
	collector.Leading = follower
	if got := values(t, collector); len(got) > 0 {
		t.Errorf("got %v from a replica that is not the leader", got)
	}
	transitions := NewTransitions()
	before, after := object("a", v1alpha1.RolloutRebooting, ""), object("a", v1alpha1.RolloutFailed, v1alpha1.RolloutReasonRebootTimedOut)
	watch.WhileLeading(follower, transitions.CountChanges)(before, after)
	if got := values(t, transitions); len(got) > 0 {
		t.Errorf("got %v counted by a replica that is not the leader", got)
	}
	watch.WhileLeading(closed, transitions.CountChanges)(before, after)
	if got := values(t, transitions); got["node_failures_total RebootTimedOut"] != 1 {
		t.Errorf("got %v counted by the leader", got)
	}
}

// heldAt is a node that was cordoned because budgets alone kept its pods.
func heldAt(clientNode *v1alpha1.StorageClientNode) *v1alpha1.StorageClientNode {
	clientNode.Status.Rollout.HeldSince = clientNode.Status.Rollout.Since
	return clientNode
}

func TestTransitions(t *testing.T) {
	at := func(phase v1alpha1.RolloutPhase, reason string, second int64) *v1alpha1.StorageClientNode {
		clientNode := object("a", phase, reason)
		since := metav1.Unix(1000+second, 0)
		clientNode.Status.Rollout.Since = &since
		return clientNode
	}
	evicting := func(count int32, clientNode *v1alpha1.StorageClientNode) *v1alpha1.StorageClientNode {
		clientNode.Status.Rollout.Evictions = count
		return clientNode
	}
	retried := func(clientNode *v1alpha1.StorageClientNode) *v1alpha1.StorageClientNode {
		clientNode.Status.Rollout.RetryAfter = &metav1.Time{Time: clientNode.Status.Rollout.Since.Add(time.Minute)}
		return clientNode
	}
	for name, test := range map[string]struct {
		before, after *v1alpha1.StorageClientNode
		want          map[string]float64
	}{
		"a drain that ends in a permit": {at(v1alpha1.RolloutDraining, v1alpha1.RolloutReasonDraining, 0), at(v1alpha1.RolloutRebooting, v1alpha1.RolloutReasonPermitGiven, 90),
			map[string]float64{"node_drain_duration_seconds done": 90}},
		"a drain that times out": {at(v1alpha1.RolloutDraining, v1alpha1.RolloutReasonDraining, 0), at(v1alpha1.RolloutWaiting, v1alpha1.RolloutReasonDrainTimedOut, 900),
			map[string]float64{"node_drain_duration_seconds timed_out": 900}},
		"a drain that evicted pods and times out": {at(v1alpha1.RolloutDraining, "", 0), evicting(7, at(v1alpha1.RolloutWaiting, v1alpha1.RolloutReasonDrainTimedOut, 900)),
			map[string]float64{"node_drain_duration_seconds timed_out": 900, "evictions_in_vain_total": 7}},
		"a drain that evicted pods and ends in a permit": {at(v1alpha1.RolloutDraining, "", 0), evicting(7, at(v1alpha1.RolloutRebooting, v1alpha1.RolloutReasonPermitGiven, 90)),
			map[string]float64{"node_drain_duration_seconds done": 90}},
		"a permit that is withdrawn after evictions": {at(v1alpha1.RolloutRebooting, "", 0), evicting(7, at(v1alpha1.RolloutWaiting, v1alpha1.RolloutReasonHostBusy, 9)),
			map[string]float64{"node_reboot_duration_seconds withdrawn": 9, "evictions_in_vain_total": 7}},
		"a permit that is not used after evictions": {at(v1alpha1.RolloutRebooting, "", 0), retried(evicting(7, at(v1alpha1.RolloutFailed, v1alpha1.RolloutReasonRebootTimedOut, 9))),
			map[string]float64{"node_reboot_duration_seconds failed": 9, "node_failures_total RebootTimedOut": 1, "evictions_in_vain_total": 7}},
		"a reboot that times out after evictions": {at(v1alpha1.RolloutRebooting, "", 0), evicting(7, at(v1alpha1.RolloutFailed, v1alpha1.RolloutReasonRebootTimedOut, 9)),
			map[string]float64{"node_reboot_duration_seconds failed": 9, "node_failures_total RebootTimedOut": 1}},
		"an attempt that cordoned first times out": {heldAt(at(v1alpha1.RolloutDraining, "", 0)), evicting(7, at(v1alpha1.RolloutWaiting, v1alpha1.RolloutReasonDrainTimedOut, 900)),
			map[string]float64{"node_drain_duration_seconds timed_out": 900, "evictions_cordon_first_total": 7}},
		"what has been counted is not counted again": {evicting(7, at(v1alpha1.RolloutReleasing, "", 0)), evicting(7, at(v1alpha1.RolloutWaiting, "", 5)), map[string]float64{}},
		"a drain that a pause ends": {at(v1alpha1.RolloutDraining, v1alpha1.RolloutReasonDraining, 0), at(v1alpha1.RolloutReleasing, v1alpha1.ReasonPausedByField, 5),
			map[string]float64{"node_drain_duration_seconds withdrawn": 5}},
		"a drain that continues": {at(v1alpha1.RolloutDraining, v1alpha1.RolloutReasonDraining, 0), at(v1alpha1.RolloutDraining, v1alpha1.RolloutReasonDrainBlocked, 0), map[string]float64{}},
		"a node that came back": {at(v1alpha1.RolloutRebooting, v1alpha1.RolloutReasonRebootStarted, 0), at(v1alpha1.RolloutSettling, v1alpha1.RolloutReasonSettling, 60),
			map[string]float64{"node_reboot_duration_seconds done": 60}},
		"a node that did not": {at(v1alpha1.RolloutRebooting, v1alpha1.RolloutReasonRebootStarted, 0), at(v1alpha1.RolloutFailed, v1alpha1.RolloutReasonRebootTimedOut, 900),
			map[string]float64{"node_reboot_duration_seconds failed": 900, "node_failures_total RebootTimedOut": 1}},
		"a withdrawn permit": {at(v1alpha1.RolloutRebooting, v1alpha1.RolloutReasonPermitGiven, 0), at(v1alpha1.RolloutReleasing, v1alpha1.RolloutReasonPermitRefused, 9),
			map[string]float64{"node_reboot_duration_seconds withdrawn": 9}},
		"a clock that went back": {at(v1alpha1.RolloutDraining, v1alpha1.RolloutReasonDraining, 10), at(v1alpha1.RolloutRebooting, v1alpha1.RolloutReasonPermitGiven, 0), map[string]float64{}},
		"settings that drift, once each": {
			object("a", "", "", v1alpha1.SettingInSync, v1alpha1.SettingInSync, v1alpha1.SettingDrifted),
			object("a", "", "", v1alpha1.SettingDrifted, v1alpha1.SettingShadowed, v1alpha1.SettingShadowed, v1alpha1.SettingDrifted),
			map[string]float64{"settings_drift_total sysctl": 2}},
	} {
		t.Run(name, func(t *testing.T) {
			transitions := NewTransitions()
			transitions.CountChanges(test.before, test.after)
			check.Equal(t, "result", test.want, values(t, transitions))
		})
	}
}

func TestNamesFollowTheConventions(t *testing.T) {
	objects := []client.Object{profile(), node("b", true), object("b", v1alpha1.RolloutFailed, v1alpha1.RolloutReasonRebootWithoutEffect)}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(newCollector(newReader(t, interceptor.Funcs{}, objects...)), NewTransitions())
	families, err := registry.Gather()
	check.NoError(t, err)
	if problems, err := promlint.NewWithMetricFamilies(families).Lint(); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}
