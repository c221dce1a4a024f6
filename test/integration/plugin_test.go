package integration

import (
	"bytes"
	"encoding/json"
	"errors"
	"os/exec"
	"sync"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
)

var _ = Describe("The plugin", Ordered, func() {
	const author, viewer, view = "storage-client-profile-author", "storage-client-viewer", "storage-client-view"
	var plugin string

	BeforeAll(func() {
		plugin = buildPlugin()
	})

	// run runs the plugin as a user, empty for all rights, and returns its status and output.
	run := func(as, stdin string, args ...string) (status int, stdout, stderr string) {
		GinkgoHelper()
		args = append(args, "--kubeconfig", kubeconfig())
		if as != "" {
			args = append(args, "--as", as)
		}
		cmd := exec.CommandContext(ctx, plugin, args...)
		var out, complaints bytes.Buffer
		cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewBufferString(stdin), &out, &complaints
		err := cmd.Run()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			Fail(err.Error())
		}
		return cmd.ProcessState.ExitCode(), out.String(), complaints.String()
	}

	file := func(spec string) string {
		return "apiVersion: tuning.storageclient.dev/v1alpha1\nkind: StorageClientProfile\nmetadata: {name: eda}\nspec:\n  nodeSelector: {matchLabels: {pool: eda}}\n" + spec
	}
	const hash = "  node: {kernelArguments: [ihash_entries=16777216]}\n"

	// mayList gives a user the right to list Nodes and the other resources that a plan reads.
	mayList := func(user string, resources ...string) {
		GinkgoHelper()
		role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "plan-" + user}, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"", "storage.k8s.io", "policy"}, Resources: resources, Verbs: []string{"get", "list", "watch"}},
		}}
		binding := &rbacv1.ClusterRoleBinding{ObjectMeta: role.ObjectMeta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}}}
		for _, object := range []client.Object{role, binding} {
			Expect(k8s.Create(ctx, object)).To(Succeed())
			DeferCleanup(func() { deleteNow(object) })
		}
	}

	It("plans files by a dry run, and writes nothing", func() {
		newNode("node-1").Label("pool", "eda").Create()
		live := newProfile("eda").Select("pool", "eda").Create()
		userWith(author, "patch")
		mayList(author, "pods", "poddisruptionbudgets")
		var status int
		var stdout, stderr string
		Eventually(func() int {
			status, stdout, stderr = run(author, file(hash), "plan", "-f", "-", "--exit-code", "-o", "json")
			return status
		}).Should(Equal(2), stderr)
		var plan struct {
			Profiles []struct{ Action string }
			Reboots  []struct{ Node string }
			Unknown  []string
		}
		Expect(json.Unmarshal([]byte(stdout), &plan)).To(Succeed(), stdout)
		Expect(plan.Profiles[0].Action).To(Equal("Update"))
		Expect(plan.Reboots).To(HaveLen(1))
		Expect(plan.Unknown).To(ConsistOf(HavePrefix("current values of kernelArgument/ihash_entries: the node has no agent")))
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(live), live)).To(Succeed())
		Expect(live.Generation).To(BeEquivalentTo(1))

		By("An existing profile is not a change")
		status, stdout, stderr = run("", file(""), "plan", "-f", "-", "--exit-code")
		Expect(status).To(Equal(0), stdout+stderr)
		Expect(stdout).To(ContainSubstring("No changes"))

		By("The CustomResourceDefinition rejects an existing and a new profile")
		for _, written := range []string{file("  mode: Maybe\n"), string(bytes.Replace([]byte(file("  mode: Maybe\n")), []byte("name: eda"), []byte("name: new"), 1))} {
			status, stdout, stderr = run(author, written, "plan", "-f", "-", "--exit-code")
			Expect(status).To(Equal(1))
			Expect(stderr).To(ContainSubstring(`spec.mode: Unsupported value: "Maybe"`), stdout)
		}

		By("The policy on approvals rejects too")
		Eventually(func() string {
			_, _, stderr := run(author, file(hash+"  rollout: {reboot: {policy: Automatic}}\n"), "plan", "-f", "-")
			return stderr
		}).Should(ContainSubstring("ClusterRole storage-client-approver"))
	})

	It("reports skipped checks to users who may only read", func() {
		newNode("node-1").Label("pool", "eda").Create()
		userWith(viewer, "list")
		Eventually(func(g Gomega) {
			status, stdout, stderr := run(viewer, file(hash), "plan", "-f", "-")
			g.Expect(status).To(Equal(0), stderr)
			g.Expect(stdout).To(ContainSubstring("a dry run requires permission to create profiles"))
			g.Expect(stdout).NotTo(ContainSubstring("changes of volumes: "))
			g.Expect(stdout).To(ContainSubstring("number of evicted pods: no permission to list Pods"))
			g.Expect(stdout).To(ContainSubstring("1 node would reboot"))
		}).Should(Succeed())
	})

	It("follows a rollout with no more than the rights to view, and ends with Ctrl-C", func() {
		newProfile("eda").Select("pool", "eda").Create()
		clientNode := &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}
		clientNode.Spec.Settings = []v1alpha1.NodeSetting{{Key: "sysctl/vm.dirty_ratio", Value: "20", Profile: "eda", OnRemoval: v1alpha1.DeletionRestore}}
		Expect(k8s.Create(ctx, clientNode)).To(Succeed())
		userWith(view, "watch")
		cmd := exec.CommandContext(ctx, plugin, "get", "eda", "--watch", "--kubeconfig", kubeconfig(), "--as", view)
		out := &lockedBuffer{}
		cmd.Stdout, cmd.Stderr = out, out
		Expect(cmd.Start()).To(Succeed())
		Eventually(out.String).Should(ContainSubstring("Note: no permission to list Nodes"))
		for _, phase := range []v1alpha1.RolloutPhase{v1alpha1.RolloutDraining, v1alpha1.RolloutRebooting} {
			clientNode.Status.Rollout = &v1alpha1.RolloutStatus{Phase: phase, Reason: "Reported", Message: "as reported"}
			Expect(k8s.Status().Update(ctx, clientNode)).To(Succeed())
			Eventually(out.String).Should(ContainSubstring("node-1 " + string(phase) + " Reported: as reported\n"))
		}
		Expect(cmd.Process.Signal(syscall.SIGINT)).To(Succeed())
		Expect(cmd.Wait()).To(Succeed(), out.String())
	})

	It("sees Nodes come and go at once with each of the roles for people", func() {
		newProfile("eda").Select("pool", "eda").Sysctl("vm.dirty_ratio", "20").Create()
		newNode("node-1").Label("pool", "eda").Create()
		for _, role := range []string{viewer, author, v1alpha1.ApproverRole, "storage-client-profile-editor"} {
			user := userWith(role, "watch")
			cmd := exec.CommandContext(ctx, plugin, "get", "eda", "--watch", "--kubeconfig", kubeconfig(), "--as", role)
			out := &lockedBuffer{}
			cmd.Stdout, cmd.Stderr = out, out
			Expect(cmd.Start()).To(Succeed())
			Eventually(out.String).Should(ContainSubstring("node-1 "), role)
			// Without the right to watch, the cache would list Nodes again only after half a minute.
			watch, err := user.Watch(ctx, &corev1.NodeList{})
			Expect(err).NotTo(HaveOccurred(), role)
			watch.Stop()
			added := newNode("node-2").Label("pool", "eda").Create()
			Eventually(out.String).Should(ContainSubstring("node-2 "), role)
			deleteNow(added)
			Eventually(out.String).Should(ContainSubstring("node-2 is no longer a node of eda"), role)
			Expect(out.String()).NotTo(ContainSubstring("Note: "), role)
			Expect(cmd.Process.Signal(syscall.SIGINT)).To(Succeed())
			Expect(cmd.Wait()).To(Succeed(), out.String())
		}
	})
})

// lockedBuffer is a buffer that a process writes while a spec reads.
type lockedBuffer struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.String()
}
