package main

import (
	"cmp"
	_ "embed"
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/storageclient/operator/cmd/internal/program"
	"github.com/storageclient/operator/tuning/embedded"
)

//go:embed help.yaml
var helpYAML []byte

func addHelp(root *cobra.Command) {
	texts := embedded.Parse[map[string]struct{ Short, Long, Example string }]("help texts", helpYAML)
	for _, cmd := range append([]*cobra.Command{root}, root.Commands()...) {
		text := texts[cmd.Name()]
		cmd.Short, cmd.Long, cmd.Example = text.Short, text.Long, text.Example
	}
}

// usage is a template with the sections of kubectl's help, in the same order. It omits the kubeconfig flags, which are the same for all
// commands; "options" lists them.
//
//go:embed usage.tmpl
var usage string

func optionsCommand(env *environment) *cobra.Command {
	return &cobra.Command{
		Use:  "options",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(env.Out, "The following options can be passed to any command:\n\n%s", cmd.Root().PersistentFlags().FlagUsages())
			return err
		},
	}
}

func versionCommand(env *environment) *cobra.Command {
	return &cobra.Command{
		Use:  "version",
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintln(env.Out, readVersion())
			return err
		},
	}
}

// release is the version of a release, which "make krew" sets at link time. Empty in other builds.
var release string

// readVersion returns the release, or the build information of the Go toolchain.
func readVersion() string {
	info, revision := program.Build()
	return fmt.Sprintf("%s %s %s %s/%s", cmp.Or(release, info.Main.Version), cmp.Or(revision, "unknown revision"), info.GoVersion, runtime.GOOS, runtime.GOARCH)
}
