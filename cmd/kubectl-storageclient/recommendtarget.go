package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/cmd/kubectl-storageclient/view"
	"github.com/storageclient/operator/controllers/volume/judge"
	"github.com/storageclient/operator/tuning/mountoptions"
	"github.com/storageclient/operator/tuning/recommend"
	"github.com/storageclient/operator/tuning/text"
)

const maxProfileName = 253

// target returns the profile in which to declare a change. notes describe missing data and the effect on other volumes.
func (s *observed) target(ctx context.Context, r view.Recommendation) (t recommend.Target, notes []string, err error) {
	namespace := s.trial.Namespace
	t = recommend.Target{
		Name: text.CutBytes("recommended-"+namespace+"-"+s.trial.Spec.ClaimName, maxProfileName), Protocol: mountoptions.NFS,
		Selector: v1alpha1.VolumeSelector{ClaimNamespaces: []string{namespace}},
	}
	if slices.ContainsFunc(r.Mounts, func(m recommend.Mount) bool { return m.Protocol == "xfs" }) {
		t.Protocol = mountoptions.XFS
	}
	if t.Hostnames, err = s.hostnames(ctx, r.SampledNodes()); err != nil {
		return t, nil, err
	}
	if s.volumeClaim == nil {
		return t, []string{"No permission to read the PersistentVolumeClaim: a profile may already select it, and the rule of the new profile selects its whole namespace."}, nil
	}
	if len(s.volumeClaim.Labels) > 0 {
		t.Selector.ClaimSelector = &metav1.LabelSelector{MatchLabels: s.volumeClaim.Labels}
	} else if class := s.volumeClaim.Spec.StorageClassName; class != nil && *class != "" {
		t.Selector.StorageClassNames = []string{*class}
	}
	pv := &corev1.PersistentVolume{}
	err = s.client.Get(ctx, client.ObjectKey{Name: s.trial.Status.Volume}, pv)
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
	if t.Profile, t.Rule = ruleOf(profiles.Items, pv, volumeClaimMetadata(s.volumeClaim)); t.Profile != nil {
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
		if !byPrecedence[i].DeletionTimestamp.IsZero() {
			continue
		}
		for j := range byPrecedence[i].Spec.Volumes {
			if r := &byPrecedence[i].Spec.Volumes[j]; judge.Selects(&r.Selector, pv, volumeClaim) {
				return &byPrecedence[i], r.Name
			}
		}
	}
	return nil, ""
}

func volumeClaimMetadata(volumeClaim *corev1.PersistentVolumeClaim) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: volumeClaim.ObjectMeta}
}

// noteSelected returns a note about the other volumes that the rule of a new profile selects.
func (s *observed) noteSelected(ctx context.Context, selector v1alpha1.VolumeSelector) []string {
	var volumes corev1.PersistentVolumeList
	var volumeClaims corev1.PersistentVolumeClaimList
	if s.client.List(ctx, &volumes) != nil || s.client.List(ctx, &volumeClaims, client.InNamespace(s.trial.Namespace)) != nil {
		return []string{"No permission to list volumes: the rule of the new profile may select other volumes."}
	}
	bound := map[string]*corev1.PersistentVolumeClaim{}
	for i := range volumeClaims.Items {
		bound[volumeClaims.Items[i].Spec.VolumeName] = &volumeClaims.Items[i]
	}
	var claimNames []string
	for i := range volumes.Items {
		pv := &volumes.Items[i]
		volumeClaim := bound[pv.Name]
		if pv.Name != s.trial.Status.Volume && volumeClaim != nil && judge.Selects(&selector, pv, volumeClaimMetadata(volumeClaim)) {
			claimNames = append(claimNames, volumeClaim.Name)
		}
	}
	if len(claimNames) == 0 {
		return nil
	}
	slices.Sort(claimNames)
	return []string{fmt.Sprintf(
		"The rule of the new profile also selects %s. To exclude them, add a unique label to the PersistentVolumeClaim and select this label.",
		text.List(claimNames))}
}

// hostnames returns the labels by which a profile selects nodes. If the user cannot read Nodes, it returns the node names, which are
// usually the same.
func (s *observed) hostnames(ctx context.Context, nodes []string) ([]string, error) {
	names := make([]string, 0, len(nodes))
	for _, name := range nodes {
		node := &corev1.Node{}
		if err := s.client.Get(ctx, client.ObjectKey{Name: name}, node); err != nil && !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("get Node %s: %w", name, err)
		}
		names = append(names, cmp.Or(node.Labels[corev1.LabelHostname], name))
	}
	return names, nil
}
