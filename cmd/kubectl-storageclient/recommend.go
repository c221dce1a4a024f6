package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/cmd/kubectl-storageclient/view"
	"github.com/storageclient/operator/controllers/overview"
	"github.com/storageclient/operator/controllers/trial/plan"
	"github.com/storageclient/operator/controllers/volume/judge"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/mountoptions"
	"github.com/storageclient/operator/tuning/recommend"
	"github.com/storageclient/operator/tuning/text"
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
	names := lists.Pick(status.Samples, func(sample v1alpha1.TrialSample) (string, bool) { return sample.Node, len(sample.Mounts) > 0 })
	t, err := s.readNodes(ctx, names)
	if err != nil {
		return view.Recommendation{}, err
	}
	pv := &corev1.PersistentVolume{}
	readErr := s.client.Get(ctx, client.ObjectKey{Name: status.Volume}, pv)
	if r.Mounts, err = plan.MountsOf(status.Samples, t.Nodes, judge.SourceOf(pv)); err != nil {
		return view.Recommendation{}, err
	}
	t, notes, err := s.target(ctx, r, t, pv, readErr)
	if err != nil {
		return view.Recommendation{}, err
	}
	r.Propose(t, notes)
	return r, nil
}

const maxProfileName = 253

// target adds the profile in which to declare a change. err is the result of reading the volume. notes describe missing data and the effect on other volumes.
func (s *observed) target(ctx context.Context, r view.Recommendation, t recommend.Target, pv *corev1.PersistentVolume, err error) (_ recommend.Target, notes []string, _ error) {
	namespace := s.trial.Namespace
	t.Name, t.Protocol = text.CutBytes("recommended-"+namespace+"-"+s.trial.Spec.ClaimName, maxProfileName), mountoptions.NFS
	t.Selector.ClaimNamespaces = []string{namespace}
	if slices.ContainsFunc(r.Mounts, func(m recommend.Mount) bool { return m.Protocol == "xfs" }) {
		t.Protocol = mountoptions.XFS
	}
	if s.volumeClaim == nil {
		return t, []string{"No permission to read the PersistentVolumeClaim: a profile may already select it, and the rule of the new profile selects its whole namespace."}, nil
	}
	if len(s.volumeClaim.Labels) > 0 {
		t.Selector.ClaimSelector = &metav1.LabelSelector{MatchLabels: s.volumeClaim.Labels}
	} else if class := s.volumeClaim.Spec.StorageClassName; class != nil && *class != "" {
		t.Selector.StorageClassNames = []string{*class}
	}
	var profiles v1alpha1.StorageClientProfileList
	if err == nil {
		err = s.client.List(ctx, &profiles)
	}
	if apierrors.IsForbidden(err) {
		return t, []string{"No permission to read profiles or the volume: a profile may already select it, and the proposal is a new profile."}, nil
	}
	if err != nil {
		return t, nil, fmt.Errorf("read PersistentVolume %s and profiles: %w", s.trial.Status.Volume, err)
	}
	for i := range profiles.Items {
		t.Priority = max(t.Priority, min(profiles.Items[i].Spec.Priority+1, 1000000))
	}
	if t.Profile, t.Rule = ruleOf(profiles.Items, pv, &metav1.PartialObjectMetadata{ObjectMeta: s.volumeClaim.ObjectMeta}); t.Profile != nil {
		return t, nil, nil
	}
	return t, s.noteSelected(ctx, t.Selector), nil
}

// ruleOf returns the rule that applies to a volume, from the profile with the highest priority.
func ruleOf(profiles []v1alpha1.StorageClientProfile, pv *corev1.PersistentVolume, volumeClaim *metav1.PartialObjectMetadata) (profile *v1alpha1.StorageClientProfile, rule string) {
	byPrecedence := slices.SortedFunc(slices.Values(profiles), func(a, b v1alpha1.StorageClientProfile) int {
		return cmp.Or(cmp.Compare(b.Spec.Priority, a.Spec.Priority), strings.Compare(a.Name, b.Name))
	})
	for i := range byPrecedence {
		for j := range byPrecedence[i].Spec.Volumes {
			if r := &byPrecedence[i].Spec.Volumes[j]; byPrecedence[i].DeletionTimestamp.IsZero() && judge.Selects(&r.Selector, pv, volumeClaim) {
				return &byPrecedence[i], r.Name
			}
		}
	}
	return nil, ""
}

// noteSelected returns a note about the other volumes that the rule of a new profile selects.
func (s *observed) noteSelected(ctx context.Context, selector v1alpha1.VolumeSelector) []string {
	var volumes corev1.PersistentVolumeList
	var volumeClaims corev1.PersistentVolumeClaimList
	if s.client.List(ctx, &volumes) != nil || s.client.List(ctx, &volumeClaims, client.InNamespace(s.trial.Namespace)) != nil {
		return []string{"No permission to list volumes: the rule of the new profile may select other volumes."}
	}
	bound := lists.Map(lists.Pointers(volumeClaims.Items), func(volumeClaim *corev1.PersistentVolumeClaim) (string, *corev1.PersistentVolumeClaim) {
		return volumeClaim.Spec.VolumeName, volumeClaim
	})
	claimNames := lists.Pick(lists.Pointers(volumes.Items), func(pv *corev1.PersistentVolume) (string, bool) {
		claim := &metav1.PartialObjectMetadata{ObjectMeta: ptr.Deref(bound[pv.Name], corev1.PersistentVolumeClaim{}).ObjectMeta}
		return claim.Name, claim.Name != "" && pv.Name != s.trial.Status.Volume && judge.Selects(&selector, pv, claim)
	})
	if len(claimNames) == 0 {
		return nil
	}
	slices.Sort(claimNames)
	return []string{fmt.Sprintf(
		"The rule of the new profile also selects %s. To exclude them, add a unique label to the PersistentVolumeClaim and select this label.",
		text.List(claimNames))}
}

// readNodes returns the labels by which a profile selects nodes, and the known facts about the nodes. If the user cannot read Nodes, the labels are the
// node names, which are usually the same.
func (s *observed) readNodes(ctx context.Context, names []string) (t recommend.Target, err error) {
	var nodes []*corev1.Node
	clientNodes := map[string]*v1alpha1.StorageClientNode{}
	for _, name := range names {
		node, clientNode := &corev1.Node{}, &v1alpha1.StorageClientNode{}
		for _, o := range []client.Object{node, clientNode} {
			if err := s.client.Get(ctx, client.ObjectKey{Name: name}, o); err != nil && !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err) {
				return t, fmt.Errorf("get Node and StorageClientNode %s: %w", name, err)
			}
		}
		node.Name, clientNodes[name] = name, clientNode
		nodes, t.Hostnames = append(nodes, node), append(t.Hostnames, cmp.Or(node.Labels[corev1.LabelHostname], name))
	}
	t.Nodes = overview.AdviceAbout(nil, nodes, clientNodes, nil, nil).Nodes
	return t, nil
}
