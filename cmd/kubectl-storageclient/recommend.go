package main

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/cmd/kubectl-storageclient/view"
	"github.com/storageclient/operator/controllers/trial/plan"
)

// startTimeout is the time that nodes have to start, in addition to the window.
const startTimeout = 5 * time.Minute

func recommendCommand(env *environment) *cobra.Command {
	var window time.Duration
	cmd := env.outputCommand("recommend CLAIM", cobra.ExactArgs(1), func(ctx context.Context, c client.Client, args []string) (printable, error) {
		namespace, err := env.namespace()
		if err != nil {
			return nil, err
		}
		s := &observed{client: c}
		if err := s.readVolumeClaim(ctx, client.ObjectKey{Namespace: namespace, Name: args[0]}); err != nil {
			return nil, err
		}
		if s.trial, err = followTrial(ctx, env, c, &v1alpha1.StorageClientTrial{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "recommend-"},
			Spec: v1alpha1.StorageClientTrialSpec{
				ClaimName: args[0], TimeoutSeconds: ptr.To(int32((window + startTimeout) / time.Second)),
				Workload: v1alpha1.TrialWorkload{Name: v1alpha1.WorkloadObserve, WindowSeconds: ptr.To(int32(window / time.Second))},
			},
		}, false); err != nil {
			return nil, err
		}
		report, err := s.report(ctx)
		return &report, err
	})
	cmd.Flags().DurationVar(&window, "window", v1alpha1.DefaultWindowSeconds*time.Second, "Duration of the measurement: 10s to 1h")
	checkOutput := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		err := checkOutput(cmd, args)
		if err == nil && (window < v1alpha1.MinWindowSeconds*time.Second || window > v1alpha1.MaxWindowSeconds*time.Second || window%time.Second != 0) {
			err = fmt.Errorf("--window %s: must be whole seconds from 10s to 1h", window)
		}
		return err
	}
	return cmd
}

// observed is the result of a trial and its claim.
type observed struct {
	client client.Client
	// volumeClaim is nil if the user cannot read it.
	volumeClaim *corev1.PersistentVolumeClaim
	trial       *v1alpha1.StorageClientTrial
}

// readVolumeClaim returns an error if the claim is missing or not bound. Otherwise, the trial would wait for it.
func (s *observed) readVolumeClaim(ctx context.Context, key client.ObjectKey) error {
	volumeClaim := &corev1.PersistentVolumeClaim{}
	err := s.client.Get(ctx, key, volumeClaim)
	switch {
	case apierrors.IsForbidden(err):
		return nil
	case apierrors.IsNotFound(err):
		return fmt.Errorf("get PersistentVolumeClaim %s: %w\nList the PersistentVolumeClaims with: kubectl get pvc -n %s, or set another namespace with -n",
			key, err, key.Namespace)
	case err != nil:
		return fmt.Errorf("get PersistentVolumeClaim %s: %w", key, err)
	case volumeClaim.Spec.VolumeName == "" || volumeClaim.Status.Phase != corev1.ClaimBound:
		return fmt.Errorf("PersistentVolumeClaim %s is not bound to a volume (phase %s): see kubectl describe pvc %s -n %s",
			key, cmp.Or(string(volumeClaim.Status.Phase), "unknown"), key.Name, key.Namespace)
	}
	s.volumeClaim = volumeClaim
	return nil
}

// report returns recommendations and the profile in which to declare them.
func (s *observed) report(ctx context.Context) (view.Recommendation, error) {
	status := &s.trial.Status
	r := view.Recommendation{
		Namespace: s.trial.Namespace, VolumeClaim: s.trial.Spec.ClaimName, Volume: status.Volume,
		Seconds: int(s.trial.Spec.Window()), NotSampled: int(status.NodesOmitted),
	}
	for _, sample := range status.Samples {
		r.MountsOmitted += int(sample.MountsOmitted)
		if sample.Message != "" {
			r.Silent = append(r.Silent, view.SilentNode{Node: sample.Node, Reason: sample.Message})
		}
	}
	var err error
	if r.Mounts, err = plan.MountsOf(status.Samples); err != nil {
		return view.Recommendation{}, err
	}
	target, notes, err := s.target(ctx, r)
	if err != nil {
		return view.Recommendation{}, err
	}
	r.Propose(target, notes)
	return r, nil
}
