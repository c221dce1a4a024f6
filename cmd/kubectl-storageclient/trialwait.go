package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
)

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
