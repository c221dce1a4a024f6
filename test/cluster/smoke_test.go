//go:build kwok

// Package cluster simulates rollouts on many nodes against a real control plane.
package cluster

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/test/cluster/controlplane"
	"github.com/storageclient/operator/test/cluster/history"
	"github.com/storageclient/operator/test/cluster/sandbox"
	"github.com/storageclient/operator/test/patience"
	"github.com/storageclient/operator/test/reaper"
)

const (
	nodes  = 20
	budget = 4
	// timeout is the maximum duration of each half of a test. On two cores one takes about half a minute, or four minutes with 200 nodes.
	timeout = 12 * time.Minute
)

// TestTwentyNodesAreRebootedWithinBudgetAndRestored needs the files that "make test" builds.
func TestTwentyNodesAreRebootedWithinBudgetAndRestored(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	ctx := t.Context()
	s := startSandbox(t, sandbox.Options{Options: controlplane.Options{Audit: true}, Nodes: nodes, BootTime: time.Second})
	site := prepareUse(t, s)
	recorder, err := history.Record(ctx, s.Client)
	check.NoError(t, err)
	t.Cleanup(recorder.Stop)
	if _, err := s.StartManager(ctx, append(site.flags(), fmt.Sprintf("--max-unavailable=%d", budget))...); err != nil {
		t.Fatal(err)
	}
	profile := profileOf("smoke", budget)
	profile.Spec.Rollout.Reboot.RestoreReboot = true
	site.declareVolumes(profile)
	check.NoError(t, s.Client.Create(ctx, profile))
	site.failMount(t, s)
	site.refuseEvictions(t, s)
	awaitCondition(t, s, "the profile to be Ready", func(ctx context.Context) (bool, error) {
		err := s.Client.Get(ctx, client.ObjectKeyFromObject(profile), profile)
		ready := meta.IsStatusConditionTrue(profile.Status.Conditions, v1alpha1.ConditionReady)
		return ready && profile.Status.Nodes.UpToDate == nodes, err
	})
	checkMachines(t, s, 2, "16777216")
	site.scrapeMetrics(t, s)
	check.NoError(t, s.Client.Delete(ctx, profile))
	awaitCondition(t, s, "the profile to be deleted", func(ctx context.Context) (bool, error) {
		err := s.Client.Get(ctx, client.ObjectKeyFromObject(profile), profile)
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
	checkMachines(t, s, 3, "")
	checkNodes(t, s)
	checkSmokeHistory(t, recorder)
	checkRights(t, s)
	checkFlows(t, s)
}

// checkFlows checks that the API server has dispatched requests by the FlowSchemas of the manifests.
func checkFlows(t *testing.T, s *sandbox.Sandbox) {
	t.Helper()
	clients, err := kubernetes.NewForConfig(s.Plane.Config)
	check.NoError(t, err)
	metrics, err := clients.RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	check.NoError(t, err)
	for _, name := range []string{v1alpha1.ManagerDeployment, v1alpha1.AgentServiceAccount} {
		dispatched := fmt.Sprintf("apiserver_flowcontrol_dispatched_requests_total{flow_schema=%q,priority_level=%q}", name, name)
		if !strings.Contains(string(metrics), dispatched) {
			t.Errorf("no request of %s was dispatched by its FlowSchema: no %s", name, dispatched)
		}
	}
}

func TestMain(m *testing.M) {
	if err := reaper.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	m.Run()
}

// startSandbox sets the paths in the options and starts a sandbox.
func startSandbox(t *testing.T, options sandbox.Options) *sandbox.Sandbox {
	t.Helper()
	options.Binaries, options.Dir = requireEnv(t, "SCO_BINARIES"), t.TempDir()
	options.Root, options.Manager, options.Progress = "../..", requireEnv(t, "SCO_MANAGER"), t.Logf
	s, err := sandbox.Start(t.Context(), options)
	check.NoError(t, err)
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func requireEnv(t *testing.T, variable string) string {
	t.Helper()
	value := os.Getenv(variable)
	if value == "" {
		t.Fatalf("%s is not set: run \"make test\", which builds the files for this test", variable)
	}
	return value
}

func profileOf(name string, budget int32) *v1alpha1.StorageClientProfile {
	return &v1alpha1.StorageClientProfile{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.StorageClientProfileSpec{
			NodeSelector: metav1.LabelSelector{MatchLabels: map[string]string{sandbox.PoolLabel: sandbox.Pool}},
			Node: &v1alpha1.NodeTuning{
				KernelArguments: []v1alpha1.KernelArgument{"ihash_entries=16777216"},
				Sysctls:         map[string]v1alpha1.SettingText{"net.core.rmem_max": "16777216"},
			},
			Rollout: v1alpha1.Rollout{
				MaxUnavailable:    ptr.To(intstr.FromInt32(budget)),
				MaxConcurrentLive: ptr.To(intstr.FromString("100%")),
				Canary:            &v1alpha1.Canary{SoakSeconds: ptr.To[int32](1)},
				SettleSeconds:     ptr.To[int32](1),
				Reboot:            v1alpha1.Reboot{Policy: v1alpha1.RebootAutomatic},
			},
		},
	}
}

func awaitCondition(t *testing.T, s *sandbox.Sandbox, what string, done func(context.Context) (bool, error)) {
	t.Helper()
	began := time.Now()
	if err := wait.PollUntilContextTimeout(t.Context(), time.Second/2, patience.Of(timeout), true, done); err != nil {
		t.Fatalf("waiting for %s: %v\nthe end of the manager's log:\n%s", what, err, s.ManagerLog())
	}
	t.Logf("%s: %.0f s", what, time.Since(began).Seconds())
}

// checkMachines reads the values from the simulated hosts.
func checkMachines(t *testing.T, s *sandbox.Sandbox, boots int, value string) {
	t.Helper()
	for _, name := range s.Names {
		machine := s.Fleet.Machine(name)
		if machine.Boots() != boots {
			t.Errorf("%s: got %d boots, want %d", name, machine.Boots(), boots)
		}
		cmdline, err := machine.Read("/proc/cmdline")
		check.NoError(t, err)
		if got := argument(cmdline, "ihash_entries"); got != value {
			t.Errorf("%s: got ihash_entries=%q, want %q", name, got, value)
		}
		wantSysctl := map[bool]string{true: "16777216", false: "212992"}[value != ""]
		if got, err := machine.Read("/proc/sys/net/core/rmem_max"); err != nil || got != wantSysctl {
			t.Errorf("%s: got net.core.rmem_max %q (%v), want %q", name, got, err, wantSysctl)
		}
	}
}

func checkNodes(t *testing.T, s *sandbox.Sandbox) {
	t.Helper()
	list := &corev1.NodeList{}
	check.NoError(t, s.Client.List(t.Context(), list))
	for _, node := range list.Items {
		hasCondition := slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == v1alpha1.TunedNodeCondition
		})
		if node.Spec.Unschedulable || node.Labels[v1alpha1.ManagedLabel] != "" || node.Annotations[v1alpha1.DisruptionAnnotation] != "" || hasCondition {
			t.Errorf("changes of the operator remain on Node %s: %v %v", node.Name, node.ObjectMeta, node.Status.Conditions)
		}
	}
}

// checkSmokeHistory checks the rollout with the test's watches, independent of the manager.
func checkSmokeHistory(t *testing.T, recorder *history.Recorder) {
	t.Helper()
	verdict := recorder.Evaluate(history.Rules{Budget: budget})
	t.Logf("got at most %d nodes out of service at the same time, the budget is %d", verdict.MostOut, budget)
	for _, problem := range verdict.Problems {
		t.Error(problem)
	}
	if len(verdict.Cordons) != nodes || len(verdict.StillOut) > 0 || verdict.MostOut < 2 {
		t.Errorf("got %d cordoned nodes, want %d; at most %d at the same time; still out: %v",
			len(verdict.Cordons), nodes, verdict.MostOut, verdict.StillOut)
	}
}

func argument(cmdline, name string) string {
	for word := range strings.FieldsSeq(cmdline) {
		if rest, ok := strings.CutPrefix(word, name+"="); ok {
			return rest
		}
	}
	return ""
}
