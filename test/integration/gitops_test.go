package integration

import (
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/storageclient/operator/api/v1alpha1"
)

// updateStates is an environment variable that rewrites the states. Then update the messages in health_test.yaml too.
const updateStates = "UPDATE_STATES"

var statesDir = filepath.Join(configDir, "argocd", "resource_customizations", "tuning.storageclient.dev", "StorageClientProfile", "testdata")

// state returns a profile as GitOps tools see it. All times are equal, and fields that differ in each run are removed.
func state(name string) string {
	GinkgoHelper()
	profile := &unstructured.Unstructured{}
	profile.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("StorageClientProfile"))
	Expect(k8s.Get(ctx, client.ObjectKey{Name: name}, profile)).To(Succeed())
	for _, field := range []string{"uid", "resourceVersion", "managedFields"} {
		unstructured.RemoveNestedField(profile.Object, "metadata", field)
	}
	stopClocks(profile.Object)
	content, err := yaml.Marshal(profile.Object)
	Expect(err).NotTo(HaveOccurred())
	return string(content)
}

func stopClocks(value any) {
	switch v := value.(type) {
	case map[string]any:
		for key, element := range v {
			text, isText := element.(string)
			if _, err := time.Parse(time.RFC3339, text); isText && err == nil {
				v[key] = "2026-01-01T00:00:00Z"
				continue
			}
			stopClocks(element)
		}
	case []any:
		for _, element := range v {
			stopClocks(element)
		}
	}
}

// expectState compares a profile with the file that tests Argo CD's script and kstatus.
func expectState(profile, file string) {
	GinkgoHelper()
	path := filepath.Join(statesDir, file)
	got := state(profile)
	if os.Getenv(updateStates) != "" {
		Expect(os.WriteFile(path, []byte(got), 0o644)).To(Succeed())
		return
	}
	want, err := os.ReadFile(path)
	Expect(err).NotTo(HaveOccurred())
	Expect(strings.Split(got, "\n")).To(Equal(strings.Split(string(want), "\n")),
		"%s differs from the manager's output: run %s=1 make test-integration, then go test in test/gitops", path, updateStates)
}

var _ = Describe("The states that GitOps tools evaluate", func() {
	It("are written by the manager", func() {
		manager := newKeeper(k8s)
		nodes := []string{"node-1", "node-2"}
		const name = "azure-files-large-directories"
		for _, node := range nodes {
			newNode(node).Label("agentpool", "azfiles").Create()
			agentPod(node)
		}
		newVolume("share").Options("hard").Create()
		settle := func() { manager.settle([]string{name}, nodes) }
		// The live canary is first and soaks.
		work := func(change func(*v1alpha1.StorageClientNodeStatus)) {
			GinkgoHelper()
			for range 4 {
				for _, node := range nodes {
					if findObject(node) != nil {
						agentReports(node, change)
					}
				}
				fakeClock.Step(2 * time.Minute)
				settle()
			}
		}

		created := newProfile(name).Select("agentpool", "azfiles").KernelArgument("ihash_entries=16777216").Sysctl("net.core.rmem_max", "16777216").
			Volumes(nfsRule("actimeo=30", "nconnect=4")).Create()
		expectState(name, "new.yaml")

		settle()
		expectState(name, "progressing.yaml")

		work(rebootDue("kernelArgument/ihash_entries"))
		reconcileVolume("share")
		settle()
		expectState(name, "waiting-approval.yaml")

		for _, node := range nodes {
			reboot(node, "boot-2", corev1.ConditionTrue)
		}
		work(nil)
		expectState(name, "healthy.yaml")

		Expect(retryUpdate(name, func(p *v1alpha1.StorageClientProfile) { p.Spec.Priority = 1 })).To(Succeed())
		expectState(name, "unobserved.yaml")

		Expect(retryUpdate(name, func(p *v1alpha1.StorageClientProfile) { p.Spec.Mode = v1alpha1.ModePlan })).To(Succeed())
		settle()
		expectState(name, "plan-mode.yaml")

		Expect(retryUpdate(name, func(p *v1alpha1.StorageClientProfile) {
			p.Spec.Mode, p.Spec.Volumes[0].MountOptions = v1alpha1.ModeEnforce, []v1alpha1.MountOption{"nconnect=17"}
		})).To(Succeed())
		settle()
		expectState(name, "stalled.yaml")

		Expect(k8s.Delete(ctx, created)).To(Succeed())
		settle()
		expectState(name, "restoring.yaml")
	})

	It("include the state of a profile that waits for a mount", func() {
		const name = "nfs41-hpc"
		for _, volume := range []string{"share-1", "share-2"} {
			newVolume(volume).Options("hard").Claim("default", volume).Create()
		}
		newProfile(name).Select("agentpool", "hpc").Volumes(nfsRule("nocto")).Create()
		manager := newKeeper(k8s)
		manager.settle([]string{name}, nil)
		reconcileVolume("share-1")
		fakeClock.Step(24 * time.Hour)
		manager.settle([]string{name}, nil)
		expectState(name, "waiting-evidence.yaml")
	})
})
