package main

import (
	"context"
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
)

// allowance repeats what the manager's flags accept beyond the catalogue, which cannot be read from the cluster.
type allowance struct{ parameters, filesystems []string }

func (a *allowance) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&a.parameters, "allow-parameter", nil, "the manager's --allow-parameter; may be repeated")
	cmd.Flags().StringArrayVar(&a.filesystems, "allow-filesystem", nil, "the manager's --allow-filesystem; may be repeated")
}

func (a *allowance) compile() (catalogue.AllowList, error) {
	list, err := catalogue.NewAllowList(a.parameters)
	if err != nil {
		return list, err
	}
	return list.WithFilesystems(a.filesystems)
}

func volumesCommand(env *environment) *cobra.Command {
	var o output
	var a allowance
	var only []string
	cmd := &cobra.Command{
		Use:   "volumes [PROFILE]",
		Short: "Show volumes: mount options now and wanted, how each stands and why, and what to do",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			name := ""
			if len(args) > 0 {
				name = args[0]
			}
			return showVolumes(cmd.Context(), env, name, only, a, o)
		},
	}
	cmd.Flags().StringArrayVar(&only, "volume", nil, "show this PersistentVolume only; may be repeated")
	o.addFlag(cmd)
	a.addFlags(cmd)
	return cmd
}

func showVolumes(ctx context.Context, env *environment, name string, only []string, a allowance, o output) error {
	if err := o.check(); err != nil {
		return err
	}
	allow, err := a.compile()
	if err != nil {
		return err
	}
	c, err := env.connect()
	if err != nil {
		return err
	}
	var profile *v1alpha1.StorageClientProfile
	if name != "" {
		if profile, err = getProfile(ctx, c, name); err != nil {
			return err
		}
	}
	listed, held, err := listVolumes(ctx, env, c, name, allow)
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("%w: ask for the right to list persistentvolumes, persistentvolumeclaims and storageclasses; \"kubectl storageclient status\" counts the volumes without it", err)
	}
	if err != nil {
		return err
	}
	if listed, err = pickVolumes(ctx, c, listed, only); err != nil {
		return err
	}
	report := view.NewVolumeReport(name, heldText(profile, held), listed)
	if done, err := o.writeStructured(env, report); done || err != nil {
		return err
	}
	return report.WriteText(env.text(), o.isWide())
}

// pickVolumes keeps the named volumes, or all where none is named.
func pickVolumes(ctx context.Context, c client.Client, listed []volumeplan.Listed, names []string) ([]volumeplan.Listed, error) {
	if len(names) == 0 {
		return listed, nil
	}
	for _, name := range names {
		var pv corev1.PersistentVolume
		if err := c.Get(ctx, client.ObjectKey{Name: name}, &pv); err != nil {
			err = fmt.Errorf("get PersistentVolume %s: %w", name, err)
			if apierrors.IsNotFound(err) {
				err = nameMeant(ctx, c, volumeKind, err, name)
			}
			return nil, err
		}
	}
	return slices.DeleteFunc(listed, func(v volumeplan.Listed) bool { return !slices.Contains(names, v.Volume) }), nil
}

// listVolumes judges volumes as the manager does. What only the manager sees, failed mounts that it has not written down yet, is
// not part of it.
func listVolumes(ctx context.Context, env *environment, c client.Client, profile string, allow catalogue.AllowList) (listed []volumeplan.Listed, held bool, err error) {
	s, err := (&snapshot.Reader{Reader: c, Allow: allow, ManagerNamespace: v1alpha1.ManagerNamespace}).Read(ctx)
	if err != nil {
		return nil, false, err
	}
	var clientNodes v1alpha1.StorageClientNodeList
	if err := c.List(ctx, &clientNodes); err != nil {
		return nil, false, fmt.Errorf("list StorageClientNodes: %w", err)
	}
	s.Now, s.ClientNodes = env.now(), clientNodes.Items
	listed, held = volumeplan.List(profile, s)
	return listed, held, nil
}

// heldText says why a profile that is judged as if it acted does not.
func heldText(profile *v1alpha1.StorageClientProfile, held bool) string {
	switch {
	case !held || profile == nil:
		return ""
	case profile.Spec.Mode == v1alpha1.ModePlan:
		return "Mode is Plan: nothing is written until mode is Enforce."
	}
	return "Profile " + profile.Name + " is paused, or everything is: nothing is written until it is resumed."
}
