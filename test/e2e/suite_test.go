//go:build e2e

// Package e2e tests the main job on virtual nodes: see README.md.
package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/format"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/e2e/cluster"
	"github.com/storageclient/operator/test/patience"
	"github.com/storageclient/operator/test/reaper"
)

var (
	dirs   cluster.Dirs
	nodes  *cluster.Cluster
	api    client.Client
	scheme = runtime.NewScheme()
	// watched contains the events of the nodes, from before the installation of the operator.
	watched *timeline
)

// TestMain first prepares the files that require the network of this machine. It then restarts itself in a network namespace.
func TestMain(m *testing.M) {
	if err := prepare(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func prepare() (err error) {
	if dirs, err = cluster.FindDirs(); err != nil || cluster.InNamespace() {
		return err
	}
	if err := reaper.Start(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience.Of(20*time.Minute))
	defer cancel()
	if err := cluster.Prepare(ctx, dirs, progress); err != nil {
		return err
	}
	return cluster.EnterNamespace()
}

func progress(text string, args ...any) {
	fmt.Printf("%s  %s\n", time.Now().Format(time.TimeOnly), fmt.Sprintf(text, args...))
}

func TestVirtualNodes(t *testing.T) {
	format.MaxLength = 8000
	RegisterFailHandler(Fail)
	RunSpecs(t, "Virtual nodes")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	log.SetLogger(GinkgoLogr)
	Expect(clientgoscheme.AddToScheme(scheme)).To(Succeed())
	Expect(v1alpha1.AddToScheme(scheme)).To(Succeed())
	nodes = cluster.New(dirs)
	// A label filter leaves the processors to fewer specs. Few of them need the small node.
	switch GinkgoLabelFilter() {
	case "", clamped, csiDrivers:
	case mountOptions:
		nodes.Nodes = nodes.Nodes[:1]
	case sampled, effects:
		nodes.Nodes, nodes.Small = nodes.Nodes[:1], nil
	default:
		nodes.Small = nil
	}
	Expect(nodes.Acquire()).To(Succeed())
	if !isKept() {
		Expect(reaper.Start(nodes.Disposable()...)).To(Succeed())
	}
	DeferCleanup(tearDown)
	DeferOnFailure(dump, NodeTimeout(patience.Of(3*time.Minute)))
	images := []string{"../../dist/images/manager.tar", "../../dist/images/node-agent.tar"}
	Expect(nodes.Up(ctx, images, progress)).To(Succeed())
	config, err := nodes.RESTConfig()
	Expect(err).NotTo(HaveOccurred())
	api, err = client.New(config, client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
	var stop func()
	watched, stop = watchNodes(config)
	DeferCleanup(stop)
	followPodLogs(config, watched)
})

// isKept reports whether the cluster must outlive this process.
func isKept() bool { return os.Getenv("KEEP") == "1" }

// tearDown stops the cluster. KEEP=1 keeps it after the run.
func tearDown() {
	if !isKept() {
		Expect(nodes.Down()).To(Succeed())
		return
	}
	fmt.Printf(`
The cluster keeps running, with its state and logs in %s. From the top of the tree:
  go run ./test/e2e/cmd in kubectl get nodes    a command in its network
  go run ./test/e2e/cmd node 1 'dmesg | tail'   a command on a machine: 1 and 2 are nodes, 3 is the NFS server
  go run ./test/e2e/cmd down                    ends it
`, dirs.Run)
}

var _ = ReportAfterSuite("phases", func(report Report) {
	fmt.Printf("\n%8s  phase\n", "seconds")
	for _, spec := range report.SpecReports {
		switch {
		case spec.LeafNodeType.Is(types.NodeTypeBeforeSuite):
			fmt.Printf("%8.0f  a cluster of virtual nodes: %s\n", spec.RunTime.Seconds(), spec.State)
		case spec.LeafNodeType.Is(types.NodeTypeIt):
			fmt.Printf("%8.0f  %s: %s\n", spec.RunTime.Seconds(), spec.FullText(), spec.State)
		}
	}
	fmt.Printf("%8.0f  total\n", report.RunTime.Seconds())
	if rows != nil {
		fmt.Print(rows.table())
	}
	if watched != nil {
		fmt.Printf("\nChanges of the nodes:\n%s", watched)
	}
})

// eventually repeats check until it succeeds. At the time limit it fails with the name of the expected state.
func eventually(ctx context.Context, within time.Duration, what string, check func(g Gomega)) {
	GinkgoHelper()
	By("waiting until " + what)
	Eventually(check).WithContext(ctx).WithTimeout(patience.Of(within)).WithPolling(2*time.Second).Should(Succeed(), "waiting until %s", what)
}

// kubectl runs kubectl as an administrator.
func kubectl(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience.Of(2*time.Minute))
	defer cancel()
	out, err := exec.CommandContext(ctx, dirs.Kubectl(), append([]string{"--kubeconfig=" + dirs.Kubeconfig()}, args...)...).CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

func mustKubectl(ctx context.Context, args ...string) string {
	GinkgoHelper()
	out, err := kubectl(ctx, args...)
	Expect(err).NotTo(HaveOccurred())
	return out
}
