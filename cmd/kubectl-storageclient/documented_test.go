package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/storageclient/operator/test/check"
)

// documented matches a plugin command in a page, up to the end of the shell command or the sentence.
var documented = regexp.MustCompile("kubectl storageclient( [^`|#\"<>;()\n]*)")

// shellBlock matches a code block for readers to copy. Its commands have complete arguments.
var shellBlock = regexp.MustCompile("(?ms)^```sh\n(.*?)^```$")

func TestDocumentedCommandsExist(t *testing.T) {
	commands := 0
	err := fs.WalkDir(os.DirFS("../.."), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() && path != "." && path != "docs" && !strings.HasPrefix(path, "docs/") {
			if entry.IsDir() {
				return fs.SkipDir
			}
			return err
		}
		if filepath.Ext(path) != ".md" {
			return nil
		}
		content, err := os.ReadFile(filepath.Join("../..", path))
		if err != nil {
			return err
		}
		text := string(content)
		for _, block := range shellBlock.FindAllStringSubmatch(text, -1) {
			for _, match := range documented.FindAllStringSubmatch(block[1], -1) {
				commands++
				tryDocumented(t, path, strings.Fields(match[1]), true)
			}
		}
		for _, match := range regexp.MustCompile("`"+documented.String()+"`").FindAllStringSubmatch(shellBlock.ReplaceAllString(text, ""), -1) {
			commands++
			tryDocumented(t, path, strings.Fields(match[1]), false)
		}
		return nil
	})
	check.NoError(t, err)
	if commands < 50 {
		t.Errorf("got %d commands of the plugin in the documentation, want at least 50", commands)
	}
}

// tryDocumented parses a command like the plugin does. It also checks the arguments if they are complete.
func tryDocumented(t *testing.T, page string, args []string, complete bool) {
	t.Helper()
	line := "kubectl storageclient " + strings.Join(args, " ")
	cmd, rest, err := newRoot(genericiooptions.NewTestIOStreamsDiscard()).Find(args)
	if err != nil || len(args) > 0 && !cmd.HasParent() {
		t.Errorf("%s: %s: no such command", page, line)
		return
	}
	err = cmd.ParseFlags(rest)
	if err == nil && complete {
		err = cmd.ValidateArgs(cmd.Flags().Args())
	}
	if err != nil && !(!complete && strings.Contains(err.Error(), "needs an argument")) {
		t.Errorf("%s: %s: %v", page, line, err)
	}
}
