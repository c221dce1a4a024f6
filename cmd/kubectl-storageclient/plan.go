package main

import (
	"context"
	"errors"
	"fmt"
	"io"
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
	"github.com/storageclient/operator/tuning/advice"
	"github.com/storageclient/operator/tuning/knownbad"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/text"
)

type planOptions struct {
	output    output
	overrides managerFlags
	// files are the values of -f. exitCode requests an exit status that depends on whether the files change the cluster.
	files    []string
	exitCode bool
	// kernel is the release of an upgrade.
	kernel string
}

func planCommand(env *environment) *cobra.Command {
	o := &planOptions{}
	cmd := &cobra.Command{
		Use: "plan PROFILE | -f FILE | --kernel VERSION",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.checkUse(args); err != nil {
				return err
			}
			if o.kernel != "" {
				return planKernel(cmd.Context(), env, o.kernel, o.output)
			}
			if len(o.files) > 0 {
				return o.runFiles(cmd.Context(), env)
			}
			return o.run(cmd.Context(), env, args[0])
		},
	}
	cmd.Flags().StringVarP((*string)(&o.output), "output", "o", "", "Output format: "+listFormats()+". With -f also "+markdown+", for a comment on a pull request")
	cmd.Flags().StringArrayVarP(&o.files, "filename", "f", nil, "File or directory of profiles, or - for standard input. Can be repeated")
	cmd.Flags().StringVar(&o.kernel, "kernel", "", "Stable release of a kernel: show the known problems that it brings or removes")
	cmd.Flags().BoolVar(&o.exitCode, "exit-code", false, "With -f: exit with 0 if there are no changes, 2 if there are changes, 1 on an error")
	o.overrides.addAllowFlags(cmd)
	o.overrides.addBudgetFlag(cmd)
	return cmd
}

// checkUse returns an error for an invalid combination of arguments. The error contains the correct command.
func (o *planOptions) checkUse(args []string) error {
	switch {
	case o.kernel != "" && len(args)+len(o.files) > 0:
		return errors.New("--kernel cannot be combined with a profile or files: kubectl storageclient plan --kernel " + o.kernel)
	case o.kernel != "" && !o.exitCode && o.output != markdown:
		return o.output.check()
	case len(o.files) > 0 && len(args) > 0:
		return fmt.Errorf("set either a profile or files, not both: kubectl storageclient plan %s, or kubectl storageclient plan -f %s",
			args[0], o.files[0])
	case len(o.files) > 0:
		return nil
	case len(args) == 0:
		return errors.New(
			"a profile or files are required: kubectl storageclient plan PROFILE, or kubectl storageclient plan -f FILE (kubectl get scp lists the profiles)")
	case len(args) > 1:
		return fmt.Errorf("plan accepts one profile: kubectl storageclient plan %s", args[0])
	case strings.ContainsRune(args[0], '/'), strings.HasSuffix(args[0], ".yaml"), strings.HasSuffix(args[0], ".yml"), strings.HasSuffix(args[0], ".json"):
		return fmt.Errorf("%s looks like a file: kubectl storageclient plan -f %s", args[0], args[0])
	case o.exitCode:
		return errors.New("--exit-code requires files: kubectl storageclient plan -f FILE --exit-code")
	case o.output == markdown:
		return errors.New("--output markdown requires files: kubectl storageclient plan -f FILE -o markdown")
	}
	return o.output.check()
}

func (o *planOptions) run(ctx context.Context, env *environment, name string) error {
	if _, err := o.overrides.resolve(); err != nil {
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
	settings, cluster, err := readPlanned(ctx, env, c, o.overrides)
	if err != nil {
		return err
	}
	volumes, known, err := planVolumes(ctx, c, profile, settings, cluster.Profiles)
	if err != nil {
		return err
	}
	plan := view.NewPlan(profile, overview.Plan(profile, cluster), volumes)
	plan.Budget = &settings.budget
	in := overview.AdviceInput(profile, cluster, known.Servers[name], known.LeftOut[name])
	plan.Advice, plan.Servers = advice.For(in), advice.Loads(in)
	return o.output.write(env, plan)
}

// readPlanned reads the manager's settings, and the cluster that a plan of reboots needs.
func readPlanned(ctx context.Context, env *environment, c client.Client, overrides managerFlags) (managerSettings, overview.Cluster, error) {
	settings, err := readManagerSettings(ctx, c, overrides)
	if err != nil {
		return settings, overview.Cluster{}, err
	}
	cluster, err := readCluster(ctx, c, settings.allow)
	if err != nil {
		return settings, cluster, err
	}
	cluster.MaxUnavailable, cluster.Now = settings.maxUnavailable, env.now()
	cluster.ManagerNode, err = managerNode(ctx, c)
	return settings, cluster, err
}

// managerNode returns the node of the leading manager. Empty if it is unknown or the user cannot read it.
func managerNode(ctx context.Context, c client.Client) (string, error) {
	var lease coordinationv1.Lease
	key := managerKey(v1alpha1.ManagerLease)
	if err := c.Get(ctx, key, &lease); err != nil || lease.Spec.HolderIdentity == nil {
		return "", ignoreHidden(err)
	}
	// The identity is the name of the Pod, an underscore, and a UUID.
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
	return fmt.Errorf("get node of the manager: %w", err)
}

// planVolumes returns the planned changes to volumes, nil for a profile without volume rules, and the preview that they come from.
func planVolumes(ctx context.Context, c client.Client, profile *v1alpha1.StorageClientProfile, settings managerSettings, all []v1alpha1.StorageClientProfile) (*view.Volumes, volumeplan.Preview, error) {
	if len(profile.Spec.Volumes) == 0 {
		return nil, volumeplan.Preview{}, nil
	}
	p, unknown, err := previewVolumes(ctx, c, settings, []string{profile.Name}, all)
	if err != nil || p == nil {
		return &view.Volumes{Unknown: unknown}, volumeplan.Preview{}, err
	}
	return view.NewVolumes(*p), *p, nil
}

// kernelPlan describes the known problems that a kernel brings to the nodes, or removes from them.
type kernelPlan struct {
	Kernel  string            `json:"kernel"`
	Changes []knownbad.Change `json:"changes,omitempty"`
	Unknown []string          `json:"unknown,omitempty"`
}

// planKernel reads the kernels and mounts of all nodes from the reports of their agents.
func planKernel(ctx context.Context, env *environment, release string, output output) error {
	to := knownbad.ParseKernel(release, "")
	if to == (knownbad.Kernel{}) {
		return fmt.Errorf("--kernel %q: the release does not show the fixes of this kernel; set the stable release that it contains, for example 6.12.117, "+
			"from /proc/version or the vendor's changelog", release)
	}
	c, err := env.connect()
	if err != nil {
		return err
	}
	var clientNodes v1alpha1.StorageClientNodeList
	if err := readLists(ctx, c, &clientNodes); err != nil {
		return err
	}
	plan := kernelPlan{Kernel: to.String()}
	plan.Changes, plan.Unknown = knownbad.Upgrade(clientNodes.Items, to)
	return output.write(env, plan)
}

// Names returns the changed problems, for -o name.
func (p kernelPlan) Names() []string {
	return lists.Each(p.Changes, func(c knownbad.Change) string { return c.ID })
}

// WriteText prints the plan for users.
func (p kernelPlan) WriteText(w io.Writer, _ bool) error {
	fmt.Fprintf(w, "Kernel %s on all nodes, with their present mounts. The command changes no node.\n", p.Kernel)
	for _, c := range p.Changes {
		change := "Brings " + c.Text
		if !c.Brings {
			change = "Removes " + c.ID + ": " + c.Text
		}
		fmt.Fprintf(w, "%s\n  Nodes: %s\n", change, text.List(c.Nodes))
	}
	if len(p.Changes) == 0 {
		fmt.Fprintln(w, "No known problem appears or disappears.")
	}
	if len(p.Unknown) > 0 {
		fmt.Fprintf(w, "The present kernel does not show its fixes on %s: %s\n", text.Count(len(p.Unknown), "node"), text.List(p.Unknown))
	}
	return nil
}
