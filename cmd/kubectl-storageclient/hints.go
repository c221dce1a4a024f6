package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/storageclient/operator/tuning/suggest"
)

// addHints makes all commands suggest a command to run when they return an error.
func addHints(root *cobra.Command) {
	root.SetFlagErrorFunc(explainFlag)
	for _, cmd := range root.Commands() {
		if run := cmd.RunE; run != nil {
			cmd.RunE = func(cmd *cobra.Command, args []string) error {
				err := run(cmd, args)
				cmd.SilenceErrors = errors.As(err, new(exitError))
				return withHint(err)
			}
		}
		if check := cmd.Args; check != nil {
			cmd.Args = func(cmd *cobra.Command, args []string) error { return explainArguments(cmd, check(cmd, args)) }
		}
	}
}

// withHint adds a solution to an error from the API server or the connection to it.
func withHint(err error) error {
	if hint := hintFor(err); hint != "" {
		return fmt.Errorf("%w\n%s", err, hint)
	}
	return err
}

// unknownContext matches the client-go error for a context that is not in the kubeconfig.
var unknownContext = regexp.MustCompile(`context "[^"]*" does not exist`)

// noServer is the default server of client-go if no server is configured.
const noServer = "http://localhost:8080/"

func hintFor(err error) string {
	var unreachable *net.OpError
	var unknownHost *net.DNSError
	switch {
	case err == nil:
	case meta.IsNoMatchError(err):
		return "The operator is not installed in this cluster: install it, or choose another cluster with --context (kubectl config " +
			"get-contexts lists them)"
	case apierrors.IsNotFound(err):
		return listCommandHint(err)
	case apierrors.IsUnauthorized(err):
		return "Authentication failed: log in again, or choose other credentials with --context or --kubeconfig"
	case apierrors.IsForbidden(err):
		return "Request permission, for example one of the roles storage-client-viewer, -profile-author, -approver, and " +
			"-profile-editor. List your permissions with: kubectl auth can-i --list"
	case clientcmd.IsEmptyConfig(err), strings.Contains(err.Error(), "no configuration has been provided"), strings.Contains(err.Error(), noServer):
		return "No cluster is configured: set KUBECONFIG or --kubeconfig FILE"
	case clientcmd.IsContextNotFound(err), unknownContext.MatchString(err.Error()):
		return "List the contexts with: kubectl config get-contexts"
	case errors.As(err, &unreachable), errors.As(err, &unknownHost), errors.Is(err, context.DeadlineExceeded):
		return "The cluster does not respond: check it with kubectl version, or choose another cluster with --context"
	case errors.Is(err, fs.ErrNotExist) && strings.Contains(err.Error(), "kubeconfig"):
		return "The kubeconfig does not exist: set KUBECONFIG or --kubeconfig FILE"
	}
	return ""
}

// listCommandHint returns a hint with the command that lists the objects of the kind that was not found.
func listCommandHint(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return ""
	}
	return map[string]string{
		"storageclientprofiles": "List the profiles with: kubectl get scp",
		"nodes":                 "List the nodes with: kubectl get nodes",
		"persistentvolumes":     "List the volumes with: kubectl storageclient volumes",
	}[status.Status().Details.Kind]
}

// explainArguments replaces an error about the number of arguments with the usage of the command.
func explainArguments(cmd *cobra.Command, err error) error {
	if err == nil {
		return nil
	}
	out := "usage: " + cmd.Parent().DisplayName() + " " + cmd.Use
	switch {
	case strings.Contains(cmd.Use, "PROFILE"):
		out += " (kubectl get scp lists the profiles)"
	case strings.Contains(cmd.Use, "CLAIM"):
		out += " (kubectl get pvc lists the PersistentVolumeClaims)"
	case strings.Contains(cmd.Use, "NAME") && cmd.Name() == "node":
		out += " (kubectl get nodes lists the nodes)"
	}
	return errors.New(out)
}

func explainFlag(cmd *cobra.Command, err error) error {
	if unknown, isUnknown := strings.CutPrefix(err.Error(), "unknown flag: --"); isUnknown {
		var names []string
		for _, word := range strings.Fields(cmd.Flags().FlagUsages()) {
			if name, isFlag := strings.CutPrefix(word, "--"); isFlag {
				names = append(names, name)
			}
		}
		if suggestion, ok := suggest.Closest(unknown, names); ok {
			return fmt.Errorf("%w. Did you mean --%s?", err, suggestion)
		}
	}
	return fmt.Errorf("%w\nSee '%s --help' for usage", err, cmd.CommandPath())
}

// exitError makes the plugin exit with a status and no further message.
type exitError struct{ status int }

func (e exitError) Error() string { return fmt.Sprintf("exit status %d", e.status) }
