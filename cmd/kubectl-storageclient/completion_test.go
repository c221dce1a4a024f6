package main

import (
	"bytes"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/storageclient/operator/test/check"
)

func TestShellsCompleteNames(t *testing.T) {
	hpc := eda()
	hpc.Name = "hpc"
	objects := append(manyVolumes(), eda(), hpc, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "not-managed"}})
	for args, want := range map[string]string{
		"plan,":             "eda hpc",
		"plan,e":            "eda",
		"plan,eda,":         "",
		"status,eda,":       "hpc",
		"node,":             "n1",
		"retry,eda,":        "n1",
		"volumes,":          "eda hpc",
		"get,h":             "hpc",
		"diff,h":            "hpc",
		"volumes,--volume,": "pv1 pv2 pv3",
		"node,n1,-o,":       "text wide json yaml name",
		"explain,rmem_":     "rmem_default rmem_max",
		"explain,rmem_max,": "",
	} {
		t.Run(args, func(t *testing.T) {
			r := execute(t, interceptor.Funcs{}, objects, append([]string{"__complete"}, strings.Split(args, ",")...)...)
			var got []string
			for line := range strings.Lines(r.out) {
				if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, ":") && !strings.HasPrefix(line, "Completion ended") {
					got = append(got, line)
				}
			}
			if strings.Join(got, " ") != want {
				t.Errorf("got completions %q, want %q\n%s", got, want, r.out)
			}
		})
	}
}

func TestAnUnreachableClusterCompletesNothing(t *testing.T) {
	r := execute(t, forbid[*metav1.PartialObjectMetadataList](), cluster(), "__complete", "plan", "")
	if r.err != nil || strings.Contains(r.out, "eda") {
		t.Errorf("error %v, output %q", r.err, r.out)
	}
}

func TestEachCommandHasAHelpText(t *testing.T) {
	root := rootCommand(&environment{})
	for _, cmd := range root.Commands() {
		if cmd.Short == "" {
			t.Errorf("%s: got no text in help.yaml", cmd.Name())
		}
	}
}

func TestHelpPagesAreShort(t *testing.T) {
	help := func(args ...string) string {
		var out bytes.Buffer
		root := newRoot(genericiooptions.IOStreams{Out: &out, ErrOut: &out})
		root.SetArgs(args)
		check.NoError(t, root.Execute())
		return out.String()
	}
	var root bytes.Buffer
	commands := newRoot(genericiooptions.IOStreams{Out: &root, ErrOut: &root}).Commands()
	for _, cmd := range commands {
		page := help(cmd.Name(), "--help")
		if strings.Contains(page, "--certificate-authority") || !strings.Contains(page, `Use "kubectl storageclient options" for a list of global command-line options`) {
			t.Errorf("%s lists the kubeconfig's flags, or does not say where they are:\n%s", cmd.Name(), page)
		}
	}
	if page := help("node", "--help"); !strings.Contains(page, "kubectl storageclient node NAME") || !strings.Contains(page, "-o, --output string") {
		t.Errorf("help of node lacks its own flags:\n%s", page)
	}
	if page := help(); strings.Contains(page, "--certificate-authority") || !strings.Contains(page, "recommend") {
		t.Errorf("help is:\n%s", page)
	}
	if page := help("options"); !strings.Contains(page, "--certificate-authority") || !strings.Contains(page, "--context") {
		t.Errorf("options are:\n%s", page)
	}
}
