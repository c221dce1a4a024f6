package integration

import (
	"context"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/metrics"
	"github.com/storageclient/operator/test/patience"
)

var _ = Describe("Metrics", func() {
	It("follow the objects through a manager's cache", func() {
		newNode("a").Create()
		agentPod("a")
		newProfile("p").Sysctl("net.core.rmem_max", "16777216").Create()
		keeper := newKeeper(k8s)
		keeper.settle([]string{"p"}, []string{"a"})
		agentReports("a", nil)
		keeper.settle([]string{"p"}, []string{"a"})

		mgr, err := ctrl.NewManager(restConfig, ctrl.Options{
			Scheme: scheme, Logger: logger, HealthProbeBindAddress: "0", Metrics: metricsserver.Options{BindAddress: "0"},
		})
		Expect(err).NotTo(HaveOccurred())
		registry := prometheus.NewRegistry()
		reporter := &metrics.Reporter{
			Registry: registry, MaxUnavailable: intOrString("5%"),
		}
		Expect(reporter.SetupWithManager(mgr)).To(Succeed())
		life, end := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() { done <- mgr.Start(life) }()
		DeferCleanup(func() {
			end()
			Eventually(done).WithTimeout(patience.Of(time.Minute)).Should(Receive(BeNil()))
		})
		samples := func(g Gomega) map[string]float64 {
			families, err := registry.Gather()
			g.Expect(err).NotTo(HaveOccurred())
			found := map[string]float64{}
			for _, family := range families {
				for _, m := range family.Metric {
					labels := []string{family.GetName()}
					for _, label := range m.Label {
						labels = append(labels, label.GetValue())
					}
					found[strings.Join(labels, " ")] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
				}
			}
			return found
		}
		Eventually(samples).WithTimeout(patience.Of(30 * time.Second)).Should(And(
			HaveKeyWithValue("storageclient_collector_success", 1.0),
			HaveKeyWithValue("storageclient_profile_nodes p up_to_date", 1.0),
			HaveKeyWithValue("storageclient_profile_condition Ready p True", 1.0),
			HaveKeyWithValue("storageclient_nodes managed", 1.0),
			HaveKeyWithValue("storageclient_nodes silent", 0.0),
			HaveKeyWithValue("storageclient_rollout_budget_nodes", 1.0)))

		fail := func(phase v1alpha1.RolloutPhase, reason string) {
			GinkgoHelper()
			object := findObject("a")
			before := object.DeepCopy()
			object.Status.Rollout = &v1alpha1.RolloutStatus{Phase: phase, Reason: reason}
			Expect(k8s.Status().Patch(ctx, object, client.MergeFrom(before))).To(Succeed())
		}
		fail(v1alpha1.RolloutRebooting, v1alpha1.RolloutReasonRebootStarted)
		fail(v1alpha1.RolloutFailed, v1alpha1.RolloutReasonRebootTimedOut)
		Eventually(samples).WithTimeout(patience.Of(30 * time.Second)).Should(And(
			HaveKeyWithValue("storageclient_node_failed_info a RebootTimedOut", 1.0),
			HaveKeyWithValue("storageclient_node_failures_total RebootTimedOut", 1.0),
			HaveKeyWithValue("storageclient_rollout_nodes Failed", 1.0)))
	})
})
