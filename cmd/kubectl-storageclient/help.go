package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

// usage is a template with the sections of kubectl's help, in the same order. It omits the kubeconfig flags, which are the same for all
// commands; "options" lists them.
const usage = `{{if gt (len .Aliases) 0}}Aliases:
  {{.NameAndAliases}}

{{end}}{{if .HasExample}}Examples:
{{.Example}}

{{end}}{{if .HasAvailableSubCommands}}Available Commands:{{range .Commands}}{{if (or .IsAvailableCommand (eq .Name "help"))}}
  {{rpad .Name .NamePadding }} {{.Short}}{{end}}{{end}}

{{end}}{{if .LocalNonPersistentFlags.HasAvailableFlags}}Options:
{{.LocalNonPersistentFlags.FlagUsages | trimTrailingWhitespaces}}

{{end}}Usage:{{if .Runnable}}
  {{.UseLine}} [options]{{end}}{{if .HasAvailableSubCommands}}
  {{.CommandPath}} [command] [options]

Use "{{.CommandPath}} [command] --help" for more information about a given command.{{end}}

Use "kubectl storageclient options" for a list of global command-line options (applies to all commands).
`

func optionsCommand(env *environment) *cobra.Command {
	return &cobra.Command{
		Use:   "options",
		Short: "Print the list of flags inherited by all commands",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(env.Out, "The following options can be passed to any command:\n\n%s", cmd.Root().PersistentFlags().FlagUsages())
			return err
		},
	}
}
