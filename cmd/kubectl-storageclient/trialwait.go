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
	// lookEvery is the interval between reads of a trial.
	lookEvery = 2 * time.Second
	// managerPatience is the maximum time until the manager handles a new trial.
	managerPatience = time.Minute
	// creationTimeout is the timeout for creating a trial. cleanupTimeout is the timeout for deleting it, also after Ctrl-C.
	creationTimeout = 30 * time.Second
	cleanupTimeout  = 5 * time.Second
)

// followTrial creates a trial, waits until it finishes, and deletes it in any case unless keep is set.
func followTrial(ctx context.Context, env *environment, c client.Client, trial *v1alpha1.StorageClientTrial, keep bool) (*v1alpha1.StorageClientTrial, error) {
	if err := createTrial(ctx, c, trial); err != nil {
		return nil, err
	}
	w := &trialWait{env: env, client: c, trial: trial, since: env.now()}
	w.tell("Made StorageClientTrial " + trial.Namespace + "/" + trial.Name)
	if !keep {
		defer w.remove(ctx)
	}
	err := w.wait(ctx)
	return w.trial, err
}

// createTrial ignores Ctrl-C, because the API server generates the name. Without the name, the trial cannot be deleted.
func createTrial(ctx context.Context, c client.Client, trial *v1alpha1.StorageClientTrial) error {
	creating, cancel := context.WithTimeout(context.WithoutCancel(ctx), creationTimeout)
	defer cancel()
	err := c.Create(creating, trial, client.FieldOwner(v1alpha1.PluginFieldManager))
	if err != nil {
		err = fmt.Errorf("create StorageClientTrial: %w", err)
	}
	if apierrors.IsForbidden(err) {
		// Do not wrap the error: the message already names the missing permission, and a hint would repeat it.
		return errors.New(err.Error() + "\n" + askFor("a Role in "+trial.Namespace+", as storage-client-trial-editor has it", v1alpha1.GroupVersion.Group, "storageclienttrials", "create, get, delete"))
	}
	return err
}

// askFor returns a message with the RBAC rule that the user needs.
func askFor(where, group, resource, verbs string) string {
	return fmt.Sprintf("You lack a right: ask for this rule in %s: {apiGroups: [%q], resources: [%s], verbs: [%s]}", where, group, resource, verbs)
}

// trialWait waits until one trial finishes.
type trialWait struct {
	env    *environment
	client client.Client
	trial  *v1alpha1.StorageClientTrial
	since  time.Time
	told   string
}

func (w *trialWait) tell(line string) { _, _ = fmt.Fprintln(w.env.ErrOut, line) }

// remove deletes the trial. The manager then removes the work of the trial.
func (w *trialWait) remove(ctx context.Context) {
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	gone := &v1alpha1.StorageClientTrial{ObjectMeta: metav1.ObjectMeta{Namespace: w.trial.Namespace, Name: w.trial.Name}}
	if err := client.IgnoreNotFound(w.client.Delete(ending, gone)); err != nil {
		w.tell(fmt.Sprintf("Cannot delete the trial, do so yourself: kubectl delete sct %s -n %s: %v", gone.Name, gone.Namespace, err))
	}
}

func (w *trialWait) wait(ctx context.Context) error {
	ticks, stop := w.env.ticks(lookEvery)
	defer stop()
	for {
		ended, err := w.look(ctx)
		if ctx.Err() != nil {
			return errors.New("ended before the trial was; its work is taken away")
		}
		if ended || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-ticks:
		}
	}
}

// look reads the trial, prints changes, and reports whether it has finished. It returns an error if the trial failed.
func (w *trialWait) look(ctx context.Context) (ended bool, err error) {
	live := &v1alpha1.StorageClientTrial{}
	key := types.NamespacedName{Namespace: w.trial.Namespace, Name: w.trial.Name}
	if err := w.client.Get(ctx, key, live); err != nil {
		if apierrors.IsNotFound(err) {
			return false, fmt.Errorf("somebody has deleted StorageClientTrial %s", key)
		}
		return false, fmt.Errorf("get StorageClientTrial %s: %w", key, err)
	}
	w.trial = live
	complete := meta.FindStatusCondition(live.Status.Conditions, v1alpha1.TrialConditionComplete)
	if complete == nil {
		if w.env.now().After(w.since.Add(managerPatience)) {
			return false, fmt.Errorf("the manager has taken no notice of the trial within %s: it does not run, or is older than this plugin", managerPatience)
		}
		return false, nil
	}
	if meta.IsStatusConditionTrue(live.Status.Conditions, v1alpha1.TrialConditionFailed) {
		return false, fmt.Errorf("%s: %s", complete.Reason, complete.Message)
	}
	if now := w.progress(complete.Message); now != w.told {
		w.told = now
		w.tell(now)
	}
	return complete.Status == metav1.ConditionTrue, nil
}

// progress returns a progress line for the user.
func (w *trialWait) progress(message string) string {
	status := &w.trial.Status
	if status.Rounds == 0 {
		return message
	}
	list := []string{fmt.Sprintf("%d of %d rounds are complete", status.Rounds, max(status.RoundsWanted, status.Rounds)), message}
	return strings.Join(slices.Compact(list), ". ")
}
