package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/cmd/kubectl-storageclient/view"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/lists"
)

func trialCommand(env *environment) *cobra.Command {
	var options, sysctls []string
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
		spec.Sysctls = map[string]v1alpha1.SettingText{}
		for _, sysctl := range sysctls {
			key, value, _ := strings.Cut(sysctl, "=")
			spec.Sysctls[key] = v1alpha1.SettingText(catalogue.CanonicalValue(value))
		}
		finalTrial, err := followTrial(ctx, env, c, trial, keep)
		return (*view.Trial)(finalTrial), err
	})
	flags := cmd.Flags()
	flags.StringVar(&spec.Profile, "profile", "", "Profile whose rules define the candidate")
	flags.StringSliceVar(&options, "options", nil, "Mount options of the candidate, separated by commas, instead of a profile")
	flags.Int32Var(&spec.ReadAheadKiB, "read-ahead-kib", 0, "Read-ahead window of the candidate in KiB, alone or with --options. Default: unchanged")
	flags.StringArrayVar(&sysctls, "sysctl", nil, "Sysctl of the candidate's network namespace as KEY=VALUE, alone or with --options; repeatable")
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

const (
	// pollInterval is the interval between reads of a trial.
	pollInterval = 2 * time.Second
	// managerTimeout is the maximum time until the manager handles a new trial.
	managerTimeout = time.Minute
	// creationTimeout is the timeout for creating a trial. cleanupTimeout is the timeout for deleting it, also after Ctrl-C.
	creationTimeout = 30 * time.Second
	cleanupTimeout  = 5 * time.Second
)

// followTrial creates a trial, waits until it finishes, and deletes it in any case unless keep is set.
func followTrial(ctx context.Context, env *environment, c client.Client, trial *v1alpha1.StorageClientTrial, keep bool) (*v1alpha1.StorageClientTrial, error) {
	if err := createTrial(ctx, c, trial); err != nil {
		return nil, err
	}
	w := &trialWait{env: env, client: c, trial: trial, start: env.now()}
	w.printLine("Created StorageClientTrial " + trial.Namespace + "/" + trial.Name)
	if !keep {
		defer w.remove(ctx)
	}
	err := w.wait(ctx)
	return w.trial, err
}

// createTrial ignores Ctrl-C, because the API server generates the name. Without the name, the trial cannot be deleted.
func createTrial(ctx context.Context, c client.Client, trial *v1alpha1.StorageClientTrial) error {
	createCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), creationTimeout)
	defer cancel()
	err := c.Create(createCtx, trial, client.FieldOwner(v1alpha1.PluginFieldManager))
	if err != nil {
		err = fmt.Errorf("create StorageClientTrial: %w", err)
	}
	if apierrors.IsForbidden(err) {
		// Do not wrap the error: the message already names the missing permission, and a hint would repeat it.
		return errors.New(err.Error() + "\n" + fmt.Sprintf(
			"Missing permission; request this rule in a Role in %s, as in storage-client-trial-editor: {apiGroups: [%q], resources: [storageclienttrials], verbs: [create, get, delete]}",
			trial.Namespace, v1alpha1.GroupVersion.Group))
	}
	return err
}

type trialWait struct {
	env         *environment
	client      client.Client
	trial       *v1alpha1.StorageClientTrial
	start       time.Time
	lastMessage string
}

func (w *trialWait) printLine(line string) { _ = writeLines(w.env.ErrOut, line) }

// remove deletes the trial. The manager then removes the work of the trial.
func (w *trialWait) remove(ctx context.Context) {
	deleteCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	object := &v1alpha1.StorageClientTrial{ObjectMeta: metav1.ObjectMeta{Namespace: w.trial.Namespace, Name: w.trial.Name}}
	if err := client.IgnoreNotFound(w.client.Delete(deleteCtx, object)); err != nil {
		w.printLine(fmt.Sprintf("Could not delete the trial. Delete it with: kubectl delete sct %s -n %s. Error: %v", object.Name, object.Namespace, err))
	}
}

func (w *trialWait) wait(ctx context.Context) error {
	ticks, stop := w.env.ticks(pollInterval)
	defer stop()
	for {
		done, err := w.poll(ctx)
		if ctx.Err() != nil {
			return errors.New("interrupted before the trial finished")
		}
		if done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-ticks:
		}
	}
}

// poll reads the trial, prints changes, and reports whether it has finished. It returns an error if the trial failed.
func (w *trialWait) poll(ctx context.Context) (done bool, err error) {
	live := &v1alpha1.StorageClientTrial{}
	key := types.NamespacedName{Namespace: w.trial.Namespace, Name: w.trial.Name}
	if err := w.client.Get(ctx, key, live); err != nil {
		if apierrors.IsNotFound(err) {
			return false, fmt.Errorf("StorageClientTrial %s was deleted", key)
		}
		return false, fmt.Errorf("get StorageClientTrial %s: %w", key, err)
	}
	w.trial = live
	complete := meta.FindStatusCondition(live.Status.Conditions, v1alpha1.TrialConditionComplete)
	if complete == nil {
		if w.env.now().After(w.start.Add(managerTimeout)) {
			return false, fmt.Errorf("the manager did not start the trial within %s: check that it runs and is not older than this plugin", managerTimeout)
		}
		return false, nil
	}
	if meta.IsStatusConditionTrue(live.Status.Conditions, v1alpha1.TrialConditionFailed) {
		return false, fmt.Errorf("%s: %s", complete.Reason, complete.Message)
	}
	if now := w.progress(complete.Message); now != w.lastMessage {
		w.lastMessage = now
		w.printLine(now)
	}
	return complete.Status == metav1.ConditionTrue, nil
}

func (w *trialWait) progress(message string) string {
	status := &w.trial.Status
	if status.Rounds == 0 {
		return message
	}
	list := []string{fmt.Sprintf("%d of %d rounds are complete", status.Rounds, max(status.RoundsWanted, status.Rounds)), message}
	return strings.Join(slices.Compact(list), ". ")
}
