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
	// lookEvery is how often a trial is read.
	lookEvery = 2 * time.Second
	// managerPatience is how long the manager may take to notice a trial.
	managerPatience = time.Minute
	// creationTimeout is how long making a trial may take, cleanupTimeout its end, also after Ctrl-C.
	creationTimeout = 30 * time.Second
	cleanupTimeout  = 5 * time.Second
)

// followTrial makes a trial, follows it to its end, and removes it, whatever comes of it.
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

// createTrial does not end with Ctrl-C: the API server names the trial, and one without a name nobody could remove.
func createTrial(ctx context.Context, c client.Client, trial *v1alpha1.StorageClientTrial) error {
	creating, cancel := context.WithTimeout(context.WithoutCancel(ctx), creationTimeout)
	defer cancel()
	err := c.Create(creating, trial, client.FieldOwner(v1alpha1.PluginFieldManager))
	if err != nil {
		err = fmt.Errorf("create StorageClientTrial: %w", err)
	}
	if apierrors.IsForbidden(err) {
		// Not wrapped: this says which right to ask for, and a hint would say it again.
		return errors.New(err.Error() + "\n" + askFor("a Role in "+trial.Namespace+", as storage-client-trial-editor has it", v1alpha1.GroupVersion.Group, "storageclienttrials", "create, get, delete"))
	}
	return err
}

// askFor says which rule to ask for.
func askFor(where, group, resource, verbs string) string {
	return fmt.Sprintf("You lack a right: ask for this rule in %s: {apiGroups: [%q], resources: [%s], verbs: [%s]}", where, group, resource, verbs)
}

// trialWait follows one trial to its end.
type trialWait struct {
	env    *environment
	client client.Client
	trial  *v1alpha1.StorageClientTrial
	since  time.Time
	told   string
}

func (w *trialWait) tell(line string) { _, _ = fmt.Fprintln(w.env.ErrOut, line) }

// remove leaves nothing behind: the manager takes the work away with the trial.
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

// look reads the trial, tells what is new, and says whether it has ended: with an error where it has failed.
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

// progress is a line for who waits.
func (w *trialWait) progress(message string) string {
	status := &w.trial.Status
	if status.Rounds == 0 {
		return message
	}
	list := []string{fmt.Sprintf("%d of %d rounds are complete", status.Rounds, max(status.RoundsWanted, status.Rounds)), message}
	return strings.Join(slices.Compact(list), ". ")
}
