package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/cmd/internal/program"
	"github.com/storageclient/operator/cmd/kubectl-storageclient/view"
	"github.com/storageclient/operator/controllers/overview"
	"github.com/storageclient/operator/controllers/rollout/drain"
	"github.com/storageclient/operator/controllers/volume/judge"
	volumeplan "github.com/storageclient/operator/controllers/volume/plan"
	"github.com/storageclient/operator/controllers/volume/snapshot"
	"github.com/storageclient/operator/tuning/advice"
	"github.com/storageclient/operator/tuning/lists"
)

// markdown is an output format that only plans of files support.
const markdown = "markdown"

func (o *planOptions) runFiles(ctx context.Context, env *environment) error {
	if err := o.output.check(); err != nil && o.output != markdown {
		return fmt.Errorf("%w, or %s for a comment on a pull request", err, markdown)
	}
	if _, err := o.overrides.resolve(); err != nil {
		return err
	}
	var written []writtenProfile
	var ignored []string
	err := program.Await(ctx, func() (err error) {
		written, ignored, err = readFiles(o.files, env.In)
		return err
	})
	if err != nil {
		return err
	}
	if len(ignored) > 0 {
		if err := writeLines(env.ErrOut, fmt.Sprintf("Ignored objects that are not %ss: %s", profileKind.Kind, strings.Join(ignored, ", "))); err != nil {
			return err
		}
	}
	c, err := env.connect()
	if err != nil {
		return err
	}
	plan, err := o.planFiles(ctx, env, c, written)
	if err != nil {
		return err
	}
	if o.output == markdown {
		_, err = io.WriteString(env.Out, plan.Markdown())
	} else {
		err = o.output.write(env, plan)
	}
	if err != nil {
		return err
	}
	if rejections := plan.Rejections(); len(rejections) > 0 {
		return errors.New(strings.Join(rejections, "\n"))
	}
	if o.exitCode && plan.Changed {
		return exitError{statusNotDone}
	}
	return nil
}

// planFiles reads the cluster once, runs a dry run for each profile, and computes their combined effect with the manager's code.
func (o *planOptions) planFiles(ctx context.Context, env *environment, c client.Client, written []writtenProfile) (view.FilePlan, error) {
	settings, cluster, err := readPlanned(ctx, env, c, o.overrides)
	if err != nil {
		return view.FilePlan{}, err
	}
	in := view.FilePlanInput{Budget: settings.budget, Allow: settings.allow}
	if in.Profiles, err = dryRunProfiles(ctx, c, written, cluster.Profiles); err != nil {
		return view.FilePlan{}, err
	}
	cluster.Profiles = replaceProfiles(cluster.Profiles, in.Profiles)
	names := in.Names()
	in.Nodes = overview.PlanTogether(names, cluster)
	if in.Volumes, in.UnknownVolumes, err = previewVolumes(ctx, c, settings, names, cluster.Profiles); err != nil {
		return view.FilePlan{}, err
	}
	if in.Pods, in.UnknownPods, err = podsOf(ctx, c, drainOptions(in.Nodes.Reboots, cluster.Profiles)); err != nil {
		return view.FilePlan{}, err
	}
	in.Advice = adviceInputs(in.Profiles, cluster, in.Volumes)
	return view.NewFilePlan(in), nil
}

func dryRunProfiles(ctx context.Context, c client.Client, written []writtenProfile, live []v1alpha1.StorageClientProfile) ([]view.DryRunProfile, error) {
	var out []view.DryRunProfile
	for _, w := range written {
		var before *v1alpha1.StorageClientProfile
		if i := slices.IndexFunc(live, func(p v1alpha1.StorageClientProfile) bool { return p.Name == w.Name }); i >= 0 {
			before = &live[i]
		}
		profile, err := dryRunProfile(ctx, c, w, before)
		if err != nil {
			return nil, err
		}
		out = append(out, profile)
	}
	return out, nil
}

// replaceProfiles replaces live profiles with the profiles of the same name from files. If the API server rejects a profile, the live one
// stays.
func replaceProfiles(live []v1alpha1.StorageClientProfile, profiles []view.DryRunProfile) []v1alpha1.StorageClientProfile {
	accepted := lists.Filter(profiles, func(p view.DryRunProfile) bool { return p.Rejection == "" })
	isReplaced := func(p v1alpha1.StorageClientProfile) bool {
		return slices.ContainsFunc(accepted, func(a view.DryRunProfile) bool { return a.Name == p.Name })
	}
	unchanged := slices.DeleteFunc(slices.Clone(live), isReplaced)
	return append(unchanged, lists.Each(accepted, func(p view.DryRunProfile) v1alpha1.StorageClientProfile { return p.After })...)
}

// previewVolumes returns the changes to volumes as if the named profiles were active. Nil if unknown contains the reason why they are unknown.
func previewVolumes(ctx context.Context, c client.Client, settings managerSettings, names []string, profiles []v1alpha1.StorageClientProfile) (preview *volumeplan.Preview, unknown string, err error) {
	s, err := (&snapshot.Reader{Reader: c, Allow: settings.allow}).Read(ctx)
	if apierrors.IsForbidden(err) {
		return nil, err.Error(), nil
	}
	if err != nil {
		return nil, "", err
	}
	s.Profiles = new(judge.Compiler).Compile(lists.Pointers(overview.ActingTogether(names, profiles)), settings.allow, false, s.Classes)
	out := volumeplan.PreviewVolumes(names, s)
	return &out, "", nil
}

// drainOptions returns the drain options of the first profile that requires the reboot, by node.
func drainOptions(reboots []overview.JointReboot, profiles []v1alpha1.StorageClientProfile) map[string]v1alpha1.Drain {
	rules := lists.Map(profiles, func(p v1alpha1.StorageClientProfile) (string, v1alpha1.Drain) {
		return p.Name, p.Spec.WithDefaults().Rollout.Drain
	})
	return lists.Map(reboots, func(r overview.JointReboot) (string, v1alpha1.Drain) { return r.Node, rules[r.Profiles[0]] })
}

func adviceInputs(profiles []view.DryRunProfile, cluster overview.Cluster, volumes *volumeplan.Preview) map[string]advice.Input {
	known := ptr.Deref(volumes, volumeplan.Preview{})
	return lists.Map(lists.Pointers(profiles), func(p *view.DryRunProfile) (string, advice.Input) {
		return p.Name, overview.AdviceInput(&p.After, cluster, known.Servers[p.Name], known.LeftOut[p.Name])
	})
}

// dryRunProfile runs a dry run that creates the profile, or updates spec, labels, and annotations of the live profile.
func dryRunProfile(ctx context.Context, c client.Client, written writtenProfile, live *v1alpha1.StorageClientProfile) (view.DryRunProfile, error) {
	object := &unstructured.Unstructured{Object: map[string]any{}}
	object.SetGroupVersionKind(profileKind)
	object.SetName(written.Name)
	out := view.DryRunProfile{Name: written.Name, File: written.File, Before: live, After: mergeProfile(written, live)}
	var err error
	if live == nil {
		object.SetLabels(written.Labels)
		object.SetAnnotations(written.Annotations)
		object.Object["spec"] = specOf(written)
		err = c.Create(ctx, object, client.DryRunAll, client.FieldOwner(v1alpha1.PluginFieldManager), client.FieldValidation(metav1.FieldValidationStrict))
	} else {
		var patch []byte
		if patch, err = json.Marshal(replacementPatch(written, live)); err != nil {
			return out, fmt.Errorf("encode patch of %s %s: %w", profileKind.Kind, written.Name, err)
		}
		err = c.Patch(ctx, object, client.RawPatch(types.JSONPatchType, patch), client.DryRunAll, client.FieldOwner(v1alpha1.PluginFieldManager), client.FieldValidation(metav1.FieldValidationStrict))
	}
	switch {
	case err == nil:
	case lacksPermission(ctx, c, err, live):
		out.Unchecked = err.Error()
		return out, nil
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err), apierrors.IsBadRequest(err):
		out.Rejection = err.Error()
		return out, nil
	default:
		return out, fmt.Errorf("dry run of %s %s: %w", profileKind.Kind, written.Name, err)
	}
	out.After = v1alpha1.StorageClientProfile{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &out.After); err != nil {
		return out, fmt.Errorf("decode dry run of %s %s: %w", profileKind.Kind, written.Name, err)
	}
	return out, nil
}

// lacksPermission reports whether the user lacks permission to create or patch the profile. A rejection by a policy or webhook is Forbidden
// too. The result is false if the API server does not report the user's permissions.
func lacksPermission(ctx context.Context, c client.Client, err error, live *v1alpha1.StorageClientProfile) bool {
	if !apierrors.IsForbidden(err) {
		return false
	}
	write := &authorizationv1.ResourceAttributes{Group: v1alpha1.GroupVersion.Group, Resource: "storageclientprofiles", Verb: "create"}
	if live != nil {
		write.Verb, write.Name = "patch", live.Name
	}
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: write}}
	return c.Create(ctx, review) == nil && !review.Status.Allowed
}

// mergeProfile returns the live profile with the written fields, without defaults of the API server.
func mergeProfile(written writtenProfile, live *v1alpha1.StorageClientProfile) v1alpha1.StorageClientProfile {
	if live == nil {
		return written.StorageClientProfile
	}
	after := *live.DeepCopy()
	after.Spec = *written.Spec.DeepCopy()
	after.Labels, after.Annotations = labels.Merge(live.Labels, written.Labels), labels.Merge(live.Annotations, written.Annotations)
	return after
}

func specOf(written writtenProfile) any {
	if spec, ok := written.Object.Object["spec"]; ok && spec != nil {
		return spec
	}
	return map[string]any{}
}

// replacementPatch returns a patch that replaces the whole spec, so that fields missing from the file are removed. An update would conflict with
// each status write of the manager.
func replacementPatch(written writtenProfile, live *v1alpha1.StorageClientProfile) []map[string]any {
	out := []map[string]any{{"op": "add", "path": "/spec", "value": specOf(written)}}
	if len(written.Labels) > 0 {
		out = append(out, map[string]any{"op": "add", "path": "/metadata/labels", "value": labels.Merge(live.Labels, written.Labels)})
	}
	if len(written.Annotations) > 0 {
		out = append(out, map[string]any{"op": "add", "path": "/metadata/annotations", "value": labels.Merge(live.Annotations, written.Annotations)})
	}
	return out
}

const (
	// singleNodes is the maximum number of nodes whose Pods are listed separately, to avoid reading all Pods of the cluster.
	singleNodes = 20
	// podsAtOnce is the number of Pods in a page.
	podsAtOnce = 500
)

// countPods counts the Pods that a drain of each node would handle, with the drain options of that node.
func countPods(
	ctx context.Context, c client.Client, options map[string]v1alpha1.Drain, budgets []policyv1.PodDisruptionBudget,
) (map[string]*view.Pods, error) {
	counts := make(map[string]*view.Pods, len(options))
	var selections [][]client.ListOption
	for node := range options {
		counts[node] = &view.Pods{}
		selections = append(selections, []client.ListOption{client.MatchingFields{"spec.nodeName": node}})
	}
	if len(options) > singleNodes {
		selections = [][]client.ListOption{{}}
	}
	for _, selection := range selections {
		if err := countSelected(ctx, c, selection, options, budgets, counts); err != nil {
			return nil, err
		}
	}
	return counts, nil
}

// countSelected reads one page at a time and does not keep it.
func countSelected(
	ctx context.Context, c client.Client, selection []client.ListOption, options map[string]v1alpha1.Drain, budgets []policyv1.PodDisruptionBudget,
	counts map[string]*view.Pods,
) error {
	for next := ""; ; {
		var pods corev1.PodList
		if err := c.List(ctx, &pods, append(selection, client.Limit(podsAtOnce), client.Continue(next))...); err != nil {
			return fmt.Errorf("list Pods: %w", err)
		}
		for i := range pods.Items {
			node := pods.Items[i].Spec.NodeName
			if counts[node] == nil {
				continue
			}
			if err := addPod(counts[node], pods.Items[i:i+1], options[node], budgets); err != nil {
				return err
			}
		}
		if next = pods.Continue; next == "" {
			return nil
		}
	}
}

func addPod(count *view.Pods, pod []corev1.Pod, options v1alpha1.Drain, budgets []policyv1.PodDisruptionBudget) error {
	sorted, evictable, err := drain.SortPods(pod, options, time.Now())
	if err != nil {
		return err
	}
	count.Evicted += len(evictable)
	count.WaitedFor += len(sorted.WaitedFor)
	count.Blocked = append(count.Blocked, lists.Each(sorted.Blocked, drain.Blocker.String)...)
	if remarks := sorted.Remarks(); remarks != "" {
		count.Remarks = append(count.Remarks, remarks)
	}
	for _, evicted := range evictable {
		blocker := drain.JudgeEviction(evicted, budgets, time.Now())
		if blocker == nil || blocker.IsNew() {
			continue
		}
		outlook := "the rollout skips the node while they keep it (rollout.drain.lookAhead)"
		if options.LookAhead == v1alpha1.LookAheadCordonFirst && blocker.Reason == "" {
			outlook = "if they keep it for 10 minutes and no other node can be claimed, the rollout cordons the node and evicts this pod first"
		}
		count.Kept = append(count.Kept, fmt.Sprintf("Node %s: %s; %s", evicted.Spec.NodeName, blocker, outlook))
	}
	return nil
}

// podsOf counts the Pods of the nodes that would reboot. Missing permissions are not an error; unknown then describes the missing data.
func podsOf(ctx context.Context, c client.Client, options map[string]v1alpha1.Drain) (counts map[string]*view.Pods, unknown string, err error) {
	if len(options) == 0 {
		return nil, "", nil
	}
	var budgets policyv1.PodDisruptionBudgetList
	if err := c.List(ctx, &budgets); apierrors.IsForbidden(err) {
		unknown = "pods that PodDisruptionBudgets keep: no permission to list PodDisruptionBudgets"
	} else if err != nil {
		return nil, "", fmt.Errorf("list PodDisruptionBudgets: %w", err)
	}
	counts, err = countPods(ctx, c, options, budgets.Items)
	if apierrors.IsForbidden(err) {
		return nil, "number of evicted pods: no permission to list Pods", nil
	}
	return counts, unknown, err
}
