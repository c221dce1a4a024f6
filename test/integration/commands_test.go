package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
)

// A shell runs the documented commands, with kubectl and the plugin. The cluster has output for each command, so a wrong path, column or
// filter fails the test.
var _ = Describe("The documentation's commands", func() {
	It("return output, or are accepted by the API server", func() {
		createDocumentedCluster()
		dir, environment := readerFiles()
		ran := 0
		var problems []string
		for _, entry := range documentedCommands() {
			if reason := skipReason(entry.command); reason != "" {
				continue
			}
			ran++
			shell := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", withNames(entry.command))
			shell.Dir, shell.Env = dir, environment
			var complaints strings.Builder
			shell.Stderr = &complaints
			output, err := shell.Output()
			// A command that redirects its output prints nothing.
			if quiet := strings.Contains(entry.command, " > "); err != nil || !quiet && !hasOutput(string(output)) {
				problems = append(problems, fmt.Sprintf("%s: %s: %v\n%s%s", entry.page, entry.command, err, output, complaints.String()))
			}
		}
		Expect(problems).To(BeEmpty(), strings.Join(problems, "\n"))
		Expect(ran).To(BeNumerically(">=", 50), "number of documented commands that ran")
	})
})

type documentedCommand struct{ page, command string }

// documentedCommands returns the commands of all shell blocks, each once, without comments.
func documentedCommands() []documentedCommand {
	GinkgoHelper()
	var commands []documentedCommand
	for _, page := range pagePaths() {
		content, err := os.ReadFile(filepath.Join(configDir, "..", page))
		Expect(err).NotTo(HaveOccurred())
		for _, block := range shellFence.FindAllStringSubmatch(string(content), -1) {
			for _, command := range commandsOf(block[1]) {
				same := func(other documentedCommand) bool { return withNames(other.command) == withNames(command) }
				if !slices.ContainsFunc(commands, same) {
					commands = append(commands, documentedCommand{page, command})
				}
			}
		}
	}
	return commands
}

var (
	shellFence = regexp.MustCompile("(?ms)^```sh\n(.*?)^```$")
	// comment starts a line or follows a space. No jsonpath or jq expression in the pages contains # after a space.
	comment = regexp.MustCompile(`(^|\s+)#.*`)
)

// commandsOf joins lines while a quote is open.
func commandsOf(block string) []string {
	var commands []string
	open := ""
	for line := range strings.Lines(block) {
		line = comment.ReplaceAllString(strings.TrimRight(line, "\n"), "")
		if open += line; strings.Count(open, "'")%2 == 1 {
			open += "\n"
			continue
		}
		if open = strings.TrimSpace(open); open != "" {
			commands = append(commands, open)
		}
		open = ""
	}
	return commands
}

// skipReasons contains the commands that need more than an API server, each with the test that covers it or the missing program.
var skipReasons = map[string]string{
	"make ":   "Makefile",
	"docker ": "needs a container runtime",
	"kubectl exec -i -n storage-client-agent POD -- /node-agent observe": "needs an agent's Pod; cmd/node-agent",
	"helm ":       "hack/chart",
	"node-agent ": "cmd/node-agent",
	"gh ":         "needs a pull request",
	"gcloud ":     "needs a cloud",
	"git clone ":  "needs the network",
	"hostname":    "on a node",
	"cat ":        "on a node",
	"base64 ":     "a release's files", "openssl ": "a release's files", "sha256sum ": "a release's files", "skopeo ": "a release's files", "cosign ": "a release's files",
	"kubectl apply --server-side --force-conflicts -f dist/install.yaml": "daemonset_test.go",
	"kubectl delete validatingwebhookconfiguration ":                     "the manifests of this cluster have no webhook",
	"kubectl delete -f install.yaml":                                     "test/cluster, hack/uninstall.sh",
	"kubectl -n storage-client-system rollout status ":                   "needs a controller manager",
	"kubectl -n storage-client-agent logs ":                              "needs a kubelet",
	"kubectl -n storage-client-system logs ":                             "needs a kubelet",
}

// skipReason returns the reason to skip a command, empty if this spec runs it.
func skipReason(command string) string {
	for beginning, reason := range skipReasons {
		if strings.HasPrefix(command, beginning) {
			return reason
		}
	}
	if strings.Contains(command, "| jq ") {
		if _, err := exec.LookPath("jq"); err != nil {
			fmt.Fprintf(GinkgoWriter, "SKIPPED, as it needs jq: %s\n", command)
			return "jq is not installed"
		}
	}
	return ""
}

const theProfile, theNode, theVolume = "azure-files-large-directories", "node-1", "share"

// withNames replaces the placeholders in a command. Commands that write become dry runs, so the cluster is unchanged.
func withNames(command string) string {
	command = regexp.MustCompile(`\b(PROFILE|NAME)\b`).ReplaceAllString(command, theProfile)
	command = regexp.MustCompile(`([ =])NODE\b`).ReplaceAllString(command, "${1}"+theNode)
	command = regexp.MustCompile(`([ "])VOLUME\b`).ReplaceAllString(command, "${1}"+theVolume)
	command = regexp.MustCompile(`^kubectl (apply|annotate|delete) `).ReplaceAllString(command, "kubectl $1 --dry-run=server ")
	if started.MatchString(command) {
		return startOnly(command)
	}
	return strings.ReplaceAll(command, " --watch", "")
}

// started matches commands that create a trial, to which no agent responds here.
var started = regexp.MustCompile(`^kubectl storageclient (trial|recommend) `)

// startOnly changes the command so that it succeeds once the API server has accepted the trial, and then interrupts it.
func startOnly(command string) string {
	command = regexp.MustCompile(`--profile \S+`).ReplaceAllString(command, "--profile "+theProfile)
	command = strings.NewReplacer("CLAIM", "projects", "NAMESPACE", "default", "DIRECTORY", "src").Replace(command)
	return "(timeout -s INT 5 " + command + " 2>&1 || true) | grep 'Created StorageClientTrial'"
}

// hasOutput reports whether the output contains more than spaces and table headings.
func hasOutput(output string) bool {
	lines := strings.Split(strings.TrimSpace(output), "\n")
	if heading := regexp.MustCompile(`^[A-Z][A-Z0-9 -]*$`); heading.MatchString(lines[0]) {
		lines = lines[1:]
	}
	text := strings.ReplaceAll(strings.Join(lines, ""), "<none>", "")
	return strings.Trim(text, " \t\n:") != "" && !strings.Contains(output, "<error>")
}

// readerFiles returns a directory with the files that the pages mention, and an environment with kubectl and its plugin.
func readerFiles() (string, []string) {
	GinkgoHelper()
	dir := GinkgoT().TempDir()
	profile := "apiVersion: tuning.storageclient.dev/v1alpha1\nkind: StorageClientProfile\nmetadata: {name: %s}\nspec: {nodeSelector: {matchLabels: {pool: eda}}, node: {sysctls: {net.core.rmem_max: \"16777216\"}}}\n"
	for path, content := range map[string]string{
		"profile.yaml": fmt.Sprintf(profile, "eda"), "first.yaml": fmt.Sprintf(profile, "first-of-all"),
		"more.yaml": fmt.Sprintf(profile, "more"), "profiles/eda.yaml": fmt.Sprintf(profile, "hpc"),
		"overlays/prod/eda.yaml": fmt.Sprintf(profile, "eda"), "overlays/prod/kustomization.yaml": "resources: [eda.yaml]\n",
	} {
		Expect(os.MkdirAll(filepath.Dir(filepath.Join(dir, path)), 0o755)).To(Succeed())
		Expect(os.WriteFile(filepath.Join(dir, path), []byte(content), 0o600)).To(Succeed())
	}
	config, err := filepath.Abs(configDir)
	Expect(err).NotTo(HaveOccurred())
	Expect(os.Symlink(config, filepath.Join(dir, "config"))).To(Succeed())
	path := strings.Join([]string{os.Getenv("KUBEBUILDER_ASSETS"), filepath.Dir(buildPlugin()), os.Getenv("PATH")}, ":")
	return dir, append(os.Environ(), "KUBECONFIG="+kubeconfig(), "PATH="+path, "HOME="+dir)
}

// createDocumentedCluster creates a cluster in which every documented filter finds an object. One node has an agent and all problems at
// once, the other a silent agent.
func createDocumentedCluster() {
	GinkgoHelper()
	newNode(theNode).Label("pool", "eda").Create()
	agentPod(theNode)
	newNode("node-2").Label("pool", "eda").Create()
	newVolume(theVolume).Options("nconnect=2").Claim("default", "projects").Create()
	createBoundClaim("default", "projects", theVolume)
	names := []string{theProfile}
	newProfile(theProfile).Select("pool", "eda").KernelArgument("ihash_entries=16777216").Sysctl("net.core.rmem_max", "16777216").Volumes(nfsRule("actimeo=30")).Create()
	for _, name := range []string{"first", "azure-files-nfs", "anf-eda", "efs", "filestore", "smb-shares", "xfs-builds", "filer-builds"} {
		newProfile(name).Select("pool", "none").Volumes(nfsRule("hard")).Create()
		names = append(names, name)
	}
	manager := newKeeper(k8s)
	for range 4 {
		if findObject(theNode) != nil {
			agentReports(theNode, allTroubles)
		}
		reconcileVolume(theVolume)
		fakeClock.Step(2 * time.Minute)
		manager.settle(names, []string{theNode, "node-2"})
	}
	claims := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.ManagerNamespace, Name: "storage-client-rollout"}}
	if err := k8s.Create(ctx, claims); err != nil {
		Expect(err).To(MatchError(ContainSubstring("already exists")))
	}
	event := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "timed-out"}, Reason: "DrainTimedOut", Type: corev1.EventTypeWarning,
		InvolvedObject: corev1.ObjectReference{Kind: "Node", Name: theNode},
	}
	Expect(k8s.Create(ctx, event)).To(Succeed())
	DeferCleanup(func() { deleteNow(event) })
}

func createBoundClaim(namespace, name, volume string) {
	GinkgoHelper()
	volumeClaim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	volumeClaim.Spec = corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}, VolumeName: volume,
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}
	Expect(k8s.Create(ctx, volumeClaim)).To(Succeed())
	DeferCleanup(func() { deleteNow(volumeClaim) })
	volumeClaim.Status.Phase = corev1.ClaimBound
	Expect(k8s.Status().Update(ctx, volumeClaim)).To(Succeed())
}

// allTroubles sets a status with a result for each filter of the runbooks.
func allTroubles(status *v1alpha1.StorageClientNodeStatus) {
	rebootDue("kernelArgument/ihash_entries")(status)
	for i := range status.Settings {
		if setting := &status.Settings[i]; setting.Key == "sysctl/net.core.rmem_max" {
			setting.State, setting.Observed, setting.Message = v1alpha1.SettingDrifted, "212992", "Something else sets it to 212992"
		}
	}
	now := ptr.To(metav1.NewTime(fakeClock.Now()))
	status.NFS4ClientName = "Linux NFSv4.1 node"
	status.Mounts = []v1alpha1.MountStatus{{
		MountPoint: "/var/lib/kubelet/pods/1/volumes/kubernetes.io~nfs/" + theVolume, Volume: theVolume, PodUIDs: []string{"pod-1"}, Server: "filer",
		Protocol: "nfs4", Options: []string{"nconnect=2"}, Connections: 2, Since: now, Used: true, State: v1alpha1.MountStale, Message: "Has not actimeo=30",
	}}
	status.Servers = []v1alpha1.ServerStatus{
		{Server: "filer", Protocol: v1alpha1.ServerNFS, State: v1alpha1.ServerSilent, Reason: "NoAnswer", Message: "Answers nothing", Since: now, Volumes: []string{theVolume}, Forgetting: true},
		{Server: "filer2", Protocol: v1alpha1.ServerNFS, State: v1alpha1.ServerAnswering, Reason: "StaleHandles", Message: "Stale handles", Since: now, Volumes: []string{theVolume}, PodUIDs: []string{"pod-1"}},
	}
}
