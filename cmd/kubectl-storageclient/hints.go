package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/clientcmd"
)

// withHint adds to an error of the API server, or on the way to it, what to do.
func withHint(err error) error {
	var unreachable *net.OpError
	var unknownHost *net.DNSError
	switch {
	case err == nil:
		return nil
	case meta.IsNoMatchError(err):
		return fmt.Errorf("%w\nThe operator is not installed in this cluster: install it, or choose another cluster with --context (kubectl config get-contexts lists them)", err)
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%w\nList the profiles with: kubectl get scp", err)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("%w\nThe cluster does not know you: log in again, or choose other credentials with --context or --kubeconfig", err)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w\nAsk for the right, or see what you have: kubectl auth can-i --list", err)
	case clientcmd.IsEmptyConfig(err), strings.Contains(err.Error(), "no configuration has been provided"):
		return fmt.Errorf("%w\nNo cluster is configured: set KUBECONFIG, or give --kubeconfig FILE", err)
	case clientcmd.IsContextNotFound(err), strings.Contains(err.Error(), "does not exist") && strings.Contains(err.Error(), "context"):
		return fmt.Errorf("%w\nList the contexts with: kubectl config get-contexts", err)
	case errors.As(err, &unreachable), errors.As(err, &unknownHost), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w\nThe cluster does not answer: see whether kubectl version does, or choose another with --context", err)
	}
	return err
}

// exitError ends the plugin with a status, and says nothing more.
type exitError struct{ status int }

func (e exitError) Error() string { return fmt.Sprintf("exit status %d", e.status) }
