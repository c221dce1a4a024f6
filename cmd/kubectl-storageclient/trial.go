package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/cmd/kubectl-storageclient/view"
)

type trialOptions struct {
	output      output
	profile     string
	options     []string
	workload    string
	path        string
	load        v1alpha1.TrialLoad
	readAhead   int32
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
	cmd := env.command("trial CLAIM", cobra.ExactArgs(1), func(ctx context.Context, c client.Client, args []string) error {
		return o.run(ctx, env, c, args[0])
	})
	flags := cmd.Flags()
	o.output.addFlag(cmd, htmlFormat)
	flags.StringVar(&o.profile, "profile", "", "Profile whose rules define the candidate")
	flags.StringSliceVar(&o.options, "options", nil, "Mount options of the candidate, separated by commas, instead of a profile")
	flags.Int32Var(&o.readAhead, "read-ahead-kib", 0, "Read-ahead window of the candidate in KiB, alone or with --options. Default: unchanged")
	flags.StringVar(&o.workload, "workload", string(v1alpha1.WorkloadListDirectory),
		fmt.Sprintf("Workload: one of %v", v1alpha1.MountedWorkloads))
	flags.Int32Var(&o.load.Workers, "workers", 0, "Number of workers that share the work, at most 64. Default: 1")
	flags.Int32Var(&o.load.BlockKiB, "block-kib", 0, "Block size of reads and writes in KiB. Default: 64, for WriteSequential 1024")
	flags.BoolVar(&o.load.Sync, "sync", false, "Make WriteSequential wait for each block")
	flags.BoolVar(&o.load.Direct, "direct", false, "Bypass the page cache in ReadSequential, ReadRandom, and WriteSequential")
	flags.BoolVar(&o.load.Cached, "cached", false, "Use cached attributes of any age, and cached data of files")
	flags.BoolVar(&o.load.ThroughClient, "through-client", false, "Make CopyFiles read and write the data, even if the server can copy it")
	flags.StringVar(&o.path, "path", "", "Directory of the workload, relative to the root of the volume. Default: the root")
	flags.Int64Var(&o.user, "user", v1alpha1.DefaultTrialUser, "User ID of the workload, never 0")
	flags.BoolVar(&o.allowWrites, "allow-writes", false, "Allow CreateUnlink, WriteSequential, and CopyFiles, which write to a separate directory and remove it")
	flags.Int32Var(&o.rounds, "rounds", 0, "Number of rounds, at most 40. With 0, as many as a decision needs")
	flags.StringVar(&o.metric, "metric", "",
		"Metric that the candidate should reduce: Seconds, Operations, Bytes, or an operation such as GETATTR. Default: Seconds")
	flags.Int32Var(&o.better, "better-by", 10, "Smallest relevant difference in percent: 1 to 99")
	flags.DurationVar(&o.timeout, "timeout", v1alpha1.DefaultTrialTimeoutSeconds*time.Second, "Maximum duration of the trial: 1m to 24h")
	flags.BoolVar(&o.keep, "keep", false, "Keep the trial with all its measurements")
	return cmd
}

func (o *trialOptions) trial(namespace, volumeClaim string) *v1alpha1.StorageClientTrial {
	trial := &v1alpha1.StorageClientTrial{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "trial-"}}
	trial.Spec = v1alpha1.StorageClientTrialSpec{
		ClaimName: volumeClaim, Profile: o.profile, ReadAheadKiB: o.readAhead, Rounds: o.rounds, TimeoutSeconds: ptr.To(int32(o.timeout / time.Second)),
		Workload: v1alpha1.TrialWorkload{
			Name: v1alpha1.TrialWorkloadName(o.workload), Path: o.path, RunAsUser: &o.user, AllowWrites: o.allowWrites, TrialLoad: o.load,
		},
		Goal: v1alpha1.TrialGoal{Metric: o.metric, BetterByPercent: &o.better},
	}
	for _, option := range o.options {
		trial.Spec.MountOptions = append(trial.Spec.MountOptions, v1alpha1.MountOption(option))
	}
	return trial
}

func (o *trialOptions) run(ctx context.Context, env *environment, c client.Client, name string) error {
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
	return o.output.write(env, trialView)
}
