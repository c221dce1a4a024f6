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
	"github.com/storageclient/operator/tuning/lists"
)

func trialCommand(env *environment) *cobra.Command {
	var options []string
	var timeout time.Duration
	var keep bool
	trial := &v1alpha1.StorageClientTrial{ObjectMeta: metav1.ObjectMeta{GenerateName: "trial-"}}
	spec, work := &trial.Spec, &trial.Spec.Workload
	work.RunAsUser, spec.Goal.BetterByPercent = new(int64), new(int32)
	cmd := env.outputCommand("trial CLAIM", cobra.ExactArgs(1), func(ctx context.Context, c client.Client, args []string) (printable, error) {
		var err error
		if trial.Namespace, err = env.namespace(); err != nil {
			return nil, err
		}
		spec.ClaimName, spec.TimeoutSeconds = args[0], ptr.To(int32(timeout/time.Second))
		spec.MountOptions = lists.Each(options, func(option string) v1alpha1.MountOption { return v1alpha1.MountOption(option) })
		finalTrial, err := followTrial(ctx, env, c, trial, keep)
		return (*view.Trial)(finalTrial), err
	}, htmlFormat)
	flags := cmd.Flags()
	flags.StringVar(&spec.Profile, "profile", "", "Profile whose rules define the candidate")
	flags.StringSliceVar(&options, "options", nil, "Mount options of the candidate, separated by commas, instead of a profile")
	flags.Int32Var(&spec.ReadAheadKiB, "read-ahead-kib", 0, "Read-ahead window of the candidate in KiB, alone or with --options. Default: unchanged")
	flags.StringVar((*string)(&work.Name), "workload", string(v1alpha1.WorkloadListDirectory),
		fmt.Sprintf("Workload: one of %v", v1alpha1.MountedWorkloads))
	flags.Int32Var(&work.Workers, "workers", 0, "Number of workers that share the work, at most 64. Default: 1")
	flags.Int32Var(&work.BlockKiB, "block-kib", 0, "Block size of reads and writes in KiB. Default: 64, for WriteSequential 1024")
	flags.BoolVar(&work.Sync, "sync", false, "Make WriteSequential wait for each block")
	flags.BoolVar(&work.Direct, "direct", false, "Bypass the page cache in ReadSequential, ReadRandom, and WriteSequential")
	flags.BoolVar(&work.Cached, "cached", false, "Use cached attributes of any age, and cached data of files")
	flags.BoolVar(&work.ThroughClient, "through-client", false, "Make CopyFiles read and write the data, even if the server can copy it")
	flags.StringVar(&work.Path, "path", "", "Directory of the workload, relative to the root of the volume. Default: the root")
	flags.Int64Var(work.RunAsUser, "user", v1alpha1.DefaultTrialUser, "User ID of the workload, never 0")
	flags.BoolVar(&work.AllowWrites, "allow-writes", false, "Allow CreateUnlink, WriteSequential, and CopyFiles, which write to a separate directory and remove it")
	flags.Int32Var(&spec.Rounds, "rounds", 0, "Number of rounds, at most 40. With 0, as many as a decision needs")
	flags.StringVar(&spec.Goal.Metric, "metric", "",
		"Metric that the candidate should reduce: Seconds, Operations, Bytes, or an operation such as GETATTR. Default: Seconds")
	flags.Int32Var(spec.Goal.BetterByPercent, "better-by", 10, "Smallest relevant difference in percent: 1 to 99")
	flags.DurationVar(&timeout, "timeout", v1alpha1.DefaultTrialTimeoutSeconds*time.Second, "Maximum duration of the trial: 1m to 24h")
	flags.BoolVar(&keep, "keep", false, "Keep the trial with all its measurements")
	return cmd
}
