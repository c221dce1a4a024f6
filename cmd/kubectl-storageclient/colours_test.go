package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"
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

func TestTextIsColouredOnlyWhereAsked(t *testing.T) {
	for colours, want := range map[bool]string{true: "a   " + red + "Failed" + plain + "\n", false: "a   Failed\n"} {
		var out bytes.Buffer
		env := &environment{IOStreams: genericiooptions.IOStreams{Out: &out}, colours: colours}
		w := env.text()
		for _, part := range []string{"a   ", "Fai", "led\n"} {
			fmt.Fprint(w, part)
		}
		if out.String() != want {
			t.Errorf("with colours %v: %q, want %q", colours, out.String(), want)
		}
	}
}

func TestOnlyTerminalsGetColours(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	// A device of characters, as terminals are.
	device, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer device.Close()
	environment := func(vars map[string]string) func(string) string {
		return func(name string) string { return vars[name] }
	}
	xterm := environment(map[string]string{"TERM": "xterm"})
	switch {
	case wantsColours(&bytes.Buffer{}, xterm), wantsColours(file, xterm):
		t.Error("a pipe or a file gets colours")
	case !wantsColours(device, xterm):
		t.Error("a terminal gets none")
	case wantsColours(device, environment(map[string]string{"TERM": "dumb"})), wantsColours(device, environment(nil)),
		wantsColours(device, environment(map[string]string{"TERM": "xterm", "NO_COLOR": "1"})):
		t.Error("a terminal without colours, or a user who wants none, gets them")
	}
}
