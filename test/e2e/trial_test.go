//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/cmd/kubectl-storageclient/view"
	"github.com/storageclient/operator/test/e2e/cluster"
)

const (
	// tried labels the spec, and is the name of its profile.
	tried = "trial"
	// trialEntries is the number of files in the large directory.
	trialEntries = 5000
	// trialEnds is the maximum duration of a trial on emulated processors.
	trialEnds = 25 * time.Minute
	// trialRounds is the minimum number of rounds that a trial needs for a verdict by the counts of both phases.
	trialRounds = 9
)

// sameWork contains the workloads of the trials whose two lists have the same meaning.
var sameWork = []v1alpha1.TrialWorkload{
	{Name: v1alpha1.WorkloadMount},
	{Name: v1alpha1.WorkloadListDirectory, Path: "few"},
	{Name: v1alpha1.WorkloadWalkTree, Path: "tree"},
	{Name: v1alpha1.WorkloadReadSequential, Path: "data"},
	{Name: v1alpha1.WorkloadCreateUnlink, Path: "writable", AllowWrites: true},
}

// expectTrials compares mount options of a volume that both nodes mount: one list with a known effect, one that the kernel rejects, and
// lists with the same meaning. It also tries sysctls with a known effect. SCO_RECORD=DIR saves the trials there.
func expectTrials(ctx SpecContext) {
	installOperator(ctx)
	run(ctx, nodes.Server, `
cd `+cluster.ServerExport+`
mkdir -p many few data half tree/a/b tree/c writable nested
chmod 777 writable
seq -f many/file-%05.0f `+strconv.Itoa(trialEntries)+` | xargs touch
seq -f few/file-%03.0f 100 | xargs touch
seq -f tree/a/b/file-%03.0f 60 | xargs touch
seq -f tree/c/file-%03.0f 60 | xargs touch
dd if=/dev/urandom of=data/1 bs=1M count=8 2>/dev/null
dd if=/dev/urandom of=data/2 bs=1M count=8 2>/dev/null
cp data/1 half
mount -t tmpfs -o size=16m nested nested
cp data/1 nested
exportfs -o rw,no_root_squash,insecure,no_subtree_check,fsid=91 '*:`+cluster.ServerExport+`/nested'`)
	startApp(ctx)
	mustKubectl(ctx, "create", "-f", "testdata/trial.yaml")
	waitUntilManaged(ctx)
	expectObserved(ctx)
	pods := appPods(ctx)
	before := map[string]facts{}
	for _, member := range nodes.Nodes {
		before[member.Name] = factsOf(ctx, member)
	}

	expectNotMounted(ctx)
	for i, work := range sameWork {
		expectNoDifference(ctx, fmt.Sprintf("same-%d", i+1), work)
	}
	expectFewerGetAttrs(ctx)
	expectOneWindow(ctx)
	expectEffectOfSysctls(ctx)

	By("no object is left, no pod has restarted, and no mount of the nodes has changed")
	expectNoTrial(ctx)
	Expect(appPods(ctx)).To(Equal(pods))
	for _, member := range nodes.Nodes {
		f := factsOf(ctx, member)
		Expect(f.mountLines(appName)).To(Equal(before[member.Name].mountLines(appName)), member.Name)
		Expect(f.transports(appName)).To(Equal(before[member.Name].transports(appName)), member.Name)
	}
	left, err := nodes.Server.Run(ctx, "ls -A "+cluster.ServerExport+"/writable")
	Expect(err).NotTo(HaveOccurred())
	Expect(strings.TrimSpace(left)).To(BeEmpty(), "files of the workload that writes")
	run(ctx, nodes.Server, "exportfs -u '*:"+cluster.ServerExport+"/nested'\numount -l "+cluster.ServerExport+"/nested")
	deleteTrialProfiles(ctx)
}

func deleteTrialProfiles(ctx context.Context) {
	GinkgoHelper()
	for _, name := range []string{tried, "agents"} {
		mustKubectl(ctx, "delete", "storageclientprofile", name, "--wait=false")
		waitUntilGone(ctx, podStart, name)
	}
}

// expectObserved runs a pod that lists the large directory repeatedly on one node, next to the application. The plugin must recommend a
// longer attribute cache for that node, and nothing for the others. Its proposal can be applied.
func expectObserved(ctx context.Context) {
	GinkgoHelper()
	By("the plugin recommends an option for a pod that lists a large directory repeatedly")
	busy, idle := nodes.Nodes[0].Name, nodes.Nodes[1].Name
	lister := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "lister", Namespace: appSpace}, Spec: corev1.PodSpec{
		NodeName: busy, TerminationGracePeriodSeconds: ptr.To(int64(10)),
		Containers: []corev1.Container{{Name: "main", Image: cluster.WorkloadImage, ImagePullPolicy: corev1.PullNever, Args: []string{"list", "/data/many"},
			VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}}},
		Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: appName}}}},
	}}
	Expect(api.Create(ctx, lister)).To(Succeed())
	eventually(ctx, podStart, "the lister runs, and both agents report their mounts", func(g Gomega) {
		g.Expect(api.Get(ctx, client.ObjectKeyFromObject(lister), lister)).To(Succeed())
		g.Expect(lister.Status.Phase).To(Equal(corev1.PodRunning))
		for _, member := range nodes.Nodes {
			g.Expect(getSCN(ctx, g, member.Name).Status.Mounts).To(ContainElement(HaveField("Volume", appName)), member.Name)
		}
	})
	recommended := plugin(ctx, "recommend", appName, "-n", appSpace, "--window", "60s", "-o", "json")
	keepRecord("recommended.json", recommended)
	var report view.Recommendation
	Expect(json.Unmarshal(recommended, &report)).To(Succeed())
	found := map[string][]string{}
	for _, m := range report.Mounts {
		found[m.Node] = append(found[m.Node], "")
		for _, f := range m.Verdict.Findings {
			found[m.Node] = append(found[m.Node], f.Rule)
		}
		slices.Sort(found[m.Node])
		found[m.Node] = slices.Compact(found[m.Node])
	}
	Expect(found).To(Equal(map[string][]string{busy: {"", "AttributeRevalidation"}, idle: {""}}), "%s", recommended)
	Expect(report.Proposal.Profiles).To(HaveLen(1))
	proposed := &report.Proposal.Profiles[0]
	Expect(proposed.Spec.Volumes).To(HaveLen(1))
	Expect(proposed.Spec.Volumes[0].MountOptions).To(ContainElement(v1alpha1.MountOption("actimeo=30")), "%s", recommended)
	By("declare " + fmt.Sprint(proposed.Spec.Volumes[0].MountOptions) + ": " + report.Summary)
	proposed.Name = "recommended"
	Expect(api.Create(ctx, proposed, client.DryRunAll)).To(Succeed())

	Expect(api.Delete(ctx, lister)).To(Succeed())
	eventually(ctx, podStart, "the lister and the sample requests are gone", func(g Gomega) {
		g.Expect(apierrors.IsNotFound(api.Get(ctx, client.ObjectKeyFromObject(lister), lister))).To(BeTrue())
		for _, member := range nodes.Nodes {
			g.Expect(getSCN(ctx, g, member.Name).Spec.Sample).To(BeNil(), member.Name)
		}
	})
}

func plugin(ctx context.Context, args ...string) []byte {
	GinkgoHelper()
	var out, progress bytes.Buffer
	cmd := exec.CommandContext(ctx, findProgram("kubectl-storageclient"), append([]string{"--kubeconfig=" + dirs.Kubeconfig()}, args...)...)
	cmd.Stdout, cmd.Stderr = &out, &progress
	err := cmd.Run()
	GinkgoWriter.Println(progress.String())
	Expect(err).NotTo(HaveOccurred(), progress.String())
	return out.Bytes()
}

// waitUntilManaged waits for the agents of the profile's nodes.
func waitUntilManaged(ctx context.Context) {
	GinkgoHelper()
	eventually(ctx, podStart, "both nodes have an agent that reports", func(g Gomega) {
		for _, member := range nodes.Nodes {
			g.Expect(getSCN(ctx, g, member.Name).Status.ObservedGeneration).To(BeNumerically(">", 0), member.Name)
		}
	})
}

// expectFewerGetAttrs uses the plugin. Attributes that are cached for 30 s are not requested again after 5.
func expectFewerGetAttrs(ctx context.Context) {
	GinkgoHelper()
	By("the plugin compares the volume's options with the profile's options, which cache attributes for 30 s")
	html := plugin(ctx, "trial", appName, "-n", appSpace, "--profile", tried, "--path", "many", "--metric", "GETATTR", "--keep", "-o", "html")
	Expect(string(html)).To(And(HavePrefix("<!doctype html>"), ContainSubstring("actimeo=30"), ContainSubstring("GETATTR")))
	keepRecord("fewer-getattrs.html", html)

	var trials v1alpha1.StorageClientTrialList
	Expect(api.List(ctx, &trials, client.InNamespace(appSpace))).To(Succeed())
	Expect(trials.Items).To(HaveLen(1))
	trial := &trials.Items[0]
	keepTrial("fewer-getattrs", trial)
	// The first listing may not repeat within 5 % on these machines. Its time is then not shown.
	Expect(string(trial.Status.Verdict)).To(BeElementOf("Better", "FewerRequests"), tellTrial(trial))
	getAttrs := resultOf(trial, "Repeated", "GETATTR")
	Expect(perListing(getAttrs.Before)).To(BeNumerically(">=", 1000), tellTrial(trial))
	Expect(perListing(getAttrs.After)).To(BeNumerically("<", 10), tellTrial(trial))
	Expect(api.Delete(ctx, trial)).To(Succeed())
}

// perListing converts a count for each entry into a count for the whole directory.
func perListing(perEntry string) float64 {
	GinkgoHelper()
	n, err := strconv.ParseFloat(perEntry, 64)
	Expect(err).NotTo(HaveOccurred())
	return n * trialEntries
}

func resultOf(trial *v1alpha1.StorageClientTrial, phase, metric string) v1alpha1.TrialResult {
	GinkgoHelper()
	for _, r := range trial.Status.Results {
		if r.Phase == phase && r.Metric == metric {
			return r
		}
	}
	Fail(fmt.Sprintf("no result for %s of phase %s: %s", metric, phase, tellTrial(trial)))
	return v1alpha1.TrialResult{}
}

// expectNotMounted tries an option that the catalogue contains, but that the older kernel of the nodes rejects.
func expectNotMounted(ctx context.Context) {
	GinkgoHelper()
	trial := newTrial("refused", v1alpha1.TrialWorkload{Name: v1alpha1.WorkloadListDirectory, Path: "few"}, "alignwrite")
	ended := endOf(ctx, trial)
	failed := meta.FindStatusCondition(ended.Status.Conditions, v1alpha1.TrialConditionFailed)
	Expect(failed.Status).To(Equal(metav1.ConditionTrue), tellTrial(ended))
	Expect(failed.Reason).To(Equal(v1alpha1.TrialReasonNotMounted))
	Expect(failed.Message).To(And(ContainSubstring("alignwrite"), ContainSubstring("Unknown parameter"), ContainSubstring("original mount options")), failed.Message)
	By(failed.Message)
}

// expectOneWindow tries a read-ahead window with files of a nested export, whose mount does not have that window.
func expectOneWindow(ctx context.Context) {
	GinkgoHelper()
	trial := newTrial("nested", v1alpha1.TrialWorkload{Name: v1alpha1.WorkloadReadSequential, Path: "nested"})
	trial.Spec.ReadAheadKiB = 1024
	ended := endOf(ctx, trial)
	failed := meta.FindStatusCondition(ended.Status.Conditions, v1alpha1.TrialConditionFailed)
	Expect(failed.Status).To(Equal(metav1.ConditionTrue), tellTrial(ended))
	Expect(failed.Message).To(ContainSubstring("nested export nested of the server"))
	By(failed.Message)
}

// expectEffectOfSysctls tries the sysctls of two rows of the documents. The node keeps its own.
func expectEffectOfSysctls(ctx context.Context) {
	GinkgoHelper()
	node := nodes.Nodes[0]
	names := "net.ipv4.tcp_sack net.ipv4.tcp_dsack net.ipv4.tcp_slow_start_after_idle"
	before, err := node.Run(ctx, "sysctl "+names)
	Expect(err).NotTo(HaveOccurred())
	By("C7: without selective acknowledgments, reads take longer if several packets are lost at a time")
	sack := trySysctls(ctx, "without-sack", v1alpha1.TrialWorkload{Name: v1alpha1.WorkloadReadSequential, Path: "half"}, distant, policed,
		map[string]v1alpha1.SettingText{"net.ipv4.tcp_sack": "0", "net.ipv4.tcp_dsack": "0"})
	Expect(string(sack.Status.Verdict)).To(Equal("Worse"), tellTrial(sack))
	Expect(sack.Status.Sysctls).To(HaveKeyWithValue("net.ipv4.tcp_sack", v1alpha1.SettingText("1")), "value of the passes Before and Again")
	By("C5: without slow start, the writes after 5 s take less time, and the first ones on a mount do not")
	writes := v1alpha1.TrialWorkload{Name: v1alpha1.WorkloadWriteSequential, Path: "writable", AllowWrites: true, TrialLoad: v1alpha1.TrialLoad{BlockKiB: 16}}
	idle := trySysctls(ctx, "no-slow-start", writes, "netem delay 50ms", "", map[string]v1alpha1.SettingText{"net.ipv4.tcp_slow_start_after_idle": "0"})
	Expect(string(resultOf(idle, "Repeated", "Seconds").Verdict)).To(Equal("Better"), tellTrial(idle))
	Expect(string(resultOf(idle, "First", "Seconds").Verdict)).To(BeElementOf("NoDifference", "Undecided"), tellTrial(idle))
	after, err := node.Run(ctx, "sysctl "+names)
	Expect(err).NotTo(HaveOccurred())
	Expect(after).To(Equal(before))
}

// trySysctls runs a trial on the first node, while server and node shape their packets.
func trySysctls(ctx context.Context, name string, work v1alpha1.TrialWorkload, server, node string, candidate map[string]v1alpha1.SettingText) *v1alpha1.StorageClientTrial {
	GinkgoHelper()
	defer shape(ctx, nodes.Server, server)()
	defer shape(ctx, nodes.Nodes[0], node)()
	trial := newTrial(name, work)
	trial.Spec.Sysctls, trial.Spec.Rounds = candidate, effectRounds
	trial.Spec.NodeSelector = map[string]v1alpha1.LabelText{corev1.LabelHostname: v1alpha1.LabelText(nodes.Nodes[0].Name)}
	trial.Spec.Goal = v1alpha1.TrialGoal{BetterByPercent: ptr.To(int32(5))}
	ended := endOf(ctx, trial)
	keepTrial(name, ended)
	Expect(ended.Status.Rounds).To(Equal(int32(effectRounds)), tellTrial(ended))
	return ended
}

// expectNoDifference compares the volume's options with a list of the same meaning: retrans=2 is the default of NFS over TCP.
func expectNoDifference(ctx context.Context, name string, work v1alpha1.TrialWorkload) {
	GinkgoHelper()
	trial := newTrial(name, work, "retrans=2")
	trial.Spec.Rounds = trialRounds
	ended := endOf(ctx, trial)
	keepTrial(name, ended)
	Expect(string(ended.Status.Verdict)).To(BeElementOf("NoDifference", "Undecided"), tellTrial(ended))
	Expect(ended.Status.Rounds).To(Equal(int32(trialRounds)), tellTrial(ended))
	for _, r := range ended.Status.Results {
		Expect(string(r.Verdict)).NotTo(BeElementOf("Better", "Worse"), "%s of phase %s: %s", r.Metric, r.Phase, tellTrial(ended))
	}
}

func newTrial(name string, work v1alpha1.TrialWorkload, options ...v1alpha1.MountOption) *v1alpha1.StorageClientTrial {
	return &v1alpha1.StorageClientTrial{
		ObjectMeta: metav1.ObjectMeta{Namespace: appSpace, Name: name},
		Spec: v1alpha1.StorageClientTrialSpec{
			ClaimName: appName, MountOptions: options, Workload: work, TimeoutSeconds: ptr.To(int32(trialEnds.Seconds())),
		},
	}
}

// endOf creates a trial, waits until it has finished, and deletes it.
func endOf(ctx context.Context, trial *v1alpha1.StorageClientTrial) *v1alpha1.StorageClientTrial {
	GinkgoHelper()
	Expect(api.Create(ctx, trial)).To(Succeed())
	live := &v1alpha1.StorageClientTrial{}
	what := fmt.Sprintf("trial %s, %s of %q, has ended", trial.Name, trial.Spec.Workload.Name, trial.Spec.MountOptions)
	eventually(ctx, trialEnds, what, func(g Gomega) {
		g.Expect(api.Get(ctx, client.ObjectKeyFromObject(trial), live)).To(Succeed())
		g.Expect(live.Status.CompletionTime).NotTo(BeNil(), tellTrial(live))
	})
	GinkgoWriter.Println(tellTrial(live))
	Expect(api.Delete(ctx, live)).To(Succeed())
	return live
}

// tellTrial describes the result of a trial from its status.
func tellTrial(trial *v1alpha1.StorageClientTrial) string {
	lines := []string{fmt.Sprintf("%s: %s after %d rounds", trial.Name, trial.Status.Verdict, trial.Status.Rounds)}
	if complete := meta.FindStatusCondition(trial.Status.Conditions, v1alpha1.TrialConditionComplete); complete != nil {
		lines = append(lines, complete.Reason+": "+complete.Message)
	}
	for _, r := range trial.Status.Results {
		lines = append(lines, fmt.Sprintf("  %-9s %-12s %10s -> %-10s %s [%s, %s] %s %s", r.Phase, r.Metric, r.Before, r.After, r.Ratio, r.Low, r.High, r.Verdict, r.Note))
	}
	return strings.Join(lines, "\n")
}

func keepTrial(name string, trial *v1alpha1.StorageClientTrial) {
	GinkgoHelper()
	data, err := json.Marshal(trial)
	Expect(err).NotTo(HaveOccurred())
	keepRecord(name+".json", data)
}

// keepRecord saves a measurement for tests that replay it, if SCO_RECORD is set.
func keepRecord(name string, data []byte) {
	GinkgoHelper()
	if dir := os.Getenv("SCO_RECORD"); dir != "" {
		Expect(os.WriteFile(filepath.Join(dir, name), data, 0o644)).To(Succeed())
	}
}
