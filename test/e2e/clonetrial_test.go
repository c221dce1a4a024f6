//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/patience"
)

const (
	// cloneRounds is enough to show that clones run the rounds. Each round takes minutes, and a verdict needs nine.
	cloneRounds = 3
	cloneEnds   = 30 * time.Minute
)

// expectCloneTrials compares options of a volume of the SMB driver that one node has mounted. Clones run on the other node. The driver
// mounts them with the volume's Secret. A trial with options that mount.cifs rejects ends with its error message.
func expectCloneTrials(ctx SpecContext) {
	startDriversOrSkip(ctx)
	installOperator(ctx)
	serveSMB(ctx)
	serveEvidence(ctx)
	run(ctx, nodes.Server, "mkdir -p /srv/share/many && cd /srv/share/many && seq -f file-%03.0f 300 | xargs touch")
	DeferCleanup(func(ctx context.Context) {
		mustKubectl(ctx, "delete", "-f", "testdata/trial.yaml", "--ignore-not-found", "--timeout=90s")
		cleanUpEvidence(ctx)
	}, NodeTimeout(patience.Of(8*time.Minute)))
	mustKubectl(ctx, "create", "namespace", evident)
	mustKubectl(ctx, "create", "secret", "generic", smbSecret, "-n", evident, "--from-literal=username=share", "--from-literal=password=share")
	createEvident(ctx, "smb-tried", csiSMB("smb-tried"), smbOptions, "")
	createPod(ctx, "smb-tried", nodes.Nodes[0].Name)
	waitUntilAllRun(ctx, "smb-tried")
	mustKubectl(ctx, "create", "-f", "testdata/trial.yaml")
	waitUntilManaged(ctx)
	pods := podsOf(ctx)
	mounted := driverMounts(ctx, nodes.Nodes[0], "cifs", "smb-tried|globalmount")
	Expect(mounted).NotTo(BeEmpty())

	refused := endOf(ctx, cloneTrial("refused", "retrans=3"))
	failed := meta.FindStatusCondition(refused.Status.Conditions, v1alpha1.TrialConditionFailed)
	Expect(failed).To(HaveValue(And(HaveField("Status", metav1.ConditionTrue), HaveField("Reason", v1alpha1.TrialReasonNotMounted))), tellTrial(refused))
	By(failed.Message)
	Expect(failed.Message).To(And(ContainSubstring("After, round 1"), ContainSubstring("mount error(22)")))
	expectNoClone(ctx)

	began := time.Now()
	trial := cloneTrial("listed", "actimeo=30")
	trial.Spec.Rounds = cloneRounds
	ended := endOf(ctx, trial)
	keepTrial("clones-of-smb", ended)
	By(fmt.Sprintf("%d passes by clones took %.0f s", len(ended.Status.Passes), time.Since(began).Seconds()))
	Expect(ended.Status.Route).To(Equal(v1alpha1.RouteClone), tellTrial(ended))
	Expect(ended.Status.Rounds).To(Equal(int32(cloneRounds)), tellTrial(ended))
	Expect(ended.Status.Passes).To(HaveLen(3*cloneRounds), tellTrial(ended))
	Expect(ended.Status.Passes).To(HaveEach(HaveField("Node", nodes.Nodes[1].Name)), "the other node has a mount of the server")
	for _, pass := range ended.Status.Passes {
		for _, phase := range pass.Phases {
			Expect(phase.Units).To(BeEquivalentTo(300), "%s of round %d, %s", pass.Arm, pass.Round, phase.Name)
		}
		Expect(pass.Phases[0].Operations).To(ContainElement(And(HaveField("Name", "QUERY_DIRECTORY"), HaveField("Count", BeNumerically(">", 0)))))
	}
	Expect(string(ended.Status.Verdict)).To(Equal("Undecided"), "verdict after three rounds: %s", tellTrial(ended))
	expectNoClone(ctx)
	Expect(podsOf(ctx)).To(Equal(pods), "pods, and their restart counts")
	Expect(driverMounts(ctx, nodes.Nodes[0], "cifs", "smb-tried|globalmount")).To(Equal(mounted))
	deleteTrialProfiles(ctx)
}

func cloneTrial(name string, options ...v1alpha1.MountOption) *v1alpha1.StorageClientTrial {
	trial := newTrial(name, v1alpha1.TrialWorkload{Name: v1alpha1.WorkloadListDirectory, Path: "many"}, options...)
	trial.Namespace, trial.Spec.ClaimName = evident, "smb-tried"
	trial.Spec.TimeoutSeconds = ptr.To(int32(cloneEnds.Seconds()))
	return trial
}
