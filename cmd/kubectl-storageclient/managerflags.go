package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/cmd/kubectl-storageclient/view"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/drivers"
)

// managerSettings are the flags of the running manager that affect plans.
type managerSettings struct {
	allow          catalogue.AllowList
	maxUnavailable intstr.IntOrString
	// isRead is false if the Deployment is missing or not readable.
	isRead bool
	// budget contains the source of maxUnavailable.
	budget view.Budget
}

// managerFlags are the manager flags that the user repeats. They override the flags in the cluster.
type managerFlags struct {
	allow, allowFilesystems []string
	maxUnavailable          string
}

func (f *managerFlags) addBudgetFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.maxUnavailable, "max-unavailable", "",
		"Value to use for the manager's --max-unavailable. Default: the value in its Deployment")
}

// readManagerSettings reads the manager's flags from its Deployment. If the Deployment is missing or not readable, it uses the defaults
// and records that in the budget.
func readManagerSettings(ctx context.Context, c client.Client, overrides managerFlags) (managerSettings, error) {
	// Validate the given flags first, because that needs no cluster.
	if _, err := overrides.resolve(); err != nil {
		return managerSettings{}, err
	}
	var deployment appsv1.Deployment
	err := c.Get(ctx, managerKey(v1alpha1.ManagerDeployment), &deployment)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
		return managerSettings{}, fmt.Errorf("get Deployment %s/%s: %w", v1alpha1.ManagerNamespace, v1alpha1.ManagerDeployment, err)
	}
	isRead := err == nil
	read, source := managerFlags{}, "Deployment "+v1alpha1.ManagerNamespace+"/"+v1alpha1.ManagerDeployment
	if isRead {
		read = flagsOf(&deployment)
	}
	assumed := !isRead
	switch {
	case overrides.maxUnavailable != "":
		source, assumed = "your --max-unavailable", false
	case apierrors.IsForbidden(err):
		source = "assumed, no permission to read " + source + "; set the manager's value with --max-unavailable"
	case err != nil:
		source = "assumed, no " + source + "; set the manager's value with --max-unavailable"
	case read.maxUnavailable == "":
		source = "default of " + source
	default:
		source = "--max-unavailable of " + source
	}
	settings, err := read.withOverrides(overrides).resolve()
	if err != nil {
		return managerSettings{}, fmt.Errorf("flags of Deployment %s/%s: %w", v1alpha1.ManagerNamespace, v1alpha1.ManagerDeployment, err)
	}
	if isRead && !includesControlPlane(&deployment) {
		settings.allow = settings.allow.WithoutControlPlane()
	}
	settings.isRead = isRead
	settings.budget = view.Budget{MaxUnavailable: settings.maxUnavailable.String(), Source: source, Assumed: assumed}
	return settings, nil
}

// accepted returns the manager's allow-list for a profile that the manager has already validated. If the flags are unknown, it accepts everything.
func (s managerSettings) accepted() catalogue.AllowList {
	if s.isRead {
		return s.allow
	}
	return catalogue.AcceptAll()
}

func (f managerFlags) withOverrides(overrides managerFlags) managerFlags {
	if len(overrides.allow) > 0 {
		f.allow = overrides.allow
	}
	if len(overrides.allowFilesystems) > 0 {
		f.allowFilesystems = overrides.allowFilesystems
	}
	f.maxUnavailable = cmp.Or(overrides.maxUnavailable, f.maxUnavailable)
	return f
}

func (f managerFlags) resolve() (out managerSettings, err error) {
	if out.allow, err = catalogue.NewAllowList(f.allow); err != nil {
		return out, fmt.Errorf("--allow-parameter: %w", err)
	}
	if out.allow, err = out.allow.WithFilesystems(f.allowFilesystems); err != nil {
		return out, fmt.Errorf("--allow-filesystem: %w", err)
	}
	if out.maxUnavailable, err = v1alpha1.ParseShare(cmp.Or(f.maxUnavailable, v1alpha1.DefaultClusterMaxUnavailable)); err != nil {
		return out, fmt.Errorf("--max-unavailable %q: %w", f.maxUnavailable, err)
	}
	return out, nil
}

// includesControlPlane reports whether the component control-plane is installed.
func includesControlPlane(deployment *appsv1.Deployment) bool {
	return slices.ContainsFunc(deployment.Spec.Template.Spec.Containers, func(container corev1.Container) bool {
		return slices.Contains(container.Args, "--include-control-plane")
	})
}

// flagsOf returns the flags of the manager's container. It accepts --name=value and --name value.
func flagsOf(deployment *appsv1.Deployment) (out managerFlags) {
	for _, container := range deployment.Spec.Template.Spec.Containers {
		if container.Name != "manager" {
			continue
		}
		args := slices.Concat(container.Command, container.Args)
		for i, arg := range args {
			name, value, joined := strings.Cut(strings.TrimLeft(arg, "-"), "=")
			if !strings.HasPrefix(arg, "-") || !joined && i+1 == len(args) {
				continue
			}
			if !joined {
				value = args[i+1]
			}
			switch name {
			case "max-unavailable":
				out.maxUnavailable = value
			case "allow-parameter":
				out.allow = append(out.allow, value)
			case "allow-filesystem":
				out.allowFilesystems = append(out.allowFilesystems, value)
			case "driver-name":
				_ = drivers.AddName(value)
			}
		}
	}
	return out
}

func managerKey(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: v1alpha1.ManagerNamespace, Name: name}
}
