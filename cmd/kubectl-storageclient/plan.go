package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/cmd/kubectl-storageclient/view"
	"github.com/storageclient/operator/controllers/overview"
	volumeplan "github.com/storageclient/operator/controllers/volume/plan"
	"github.com/storageclient/operator/controllers/volume/snapshot"
	"github.com/storageclient/operator/tuning/advice"
	"github.com/storageclient/operator/tuning/catalogue"
)

type planOptions struct {
	output output
	// allow repeats the manager's --allow-parameter, which cannot be read from the cluster.
	allow []string
	// allowFilesystems repeats its --allow-filesystem.
	allowFilesystems []string
	// maxUnavailable repeats the manager's --max-unavailable.
	maxUnavailable string
}

func planCommand(env *environment) *cobra.Command {
	o := &planOptions{}
	cmd := &cobra.Command{
		Use:   "plan PROFILE",
		Short: "Show what a profile would do: settings, volumes and reboots, with reasons, order and earliest times",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.run(cmd.Context(), env, args[0])
		},
	}
	o.output.addFlag(cmd)
	cmd.Flags().StringArrayVar(&o.allow, "allow-parameter", nil, "the manager's --allow-parameter; may be repeated")
	cmd.Flags().StringArrayVar(&o.allowFilesystems, "allow-filesystem", nil, "the manager's --allow-filesystem; may be repeated")
	cmd.Flags().StringVar(&o.maxUnavailable, "max-unavailable", v1alpha1.DefaultClusterMaxUnavailable, "the manager's --max-unavailable, for the estimate")
	return cmd
}

func (o *planOptions) run(ctx context.Context, env *environment, name string) error {
	allow, err := catalogue.NewAllowList(o.allow)
	if err != nil {
		return err
	}
	if allow, err = allow.WithFilesystems(o.allowFilesystems); err != nil {
		return err
	}
	budget, err := v1alpha1.ParseShare(o.maxUnavailable)
	if err != nil {
		return fmt.Errorf("--max-unavailable %q: %w", o.maxUnavailable, err)
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
	cluster.MaxUnavailable, cluster.Now = budget, env.now()
	if cluster.ManagerNode, err = managerNode(ctx, c); err != nil {
		return err
	}
	volumes, servers, err := planVolumes(ctx, c, profile, allow)
	if err != nil {
		return err
	}
	plan := view.NewPlan(profile, overview.Plan(profile, cluster), volumes)
	clientNodes := make(map[string]*v1alpha1.StorageClientNode, len(cluster.StorageClientNodes))
	for i := range cluster.StorageClientNodes {
		clientNodes[cluster.StorageClientNodes[i].Name] = &cluster.StorageClientNodes[i]
	}
	plan.AddAdvice(overview.AdviceInput(profile, cluster.Nodes, clientNodes, servers))
	if done, err := o.output.writeStructured(env, plan); done || err != nil {
		return err
	}
	return plan.WriteText(env.Out)
}

// managerNode is the node of the leading manager; empty if it is unknown or the user may not read it.
func managerNode(ctx context.Context, c client.Client) (string, error) {
	var lease coordinationv1.Lease
	key := client.ObjectKey{Namespace: v1alpha1.ManagerNamespace, Name: v1alpha1.ManagerLease}
	if err := c.Get(ctx, key, &lease); err != nil || lease.Spec.HolderIdentity == nil {
		return "", ignoreHidden(err)
	}
	// The identity is the Pod's name, an underscore and a UUID.
	key.Name, _, _ = strings.Cut(*lease.Spec.HolderIdentity, "_")
	var pod corev1.Pod
	if err := c.Get(ctx, key, &pod); err != nil {
		return "", ignoreHidden(err)
	}
	return pod.Spec.NodeName, nil
}

func ignoreHidden(err error) error {
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return nil
	}
	return fmt.Errorf("find the manager's node: %w", err)
}

// planVolumes returns what would happen to the volumes, and their servers; nil for a profile without volume rules.
func planVolumes(ctx context.Context, c client.Client, profile *v1alpha1.StorageClientProfile, allow catalogue.AllowList) (*view.Volumes, []advice.Server, error) {
	if len(profile.Spec.Volumes) == 0 {
		return nil, nil, nil
	}
	all, err := (&snapshot.Reader{Reader: c, Allow: allow, ManagerNamespace: v1alpha1.ManagerNamespace}).Read(ctx)
	if apierrors.IsForbidden(err) {
		return &view.Volumes{Unknown: err.Error()}, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	s := volumeplan.Summarize(profile.Name, all)
	return &view.Volumes{Matched: s.Matched, UpToDate: s.UpToDate, Exceptions: s.Exceptions, Blocked: s.Blocked,
		Examples: slices.Concat(s.BlockedExamples, s.ExceptionExamples)}, s.Servers, nil
}
