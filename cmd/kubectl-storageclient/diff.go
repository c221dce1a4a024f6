package main

import (
	"context"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/cmd/kubectl-storageclient/view"
	"github.com/storageclient/operator/controllers/overview"
)

func diffCommand(env *environment) *cobra.Command {
	var overrides managerFlags
	cmd := env.outputCommand("diff PROFILE", cobra.ExactArgs(1), func(ctx context.Context, c client.Client, args []string) (printable, error) {
		return readDiff(ctx, env, c, args[0], overrides)
	})
	overrides.addAllowFlags(cmd)
	return cmd
}

func readDiff(ctx context.Context, env *environment, c client.Client, name string, overrides managerFlags) (printable, error) {
	settings, err := readManagerSettings(ctx, c, overrides)
	if err != nil {
		return nil, err
	}
	profile, err := getProfile(ctx, c, name)
	if err != nil {
		return nil, err
	}
	diff := view.Diff{Name: name}
	cluster, err := readCluster(ctx, c, settings.allow)
	switch {
	case apierrors.IsForbidden(err):
		diff.Unknown = append(diff.Unknown, "nodes (their settings are missing here): "+err.Error())
	case err != nil:
		return nil, err
	default:
		cluster.Now = env.now()
		diff.Diff, diff.NodesRead = overview.DiffNodes(profile, cluster), true
	}
	isHeld := profile.Spec.Mode == v1alpha1.ModePlan || profile.Spec.Paused || v1alpha1.IsStopped(profile, v1alpha1.PausedAnnotation)
	if len(profile.Spec.Volumes) > 0 {
		listed, volumesHeld, err := listVolumes(ctx, env, c, name, settings.allow)
		switch {
		case apierrors.IsForbidden(err):
			diff.Unknown = append(diff.Unknown, "volumes (they are missing here): "+err.Error())
		case err != nil:
			return nil, err
		}
		diff.AddVolumes(listed)
		isHeld = isHeld || volumesHeld
	}
	diff.Held = heldReason(profile, isHeld)
	return diff, nil
}
