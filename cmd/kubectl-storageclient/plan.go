package main

import (
	"context"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/cmd/kubectl-storageclient/view"
	"github.com/storageclient/operator/controllers/overview"
	"github.com/storageclient/operator/controllers/volume"
	"github.com/storageclient/operator/tuning/catalogue"
)

type planOptions struct {
	output output
	// allow repeats the manager's --allow-parameter, which the cluster does not tell.
	allow []string
}

func planCommand(env *environment) *cobra.Command {
	o := &planOptions{}
	cmd := &cobra.Command{
		Use:   "plan PROFILE",
		Short: "Show a profile with its defaults, the settings of each group of nodes, and which nodes would reboot and why",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.run(cmd.Context(), env, args[0])
		},
	}
	o.output.add(cmd)
	cmd.Flags().StringArrayVar(&o.allow, "allow-parameter", nil, "regular expression of parameters that the manager is run with; may be repeated")
	return cmd
}

func (o *planOptions) run(ctx context.Context, env *environment, name string) error {
	allow, err := catalogue.NewAllowList(o.allow)
	if err != nil {
		return err
	}
	c, err := env.connect()
	if err != nil {
		return err
	}
	profile, err := getProfile(ctx, c, name)
	if err != nil {
		return err
	}
	cluster, err := readCluster(ctx, c, allow)
	if err != nil {
		return err
	}
	volumes, err := planVolumes(ctx, c, profile, allow)
	if err != nil {
		return err
	}
	plan := view.NewPlan(profile, overview.Plan(profile, cluster), volumes)
	if done, err := o.output.structured(env, plan); done || err != nil {
		return err
	}
	return plan.Text(env.Out)
}

// planVolumes returns nil for a profile without volume rules.
func planVolumes(ctx context.Context, c client.Client, profile *v1alpha1.StorageClientProfile, allow catalogue.AllowList) (*view.Volumes, error) {
	if len(profile.Spec.Volumes) == 0 {
		return nil, nil
	}
	snapshot, err := volume.ReadSnapshot(ctx, c, allow, v1alpha1.ManagerNamespace)
	if apierrors.IsForbidden(err) {
		return &view.Volumes{Unknown: err.Error()}, nil
	}
	if err != nil {
		return nil, err
	}
	s := volume.Summarize(profile.Name, snapshot)
	return &view.Volumes{Matched: s.Matched, UpToDate: s.UpToDate, Blocked: s.Blocked, Examples: s.BlockedExamples}, nil
}
