package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/cmd/kubectl-storageclient/view"
)

const trialLong = `Compare the mount options of a PersistentVolumeClaim's volume with others, by the same work on mounts that are nobody's: those that a
profile's rules would give it (--profile), or options of your own (--options).

A node with an agent mounts the volume again and again in a network namespace of its own, in rounds of three passes: with the volume's list,
with the same list once more, and with the candidate. What differs between the first two is noise. Requests are counted, times are measured
with an interval, and a difference is called one only beyond the noise. The volume, and the pods that use it, are not touched.

SMB, NFS with Kerberos, TLS or RDMA, and servers that let no pods in are measured by clones of the volume through its driver, each on a node
without mounts of its server: about a minute a pass.

The work only reads, unless --allow-writes is given.

It takes the right to create, get and delete storageclienttrials in the namespace, as the role edit has it, and with --options the verb try
on storageclientprofiles. The trial is deleted at the end, also by Ctrl-C, unless --keep is given.`

type trialOptions struct {
	output      output
	profile     string
	options     []string
	workload    string
	path        string
	user        int64
	allowWrites bool
	rounds      int32
	metric      string
	better      int32
	timeout     time.Duration
	keep        bool
}

func trialCommand(env *environment) *cobra.Command {
	o := &trialOptions{}
	cmd := &cobra.Command{
		Use:   "trial CLAIM",
		Short: "Compare a volume's mount options with others, by the same work on mounts that are nobody's",
		Long:  trialLong,
		Args:  cobra.ExactArgs(1),
		Example: "  kubectl storageclient trial projects -n eda --profile azure-files-large-directories --workload ListDirectory --path src\n" +
			"  kubectl storageclient trial projects -n eda --options actimeo=30,nocto -o html > trial.html",
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.output != htmlFormat {
				if err := o.output.check(); err != nil {
					return err
				}
			}
			return o.run(cmd.Context(), env, args[0])
		},
	}
	flags := cmd.Flags()
	flags.StringVarP((*string)(&o.output), "output", "o", "", "output format: "+htmlFormat+", "+listFormats())
	flags.StringVar(&o.profile, "profile", "", "profile whose rules make the candidate")
	flags.StringSliceVar(&o.options, "options", nil, "mount options that make the candidate, in place of a profile")
	flags.StringVar(&o.workload, "workload", string(v1alpha1.WorkloadListDirectory), "Mount, ListDirectory, WalkTree, ReadSequential, ReadRandom, CreateUnlink or WriteSequential")
	flags.StringVar(&o.path, "path", "", "directory of the volume to work in; its root by default")
	flags.Int64Var(&o.user, "user", v1alpha1.DefaultTrialUser, "user ID that works, never 0")
	flags.BoolVar(&o.allowWrites, "allow-writes", false, "allow CreateUnlink and WriteSequential, which write into a directory of their own and remove it")
	flags.Int32Var(&o.rounds, "rounds", 0, "rounds to run, at most 40; 0: as many as a decision needs")
	flags.StringVar(&o.metric, "metric", "", "what the candidate is to have less of: Seconds (default), Operations, Bytes or an operation such as GETATTR")
	flags.Int32Var(&o.better, "better-by", 10, "smallest difference that matters, in percent")
	flags.DurationVar(&o.timeout, "timeout", v1alpha1.DefaultTrialTimeoutSeconds*time.Second, "how long the trial may take: 1m to 24h")
	flags.BoolVar(&o.keep, "keep", false, "leave the trial, with all that was measured")
	return cmd
}

func (o *trialOptions) trial(namespace, volumeClaim string) *v1alpha1.StorageClientTrial {
	trial := &v1alpha1.StorageClientTrial{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "trial-"}}
	trial.Spec = v1alpha1.StorageClientTrialSpec{
		ClaimName: volumeClaim, Profile: o.profile, Rounds: o.rounds, TimeoutSeconds: ptr.To(int32(o.timeout / time.Second)),
		Workload: v1alpha1.TrialWorkload{Name: v1alpha1.TrialWorkloadName(o.workload), Path: o.path, RunAsUser: &o.user, AllowWrites: o.allowWrites},
		Goal:     v1alpha1.TrialGoal{Metric: o.metric, BetterByPercent: &o.better},
	}
	for _, option := range o.options {
		trial.Spec.MountOptions = append(trial.Spec.MountOptions, v1alpha1.MountOption(option))
	}
	return trial
}

func (o *trialOptions) run(ctx context.Context, env *environment, name string) error {
	c, err := env.connect()
	if err != nil {
		return err
	}
	namespace, err := env.namespace()
	if err != nil {
		return err
	}
	finalTrial, err := followTrial(ctx, env, c, o.trial(namespace, name), o.keep)
	if err != nil {
		return err
	}
	trialView := (*view.Trial)(finalTrial)
	if o.output == htmlFormat {
		return trialView.WriteHTML(env.Out)
	}
	if done, err := o.output.writeStructured(env, trialView); done || err != nil {
		return err
	}
	return trialView.WriteText(env.text(), o.output.isWide())
}
