//go:build kwok

package cluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/test/cluster/controlplane"
	"github.com/storageclient/operator/test/cluster/history"
	"github.com/storageclient/operator/test/cluster/sandbox"
)

const (
	manyNodes  = 200
	manyBudget = 20
	kills      = 10
	// Four applications with pods on all nodes. Each may lose two pods at a time, which is less than a wave of drains needs.
	apps, replicas, minAvailable = 4, 100, 98
	// seedVariable is the environment variable that repeats the kills of an earlier run.
	seedVariable = "SCO_SEED"
)

// TestTwoHundredNodesWhileManagersAreKilled needs the files that "make test-rollout" builds.
func TestTwoHundredNodesWhileManagersAreKilled(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	ctx := t.Context()
	s := startSandbox(t, sandbox.Options{
		Options: controlplane.Options{Audit: true}, Nodes: manyNodes, BootTime: 4 * time.Second,
	})
	deployApplications(t, s)
	recorder, err := history.Record(ctx, s.Client)
	check.NoError(t, err)
	t.Cleanup(recorder.Stop)
	managers := startTwoManagers(t, s)

	profile := profileOf("fleet", manyBudget)
	check.NoError(t, s.Client.Create(ctx, profile))
	killing, stopKilling := context.WithCancel(ctx)
	defer stopKilling()
	killed := make(chan int, 1)
	go func() {
		managers.awaitClaim(killing)
		killed <- managers.killAtRandom(killing, t)
		managers.keepRunning(ctx)
	}()
	awaitCondition(t, s, "the profile to be Ready", func(ctx context.Context) (bool, error) {
		err := s.Client.Get(ctx, client.ObjectKeyFromObject(profile), profile)
		status := profile.Status
		return meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionReady) && status.Nodes.UpToDate == manyNodes &&
			status.Nodes.Disrupted == 0, err
	})
	stopKilling()
	if got := <-killed; got != kills {
		t.Errorf("the rollout finished after %d of %d kills", got, kills)
	}
	checkMachines(t, s, 2, "16777216")
	awaitCondition(t, s, "all pods to run", func(ctx context.Context) (bool, error) { return allApplicationsRun(ctx, s) })

	check.NoError(t, s.Client.Delete(ctx, profile))
	awaitCondition(t, s, "the profile to be deleted", func(ctx context.Context) (bool, error) {
		err := s.Client.Get(ctx, client.ObjectKeyFromObject(profile), profile)
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
	checkNodes(t, s)
	checkNothingClaimed(t, s)
	checkHistory(t, recorder)
	checkRefusals(t, s)
	logUsage(t, s)
}

// managers are two processes that compete for one lease.
type managers struct {
	sandbox   *sandbox.Sandbox
	processes [2]*controlplane.Process
	random    *rand.Rand
}

func startTwoManagers(t *testing.T, s *sandbox.Sandbox) *managers {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv(seedVariable); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("%s: %v", seedVariable, err)
		}
	}
	t.Logf("%s=%d", seedVariable, seed)
	m := &managers{sandbox: s, random: rand.New(rand.NewPCG(seed, 0))}
	for i := range m.processes {
		check.NoError(t, m.startManager(t.Context(), i))
	}
	return m
}

func (m *managers) startManager(ctx context.Context, i int) error {
	var err error
	m.processes[i], err = m.sandbox.StartManagerAs(ctx, fmt.Sprintf("manager-%d", i+1), "--leader-elect", "--max-unavailable="+strconv.Itoa(manyBudget))
	return err
}

// awaitClaim waits until the first nodes are disrupted. Before that, a kill interrupts little.
func (m *managers) awaitClaim(ctx context.Context) {
	key := client.ObjectKey{Namespace: v1alpha1.ManagerNamespace, Name: v1alpha1.BudgetConfigMap}
	for ctx.Err() == nil {
		claims := &corev1.ConfigMap{}
		if err := m.sandbox.Client.Get(ctx, key, claims); err == nil && len(claims.Data) > 0 {
			return
		}
		time.Sleep(time.Second / 2)
	}
}

// killAtRandom kills the leader, and sometimes the other manager, at random times, and immediately restarts the killed one. Each wait
// starts when there is a leader. Otherwise most kills would hit managers that wait for the lease. It returns early when the context is
// done, and returns the number of kills.
func (m *managers) killAtRandom(ctx context.Context, t *testing.T) int {
	began := time.Now()
	for kill := range kills {
		leader := m.awaitLeader(ctx)
		pause := time.Duration(m.random.Int64N(int64(9 * time.Second)))
		victim, other := leader, m.random.IntN(4) == 0
		if other {
			victim = 1 - leader
		}
		select {
		case <-ctx.Done():
			return kill
		case <-time.After(pause):
		}
		m.processes[victim].Kill()
		t.Logf("%4.0f s: killed manager %d, leader: %v", time.Since(began).Seconds(), victim+1, !other)
		if err := m.startManager(ctx, victim); err != nil {
			t.Errorf("restart manager %d: %v", victim+1, err)
			return kill + 1
		}
	}
	return kills
}

// keepRunning restarts managers that exit, for example after the loss of a lease.
func (m *managers) keepRunning(ctx context.Context) {
	for ctx.Err() == nil {
		m.awaitLeader(ctx)
		time.Sleep(time.Second)
	}
}

// awaitLeader returns which process holds the lease, based on its own log. A process exits when it loses the lease. It restarts a manager
// that has exited, as its Deployment would.
func (m *managers) awaitLeader(ctx context.Context) int {
	for ctx.Err() == nil {
		for i, process := range m.processes {
			if !process.Running() {
				_ = m.startManager(ctx, i) // tried again later
				continue
			}
			if log, err := process.Log(); err == nil && strings.Contains(log, "Successfully acquired lease") {
				return i
			}
		}
		time.Sleep(time.Second / 5)
	}
	return 0
}

func deployApplications(t *testing.T, s *sandbox.Sandbox) {
	t.Helper()
	for i := range apps {
		name := appName(i)
		labels := map[string]string{history.AppLabel: name}
		selector := &metav1.LabelSelector{MatchLabels: labels}
		object := metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name}
		spread := func(key string) corev1.TopologySpreadConstraint {
			return corev1.TopologySpreadConstraint{
				MaxSkew: 1, TopologyKey: key, WhenUnsatisfiable: corev1.ScheduleAnyway, LabelSelector: selector,
			}
		}
		for _, object := range []client.Object{
			&policyv1.PodDisruptionBudget{ObjectMeta: object, Spec: policyv1.PodDisruptionBudgetSpec{
				MinAvailable: ptr.To(intstr.FromInt32(minAvailable)), Selector: selector,
			}},
			&appsv1.Deployment{ObjectMeta: object, Spec: appsv1.DeploymentSpec{
				Replicas: ptr.To[int32](replicas), Selector: selector,
				Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
					Containers: []corev1.Container{{Name: name, Image: "example/app:1"}},
					TopologySpreadConstraints: []corev1.TopologySpreadConstraint{
						spread(corev1.LabelTopologyZone), spread(corev1.LabelHostname),
					},
				}},
			}},
		} {
			check.NoError(t, s.Client.Create(t.Context(), object))
		}
	}
	awaitCondition(t, s, "the applications to run", func(ctx context.Context) (bool, error) { return allApplicationsRun(ctx, s) })
}

func appName(i int) string { return fmt.Sprintf("app-%d", i+1) }

func allApplicationsRun(ctx context.Context, s *sandbox.Sandbox) (bool, error) {
	deployments := &appsv1.DeploymentList{}
	if err := s.Client.List(ctx, deployments, client.InNamespace(metav1.NamespaceDefault)); err != nil {
		return false, err
	}
	for _, deployment := range deployments.Items {
		if status := deployment.Status; status.AvailableReplicas != replicas || status.Replicas != replicas {
			return false, nil
		}
	}
	return len(deployments.Items) == apps, nil
}

func checkNothingClaimed(t *testing.T, s *sandbox.Sandbox) {
	t.Helper()
	claims := &corev1.ConfigMap{}
	key := client.ObjectKey{Namespace: v1alpha1.ManagerNamespace, Name: v1alpha1.BudgetConfigMap}
	check.NoError(t, s.Client.Get(t.Context(), key, claims))
	objects := &v1alpha1.StorageClientNodeList{}
	check.NoError(t, s.Client.List(t.Context(), objects))
	if len(claims.Data) > 0 || len(objects.Items) > 0 {
		t.Errorf("remaining claims %v and %d StorageClientNodes, want none", claims.Data, len(objects.Items))
	}
}

func checkHistory(t *testing.T, recorder *history.Recorder) {
	t.Helper()
	rules := history.Rules{Budget: manyBudget, MinHealthy: map[string]int{}, Replicas: map[string]int{}}
	for i := range apps {
		rules.MinHealthy[appName(i)], rules.Replicas[appName(i)] = minAvailable, replicas
	}
	verdict := recorder.Evaluate(rules)
	t.Logf("got at most %d nodes out of service at the same time, the budget is %d; %d claims for %d nodes",
		verdict.MostOut, manyBudget, len(verdict.Disruptions), len(verdict.Claims))
	for _, problem := range verdict.Problems {
		t.Error(problem)
	}
	if len(verdict.Cordons) != manyNodes || len(verdict.Boots) != manyNodes || verdict.MostOut < manyBudget/2 {
		t.Errorf("got %d cordoned and %d booted nodes, want %d; at most %d were out of service at the same time",
			len(verdict.Cordons), len(verdict.Boots), manyNodes, verdict.MostOut)
	}
	for node, boots := range verdict.Boots {
		if boots != 1 {
			t.Errorf("%s: got %d boots, want one", node, boots)
		}
	}
	if len(verdict.StillOut) > 0 {
		t.Errorf("out of service at the end: %v", verdict.StillOut)
	}
}

// checkRefusals checks that the budgets had an effect: the API server must have rejected evictions.
func checkRefusals(t *testing.T, s *sandbox.Sandbox) {
	t.Helper()
	writes, err := s.Plane.Writes()
	check.NoError(t, err)
	granted, refused := 0, 0
	for _, write := range writes {
		switch {
		case write.Subresource != "eviction":
		case write.Code == 201:
			granted++
		case write.Code == 429:
			refused++
		}
	}
	t.Logf("evictions: %d permitted, %d rejected by a PodDisruptionBudget", granted, refused)
	if granted == 0 || refused == 0 {
		t.Errorf("got %d permitted and %d rejected evictions, want some of both", granted, refused)
	}
}

func logUsage(t *testing.T, s *sandbox.Sandbox) {
	t.Helper()
	self, err := controlplane.UsageOf(os.Getpid())
	check.NoError(t, err)
	t.Logf("this process with %d agents: %.0f s CPU, %d MiB at most", manyNodes, self.CPU.Seconds(), self.PeakBytes>>20)
	for _, process := range s.Plane.Processes() {
		if usage, err := process.Usage(); err == nil && process.Running() {
			t.Logf("%s: %.0f s CPU, %d MiB at most", process.Name, usage.CPU.Seconds(), usage.PeakBytes>>20)
		}
	}
}
