package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/cmd/kubectl-storageclient/view"
	volumeplan "github.com/storageclient/operator/controllers/volume/plan"
	"github.com/storageclient/operator/controllers/volume/snapshot"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/text"
)

// addAllowFlags adds the manager's flags that extend the catalogue.
func (g *managerFlags) addAllowFlags(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&g.allow, "allow-parameter", nil,
		"Value to use for the manager's --allow-parameter. Can be repeated. Default: the values in its Deployment")
	cmd.Flags().StringArrayVar(&g.allowFilesystems, "allow-filesystem", nil,
		"Value to use for the manager's --allow-filesystem. Can be repeated. Default: the values in its Deployment")
}

func volumesCommand(env *environment) *cobra.Command {
	var overrides managerFlags
	var volumeNames []string
	cmd := env.outputCommand("volumes [PROFILE]", cobra.MaximumNArgs(1), func(ctx context.Context, c client.Client, args []string) (printable, error) {
		return readVolumes(ctx, env, c, cmp.Or(args...), volumeNames, overrides)
	})
	cmd.Flags().StringArrayVar(&volumeNames, "volume", nil, "Show only this PersistentVolume. Can be repeated")
	overrides.addAllowFlags(cmd)
	return cmd
}

func readVolumes(ctx context.Context, env *environment, c client.Client, name string, volumeNames []string, overrides managerFlags) (printable, error) {
	settings, err := readManagerSettings(ctx, c, overrides)
	if err != nil {
		return nil, err
	}
	var profile *v1alpha1.StorageClientProfile
	if name != "" {
		if profile, err = getProfile(ctx, c, name); err != nil {
			return nil, err
		}
	}
	listed, isHeld, err := listVolumes(ctx, env, c, name, settings.allow)
	if apierrors.IsForbidden(err) {
		// Do not wrap the error: the message already names the missing permission, and a hint would repeat it.
		return nil, errors.New(err.Error() + ": request permission to list persistentvolumes, persistentvolumeclaims, and storageclasses; \"kubectl storageclient status\" counts the volumes without it")
	}
	if err != nil {
		return nil, err
	}
	if listed, err = pickVolumes(ctx, c, listed, volumeNames); err != nil {
		return nil, err
	}
	return view.NewVolumeReport(name, heldReason(profile, isHeld), listed), nil
}

// pickVolumes returns the named volumes, or all volumes if there are no names.
func pickVolumes(ctx context.Context, c client.Client, listed []volumeplan.Listed, names []string) ([]volumeplan.Listed, error) {
	if len(names) == 0 {
		return listed, nil
	}
	for _, name := range names {
		var pv corev1.PersistentVolume
		if err := c.Get(ctx, client.ObjectKey{Name: name}, &pv); err != nil {
			err = fmt.Errorf("get PersistentVolume %s: %w", name, err)
			if apierrors.IsNotFound(err) {
				err = suggestVolume(ctx, c, err, name)
			}
			return nil, err
		}
	}
	return slices.DeleteFunc(listed, func(v volumeplan.Listed) bool { return !slices.Contains(names, v.Volume) }), nil
}

// suggestVolume adds the most similar volume to a "not found" error. It also matches the volume of a PersistentVolumeClaim, by name or by
// namespace/name.
func suggestVolume(ctx context.Context, c client.Client, err error, name string) error {
	var volumes corev1.PersistentVolumeList
	if listErr := c.List(ctx, &volumes); listErr != nil {
		return err
	}
	var bound []string
	for i := range volumes.Items {
		if of := volumes.Items[i].Spec.ClaimRef; of != nil && (of.Name == name || of.Namespace+"/"+of.Name == name) {
			bound = append(bound, fmt.Sprintf("--volume %s (bound to %s/%s)", volumes.Items[i].Name, of.Namespace, of.Name))
		}
	}
	if len(bound) > 0 {
		return fmt.Errorf("%w. A PersistentVolumeClaim has this name; use its volume: %s", err, text.Join(bound, ", "))
	}
	return suggestName(ctx, c, volumeKind, err, name)
}

// listVolumes evaluates volumes like the manager. It cannot include failed mounts that the manager has not recorded yet.
func listVolumes(ctx context.Context, env *environment, c client.Client, profile string, allow catalogue.AllowList) (listed []volumeplan.Listed, isHeld bool, err error) {
	s, err := (&snapshot.Reader{Reader: c, Allow: allow}).Read(ctx)
	if err != nil {
		return nil, false, err
	}
	var clientNodes v1alpha1.StorageClientNodeList
	if err := readLists(ctx, c, &clientNodes); err != nil {
		return nil, false, err
	}
	s.Now, s.ClientNodes = env.now(), lists.Pointers(clientNodes.Items)
	listed, isHeld = volumeplan.List(profile, s)
	return listed, isHeld, nil
}

// heldReason returns the reason why a profile has no effect, although it is evaluated as if it had.
func heldReason(profile *v1alpha1.StorageClientProfile, isHeld bool) string {
	switch {
	case !isHeld || profile == nil:
		return ""
	case profile.Spec.Mode == v1alpha1.ModePlan:
		return "Mode is Plan: changes are not applied until mode is Enforce."
	}
	return "Profile " + profile.Name + " is paused, or all profiles are: changes are not applied until you resume."
}
