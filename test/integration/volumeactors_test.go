package integration

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume"
	"github.com/storageclient/operator/test/patience"
)

// history records the changes of a volume from a watch.
type history struct {
	mu sync.Mutex
	// versions counts the writes, including the creation. lists contains the mount options after each change.
	versions int
	lists    []string
}

// follow watches a volume from its creation until the spec ends.
func follow(name string) *history {
	GinkgoHelper()
	watch, err := k8s.Watch(ctx, &corev1.PersistentVolumeList{}, client.MatchingFields{"metadata.name": name})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(watch.Stop)
	h := &history{}
	go func() {
		for event := range watch.ResultChan() {
			if pv, ok := event.Object.(*corev1.PersistentVolume); ok {
				h.add(strings.Join(pv.Spec.MountOptions, ","))
			}
		}
	}()
	return h
}

func (h *history) add(list string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.versions++
	if len(h.lists) == 0 || h.lists[len(h.lists)-1] != list {
		h.lists = append(h.lists, list)
	}
}

func (h *history) versionsSoFar() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.versions
}

func (h *history) listsSoFar() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.lists)
}

// startVolumes runs the volume controller in a manager, with its own cache and watches, until the caller runs stop.
func startVolumes(recorder events.EventRecorder) (stop func()) {
	GinkgoHelper()
	manager, err := ctrl.NewManager(restConfig, ctrl.Options{
		Scheme: scheme, Logger: logger, Metrics: server.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: ptr.To(true)},
	})
	Expect(err).NotTo(HaveOccurred())
	r := &volume.Reconciler{Client: manager.GetClient(), Recorder: recorder}
	Expect(r.SetupWithManager(manager)).To(Succeed())
	running, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- manager.Start(running) }()
	return func() {
		GinkgoHelper()
		cancel()
		Eventually(ended).WithTimeout(patience.Of(time.Minute)).Should(Receive(BeNil()))
	}
}

// insist repeats an action until it is stopped, and counts the rounds.
func insist(act func()) (rounds *atomic.Int64, stop func()) {
	done := make(chan struct{})
	rounds = &atomic.Int64{}
	var ended sync.WaitGroup
	ended.Go(func() {
		defer GinkgoRecover()
		for {
			select {
			case <-done:
				return
			case <-time.After(20 * time.Millisecond):
				act()
				rounds.Add(1)
			}
		}
	})
	return rounds, func() {
		close(done)
		ended.Wait()
	}
}

// provision acts as a provisioner: it creates a volume with its options, and reverts them once.
func provision(name string, setBack *atomic.Bool) {
	GinkgoHelper()
	pv := &corev1.PersistentVolume{}
	if err := k8s.Get(ctx, client.ObjectKey{Name: name}, pv); err != nil {
		newVolume(name).Options("soft").Create(client.FieldOwner("csi-provisioner"))
		return
	}
	if slices.Equal(pv.Spec.MountOptions, []string{"soft"}) || setBack.Load() {
		return
	}
	pv.Spec.MountOptions = []string{"soft"}
	if k8s.Update(ctx, pv, client.FieldOwner("csi-provisioner")) == nil {
		setBack.Store(true)
	}
}

var _ = Describe("With the running operator", func() {
	const (
		untouched = "VolumeDeclaredElsewhere"
		contested = "VolumeConflict"
	)
	argo := func(name string) { argoApply(name, "soft") }
	apply := func(name string) { kubectlApply(newVolume(name).Options("soft").volume) }
	var setBack atomic.Bool
	BeforeEach(func() { setBack.Store(false) })

	DescribeTable("no other writer ends in a conflict loop:", func(
		gitOps v1alpha1.GitOpsPolicy, act func(name string), lists []string, reasons ...string,
	) {
		act("pv")
		profile := nfsProfile("fast", gitOps, "nocto")
		seen, recorder := follow("pv"), events.NewFakeRecorder(256)
		rounds, stopActor := insist(func() { act("pv") })
		stopOperator := startVolumes(recorder)

		Eventually(seen.listsSoFar).WithTimeout(patience.Of(time.Minute)).Should(Equal(lists))
		Eventually(recorder.Events).WithTimeout(patience.Of(time.Minute)).Should(HaveLen(len(reasons)))
		// A few more rounds contain every possible interaction.
		Eventually(rounds.Load).WithTimeout(patience.Of(3 * time.Minute)).Should(BeNumerically(">=", rounds.Load()+5))
		Consistently(seen.listsSoFar).WithTimeout(2 * time.Second).Should(Equal(lists))
		stopActor()
		Expect(seen.versionsSoFar()).To(Equal(len(lists)), "number of writes on the volume in %d rounds, including its creation", rounds.Load())
		for _, reason := range reasons {
			Expect(recorder.Events).To(Receive(ContainSubstring(" " + reason + " ")))
		}

		By("deleting the profile, which removes the operator's annotations and keeps the options of another user")
		final := lists[len(lists)-1]
		Expect(k8s.Delete(ctx, profile)).To(Succeed())
		Eventually(func() []string {
			var left []string
			for key := range getVolume("pv").Annotations {
				if strings.HasPrefix(key, "tuning.storageclient.dev/") {
					left = append(left, key)
				}
			}
			return left
		}).WithTimeout(patience.Of(time.Minute)).Should(BeEmpty())
		if final == "nocto" {
			final = ""
		}
		Expect(strings.Join(getVolume("pv").Spec.MountOptions, ",")).To(Equal(final))
		stopOperator()
	},
		Entry("Argo CD, whose volumes are only reported", v1alpha1.GitOpsReportOnly, argo, []string{"soft"}, untouched),
		Entry("Argo CD, whose volumes are patched", v1alpha1.GitOpsPatch, argo, []string{"soft", "soft,nocto", "soft"}, "VolumeOptionsMerged", contested),
		Entry("kubectl apply, whose volumes are only reported", v1alpha1.GitOpsReportOnly, apply, []string{"soft"}, untouched),
		Entry("kubectl apply, whose volumes are patched", v1alpha1.GitOpsPatch, apply, []string{"soft", "soft,nocto", "soft"}, "VolumeOptionsMerged", contested),
		Entry("kubectl apply of a manifest without options", v1alpha1.GitOpsReportOnly,
			func(name string) { kubectlApply(newVolume(name).volume) }, []string{"", "nocto"}, "VolumeOptionsMerged"),
		Entry("a provisioner that reverts its options once", v1alpha1.GitOpsReportOnly,
			func(name string) { provision(name, &setBack) }, []string{"soft", "soft,nocto", "soft"}, "VolumeOptionsMerged", contested),
	)
})
