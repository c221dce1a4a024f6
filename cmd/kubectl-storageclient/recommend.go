package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/cmd/kubectl-storageclient/view"
	"github.com/storageclient/operator/tuning/recommend"
	"github.com/storageclient/operator/tuning/text"
)

const recommendLong = `Measure what the mounts of a PersistentVolumeClaim's volume do, and say what would help: each finding with what was seen, what is
expected of the change, what speaks against it and where that is known from, and a profile that can be applied at the end. Or that no
setting of the client will help, and why; or that nothing stands out.

Counters of the kernel are read at the beginning and at the end of the window, on up to 16 of the nodes that have the volume mounted. No
mount is touched, and nothing is changed. Let the work run that is to get faster.

The request is an annotation on the PersistentVolumeClaim, which is removed at the end, also by Ctrl-C, and expires by itself three minutes
after the window. It takes the right to get and patch persistentvolumeclaims in the namespace, as the role edit has it, and to get and
list storageclientnodes, as storage-client-viewer has it. With the right to list storageclientprofiles and persistentvolumes, the profile
that selects the volume is changed; without, a new one is proposed.`

// cleanupTimeout is how long the end may take, also after Ctrl-C.
const cleanupTimeout = 5 * time.Second

type recommendOptions struct {
	output output
	window time.Duration
}

func recommendCommand(env *environment) *cobra.Command {
	o := &recommendOptions{}
	cmd := &cobra.Command{
		Use:     "recommend CLAIM",
		Short:   "Measure what a volume's mounts do, and say what would help, or that nothing will",
		Long:    recommendLong,
		Args:    cobra.ExactArgs(1),
		Example: "  kubectl storageclient recommend tools -n eda --window 10m\n  kubectl storageclient recommend tools -n eda -o yaml",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(); err != nil {
				return err
			}
			return o.run(cmd.Context(), env, args[0])
		},
	}
	o.output.addFlag(cmd)
	cmd.Flags().DurationVar(&o.window, "window", time.Minute, "how long to measure: 10s to 1h")
	return cmd
}

func (o *recommendOptions) check() error {
	if err := o.output.check(); err != nil {
		return err
	}
	if o.window < v1alpha1.MinSampleSeconds*time.Second || o.window > v1alpha1.MaxSampleSeconds*time.Second || o.window%time.Second != 0 {
		return fmt.Errorf("--window %s: must be whole seconds from 10s to 1h", o.window)
	}
	return nil
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
	s := &sampling{env: env, client: c, window: o.window}
	if err := s.findMounts(ctx, client.ObjectKey{Namespace: namespace, Name: name}); err != nil {
		return err
	}
	if err := s.measure(ctx); err != nil {
		return err
	}
	report, err := s.report(ctx)
	if err != nil {
		return err
	}
	if done, err := o.output.writeStructured(env, report); done || err != nil {
		return err
	}
	return report.WriteText(env.text())
}

// sampling is one request for samples, from its beginning to its end.
type sampling struct {
	env    *environment
	client client.Client
	window time.Duration

	volumeClaim *corev1.PersistentVolumeClaim
	// nodes are those that are asked, others those that have the volume mounted too.
	nodes, others []string
	protocol      string
	request       v1alpha1.SampleRequest
	// answers are what nodes have said, and why others have not.
	answers map[string]answer
}

// answer is how it ended on one node.
type answer struct {
	sample *v1alpha1.NodeSampleStatus
	// why says why there is no sample; empty where there is one.
	why string
}

// findMounts finds the volume, and the nodes that have it mounted.
func (s *sampling) findMounts(ctx context.Context, key client.ObjectKey) error {
	s.volumeClaim = &corev1.PersistentVolumeClaim{}
	if err := s.client.Get(ctx, key, s.volumeClaim); err != nil {
		err = fmt.Errorf("get PersistentVolumeClaim %s: %w", key, err)
		switch {
		case apierrors.IsForbidden(err):
			return fmt.Errorf("%w\n%s", err, askFor("a Role in "+key.Namespace, "", "persistentvolumeclaims", "get, patch"))
		case apierrors.IsNotFound(err):
			return fmt.Errorf("%w\nList them with: kubectl get pvc -n %s, or name another namespace with -n", err, key.Namespace)
		}
		return err
	}
	volume := s.volumeClaim.Spec.VolumeName
	if volume == "" || s.volumeClaim.Status.Phase != corev1.ClaimBound {
		return fmt.Errorf("PersistentVolumeClaim %s is not bound to a volume (phase %s): see kubectl describe pvc %s -n %s",
			key, cmp.Or(string(s.volumeClaim.Status.Phase), "unknown"), key.Name, key.Namespace)
	}
	var clientNodes v1alpha1.StorageClientNodeList
	if err := s.client.List(ctx, &clientNodes); err != nil {
		err = fmt.Errorf("list StorageClientNodes: %w", err)
		if apierrors.IsForbidden(err) {
			return fmt.Errorf("%w\n%s", err, askFor("a ClusterRole, as storage-client-viewer has it", v1alpha1.GroupVersion.Group, "storageclientnodes", "get, list"))
		}
		return err
	}
	for i := range clientNodes.Items {
		for _, m := range clientNodes.Items[i].Status.Mounts {
			if m.Volume == volume && !slices.Contains(s.nodes, clientNodes.Items[i].Name) {
				s.nodes, s.protocol = append(s.nodes, clientNodes.Items[i].Name), cmp.Or(s.protocol, m.Protocol)
			}
		}
	}
	if len(s.nodes) == 0 {
		return fmt.Errorf("volume %s of %s is mounted on none of the %s that have an agent: start a pod that uses it, on a node that a profile selects, "+
			"and let it work. Agents tell of NFS, SMB and XFS", volume, key, text.Count(len(clientNodes.Items), "node"))
	}
	slices.Sort(s.nodes)
	if len(s.nodes) > v1alpha1.MaxSampleNodes {
		s.nodes, s.others = s.nodes[:v1alpha1.MaxSampleNodes], s.nodes[v1alpha1.MaxSampleNodes:]
	}
	return nil
}

// askFor says which rule to ask for.
func askFor(where, group, resource, verbs string) string {
	return fmt.Sprintf("You lack a right: ask for this rule in %s: {apiGroups: [%q], resources: [%s], verbs: [%s]}", where, group, resource, verbs)
}

// measure asks, waits, and takes the request back, whatever comes of it.
func (s *sampling) measure(ctx context.Context) (err error) {
	if err := s.ask(ctx); err != nil {
		return err
	}
	defer func() {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
		defer cancel()
		if taken := s.takeBack(ending); taken != nil && err == nil {
			// It expires by itself.
			s.tell(fmt.Sprintf("Cannot take the request back, it expires at %s: %v", s.request.Until.Format(time.TimeOnly), taken))
		}
	}()
	return s.wait(ctx)
}

// ask writes the request, as long as nobody else has: the volume's nodes take one at a time.
func (s *sampling) ask(ctx context.Context) error {
	now := s.env.now()
	key := client.ObjectKeyFromObject(s.volumeClaim)
	if value, asks := s.volumeClaim.Annotations[v1alpha1.SampleAnnotation]; asks {
		if other, err := v1alpha1.DecodeSampleRequest(value); err == nil && now.Before(other.Until.Time) {
			return fmt.Errorf("somebody else measures %s until %s at the latest: wait, or remove the annotation %s from it",
				key, other.Until.UTC().Format(time.RFC3339), v1alpha1.SampleAnnotation)
		}
	}
	s.request = v1alpha1.SampleRequest{
		ID: strings.ToLower(rand.Text()), Seconds: int32(s.window / time.Second), Nodes: s.nodes,
		Until: metav1.NewTime(now.Add(s.window + v1alpha1.SampleGrace).UTC().Truncate(time.Second)),
	}
	asking := s.volumeClaim.DeepCopy()
	metav1.SetMetaDataAnnotation(&asking.ObjectMeta, v1alpha1.SampleAnnotation, s.request.Encode())
	patch := client.MergeFromWithOptions(s.volumeClaim, client.MergeFromWithOptimisticLock{})
	err := s.client.Patch(ctx, asking, patch, client.FieldOwner(fieldManager))
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Errorf("annotate PersistentVolumeClaim %s: %w\n%s", key, err, askFor("a Role in "+key.Namespace, "", "persistentvolumeclaims", "get, patch"))
	case apierrors.IsConflict(err):
		return fmt.Errorf("PersistentVolumeClaim %s has just been changed: try again", key)
	case err != nil:
		return fmt.Errorf("annotate PersistentVolumeClaim %s: %w", key, err)
	}
	s.tell(fmt.Sprintf("Asked %s for %s of %s, volume %s.", text.List(s.nodes), s.window, key, s.volumeClaim.Spec.VolumeName))
	if len(s.others) > 0 {
		s.tell(fmt.Sprintf("Not asked, since %d are enough: %s.", v1alpha1.MaxSampleNodes, text.List(s.others)))
	}
	return nil
}

// takeBack removes the request, if it is still ours.
func (s *sampling) takeBack(ctx context.Context) error {
	path := "/metadata/annotations/" + strings.ReplaceAll(v1alpha1.SampleAnnotation, "/", "~1")
	patch, err := json.Marshal([]map[string]string{{"op": "test", "path": path, "value": s.request.Encode()}, {"op": "remove", "path": path}})
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	err = s.client.Patch(ctx, s.volumeClaim.DeepCopy(), client.RawPatch(types.JSONPatchType, patch), client.FieldOwner(fieldManager))
	if apierrors.IsNotFound(err) || apierrors.IsInvalid(err) {
		// It is gone, or another one is there.
		return nil
	}
	return err
}

// tell says how far it is, to whoever waits.
func (s *sampling) tell(line string) { _, _ = fmt.Fprintln(s.env.ErrOut, line) }

// report judges what was measured.
func (s *sampling) report(ctx context.Context) (view.Recommendation, error) {
	r := view.Recommendation{
		Namespace: s.volumeClaim.Namespace, VolumeClaim: s.volumeClaim.Name, Volume: s.volumeClaim.Spec.VolumeName,
		Seconds: int(s.request.Seconds), NotAsked: s.others,
	}
	var silent []error
	for _, name := range s.nodes {
		a := s.answers[name]
		if a.why != "" {
			r.Silent = append(r.Silent, view.SilentNode{Node: name, Why: a.why})
			silent = append(silent, fmt.Errorf("%s: %s", name, a.why))
			continue
		}
		samples, err := recommend.FromAPI(*a.sample)
		if err != nil {
			return view.Recommendation{}, fmt.Errorf("StorageClientNode %s: %w", name, err)
		}
		r.AddSamples(name, samples, int(a.sample.MountsOmitted))
	}
	if len(r.Mounts) == 0 {
		return view.Recommendation{}, fmt.Errorf("no node has told what its mounts do:\n%w", errors.Join(silent...))
	}
	target, notes, err := s.target(ctx, r.SampledNodes())
	if err != nil {
		return view.Recommendation{}, err
	}
	r.Propose(target, notes)
	return r, nil
}
