package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/cmd/kubectl-storageclient/view"
	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/tuning/nodesettings"
)

// planOfEDA is the plan hash of the profile that eda returns.
const planOfEDA = "9a36d0ef366bc57d"

func eda() *v1alpha1.StorageClientProfile {
	p := &v1alpha1.StorageClientProfile{ObjectMeta: metav1.ObjectMeta{Name: "eda", Generation: 1, Finalizers: []string{v1alpha1.Finalizer}}}
	p.Spec.NodeSelector.MatchLabels = map[string]string{"pool": "eda"}
	p.Spec.Node = &v1alpha1.NodeTuning{KernelArguments: []v1alpha1.KernelArgument{"ihash_entries=16777216"}}
	p.Spec.Volumes = []v1alpha1.VolumeRule{{Name: "nfs", MountOptions: []v1alpha1.MountOption{"nocto"},
		Selector: v1alpha1.VolumeSelector{Protocols: []v1alpha1.VolumeProtocol{v1alpha1.ProtocolNFS}}}}
	p.Status.ObservedGeneration = 1
	p.Status.Plan = v1alpha1.Plan{Hash: planOfEDA, NodesToReboot: 1, Examples: []string{"n1"}}
	p.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonUpToDate}}
	return p
}

// cluster returns a node that has pv1 mounted with old options for the Pod eda/sim.
func cluster() []client.Object {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{
		"pool": "eda", corev1.LabelOSStable: "linux", corev1.LabelTopologyZone: "z"}}}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	scn := &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	scn.Status.Mounts = []v1alpha1.MountStatus{{MountPoint: "/mnt", Volume: "pv1", PodUIDs: []string{"gone", "uid-1"}, Options: []string{"rw", "vers=4.1", "hard"}}}
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv1"}}
	pv.Spec.NFS = &corev1.NFSVolumeSource{Server: "filer", Path: "/"}
	pv.Spec.MountOptions = []string{"nocto"}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "eda", Name: "sim", UID: "uid-1"}, Spec: corev1.PodSpec{NodeName: "n1"}}
	return []client.Object{node, scn, pv, pod}
}

type result struct {
	client client.Client
	out    string
	err    error
}

// at returns the current time of all tests.
func at() time.Time { return time.Date(2026, 9, 1, 0, 0, 0, 0, time.UTC) }

func execute(t *testing.T, funcs interceptor.Funcs, objects []client.Object, args ...string) result {
	t.Helper()
	return executeWith(t, "", funcs, objects, args...)
}

// executeWith runs execute with text on standard input.
func executeWith(t *testing.T, stdin string, funcs interceptor.Funcs, objects []client.Object, args ...string) result {
	t.Helper()
	return executeIn(t, &environment{IOStreams: genericiooptions.IOStreams{In: strings.NewReader(stdin)}}, funcs, objects, args...)
}

// executeIn runs execute in an environment and sets its missing fields.
func executeIn(t *testing.T, env *environment, funcs interceptor.Funcs, objects []client.Object, args ...string) result {
	t.Helper()
	c := newClient(t, funcs, objects)
	var out bytes.Buffer
	env.Out, env.ErrOut, env.now = &out, &out, at
	if env.connect == nil {
		env.connect = func() (client.WithWatch, error) { return c, nil }
	}
	env.namespace = func() (string, error) { return "eda", nil }
	if env.ticks == nil {
		env.ticks = func(time.Duration) (<-chan time.Time, func()) {
			always := make(chan time.Time)
			close(always)
			return always, func() {}
		}
	}
	env.screen = func() (view.Screen, bool) { return view.Screen{}, false }
	root := rootCommand(env)
	root.SetArgs(args)
	err := root.ExecuteContext(t.Context())
	return result{client: c, out: out.String(), err: err}
}

// newClient returns the client of an in-memory cluster.
func newClient(t *testing.T, funcs interceptor.Funcs, objects []client.Object) client.WithWatch {
	t.Helper()
	scheme, err := newScheme()
	check.NoError(t, err)
	if funcs.Patch == nil {
		funcs.Patch = patchOrTry
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&v1alpha1.StorageClientProfile{}).
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }).
		WithIndex(&v1alpha1.StorageClientProfile{}, "metadata.name", func(o client.Object) []string { return []string{o.GetName()} }).
		WithInterceptorFuncs(funcs).Build()
}

// patchOrTry extends the fake client: a dry run returns the resulting object.
func patchOrTry(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
	if len((&client.PatchOptions{}).ApplyOptions(opts).DryRun) == 0 {
		return c.Patch(ctx, o, patch, opts...)
	}
	live, err := getProfile(ctx, c, o.GetName())
	if err != nil {
		return err
	}
	return fake.NewClientBuilder().WithScheme(c.Scheme()).WithObjects(live).Build().Patch(ctx, o, patch)
}

func (r result) annotations(t *testing.T) map[string]string {
	t.Helper()
	p, err := getProfile(context.Background(), r.client, "eda")
	check.NoError(t, err)
	return p.Annotations
}

// The command approves exactly the nodes that plan shows, even if the status counts a different number of nodes.
func TestApproveShowsAndApprovesExactlyThePlan(t *testing.T) {
	objects := append(cluster(), eda())
	for _, name := range []string{"n2", "n3"} {
		another := objects[0].DeepCopyObject().(*corev1.Node)
		another.Name = name
		objects = append(objects, another)
	}
	plan := execute(t, interceptor.Funcs{}, objects, "plan", "eda")
	_, list, found := strings.Cut(plan.out, "in this order:\n")
	list, _, _ = strings.Cut(list, "\n\n")
	if !found || strings.Count(list, "\n") != 3 {
		t.Fatalf("plan shows %q", list)
	}
	r := execute(t, interceptor.Funcs{}, objects, "approve", "eda", "--plan", planOfEDA)
	check.NoError(t, r.err)
	check.Equal(t, "annotations", map[string]string{v1alpha1.ApprovedPlanAnnotation: planOfEDA}, r.annotations(t))
	want := fmt.Sprintf("Plan %s of eda reboots 3 nodes, at most 1 at a time, in this order:\n%s\n", planOfEDA, list)
	if !strings.HasPrefix(r.out, want) || !strings.HasSuffix(r.out, "\nApproved plan "+planOfEDA+" of eda.\n") {
		t.Errorf("output is %q, want %q", r.out, want)
	}
}

// Both approve and plan use the manager's reboot budget.
func TestApproveUsesTheManagersBudget(t *testing.T) {
	profile := eda()
	profile.Spec.Rollout.MaxUnavailable = ptr.To(intstr.FromInt32(3))
	profile.Status.Plan.Hash = nodesettings.PlanHash(profile)
	objects := append(cluster(), profile)
	for i := range 9 {
		another := objects[0].DeepCopyObject().(*corev1.Node)
		another.Name = fmt.Sprint("another-", i)
		objects = append(objects, another)
	}
	manager := managerWith("--max-unavailable=3")
	timesOf := func(r result) string {
		t.Helper()
		_, times, found := strings.Cut(r.out, "last node back: ")
		if !found || r.err != nil {
			t.Fatalf("%v:\n%s", r.err, r.out)
		}
		times, _, _ = strings.Cut(times, " ")
		return times
	}
	assumed := execute(t, interceptor.Funcs{}, objects, "approve", "eda")
	approved := execute(t, interceptor.Funcs{}, append(objects, manager), "approve", "eda")
	planned := execute(t, interceptor.Funcs{}, append(objects, manager), "plan", "eda")
	withFlag := execute(t, interceptor.Funcs{}, objects, "approve", "eda", "--max-unavailable", "3")
	if timesOf(approved) != timesOf(planned) || timesOf(approved) != timesOf(withFlag) || timesOf(approved) >= timesOf(assumed) {
		t.Errorf("got the end of the rollout at %s in approve, %s in plan, %s with the flag, %s with the default",
			timesOf(approved), timesOf(planned), timesOf(withFlag), timesOf(assumed))
	}
	for r, want := range map[*result]string{
		&approved: "Reboot limit of the cluster: 3 at a time (--max-unavailable of Deployment storage-client-system/storage-client-manager).\n",
		&assumed:  "Reboot limit of the cluster: 5% of all nodes (assumed, no Deployment storage-client-system/storage-client-manager; set the manager's value with --max-unavailable).\n",
	} {
		if !strings.Contains(r.out, want) {
			t.Errorf("output lacks %q:\n%s", want, r.out)
		}
	}
}

func managerWith(args ...string) *appsv1.Deployment {
	manager := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.ManagerNamespace, Name: v1alpha1.ManagerDeployment}}
	manager.Spec.Template.Spec.Containers = []corev1.Container{{Name: "manager", Args: args}}
	return manager
}

// Both approve and plan validate a profile as the manager does. Without permission to read the manager's flags, approve accepts everything.
func TestApproveAcceptsWhatTheManagersFlagsAllow(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*v1alpha1.NodeTuning)
		flag   string
	}{
		"a parameter": {func(node *v1alpha1.NodeTuning) {
			node.Sysctls = map[string]v1alpha1.SettingText{"kernel.shmmax": "68719476736"}
		},
			"--allow-parameter=sysctl/kernel[.]shmmax"},
		"a file system": {func(node *v1alpha1.NodeTuning) {
			node.Filesystems = []v1alpha1.Filesystem{{MountPoint: "/scratch/x", MountOptions: []v1alpha1.MountOption{"noatime"}}}
		}, "--allow-filesystem=/scratch"},
		"a value that works on few nodes": {func(node *v1alpha1.NodeTuning) {
			node.Sysctls = map[string]v1alpha1.SettingText{"net.ipv4.tcp_rmem": "1 1 1"}
		}, "--allow-parameter=sysctl/net[.]ipv4[.]tcp_rmem=1 1 1"},
	} {
		t.Run(name, func(t *testing.T) {
			profile := eda()
			test.change(profile.Spec.Node)
			profile.Status.Plan.Hash = nodesettings.PlanHash(profile)
			objects := append(cluster(), profile)
			for manager, r := range map[string]result{
				"readable":           execute(t, interceptor.Funcs{}, append(objects, managerWith(test.flag)), "approve", "eda"),
				"missing":            execute(t, interceptor.Funcs{}, objects, "approve", "eda"),
				"readable, for plan": execute(t, interceptor.Funcs{}, append(objects, managerWith(test.flag)), "plan", "eda"),
			} {
				if r.err != nil || !strings.Contains(r.out, "n1") {
					t.Errorf("Deployment %s: %v\n%s", manager, r.err, r.out)
				}
			}
		})
	}
}

// Every command that lists nodes leaves out the control-plane nodes that the installation excludes.
func TestCommandsListTheNodesThatTheInstallationAllows(t *testing.T) {
	objects := cluster()
	master := objects[0].DeepCopyObject().(*corev1.Node)
	master.Name, master.Labels["node-role.kubernetes.io/control-plane"] = "master", ""
	profile := eda()
	profile.Spec.IncludeControlPlane = true
	profile.Status.Plan.Hash = nodesettings.PlanHash(profile)
	objects = append(objects, master, profile)
	for _, args := range [][]string{{"plan", "eda"}, {"approve", "eda"}, {"status", "eda"}, {"get", "eda"}} {
		without := execute(t, interceptor.Funcs{}, append(objects, managerWith()), args...)
		if without.err != nil || strings.Contains(without.out, "master") {
			t.Errorf("%s without the component control-plane: %v\n%s", args[0], without.err, without.out)
		}
		with := execute(t, interceptor.Funcs{}, append(objects, managerWith("--include-control-plane")), args...)
		if with.err != nil || !strings.Contains(with.out, "master") {
			t.Errorf("%s with the component control-plane: %v\n%s", args[0], with.err, with.out)
		}
	}
}

// A profile that only the manager's flags allow has stale mounts, too.
func TestStatusShowsStaleMountsOfAProfileThatTheManagersFlagsAllow(t *testing.T) {
	profile := eda()
	profile.Spec.Node.Sysctls = map[string]v1alpha1.SettingText{"kernel.shmmax": "68719476736"}
	objects := append(cluster(), profile)
	for manager, r := range map[string]result{
		"readable": execute(t, interceptor.Funcs{}, append(objects, managerWith("--allow-parameter=sysctl/kernel[.]shmmax")), "status", "eda", "--pods"),
		"missing":  execute(t, interceptor.Funcs{}, objects, "status", "eda", "--pods"),
	} {
		if r.err != nil || !strings.Contains(r.out, "eda/sim") {
			t.Errorf("Deployment %s: %v\n%s", manager, r.err, r.out)
		}
	}
}

func TestApproveWithoutPermissionForNodesShowsTheStatus(t *testing.T) {
	forbidden := apierrors.NewForbidden(corev1.Resource("nodes"), "", errors.New("denied"))
	blind := interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
		if _, isNodes := list.(*corev1.NodeList); isNodes {
			return forbidden
		}
		return c.List(ctx, list, options...)
	}}
	r := execute(t, blind, []client.Object{eda()}, "approve", "eda")
	want := "Plan " + planOfEDA + " of eda reboots 1 node (n1), at most 1 at a time.\nCannot show why each node reboots: list Nodes: "
	if r.err != nil || !strings.HasPrefix(r.out, want) || r.annotations(t)[v1alpha1.ApprovedPlanAnnotation] != planOfEDA {
		t.Errorf("error %v, output %q, want %q", r.err, r.out, want)
	}
}

func TestApproveRejectsAPlanThatDiffersFromTheManagers(t *testing.T) {
	p := eda()
	p.Status.Plan.Hash = "1a2b"
	r := execute(t, interceptor.Funcs{}, []client.Object{p}, "approve", "eda")
	if want := "eda: this plugin computes plan " + planOfEDA + ", but the manager plan 1a2b: use the plugin of the manager's release"; r.err == nil || r.err.Error() != want || len(r.annotations(t)) > 0 {
		t.Errorf("got error %v, want %q", r.err, want)
	}
}

func TestApproveOfAnotherPlanWritesNothing(t *testing.T) {
	r := execute(t, interceptor.Funcs{}, []client.Object{eda()}, "approve", "eda", "--plan", "ffff")
	if r.err == nil || len(r.annotations(t)) > 0 {
		t.Errorf("got error %v and annotations %v, want an error and no annotations", r.err, r.annotations(t))
	}
}

// An approval without effect now would have one later: it would approve a reboot that no user reviewed, once the policy is OnApproval.
func TestApproveWithoutEffectWritesNothing(t *testing.T) {
	for policy, want := range map[v1alpha1.RebootPolicy]string{
		v1alpha1.RebootAutomatic: "the reboot policy is Automatic: nodes reboot within the budget and the windows",
		v1alpha1.RebootNever:     "the reboot policy is Never: settings take effect at the next boot",
	} {
		profile := eda()
		profile.Spec.Rollout.Reboot.Policy = policy
		r := execute(t, interceptor.Funcs{}, append(cluster(), profile), "approve", "eda")
		if r.err == nil || !strings.Contains(r.err.Error(), want) || !strings.Contains(r.err.Error(), "set spec.rollout.reboot.policy to OnApproval") {
			t.Errorf("policy %s: got error %v, want %q", policy, r.err, want)
		}
		if got := r.annotations(t); len(got) > 0 || strings.Contains(r.out, "Approved") {
			t.Errorf("policy %s: got annotations %v and output %q, want none", policy, got, r.out)
		}
	}
}

func TestPauseAndResume(t *testing.T) {
	paused := eda()
	paused.Annotations = map[string]string{v1alpha1.PausedAnnotation: "true", "other": "stays"}
	byField := eda()
	byField.Spec.Paused = true
	tests := map[string]struct {
		profile     *v1alpha1.StorageClientProfile
		command     string
		annotations map[string]string
		out         string
	}{
		"pause":                         {eda(), "pause", map[string]string{v1alpha1.PausedAnnotation: "true"}, "Paused eda: new changes do not start, nodes finish once the reboot has started.\n"},
		"resume":                        {paused, "resume", map[string]string{"other": "stays"}, "Resumed eda.\n"},
		"resume of one paused by field": {byField, "resume", nil, "eda is still paused: spec.paused is true.\n"},
		"pause of a paused profile":     {paused.DeepCopy(), "pause", paused.Annotations, "Paused eda: new changes do not start, nodes finish once the reboot has started.\n"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := execute(t, interceptor.Funcs{}, []client.Object{test.profile}, test.command, "eda")
			check.NoError(t, r.err)
			check.Equal(t, "annotations", test.annotations, r.annotations(t))
			if r.out != test.out {
				t.Errorf("output is %q, want %q", r.out, test.out)
			}
		})
	}
}

func statusOf(t *testing.T, r result) view.Status {
	t.Helper()
	check.NoError(t, r.err)
	var status view.Status
	if err := yaml.Unmarshal([]byte(r.out), &status); err != nil {
		t.Fatalf("%v in:\n%s", err, r.out)
	}
	return status
}

func TestStatusOfOneProfileHasDetails(t *testing.T) {
	stale := []view.StaleMount{{Node: "n1", Volume: "pv1", MountPoint: "/mnt", Pods: []string{"gone", "uid-1"}, Message: "the mount was made with a different value"}}
	named := []view.StaleMount{stale[0]}
	named[0].Pods = []string{"gone", "eda/sim"}
	tests := map[string]struct {
		args []string
		want []view.StaleMount
	}{
		"pods by their UIDs":        {[]string{"status", "eda", "-o", "json"}, stale},
		"pods by name and node":     {[]string{"status", "eda", "-o", "yaml", "--pods"}, named},
		"all profiles with --nodes": {[]string{"status", "--nodes", "-o", "yaml"}, stale},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			status := statusOf(t, execute(t, interceptor.Funcs{}, append(cluster(), eda()), test.args...))
			details := status.Profiles[0].Details
			if len(details.Nodes) != 1 || details.Nodes[0].Name != "n1" {
				t.Errorf("got nodes %+v, want n1", details.Nodes)
			}
			check.Equal(t, "stale mounts", test.want, details.Stale, cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".Message" }, cmp.Ignore()))
		})
	}
}

func TestExitCodesOfStatus(t *testing.T) {
	open := eda()
	open.Status.Conditions[0].Status = metav1.ConditionFalse
	for name, test := range map[string]struct {
		args []string
		with *v1alpha1.StorageClientProfile
		want int
	}{
		"all are done":                    {[]string{"status", "--exit-code"}, eda(), 0},
		"one is not":                      {[]string{"status", "--exit-code"}, open, 2},
		"one is not, as JSON":             {[]string{"status", "--exit-code", "-o", "json"}, open, 2},
		"one is not, without --exit-code": {[]string{"status"}, open, 0},
		"one is not there":                {[]string{"status", "none", "--exit-code"}, open, 1},
	} {
		t.Run(name, func(t *testing.T) {
			r := execute(t, interceptor.Funcs{}, []client.Object{test.with}, test.args...)
			if got := statusOfError(r.err); got != test.want || !strings.Contains(r.out, "eda") {
				t.Errorf("got exit status %d (%v), want %d:\n%s", got, r.err, test.want, r.out)
			}
			if strings.Contains(r.out, "exit status") {
				t.Errorf("got the exit status in the output:\n%s", r.out)
			}
		})
	}
}

// The plan contains the mount options of each volume, not only the number of volumes, also in JSON.
func TestPlanShowsOldAndNewMountOptions(t *testing.T) {
	profile := eda()
	profile.Spec.Volumes[0].MountOptions = []v1alpha1.MountOption{"nconnect=4"}
	r := execute(t, interceptor.Funcs{}, append(cluster(), profile), "plan", "eda", "-o", "json")
	var plan struct {
		Volumes struct {
			Changes []struct {
				Volume   string
				Old, New []string
			}
		}
	}
	if r.err != nil || json.Unmarshal([]byte(r.out), &plan) != nil || len(plan.Volumes.Changes) != 1 {
		t.Fatalf("error %v and output:\n%s", r.err, r.out)
	}
	check.Equal(t, "volume", "{pv1 [nocto] [nocto nconnect=4]}", fmt.Sprint(plan.Volumes.Changes[0]))
	text := execute(t, interceptor.Funcs{}, append(cluster(), profile), "plan", "eda")
	if want := "1 volume of eda: pv1\n  - nocto\n  + nocto,nconnect=4\n"; !strings.Contains(text.out, want) {
		t.Errorf("text lacks %q:\n%s", want, text.out)
	}
}

func TestStatusOfSeveralProfilesReadsNoNodes(t *testing.T) {
	refusing := interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		if _, ok := list.(*v1alpha1.StorageClientProfileList); !ok {
			t.Errorf("listed %T", list)
		}
		return c.List(ctx, list, opts...)
	}}
	if status := statusOf(t, execute(t, refusing, []client.Object{eda()}, "status", "-o", "json")); !status.Done || status.Profiles[0].Details != nil {
		t.Errorf("got status %+v, want it done and without details", status)
	}
}

func TestStatusWithoutTheRightToReadVolumesShowsTheRest(t *testing.T) {
	forbidding := interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		if _, ok := list.(*corev1.PersistentVolumeList); ok {
			return apierrors.NewForbidden(corev1.Resource("persistentvolumes"), "", nil)
		}
		return c.List(ctx, list, opts...)
	}}
	r := execute(t, forbidding, append(cluster(), eda()), "status", "eda")
	if r.err != nil || !strings.Contains(r.out, "Cannot read stale mounts: list PersistentVolumes: persistentvolumes is forbidden") {
		t.Errorf("error is %v and output:\n%s", r.err, r.out)
	}
}

func TestPlanPutsTheManagersNodeLast(t *testing.T) {
	objects := append(cluster(), eda())
	other := objects[0].DeepCopyObject().(*corev1.Node)
	other.Name = "n2"
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.ManagerNamespace, Name: v1alpha1.ManagerLease}}
	lease.Spec.HolderIdentity = new("manager-0_5e0c")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.ManagerNamespace, Name: "manager-0"}, Spec: corev1.PodSpec{NodeName: "n1"}}
	forbidden := interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
		if _, hidden := o.(*coordinationv1.Lease); hidden {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "leases"}, key.Name, nil)
		}
		return c.Get(ctx, key, o, opts...)
	}}
	for name, test := range map[string]struct {
		funcs interceptor.Funcs
		want  []string
	}{
		"from the Lease": {interceptor.Funcs{}, []string{"n2", "n1"}},
		"if the user may read it, else any is it": {forbidden, []string{"n1", "n2"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := execute(t, test.funcs, append(objects, other, lease, pod), "plan", "eda", "-o", "json")
			var plan view.Plan
			if r.err != nil || json.Unmarshal([]byte(r.out), &plan) != nil {
				t.Fatalf("error %v and output:\n%s", r.err, r.out)
			}
			var order []string
			for _, reboot := range plan.Nodes.Reboots {
				order = append(order, reboot.Node)
			}
			check.Equal(t, "order", test.want, order)
		})
	}
}

func TestPlanNamesNodesVolumesAndTheApproval(t *testing.T) {
	r := execute(t, interceptor.Funcs{}, append(cluster(), eda()), "plan", "eda")
	check.NoError(t, r.err)
	for _, want := range []string{
		"maxUnavailable: 1",
		"1 node would reboot (policy OnApproval, at most 1 at a time), in this order:",
		"n1     z      kernelArgument/ihash_entries becomes 16777216",
		"First reboot: 2026-09-01T00:00:00Z at the earliest, if approved by then; last node back: 2026-09-01T00:05:30Z at the earliest.",
		"kubectl storageclient approve eda --plan ",
		"0 volumes would change, 1 up to date, 0 left unchanged.",
		"Maximum load on a server, with 1 node mounting from it:",
		"filer    1             64",
		"nocto-meaning   Warning",
	} {
		if !strings.Contains(r.out, want) {
			t.Errorf("output lacks %q:\n%s", want, r.out)
		}
	}
}

func TestErrorsNameTheRequestedObject(t *testing.T) {
	tests := map[string]struct {
		args []string
		want string
	}{
		"an unknown profile":    {[]string{"status", "none"}, "get StorageClientProfile none"},
		"an unknown format":     {[]string{"status", "-o", "xml"}, `--output "xml": must be text, wide, json, yaml or name`},
		"a budget not to read":  {[]string{"plan", "eda", "--max-unavailable", "0"}, `--max-unavailable "0"`},
		"a pattern not to read": {[]string{"plan", "eda", "--allow-parameter", "("}, "("},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := execute(t, interceptor.Funcs{}, []client.Object{eda()}, test.args...)
			if r.err == nil || !strings.Contains(r.err.Error(), test.want) {
				t.Errorf("got error %v, want it to contain %q", r.err, test.want)
			}
		})
	}
}

func TestApproveNamesTheRequiredRole(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "storageclientprofiles"}, "eda", errors.New("denied"))
	refuse := interceptor.Funcs{Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
		return forbidden
	}}
	r := execute(t, refuse, []client.Object{eda()}, "approve", "eda")
	want := strings.ReplaceAll("approve plan 1a2b: no permission to approve reboots of StorageClientProfile eda: ask a user with ClusterRole storage-client-approver to run \"kubectl storageclient approve eda --plan 1a2b\": ", "1a2b", planOfEDA)
	if r.err == nil || !strings.HasPrefix(r.err.Error(), want) || !errors.Is(r.err, forbidden) {
		t.Errorf("got error %v, want %q and the error of the API server", r.err, want)
	}
	if strings.Contains(r.out, "Approved") {
		t.Errorf("got %q, which reports the plan as approved", r.out)
	}
}
