package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

// usage is cobra's template without the kubeconfig flags. These are the same for all commands, and "options" lists them.
const usage = `Usage:{{if .Runnable}}
  {{.UseLine}}{{end}}{{if .HasAvailableSubCommands}}
  {{.CommandPath}} [command]{{end}}{{if gt (len .Aliases) 0}}

Aliases:
  {{.NameAndAliases}}{{end}}{{if .HasExample}}

Examples:
{{.Example}}{{end}}{{if .HasAvailableSubCommands}}

Commands:{{range .Commands}}{{if (or .IsAvailableCommand (eq .Name "help"))}}
  {{rpad .Name .NamePadding }} {{.Short}}{{end}}{{end}}{{end}}{{if .LocalNonPersistentFlags.HasAvailableFlags}}

Flags:
{{.LocalNonPersistentFlags.FlagUsages | trimTrailingWhitespaces}}{{end}}{{if .HasAvailableSubCommands}}

"{{.CommandPath}} [command] --help" tells more about a command.{{end}}

"kubectl storageclient options" lists the flags that every command takes (--context, --kubeconfig and others).
`

func optionsCommand(env *environment) *cobra.Command {
	return &cobra.Command{
		Use:   "options",
		Short: "List the flags that every command takes",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(env.Out, "Every command takes these flags:\n\n%s", cmd.Root().PersistentFlags().FlagUsages())
			return err
		},
	}
}
