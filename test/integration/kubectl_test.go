package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/events"

	"github.com/storageclient/operator/api/v1alpha1"
)

// The output of kubectl for users without the plugin.
var _ = Describe("kubectl", func() {
	kubectl := func(args ...string) string {
		GinkgoHelper()
		cmd := exec.CommandContext(ctx, filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl"), append(args, "--kubeconfig", kubeconfig())...)
		output, err := cmd.CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(output))
		return string(output)
	}

	It("gets profiles with reason and volumes, and describes them with their events", func() {
		clients, err := kubernetes.NewForConfig(restConfig)
		Expect(err).NotTo(HaveOccurred())
		broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: clients.EventsV1()})
		Expect(broadcaster.StartRecordingToSinkWithContext(ctx)).To(Succeed())
		DeferCleanup(broadcaster.Shutdown)
		manager := newKeeper(k8s)
		manager.profiles.Recorder = broadcaster.NewRecorder(scheme, v1alpha1.ManagerFieldManager)

		newNode("node-1").Label("pool", "eda").Create()
		agentPod("node-1")
		newVolume("share").Options("nconnect=2").Create()
		newProfile("eda").Select("pool", "eda").KernelArgument("ihash_entries=16777216").Volumes(nfsRule("nconnect=4")).Create()
		for range 4 {
			if findObject("node-1") != nil {
				agentReports("node-1", rebootDue("kernelArgument/ihash_entries"))
			}
			fakeClock.Step(2 * time.Minute)
			manager.settle([]string{"eda"}, []string{"node-1"})
		}

		table := strings.Split(kubectl("get", "scp"), "\n")
		Expect(strings.Fields(table[0])).To(Equal([]string{"NAME", "READY", "REASON", "NODES", "UP-TO-DATE", "PENDING-REBOOT", "FAILED", "VOLUMES", "VOLUMES-UP-TO-DATE", "AGE"}))
		Expect(strings.Fields(table[1])[:9]).To(Equal([]string{"eda", "False", "RebootPending", "1", "0", "1", "0", "1", "0"}))
		Expect(kubectl("get", "scp", "-o", "wide")).To(And(ContainSubstring("MESSAGE"), ContainSubstring("next: kubectl storageclient approve eda --plan ")))

		Eventually(func() string { return kubectl("describe", "scp", "eda") }).Should(And(
			MatchRegexp(`Normal +RollingOut .* storage-client-manager +.*nodes and 0/1 volumes up to date`),
			MatchRegexp(`Normal +WaitingForApproval .* storage-client-manager +The plan needs approval; next: kubectl storageclient approve eda --plan `)))
	})
})
