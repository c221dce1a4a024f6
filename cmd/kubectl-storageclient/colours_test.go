package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

func TestCellsAreColouredAndSentencesAreNot(t *testing.T) {
	for line, want := range map[string]string{
		"sysctl/a   1   InSync\n":              "sysctl/a   1   " + green + "InSync" + plain + "\n",
		"a   Failed     Stale   x\n":           "a   " + red + "Failed" + plain + "     " + yellow + "Stale" + plain + "   x\n",
		"The mount is Stale since it Failed\n": "The mount is Stale since it Failed\n",
		"InSync":                               green + "InSync" + plain,
		"a   InSyncs   Failed2   NotPending\n": "a   InSyncs   Failed2   NotPending\n",
		"   \n":                                "   \n",
	} {
		if got := paint(line); got != want {
			t.Errorf("%q becomes %q, want %q", line, got, want)
		}
	}
}

func TestTextIsColouredOnlyIfEnabled(t *testing.T) {
	for colours, want := range map[bool]string{true: "a   " + red + "Failed" + plain + "\n", false: "a   Failed\n"} {
		var out bytes.Buffer
		env := &environment{IOStreams: genericiooptions.IOStreams{Out: &out}, raw: &out, colours: colours}
		w := env.text()
		for _, part := range []string{"a   ", "Fai", "led\n"} {
			fmt.Fprint(w, part)
		}
		if out.String() != want {
			t.Errorf("with colors %v: got %q, want %q", colours, out.String(), want)
		}
	}
}

// Output into a pipe has no colors, for every command that prints a table.
func TestEveryTableIsColouredOnATerminalAndPlainInAPipe(t *testing.T) {
	objects := append(fileCluster(), rollingNode(v1alpha1.RolloutDraining, "WaitingForPods"))
	objects = slices.DeleteFunc(objects, func(o client.Object) bool {
		clientNode, isClientNode := o.(*v1alpha1.StorageClientNode)
		return isClientNode && clientNode.Status.Rollout == nil
	})
	clientNode := objects[len(objects)-1].(*v1alpha1.StorageClientNode)
	clientNode.Status.Settings = []v1alpha1.SettingStatus{{Key: "sysctl/vm.dirty_ratio", Desired: "20", Observed: "10", State: v1alpha1.SettingFailed}}
	clientNode.Status.Mounts = []v1alpha1.MountStatus{{MountPoint: "/mnt", Volume: "pv1", State: v1alpha1.MountStale}}
	dir := write(t, map[string]string{"eda.yaml": edaFile})
	for _, args := range [][]string{
		{"status", "eda"}, {"plan", "eda"}, {"plan", "-f", dir}, {"approve", "eda"}, {"node", "n1"}, {"volumes", "eda"}, {"diff", "eda"}, {"get", "eda"},
	} {
		t.Run(strings.Join(args[:1], " "), func(t *testing.T) {
			coloured := executeIn(t, &environment{colours: true}, interceptor.Funcs{}, objects, args...)
			plain := executeIn(t, &environment{}, interceptor.Funcs{}, objects, args...)
			if plain.err != nil || strings.Contains(plain.out, "\x1b") {
				t.Errorf("%v, in a pipe:\n%q", plain.err, plain.out)
			}
			stripped := regexp.MustCompile("\x1b\\[\\d+m").ReplaceAllString(coloured.out, "")
			if stripped != plain.out {
				t.Errorf("got different texts on a terminal:\n%s\nand in a pipe:\n%s", stripped, plain.out)
			}
			if slices.Contains([]string{"status", "plan", "node"}, args[0]) && stripped == coloured.out {
				t.Errorf("got no colors on a terminal:\n%s", coloured.out)
			}
		})
	}
}

func TestOnlyTerminalsGetColours(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	check.NoError(t, err)
	defer file.Close()
	// Open a character device, like a terminal.
	device, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	check.NoError(t, err)
	defer device.Close()
	environment := func(vars map[string]string) func(string) string {
		return func(name string) string { return vars[name] }
	}
	xterm := environment(map[string]string{"TERM": "xterm"})
	switch {
	case coloursEnabled(&bytes.Buffer{}, xterm), coloursEnabled(file, xterm):
		t.Error("got colors in a pipe or a file")
	case !coloursEnabled(device, xterm):
		t.Error("got no colors on a terminal")
	case coloursEnabled(device, environment(map[string]string{"TERM": "dumb"})), coloursEnabled(device, environment(nil)),
		coloursEnabled(device, environment(map[string]string{"TERM": "xterm", "NO_COLOR": "1"})):
		t.Error("got colors, although the terminal or the user does not support them")
	}
}
