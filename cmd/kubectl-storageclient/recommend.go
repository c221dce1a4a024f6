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

type recommendOptions struct {
	output output
	window time.Duration
}

func recommendCommand(env *environment) *cobra.Command {
	o := &recommendOptions{}
	cmd := &cobra.Command{
		Use:  "recommend CLAIM",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(); err != nil {
				return err
			}
			return o.run(cmd.Context(), env, args[0])
		},
	}
	o.output.addFlag(cmd)
	cmd.Flags().DurationVar(&o.window, "window", v1alpha1.DefaultWindowSeconds*time.Second, "Duration of the measurement: 10s to 1h")
	return cmd
}

func (o *recommendOptions) check() error {
	if o.window < v1alpha1.MinWindowSeconds*time.Second || o.window > v1alpha1.MaxWindowSeconds*time.Second || o.window%time.Second != 0 {
		return fmt.Errorf("--window %s: must be whole seconds from 10s to 1h", o.window)
	}
	return nil
}

func (o *recommendOptions) trial(namespace, volumeClaim string) *v1alpha1.StorageClientTrial {
	return &v1alpha1.StorageClientTrial{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "recommend-"},
		Spec: v1alpha1.StorageClientTrialSpec{
			ClaimName: volumeClaim, TimeoutSeconds: ptr.To(int32((o.window + startTimeout) / time.Second)),
			Workload: v1alpha1.TrialWorkload{Name: v1alpha1.WorkloadObserve, WindowSeconds: ptr.To(int32(o.window / time.Second))},
		},
	}
}

func (o *recommendOptions) run(ctx context.Context, env *environment, name string) error {
	c, err := env.connect()
	if err != nil {
		return err
	}
	namespace, err := env.namespace()
	if err != nil {
		return err
	}
	s := &observed{client: c}
	if err := s.readVolumeClaim(ctx, client.ObjectKey{Namespace: namespace, Name: name}); err != nil {
		return err
	}
	if s.trial, err = followTrial(ctx, env, c, o.trial(namespace, name), false); err != nil {
		return err
	}
	report, err := s.report(ctx)
	if err != nil {
		return err
	}
	return o.output.write(env, &report)
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
