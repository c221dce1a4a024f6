package volume

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/parallel"
	"github.com/storageclient/operator/controllers/loop"
	"github.com/storageclient/operator/controllers/volume/ledger"
	"github.com/storageclient/operator/controllers/volume/plan"
)

// beginSteps records the planned writes in the ledger, and returns the steps that may run. A step that could not be recorded waits. Exception:
// a step that removes the operator's options runs, unless another client wrote the page first.
func (s *scope) beginSteps(ctx context.Context, planned plan.Plan, steps []plan.Step, out *loop.Outcome) (recorded []plan.Step) {
	errs := s.writeLedger(ctx, planned.ChangesBefore(steps), out)
	for _, step := range steps {
		var err error
		for _, key := range plan.LedgerKeys(step) {
			err = cmp.Or(err, errs[key])
		}
		switch {
		case err == nil, plan.MayRunUnrecorded(step) && !loop.IsOvertaken(err):
			recorded = append(recorded, step)
		case isRejected(err):
			s.delayVolume(step.Target().Name)
		}
	}
	return recorded
}

// endReservations deletes reservations, unless another manager was faster.
func (s *scope) endReservations(ctx context.Context, reservations []*corev1.ConfigMap) error {
	for _, r := range reservations {
		if err := s.Client.Delete(ctx, r.DeepCopy(), client.Preconditions{UID: &r.UID}); err != nil && !loop.IsOvertaken(err) {
			return fmt.Errorf("delete ConfigMap %s/%s: %w", r.Namespace, r.Name, err)
		}
	}
	return nil
}

// writeLedger writes each changed page once, based on the version that was read. It returns the errors by volume.
func (s *scope) writeLedger(ctx context.Context, changes ledger.Changes, out *loop.Outcome) map[types.UID]error {
	if len(changes) == 0 {
		return nil
	}
	writes, rejected := s.ledger.Apply(changes)
	failed := make(map[types.UID]error, len(rejected))
	for uid, reason := range rejected {
		failed[uid] = fmt.Errorf("record PersistentVolume with UID %s: %w", uid, errors.New(reason))
	}
	var mutex sync.Mutex
	var written []*corev1.ConfigMap
	parallel.ForEach(s.parallelism(), writes, func(w ledger.Write) {
		err := s.writePage(ctx, w.Page)
		mutex.Lock()
		defer mutex.Unlock()
		if err == nil {
			written = append(written, w.Page)
			return
		}
		for _, uid := range w.Volumes {
			failed[uid] = err
		}
	})
	s.ledger = s.ledger.With(written...)
	for uid, err := range failed {
		out.Finish(string(uid), err)
	}
	return failed
}

func (s *scope) writePage(ctx context.Context, page *corev1.ConfigMap) error {
	page.Namespace = v1alpha1.ManagerNamespace
	var err error
	if page.ResourceVersion == "" {
		err = s.Client.Create(ctx, page, client.FieldOwner(v1alpha1.ManagerFieldManager))
	} else {
		err = s.Client.Update(ctx, page, client.FieldOwner(v1alpha1.ManagerFieldManager))
	}
	if err != nil {
		return fmt.Errorf("write ConfigMap %s/%s: %w", page.Namespace, page.Name, err)
	}
	return nil
}
