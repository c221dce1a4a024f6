package main

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

// TestEveryCommandExplainsWrongInput covers all commands except "plan -f", which planfiles_test.go covers.
func TestEveryCommandExplainsWrongInput(t *testing.T) {
	failing := func(err error) interceptor.Funcs {
		return interceptor.Funcs{
			List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return err },
			Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
				return err
			},
		}
	}
	refusing := interceptor.Funcs{Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "storageclientprofiles"}, "eda", nil)
	}}
	noBoot := eda()
	noBoot.Name, noBoot.Status.Plan.Hash = "live", ""
	objects := append(cluster(), eda(), noBoot)
	objects[2].(*corev1.PersistentVolume).Spec.ClaimRef = &corev1.ObjectReference{Namespace: "eda", Name: "projects"}
	const (
		listProfiles = "List the profiles with: kubectl get scp"
		noAnswer     = "The cluster does not respond: check it with kubectl version, or choose another cluster with --context"
		notInstalled = "The operator is not installed in this cluster: install it, or choose another cluster with --context"
		login        = "log in again, or choose other credentials with --context or --kubeconfig"
		askRight     = "List your permissions with: kubectl auth can-i --list"
	)
	for name, test := range map[string]struct {
		args  string
		funcs interceptor.Funcs
		want  []string
	}{
		"a command that is misspelt":            {args: "stauts", want: []string{"Did you mean this?\n\tstatus"}},
		"a profile that is misspelt":            {args: "status edda", want: []string{"Did you mean eda?", listProfiles}},
		"a profile that is not there":           {args: "get production", want: []string{"Available: eda, live", listProfiles}},
		"no profile to approve":                 {args: "approve", want: []string{"usage: kubectl storageclient approve PROFILE (kubectl get scp lists the profiles)"}},
		"two profiles to pause":                 {args: "pause eda live", want: []string{"usage: kubectl storageclient pause PROFILE"}},
		"no profile to watch":                   {args: "get --watch", want: []string{"usage: kubectl storageclient get PROFILE"}},
		"no profile to retry":                   {args: "retry", want: []string{"usage: kubectl storageclient retry PROFILE [NODE]"}},
		"a profile to resume that is not there": {args: "resume ed", want: []string{"Did you mean eda?"}},
		"another plan than there is":            {args: "approve eda --plan ffff", want: []string{`review it again with "kubectl storageclient plan eda"`}},
		"a plan without reboots":                {args: "approve live", want: []string{"live: no reboots to approve: the profile has no settings that require a reboot"}},
		"no permission to pause":                {args: "pause eda", funcs: refusing, want: []string{askRight, "-profile-editor"}},
		"no permission to approve":              {args: "approve eda", funcs: refusing, want: []string{"ask a user with ClusterRole storage-client-approver to run"}},
		"nothing to retry":                      {args: "retry eda", want: []string{"no failed nodes to retry"}},
		"no node":                               {args: "node", want: []string{"usage: kubectl storageclient node NAME (kubectl get nodes lists the nodes)"}},
		"a node that is misspelt":               {args: "node n2", want: []string{"Did you mean n1?", "List the nodes with: kubectl get nodes"}},
		"a node that is not there":              {args: "node worker-0815", want: []string{"Available: n1"}},
		"a volume that is misspelt":             {args: "volumes --volume pv2", want: []string{"Did you mean pv1?", "kubectl storageclient volumes"}},
		"the claim of a volume":                 {args: "volumes --volume projects", want: []string{"use its volume: --volume pv1 (bound to eda/projects)"}},
		"the claim with its namespace":          {args: "volumes eda --volume eda/projects", want: []string{"use its volume: --volume pv1"}},
		"two profiles of volumes":               {args: "volumes eda live", want: []string{"usage: kubectl storageclient volumes [PROFILE]"}},
		"an unknown format":                     {args: "status -o xml", want: []string{`--output "xml": must be text, wide, json, yaml or name`}},
		"markdown of a difference":              {args: "diff eda -o markdown", want: []string{`--output "markdown": must be text, wide, json, yaml or name`}},
		"a watch as YAML":                       {args: "get eda -w -o yaml", want: []string{"remove --watch or --output yaml"}},
		"a flag that is misspelt":               {args: "status --node", want: []string{"Did you mean --nodes?"}},
		"a flag that is unknown":                {args: "approve eda --force", want: []string{"See 'kubectl storageclient approve --help' for usage"}},
		"a flag without a value":                {args: "approve eda --plan", want: []string{"See 'kubectl storageclient approve --help' for usage"}},
		"an invalid pattern":                    {args: "diff eda --allow-parameter (", want: []string{"--allow-parameter: "}},
		"a name to explain that there is not":   {args: "explain qwertz", want: []string{`run "kubectl storageclient explain" to list the rules`}},
		"two names to explain":                  {args: "explain a b", want: []string{"usage: kubectl storageclient explain [NAME]"}},
		"an argument to version":                {args: "version please", want: []string{"usage: kubectl storageclient version"}},
		"no server":                             {args: "status", funcs: failing(&net.OpError{Op: "dial", Err: errors.New("connection refused")}), want: []string{noAnswer}},
		"a server that is unknown":              {args: "approve eda", funcs: failing(&net.DNSError{Err: "no such host"}), want: []string{noAnswer}},
		"no CustomResourceDefinition":           {args: "pause eda", funcs: failing(&meta.NoKindMatchError{GroupKind: schema.GroupKind{Kind: profileKind.Kind}}), want: []string{notInstalled}},
		"credentials that ran out":              {args: "retry eda", funcs: failing(apierrors.NewUnauthorized("expired")), want: []string{login}},
		"no permission to list":                 {args: "status", funcs: failing(apierrors.NewForbidden(v1alpha1.GroupVersion.WithResource("storageclientprofiles").GroupResource(), "", nil)), want: []string{askRight}},
		"no permission to list for servers":     {args: "servers", funcs: failing(apierrors.NewForbidden(v1alpha1.GroupVersion.WithResource("storageclientprofiles").GroupResource(), "", nil)), want: []string{askRight}},
	} {
		t.Run(name, func(t *testing.T) {
			r := execute(t, test.funcs, objects, strings.Fields(test.args)...)
			for _, want := range test.want {
				if r.err == nil || !strings.Contains(r.err.Error(), want) {
					t.Errorf("got error:\n%v\nwant it to contain:\n%s", r.err, want)
				}
			}
			if hint := hintFor(r.err); hint != "" && strings.Count(r.err.Error(), hint) != 1 {
				t.Errorf("got the hint more than once:\n%v", r.err)
			}
		})
	}
}

// Errors of client-go about the kubeconfig also get a hint.
func TestAWrongKubeconfigIsExplained(t *testing.T) {
	dir := t.TempDir()
	config := filepath.Join(dir, "config")
	check.NoError(t, os.WriteFile(config, []byte("apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\ncontexts: [{name: c, context: {cluster: c}}]\ncurrent-context: c\n"), 0o600))
	t.Setenv("KUBECONFIG", filepath.Join(dir, "none"))
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for name, test := range map[string]struct{ args, want string }{
		"none":                        {"status", "No cluster is configured: set KUBECONFIG or --kubeconfig FILE"},
		"a missing kubeconfig":        {"status --kubeconfig " + filepath.Join(dir, "kubeconfig"), "The kubeconfig does not exist: set KUBECONFIG or --kubeconfig FILE"},
		"a context that is not in it": {"status --kubeconfig " + config + " --context production", "List the contexts with: kubectl config get-contexts"},
		"a server that is not there":  {"status --kubeconfig " + config, "The cluster does not respond: check it with kubectl version"},
	} {
		t.Run(name, func(t *testing.T) {
			streams, _, _, _ := genericiooptions.NewTestIOStreams()
			root := newRoot(streams)
			root.SetArgs(strings.Fields(test.args))
			if err := root.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error:\n%v\nwant it to contain:\n%s", err, test.want)
			}
		})
	}
}

func TestVersionOfARelease(t *testing.T) {
	release = "v1.2.3"
	t.Cleanup(func() { release = "" })
	if r := execute(t, interceptor.Funcs{}, nil, "version"); r.err != nil || !strings.HasPrefix(r.out, "v1.2.3 ") {
		t.Errorf("%v: %q", r.err, r.out)
	}
}
