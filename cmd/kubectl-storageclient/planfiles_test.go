package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/cmd/kubectl-storageclient/view"
	"github.com/storageclient/operator/test/check"
)

// edaFile differs from eda and cluster: it declares a larger hash table, and nconnect.
const edaFile = `apiVersion: tuning.storageclient.dev/v1alpha1
kind: StorageClientProfile
metadata: {name: eda}
spec:
  nodeSelector: {matchLabels: {pool: eda}}
  node:
    sysctls: {vm.dirty_ratio: "20"}
    kernelArguments: [ihash_entries=33554432]
  volumes:
  - {name: nfs, selector: {protocols: [NFS]}, mountOptions: [nocto, nconnect=4]}
`

// otherFile is a second profile for the same nodes with a conflicting value.
const otherFile = `apiVersion: tuning.storageclient.dev/v1alpha1
kind: StorageClientProfile
metadata: {name: other}
spec:
  nodeSelector: {matchLabels: {pool: eda}}
  node: {sysctls: {vm.dirty_ratio: "30"}}
`

// write creates files in a new directory. File names may contain slashes.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		check.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		if target, isLink := strings.CutPrefix(content, "-> "); isLink {
			check.NoError(t, os.Symlink(target, path))
			continue
		}
		check.NoError(t, os.WriteFile(path, []byte(content), 0o644))
	}
	return dir
}

// fileCluster returns a cluster in which the profile eda is effective and a Pod with a controller runs on the node.
func fileCluster() []client.Object {
	objects := cluster()
	clientNode := objects[1].(*v1alpha1.StorageClientNode)
	clientNode.Spec.Settings = []v1alpha1.NodeSetting{{Key: "kernelArgument/ihash_entries", Value: "16777216", Profile: "eda", OnRemoval: v1alpha1.DeletionRestore}}
	clientNode.Status.Settings = []v1alpha1.SettingStatus{{Key: "kernelArgument/ihash_entries", Desired: "16777216", Observed: "16777216", State: v1alpha1.SettingInSync}}
	pod := objects[3].(*corev1.Pod)
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "sim", Controller: new(true)}}
	manager := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.ManagerNamespace, Name: v1alpha1.ManagerDeployment}}
	manager.Spec.Template.Spec.Containers = []corev1.Container{{Name: "manager", Args: []string{"--leader-elect", "--max-unavailable=3", "--allow-parameter", "sysctl/vm\\.swappiness"}}}
	return append(objects, manager, eda())
}

func filePlanOf(t *testing.T, r result) view.FilePlan {
	t.Helper()
	var plan view.FilePlan
	if err := json.Unmarshal([]byte(r.out), &plan); err != nil {
		t.Fatalf("%v, %v in:\n%s", r.err, err, r.out)
	}
	return plan
}

func TestPlanOfFilesNamesAllChanges(t *testing.T) {
	dir := write(t, map[string]string{"eda.yaml": edaFile, "README.md": "not a manifest"})
	plan := filePlanOf(t, execute(t, interceptor.Funcs{}, fileCluster(), "plan", "-f", dir, "-o", "json"))
	if !plan.Changed || len(plan.Profiles) != 1 || plan.Profiles[0].Action != "Update" {
		t.Fatalf("got plan %+v, want an update of eda", plan)
	}
	var settings []string
	for _, c := range plan.Nodes {
		for _, s := range c.Settings {
			settings = append(settings, fmt.Sprint(c.Nodes, s.Key, s.Old != nil, ptr.Deref(s.New, "none")))
		}
	}
	check.Equal(t, "settings", []string{"[n1]kernelArgument/ihash_entriestrue33554432", "[n1]sysctl/vm.dirty_ratiofalse20"}, settings)
	if c := plan.Volumes.Changes; len(c) != 1 || c[0].Volume != "pv1" || !cmp.Equal(c[0].Old, []string{"nocto"}) || !cmp.Equal(c[0].New, []string{"nocto", "nconnect=4"}) {
		t.Errorf("got volumes %+v, want nconnect=4 added to pv1", c)
	}
	if len(plan.Reboots) != 1 || plan.Reboots[0].Node != "n1" || plan.Pods == nil || plan.Pods.Evicted != 1 {
		t.Errorf("got reboots %+v with pods %+v, want n1 and one Pod", plan.Reboots, plan.Pods)
	}
	check.Equal(t, "budget", view.Budget{MaxUnavailable: "3", AtOnce: 3, Source: "--max-unavailable of Deployment storage-client-system/storage-client-manager"}, plan.Budget)
	fields := map[string]view.FieldChange{}
	for _, f := range plan.Profiles[0].Fields {
		fields[f.Field] = f
	}
	if f := fields["spec.node.kernelArguments"]; f.Old != `["ihash_entries=16777216"]` || f.New != `["ihash_entries=33554432"]` {
		t.Errorf("got fields %+v", plan.Profiles[0].Fields)
	}
	if !strings.HasPrefix(plan.Profiles[0].Approval, "kubectl storageclient approve eda --plan ") {
		t.Errorf("got approval %q", plan.Profiles[0].Approval)
	}
}

// TestPlanOfFilesNamesThePodsThatBudgetsKeep has one ready or unready Pod with a budget.
func TestPlanOfFilesNamesThePodsThatBudgetsKeep(t *testing.T) {
	const skips, cordons = "the rollout skips the node while they keep it", "no other node can be claimed, the rollout cordons the node and evicts this pod first"
	type change = func(*corev1.Pod, *policyv1.PodDisruptionBudget)
	unready := func(p *corev1.Pod, _ *policyv1.PodDisruptionBudget) { p.Status.Conditions = nil }
	tooFew := func(p *corev1.Pod, b *policyv1.PodDisruptionBudget) {
		unready(p, b)
		b.Status.DesiredHealthy = 1
	}
	uncounted := func(_ *corev1.Pod, b *policyv1.PodDisruptionBudget) { b.Generation = 1 }
	for name, c := range map[string]struct {
		lookAhead v1alpha1.DrainLookAhead
		change    change
		want      string
	}{
		"it allows no eviction":                        {v1alpha1.LookAheadDryRun, nil, skips},
		"it allows none, CordonFirst":                  {v1alpha1.LookAheadCordonFirst, nil, cordons},
		"it is never counted: no cordon helps":         {v1alpha1.LookAheadCordonFirst, uncounted, "its status is outdated; check the kube-controller-manager if that lasts longer than a minute; " + skips},
		"the pod is not ready, and too few others are": {v1alpha1.LookAheadDryRun, tooFew, skips},
		"it is new": {v1alpha1.LookAheadDryRun, func(p *corev1.Pod, b *policyv1.PodDisruptionBudget) {
			uncounted(p, b)
			b.CreationTimestamp = metav1.Now()
		}, ""},
		"the pod is not ready, and the budget always allows": {v1alpha1.LookAheadDryRun, func(p *corev1.Pod, b *policyv1.PodDisruptionBudget) {
			tooFew(p, b)
			b.Spec.UnhealthyPodEvictionPolicy = ptr.To(policyv1.AlwaysAllow)
		}, ""},
	} {
		objects := fileCluster()
		pod := objects[3].(*corev1.Pod)
		pod.Status.Phase = corev1.PodRunning
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		pod.Spec.Tolerations = nil
		budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: "pdb"}}
		budget.Spec.Selector = &metav1.LabelSelector{}
		if c.change != nil {
			c.change(pod, budget)
		}
		stays := pod.DeepCopy()
		stays.Name, stays.UID = "operator", "operator"
		stays.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
		file := edaFile + "  rollout: {drain: {lookAhead: " + string(c.lookAhead) + "}}\n"
		dir := write(t, map[string]string{"eda.yaml": file})
		plan := filePlanOf(t, execute(t, interceptor.Funcs{}, append(objects, budget, stays), "plan", "-f", dir, "-o", "json"))
		if plan.Pods == nil {
			t.Fatalf("%s: got no pods", name)
		}
		kept := strings.Join(plan.Pods.Kept, "\n")
		if (kept == "") != (c.want == "") || !strings.Contains(kept, c.want) || kept != "" && (len(plan.Pods.Kept) != 1 || !strings.Contains(kept, "PodDisruptionBudget "+pod.Namespace+"/pdb")) {
			t.Errorf("%s: got %q, want %q", name, plan.Pods.Kept, c.want)
		}
		if len(plan.Pods.Remarks) != 1 || !strings.HasPrefix(plan.Pods.Remarks[0], "Left on the node: Pod "+pod.Namespace+"/operator") {
			t.Errorf("%s: got remarks %q, want the pod that stays", name, plan.Pods.Remarks)
		}
	}
}

func TestPlanOfFilesWritesNothing(t *testing.T) {
	dir := write(t, map[string]string{"a.yaml": edaFile, "b.yaml": otherFile})
	written := interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if options := (&client.CreateOptions{}).ApplyOptions(opts); len(options.DryRun) == 0 {
				t.Error("got a create request, want a dry run only")
			}
			return c.Create(ctx, o, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if options := (&client.PatchOptions{}).ApplyOptions(opts); len(options.DryRun) == 0 {
				t.Error("got a patch request, want a dry run only")
			}
			return patchOrTry(ctx, c, o, p, opts...)
		},
		Update: func(context.Context, client.WithWatch, client.Object, ...client.UpdateOption) error {
			t.Error("got an update request, want a dry run only")
			return nil
		},
	}
	r := execute(t, written, fileCluster(), "plan", "-f", dir)
	check.NoError(t, r.err)
	var all v1alpha1.StorageClientProfileList
	if err := r.client.List(context.Background(), &all); err != nil || len(all.Items) != 1 || all.Items[0].Spec.Node.Sysctls != nil {
		t.Errorf("%v: got profiles %+v, want eda unchanged", err, all.Items)
	}
}

func TestPlanOfADirectoryCombinesItsProfiles(t *testing.T) {
	dir := write(t, map[string]string{"a.yaml": edaFile, "b.yaml": otherFile})
	plan := filePlanOf(t, execute(t, interceptor.Funcs{}, fileCluster(), "plan", "-f", dir, "-o", "json"))
	if len(plan.Conflicts) != 1 || plan.Conflicts[0].Text != "sysctl/vm.dirty_ratio: 20 against 30 (eda, other)" {
		t.Errorf("got conflicts %+v, want one about vm.dirty_ratio", plan.Conflicts)
	}
}

func TestARejectedProfileIsNotInThePlan(t *testing.T) {
	dir := write(t, map[string]string{"a.yaml": edaFile, "b.yaml": otherFile})
	refuse := interceptor.Funcs{Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
		return apierrors.NewInvalid(profileKind.GroupKind(), "other", nil)
	}}
	r := execute(t, refuse, fileCluster(), "plan", "-f", dir, "-o", "json")
	plan := filePlanOf(t, result{out: r.out[:strings.LastIndex(r.out, "}\n")+1]})
	if statusOfError(r.err) != 1 || len(plan.Conflicts) != 0 || plan.Profiles[1].Action != "Refused" || len(plan.Reboots) != 1 {
		t.Errorf("%v: got conflicts %+v of profiles %+v", r.err, plan.Conflicts, plan.Profiles)
	}
}

func TestFlagsOfTheManager(t *testing.T) {
	tests := map[string]struct {
		args []string
		want managerFlags
	}{
		"with =":                      {[]string{"--max-unavailable=3", "-allow-parameter=a", "--allow-filesystem=/scratch"}, managerFlags{[]string{"a"}, []string{"/scratch"}, "3"}},
		"as two words, more than one": {[]string{"--leader-elect", "--allow-parameter", "a=b", "--allow-parameter", "c", "--max-unavailable", "10%"}, managerFlags{allow: []string{"a=b", "c"}, maxUnavailable: "10%"}},
		"none":                        {[]string{"--leader-elect", "manager", "--max-unavailable"}, managerFlags{}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var deployment appsv1.Deployment
			deployment.Spec.Template.Spec.Containers = []corev1.Container{{Name: "proxy", Args: []string{"--max-unavailable=9"}}, {Name: "manager", Args: test.args}}
			check.Equal(t, "flags", test.want, flagsOf(&deployment), cmp.AllowUnexported(managerFlags{}))
		})
	}
}

func TestExitCodeDependsOnChanges(t *testing.T) {
	same := strings.NewReplacer("33554432", "16777216", ", nconnect=4", "", `sysctls: {vm.dirty_ratio: "20"}`, "").Replace(edaFile)
	objects := func() []client.Object {
		objects := fileCluster()
		pv := objects[2].(*corev1.PersistentVolume)
		pv.Annotations = map[string]string{v1alpha1.OriginalMountOptionsAnnotation: "[]", v1alpha1.AppliedMountOptionsAnnotation: `["nocto"]`, v1alpha1.ProfilesAnnotation: "eda"}
		return objects
	}
	refuse := interceptor.Funcs{Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
		return apierrors.NewInvalid(schema.GroupKind{Kind: profileKind.Kind}, "eda", nil)
	}}
	tests := map[string]struct {
		file  string
		funcs interceptor.Funcs
		flags []string
		want  int
	}{
		"no changes":                  {same, interceptor.Funcs{}, []string{"--exit-code"}, 0},
		"changes":                     {edaFile, interceptor.Funcs{}, []string{"--exit-code"}, 2},
		"changes without --exit-code": {edaFile, interceptor.Funcs{}, nil, 0},
		"the API server rejects":      {edaFile, refuse, []string{"--exit-code"}, 1},
		"the API server rejects, without --exit-code": {edaFile, refuse, nil, 1},
		"the manager would reject":                    {strings.Replace(edaFile, "vm.dirty_ratio", "kernel.core_pattern", 1), interceptor.Funcs{}, []string{"--exit-code"}, 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir := write(t, map[string]string{"eda.yaml": test.file})
			r := execute(t, test.funcs, objects(), append([]string{"plan", "-f", dir}, test.flags...)...)
			if got := statusOfError(r.err); got != test.want {
				t.Errorf("status is %d (%v), want %d:\n%s", got, r.err, test.want, r.out)
			}
			if strings.Contains(r.out, "exit status") {
				t.Errorf("the status is printed:\n%s", r.out)
			}
		})
	}
}

// fakeAccessReview responds to reviews of the user's permissions and records the request.
func fakeAccessReview(allowed bool, request *authorizationv1.ResourceAttributes) func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
	return func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
		review, isReview := o.(*authorizationv1.SelfSubjectAccessReview)
		if !isReview {
			return c.Create(ctx, o, opts...)
		}
		*request, review.Status.Allowed = *review.Spec.ResourceAttributes, allowed
		return nil
	}
}

// A policy returns Forbidden like a missing permission does, possibly with the same text.
func TestADryRunDistinguishesPermissionsFromPolicies(t *testing.T) {
	refusal := apierrors.NewForbidden(schema.GroupResource{Resource: "storageclientprofiles"}, "eda", errors.New(`User "eve" cannot patch resource "storageclientprofiles"`))
	unreadable := func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
		return errors.New("no review")
	}
	var request authorizationv1.ResourceAttributes
	want := authorizationv1.ResourceAttributes{Group: v1alpha1.GroupVersion.Group, Resource: "storageclientprofiles", Verb: "patch", Name: "eda"}
	for name, test := range map[string]struct {
		review func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error
		want   string
	}{
		"the user may patch the profile":     {fakeAccessReview(true, &request), "is rejected"},
		"the user may not patch the profile": {fakeAccessReview(false, &request), "requires permission to patch profiles"},
		"the rights are unknown":             {unreadable, "is rejected"},
	} {
		t.Run(name, func(t *testing.T) {
			funcs := interceptor.Funcs{Create: test.review, Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
				return refusal
			}}
			r := execute(t, funcs, fileCluster(), "plan", "-f", write(t, map[string]string{"eda.yaml": edaFile}))
			if output := fmt.Sprint(r.out, r.err); !strings.Contains(output, test.want) {
				t.Errorf("want %q:\n%s", test.want, output)
			}
		})
	}
	check.Equal(t, "review", want, request)
}

func TestPlanOfFilesReportsMissingPermissions(t *testing.T) {
	forbidden := func(resource, verb string) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", fmt.Errorf("User %q cannot %s resource %q", "eve", verb, resource))
	}
	funcs := interceptor.Funcs{
		Create: fakeAccessReview(false, &authorizationv1.ResourceAttributes{}),
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			return forbidden("storageclientprofiles", "patch")
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			switch list.(type) {
			case *corev1.PersistentVolumeList:
				return forbidden("persistentvolumes", "list")
			case *corev1.PodList:
				return forbidden("pods", "list")
			}
			return c.List(ctx, list, opts...)
		},
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if _, isDeployment := o.(*appsv1.Deployment); isDeployment {
				return forbidden("deployments", "get")
			}
			return c.Get(ctx, key, o, opts...)
		},
	}
	r := execute(t, funcs, fileCluster(), "plan", "-f", write(t, map[string]string{"eda.yaml": edaFile}))
	check.NoError(t, r.err)
	for _, want := range []string{
		"validation of eda by the API server, webhooks, and policies: a dry run requires permission to patch profiles",
		"changes of volumes: list PersistentVolumes: persistentvolumes is forbidden",
		"number of evicted pods: no permission to list Pods",
		"5% of all nodes (assumed, no permission to read Deployment storage-client-system/storage-client-manager; set the manager's value with --max-unavailable)",
		"n1     z      eda   ?      kernelArgument/ihash_entries becomes 33554432",
	} {
		if !strings.Contains(r.out, want) {
			t.Errorf("output lacks %q:\n%s", want, r.out)
		}
	}
}

func TestMarkdownIsAComment(t *testing.T) {
	r := execute(t, interceptor.Funcs{}, fileCluster(), "plan", "-f", write(t, map[string]string{"eda.yaml": edaFile}), "-o", "markdown")
	check.NoError(t, r.err)
	for _, want := range []string{
		"### Storage client plan\n", "| `eda` | Update | 1 | 1 | 1 | 1 |", "<details><summary>1 node would reboot, in this order:</summary>", "| 1 | pv1 | `nocto` | `nocto,nconnect=4` |",
		"- After you apply it, approve with: kubectl storageclient approve eda --plan ",
	} {
		if !strings.Contains(r.out, want) {
			t.Errorf("comment lacks %q:\n%s", want, r.out)
		}
	}
}

// TestWrongInputIsExplained has one case for each possible input error. In args, DIR is the directory of the files.
func TestWrongInputIsExplained(t *testing.T) {
	failing := func(err error) interceptor.Funcs {
		return interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return err }}
	}
	one := map[string]string{"eda.yaml": edaFile}
	configMap := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\n"
	tests := map[string]struct {
		files map[string]string
		args  string
		stdin string
		funcs interceptor.Funcs
		want  string
	}{
		"no profile and no file":           {args: "plan", want: "a profile or files are required: kubectl storageclient plan PROFILE, or kubectl storageclient plan -f FILE"},
		"two profiles":                     {args: "plan a b", want: "plan accepts one profile: kubectl storageclient plan a"},
		"a profile and a file":             {one, "plan eda -f DIR/eda.yaml", "", interceptor.Funcs{}, "not both: kubectl storageclient plan eda, or kubectl storageclient plan -f "},
		"a file without -f":                {args: "plan eda.yaml", want: "eda.yaml looks like a file: kubectl storageclient plan -f eda.yaml"},
		"a file that is missing":           {one, "plan -f DIR/ed.yaml", "", interceptor.Funcs{}, "does not exist. Did you mean DIR/eda.yaml?"},
		"an empty name":                    {one, "plan -f ", "", interceptor.Funcs{}, "-f is empty: set a file, a directory, or - for standard input"},
		"an empty directory":               {map[string]string{"notes.txt": "x"}, "plan -f DIR", "", interceptor.Funcs{}, "DIR contains no .yaml, .yml, or .json file: set a directory with profiles"},
		"directories in a directory":       {map[string]string{"prod/eda.yaml": edaFile}, "plan -f DIR", "", interceptor.Funcs{}, "subdirectories are not read; use: -f DIR/prod"},
		"a directory for Kustomize":        {map[string]string{"kustomization.yaml": "resources: [eda.yaml]", "eda.yaml": edaFile}, "plan -f DIR", "", interceptor.Funcs{}, "kubectl kustomize DIR | kubectl storageclient plan -f -"},
		"nothing on standard input":        {args: "plan -f -", want: "standard input is empty: must contain a profile"},
		"a file without an end":            {args: "plan -f /dev/zero", want: "read /dev/zero: neither a file nor a pipe"},
		"a link to one in a directory":     {map[string]string{"eda.yaml": "-> /dev/zero"}, "plan -f DIR", "", interceptor.Funcs{}, "read DIR/eda.yaml: neither a file nor a pipe"},
		"a file that is too large":         {map[string]string{"eda.yaml": strings.Repeat("# comment\n", 1<<20)}, "plan -f DIR", "", interceptor.Funcs{}, "read DIR/eda.yaml: input has 10485760 bytes or more: split it"},
		"standard input that is too large": {args: "plan -f -", stdin: strings.Repeat("# comment\n", 1<<20), want: "read standard input: input has 8388609 bytes or more: split it"},
		"aliases of aliases":               {args: "plan -f -", stdin: "a: &a " + strings.Repeat("x", 1<<14) + "\nb: [" + strings.Repeat("*a, ", 2000) + "]", want: "standard input: aliases make the document larger than 8388608 bytes"},
		"invalid YAML":                     {map[string]string{"eda.yaml": "a: [b"}, "plan -f DIR", "", interceptor.Funcs{}, "invalid YAML: check it"},
		"tabs":                             {map[string]string{"eda.yaml": "a:\n\tb: c"}, "plan -f DIR", "", interceptor.Funcs{}, "replace tabs with spaces"},
		"a template":                       {map[string]string{"eda.yaml": "a: {{ .Values.a }}"}, "plan -f DIR", "", interceptor.Funcs{}, "render it first, for example: helm template CHART | kubectl storageclient plan -f -"},
		"other kinds only":                 {map[string]string{"c.yaml": configMap}, "plan -f DIR", "", interceptor.Funcs{}, "no StorageClientProfile in DIR, only ConfigMap settings (DIR/c.yaml): set a file that contains one"},
		"comments only":                    {map[string]string{"c.yaml": "# nothing\n"}, "plan -f DIR", "", interceptor.Funcs{}, "no StorageClientProfile in DIR: set a file that contains one"},
		"a kind that is misspelt":          {args: "plan -f -", stdin: strings.Replace(edaFile, "StorageClientProfile", "StorageClientProfil", 1), want: "Did you mean StorageClientProfile?"},
		"no kind":                          {args: "plan -f -", stdin: "spec: {}\n", want: "add apiVersion: tuning.storageclient.dev/v1alpha1 and kind: StorageClientProfile"},
		"another version":                  {args: "plan -f -", stdin: strings.Replace(edaFile, "v1alpha1", "v1", 1), want: `apiVersion is "tuning.storageclient.dev/v1": must be tuning.storageclient.dev/v1alpha1`},
		"no name":                          {args: "plan -f -", stdin: strings.Replace(edaFile, "{name: eda}", "{}", 1), want: "metadata.name is required"},
		"two profiles of one name":         {map[string]string{"a.yaml": edaFile, "b.yaml": edaFile}, "plan -f DIR", "", interceptor.Funcs{}, "duplicate profile eda in DIR/a.yaml and DIR/b.yaml: rename one"},
		"the same file twice":              {one, "plan -f DIR -f DIR/eda.yaml", "", interceptor.Funcs{}, "duplicate profile eda in DIR/eda.yaml and DIR/eda.yaml: rename one, or use only one of the files"},
		"a field that is misspelt":         {args: "plan -f -", stdin: strings.Replace(edaFile, "nodeSelector", "nodeSelecter", 1), want: "unknown field spec.nodeSelecter. Did you mean nodeSelector?"},
		"a field that was removed":         {args: "plan -f -", stdin: strings.Replace(edaFile, "mountOptions:", "serverChunkKiB: 8, mountOptions:", 1), want: "field spec.volumes[0].serverChunkKiB no longer exists: set the annotation"},
		"a field that is unknown":          {args: "plan -f -", stdin: edaFile + "  colour: red\n", want: "unknown field spec.colour: list all fields with kubectl explain scp.spec --recursive"},
		"a field that is there twice":      {args: "plan -f -", stdin: edaFile + "  priority: 1\n  priority: 2\n", want: "already set"},
		"a value of another type":          {args: "plan -f -", stdin: edaFile + "  priority: high\n", want: "spec.priority is a string, which is the wrong type: see kubectl explain scp.spec.priority"},
		"a word that YAML reads as a bool": {args: "plan -f -", stdin: edaFile + "  mode: On\n", want: "spec.mode is a bool, which is the wrong type"},
		"a flag that is misspelt":          {args: "plan -f - --exitcode", want: "unknown flag: --exitcode. Did you mean --exit-code?"},
		"a flag that is unknown":           {args: "plan --colour", want: "See 'kubectl storageclient plan --help' for usage"},
		"a flag without a value":           {args: "plan -f", want: "See 'kubectl storageclient plan --help' for usage"},
		"an unknown format":                {one, "plan -f DIR -o xml", "", interceptor.Funcs{}, `--output "xml": must be text, wide, json, yaml or name, or markdown for a comment`},
		"--exit-code without files":        {args: "plan eda --exit-code", want: "kubectl storageclient plan -f FILE --exit-code"},
		"markdown without files":           {args: "plan eda -o markdown", want: "kubectl storageclient plan -f FILE -o markdown"},
		"an invalid budget":                {one, "plan -f DIR --max-unavailable none", "", interceptor.Funcs{}, `--max-unavailable "none": must be an integer of at least 1`},
		"an invalid pattern":               {one, "plan -f DIR --allow-parameter (", "", interceptor.Funcs{}, "--allow-parameter: "},
		"no permission to list":            {one, "plan -f DIR", "", failing(apierrors.NewForbidden(corev1.Resource("nodes"), "", nil)), "List your permissions with: kubectl auth can-i --list"},
		"no cluster":                       {one, "plan -f DIR", "", failing(&net.OpError{Op: "dial", Err: errors.New("connection refused")}), "check it with kubectl version, or choose another cluster with --context"},
		"credentials that ran out":         {one, "plan -f DIR", "", failing(apierrors.NewUnauthorized("expired")), "log in again"},
		"a cluster without operator":       {one, "plan -f DIR", "", failing(&meta.NoKindMatchError{GroupKind: schema.GroupKind{Kind: profileKind.Kind}}), "The operator is not installed in this cluster: install it"},
		"a profile that is not there":      {args: "plan nobody", want: "get StorageClientProfile nobody"},
		"a value that the catalog rejects": {args: "plan -f -", stdin: strings.Replace(edaFile, "vm.dirty_ratio", "vm.dirty_rati", 1), want: "eda (standard input) is rejected: Invalid: "},
		"a rejection by the API server":    {one, "plan -f DIR", "", interceptor.Funcs{Patch: rejectPatches("spec.mode: Unsupported value")}, "is rejected: spec.mode: Unsupported value"},
		"several of these, all at once":    {map[string]string{"a.yaml": "a: [b", "b.yaml": edaFile + "  modes: Plan\n"}, "plan -f DIR", "", interceptor.Funcs{}, "Did you mean mode?"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir := write(t, test.files)
			var args []string
			for _, arg := range strings.Split(test.args, " ") {
				args = append(args, strings.ReplaceAll(arg, "DIR", dir))
			}
			r := executeWith(t, test.stdin, test.funcs, fileCluster(), args...)
			got := fmt.Sprint(r.err)
			if want := strings.ReplaceAll(test.want, "DIR", dir); r.err == nil || !strings.Contains(got, want) {
				t.Errorf("got error:\n%s\nwant it to contain:\n%s", got, want)
			}
		})
	}
	if len(tests) < 20 {
		t.Errorf("got %d cases, want at least 20", len(tests))
	}
}

// afterRead calls end when everything has been read, and then blocks if blocks is true.
type afterRead struct {
	io.Reader
	end   func()
	block <-chan struct{}
}

func (r *afterRead) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if errors.Is(err, io.EOF) {
		r.end()
		if r.block != nil {
			<-r.block
		}
	}
	return n, err
}

func TestReadingAndParsingEndWithTheCommand(t *testing.T) {
	block := make(chan struct{})
	defer close(block)
	for name, in := range map[string]*afterRead{
		"while it waits for input": {Reader: strings.NewReader("a: b"), block: block},
		"while it parses":          {Reader: strings.NewReader("a:\n" + strings.Repeat("- {}\n", 300_000))},
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		in.end = func() { cancel(errors.New("interrupt signal received")) }
		root := rootCommand(&environment{IOStreams: genericiooptions.IOStreams{In: in, Out: io.Discard, ErrOut: io.Discard}})
		root.SetArgs([]string{"plan", "-f", "-"})
		if err := root.ExecuteContext(ctx); err == nil || !strings.Contains(err.Error(), "interrupt signal received") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func rejectPatches(message string) func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
	return func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
		return apierrors.NewBadRequest(message)
	}
}

// TestPlanOf40ProfilesAt1000Nodes limits the number of reads for a directory of profiles.
func TestPlanOf40ProfilesAt1000Nodes(t *testing.T) {
	const profiles, nodes, volumes = 40, 1000, 2000
	files, objects := map[string]string{}, []client.Object{}
	for i := range profiles {
		files[fmt.Sprintf("p-%02d.yaml", i)] = fmt.Sprintf(`apiVersion: tuning.storageclient.dev/v1alpha1
kind: StorageClientProfile
metadata: {name: p-%02d}
spec:
  nodeSelector: {matchLabels: {pool: pool-%02d}}
  node:
    sysctls: {vm.dirty_ratio: "20", net.core.rmem_max: "16777216"}
    kernelArguments: [ihash_entries=16777216]
  volumes:
  - {name: nfs, selector: {servers: [filer-%02d]}, mountOptions: [nconnect=4]}
`, i, i, i)
	}
	for i := range nodes {
		node := cluster()[0].(*corev1.Node)
		node.Name, node.Labels["pool"] = fmt.Sprintf("node-%04d", i), fmt.Sprintf("pool-%02d", i%profiles)
		objects = append(objects, node)
	}
	for i := range volumes {
		pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("pv-%04d", i)}}
		pv.Spec.NFS = &corev1.NFSVolumeSource{Server: fmt.Sprintf("filer-%02d", i%profiles), Path: "/"}
		objects = append(objects, pv)
	}
	dir := write(t, files)
	lists := map[string]int{}
	counting := interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		lists[fmt.Sprintf("%T", list)]++
		return c.List(ctx, list, opts...)
	}}
	plan := filePlanOf(t, execute(t, counting, objects, "plan", "-f", dir, "-o", "json"))
	if len(plan.Reboots) != nodes || len(plan.Volumes.Changes) != volumes {
		t.Errorf("got %d reboots and %d volumes", len(plan.Reboots), len(plan.Volumes.Changes))
	}
	for kind, number := range lists {
		// The snapshot of the volumes reads the profiles once more.
		if number > 2 {
			t.Errorf("got %s listed %d times, want at most 2", kind, number)
		}
	}
}

// The rules of two profiles of equal priority disagree on an option of a volume.
func TestAllCommandsShowTheSameConflictOfAVolume(t *testing.T) {
	other := eda()
	other.Name, other.Spec.Node = "other", nil
	other.Spec.Volumes[0].MountOptions = []v1alpha1.MountOption{"acregmax=30"}
	dir := write(t, map[string]string{"other.yaml": strings.NewReplacer("{name: eda}", "{name: conflicting}", "[nocto, nconnect=4]", "[acregmax=60]").Replace(edaFile)})
	objects := append(fileCluster(), other)
	planned := execute(t, interceptor.Funcs{}, objects, "plan", "-f", dir)
	conflicting := other.DeepCopy()
	conflicting.Name, conflicting.Spec.Volumes[0].MountOptions = "conflicting", []v1alpha1.MountOption{"acregmax=60"}
	objects = append(objects, conflicting)
	for name, r := range map[string]result{
		"plan -f": planned, "plan": execute(t, interceptor.Funcs{}, objects, "plan", "conflicting"),
		"volumes": execute(t, interceptor.Funcs{}, objects, "volumes", "conflicting"), "diff": execute(t, interceptor.Funcs{}, objects, "diff", "conflicting"),
	} {
		message := "pv1: VolumeConflict: Profiles of equal priority disagree: acregmax=60 (conflicting) against acregmax=30 (other); not changed; give one of them a higher priority"
		if name == "diff" {
			message = "1 volume (pv1): VolumeConflict\n  Profiles of equal priority disagree: acregmax=60 (conflicting) against acregmax=30 (other); not changed; give one of them a higher priority"
		}
		if r.err != nil || !strings.Contains(r.out, message) {
			t.Errorf("%s: error %v, output lacks %q:\n%s", name, r.err, message, r.out)
		}
		if strings.Contains(r.out, "has the mount options") || strings.Contains(r.out, "unchanged\n") && name == "volumes" {
			t.Errorf("%s counts the volume as done:\n%s", name, r.out)
		}
	}
}
