package integration

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/agent/apiclient"
	"github.com/storageclient/operator/agent/reporter"
	"github.com/storageclient/operator/api/v1alpha1"
)

var _ = Describe("Flow control", func() {
	It("keeps proofs of agents apart from a flood of writes with an agent's token", func() {
		for _, object := range readManifests(configDir + "/manager/flowcontrol.yaml") {
			Expect(k8s.Create(ctx, object)).To(Succeed())
			DeferCleanup(func() { Expect(k8s.Delete(context.Background(), object)).To(Succeed()) })
		}
		newNode("node-1").Create()
		Expect(k8s.Create(ctx, &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}})).To(Succeed())
		config := configWithToken(tokenFor(agentPod("node-1")))
		config.QPS = -1

		By("leaving the agents' writes without a seat, as if other writes used all of them")
		level := &flowcontrolv1.PriorityLevelConfiguration{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.AgentServiceAccount}}
		Expect(k8s.Patch(ctx, level, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"limited":{"nominalConcurrencyShares":0,
			"lendablePercent":0,"borrowingLimitPercent":0,"limitResponse":{"queuing":{"queues":1,"handSize":1,"queueLengthLimit":5}}}}}`)))).To(Succeed())
		flood, stop := context.WithCancel(ctx)
		var writers sync.WaitGroup
		agent := clientWithToken(config.BearerToken)
		write := func() error {
			object := &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}
			return agent.Status().Patch(flood, object, client.RawPatch(types.MergePatchType, []byte(`{"status":{"hash":"0123456789abcdef"}}`)))
		}
		for range 10 {
			writers.Go(func() {
				for flood.Err() == nil {
					_ = write()
				}
			})
		}
		DeferCleanup(writers.Wait)
		DeferCleanup(stop)
		read := func() (priorityLevel string, err error) {
			transport, err := rest.TransportFor(config)
			if err != nil {
				return "", err
			}
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(config.Host, "/")+"/openapi/v2", http.NoBody)
			if err != nil {
				return "", err
			}
			response, err := (&http.Client{Transport: transport, Timeout: 10 * time.Second}).Do(request)
			if err != nil {
				return "", err
			}
			_ = response.Body.Close()
			return response.Header.Get("X-Kubernetes-Pf-Prioritylevel-Uid"), nil
		}
		proofs := &flowcontrolv1.PriorityLevelConfiguration{}
		Expect(k8s.Get(ctx, client.ObjectKey{Name: "storage-client-node-agent-proofs"}, proofs)).To(Succeed())
		Eventually(read).WithTimeout(time.Minute).Should(Equal(string(proofs.UID)))

		By("proving over new connections")
		api, err := apiclient.New(config, "node-1", clock.RealClock{})
		Expect(err).NotTo(HaveOccurred())
		rejected := 0
		for range 5 {
			within, cancel := context.WithTimeout(ctx, 10*time.Second) // the agent's limit for an attempt
			err := api.Prove(within, 64<<10, v1alpha1.StorageClientNodeStatus{})
			cancel()
			if errors.IsTooManyRequests(err) {
				rejected++
			}
			// The reads have separate seats. A rejected read would be reporter.ErrBusy, which is no proof.
			Expect(err).To(Or(Not(HaveOccurred()), Satisfy(errors.IsTooManyRequests)))
			Expect(reporter.New(api, clock.RealClock{}).Prove(ctx, 64<<10, v1alpha1.StorageClientNodeStatus{})).To(Succeed())
		}
		Expect(rejected).To(BeNumerically(">", 0), "the flood must be real: the API server rejects writes of agents")
	})
})
