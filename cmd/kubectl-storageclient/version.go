package main

import (
	"cmp"
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/storageclient/operator/cmd/internal/program"
)

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
