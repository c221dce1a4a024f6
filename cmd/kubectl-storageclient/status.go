package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/cmd/kubectl-storageclient/view"
	"github.com/storageclient/operator/controllers/overview"
	volumeplan "github.com/storageclient/operator/controllers/volume/plan"
	"github.com/storageclient/operator/controllers/volume/snapshot"
	"github.com/storageclient/operator/tuning/lists"
)

// statusNotDone is the exit status of --exit-code if profiles are not complete, or if files change the cluster.
const statusNotDone = 2

type statusOptions struct {
	output output
	// nodes requests details of several profiles. A single profile always has details.
	nodes bool
	// pods requests the names of Pods with stale mounts.
	pods bool
	// exitCode requests an exit status that depends on whether all profiles are complete.
	exitCode bool
}

func statusCommand(env *environment) *cobra.Command {
	o := &statusOptions{}
	cmd := env.command("status [PROFILE...]", nil, func(ctx context.Context, c client.Client, args []string) error {
		return o.run(ctx, env, c, args)
	})
	o.output.addFlag(cmd)
	cmd.Flags().BoolVar(&o.nodes, "nodes", false, "Show nodes, deviations, and stale mounts of all profiles")
	cmd.Flags().BoolVar(&o.pods, "pods", false, "Show pods with stale mounts by name instead of UID. Requires permission to list Pods")
	cmd.Flags().BoolVar(&o.exitCode, "exit-code", false, "Exit with 0 if all profiles are done, 2 if some are not, 1 on an error")
	return cmd
}

func (o *statusOptions) run(ctx context.Context, env *environment, c client.Client, args []string) error {
	profiles, err := readProfiles(ctx, c, args)
	if err != nil {
		return err
	}
	status := view.NewStatus(profiles)
	if len(args) == 1 || o.nodes || o.output.isWide() {
		if err := o.addDetails(ctx, c, profiles, &status, env.now()); err != nil {
			return err
		}
	}
	done, err := o.output.writeStructured(env, status)
	if !done && err == nil {
		err = status.WriteText(env.text(), env.now())
	}
	if err == nil && o.exitCode && !status.Done {
		return exitError{statusNotDone}
	}
	return err
}

func (o *statusOptions) addDetails(ctx context.Context, c client.Client, profiles []v1alpha1.StorageClientProfile, status *view.Status, now time.Time) error {
	settings, err := readManagerSettings(ctx, c, managerFlags{})
	if err != nil {
		return err
	}
	cluster, err := readCluster(ctx, c, settings.accepted())
	if err != nil {
		return err
	}
	cluster.Now = now
	// Users of a node pool may lack permission to read volumes. Show them the other details.
	volumes, unknown := (&snapshot.Reader{Reader: c, Allow: cluster.Allow}).Read(ctx)
	volumes.Now, volumes.ClientNodes = now, lists.Pointers(cluster.StorageClientNodes)
	if unknown != nil && !apierrors.IsForbidden(unknown) {
		return unknown
	}
	for i := range profiles {
		var listed []volumeplan.Listed
		if !status.Profiles[i].Done {
			listed, _ = volumeplan.List(profiles[i].Name, volumes)
		}
		details := &view.Details{
			Nodes:      overview.Nodes(&profiles[i], cluster),
			Deviations: overview.Deviations(&profiles[i], cluster),
			Stale:      volumeplan.StaleMounts(volumeplan.Summarize(profiles[i].Name, volumes).Volumes, volumes.ClientNodes),
			HeldUpBy:   view.HeldUpBy(&profiles[i], overview.Waits(&profiles[i], cluster), listed),
		}
		if unknown != nil {
			details.Unknown = "stale mounts: " + unknown.Error()
		}
		if o.pods {
			if err := namePods(ctx, c, details.Stale); err != nil {
				return err
			}
		}
		status.Profiles[i].Details = details
	}
	return nil
}
