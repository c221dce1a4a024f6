package fence

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
)

const (
	// agentUser is the user name of the node agents at the API server. The policy also contains it.
	agentUser = "system:serviceaccount:" + v1alpha1.AgentNamespace + ":" + v1alpha1.AgentServiceAccount
	// nodeNameExtra is the key of the user's extra attribute with the node of a token's Pod (k8s.io/apiserver/pkg/authentication/serviceaccount,
	// NodeNameKey).
	nodeNameExtra = "authentication.kubernetes.io/node-name"
	// trialHash is never a real hash: a patch of status.hash with it always changes the object.
	trialHash = "trial-of-the-fence"
)

// Impersonate returns a function for Fence.AsAgent. The manager may impersonate the agent's service account and a node's name, but not a Pod's. The
// policy accepts requests without a Pod only as dry runs.
func Impersonate(config *rest.Config, scheme *runtime.Scheme, mapper meta.RESTMapper) func(node string) (client.Client, error) {
	return func(node string) (client.Client, error) {
		asAgent := rest.CopyConfig(config)
		asAgent.Impersonate = rest.ImpersonationConfig{UserName: agentUser, Extra: map[string][]string{nodeNameExtra: {node}}}
		agent, err := client.New(asAgent, client.Options{Scheme: scheme, Mapper: mapper})
		if err != nil {
			return nil, fmt.Errorf("build client of the agent of node %s: %w", node, err)
		}
		return agent, nil
	}
}

// question is one dry-run request as an agent, with the response of a working fence.
type question struct {
	// action completes "an agent may ..." in messages.
	action string
	// node is the node whose agent sends the request.
	node        string
	subresource bool
	patch       map[string]any
	expected    answer
}

type answer int

const (
	admitted answer = iota
	// The agent's role or the policy must reject the request.
	rejected
	// The operator's policy must reject the request. If something else rejects it first, the policy is not proven.
	rejectedByPolicy
)

// questions returns the requests of a trial in order. All of them use one StorageClientNode.
func questions(clientNode *v1alpha1.StorageClientNode) []question {
	name := clientNode.Name
	// The policy only compares names: a Node with this name need not exist.
	other := name + ".other"
	var attempts int32
	if clientNode.Status.Rollout != nil {
		attempts = clientNode.Status.Rollout.Attempts
	}
	hash := map[string]any{"status": map[string]any{"hash": trialHash}}
	return []question{
		{action: "write the status of its StorageClientNode", node: name, subresource: true, patch: hash, expected: admitted},
		{action: "write the status of another node's StorageClientNode", node: other, subresource: true, patch: hash, expected: rejectedByPolicy},
		{
			action: "write status.rollout of its StorageClientNode", node: name, subresource: true,
			patch: map[string]any{"status": map[string]any{"rollout": map[string]any{"attempts": attempts + 1}}}, expected: rejectedByPolicy,
		},
		{
			action: "write the spec of its StorageClientNode", node: name,
			patch: map[string]any{"spec": map[string]any{"release": !clientNode.Spec.Release}}, expected: rejected,
		},
		{
			action: "write the metadata of its StorageClientNode", node: name,
			patch: map[string]any{"metadata": map[string]any{"annotations": map[string]any{v1alpha1.PausedAnnotation: trialHash}}}, expected: rejected,
		},
	}
}

// try sends the requests in order until a response is wrong, and describes that response; empty if there is none.
func (f *Fence) try(ctx context.Context, clientNode *v1alpha1.StorageClientNode) (string, error) {
	for _, q := range questions(clientNode) {
		agent, err := f.AsAgent(q.node)
		if err != nil {
			return "", err
		}
		wrong, err := q.checkResponse(q.send(ctx, agent, clientNode.Name))
		if wrong != "" || err != nil {
			return wrong, err
		}
	}
	return "", nil
}

func (q question) send(ctx context.Context, agent client.Client, name string) error {
	patch, err := json.Marshal(q.patch)
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	target := &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: name}}
	change, owner := client.RawPatch(types.MergePatchType, patch), client.FieldOwner(v1alpha1.AgentFieldManager)
	if q.subresource {
		return agent.Status().Patch(ctx, target, change, client.DryRunAll, owner)
	}
	return agent.Patch(ctx, target, change, client.DryRunAll, owner)
}

// checkResponse returns the fault of a response. An error means that there is no result: the request must be repeated.
func (q question) checkResponse(err error) (string, error) {
	switch {
	case isUndecided(err):
		return "", fmt.Errorf("check whether an agent may %s: %w", q.action, err)
	case err == nil && q.expected == admitted:
		return "", nil
	case err == nil:
		return fmt.Sprintf("%s %s is not effective: an agent may %s; %s", kindPolicy, v1alpha1.AgentPolicy, q.action, applyAgain), nil
	case isImpersonationRefused(err):
		return fmt.Sprintf("cannot test the fence because the manager may not impersonate an agent; %s (response: %s)", applyAgain, err), nil
	case q.expected == admitted:
		return fmt.Sprintf("an agent may not %s; %s, or correct the policy that denies it (response: %s)", q.action, applyAgain, err), nil
	case isRejectedByPolicy(err), q.expected == rejected && apierrors.IsForbidden(err):
		return "", nil
	}
	return fmt.Sprintf("cannot test %s %s: the request of an agent to %s was rejected for another reason; correct it, or %s (response: %s)",
		kindPolicy, v1alpha1.AgentPolicy, q.action, applyAgain, err), nil
}

// isUndecided reports whether the API server did not evaluate the request. Causes: the network, an overload, or an object that was deleted or
// written in the meantime.
func isUndecided(err error) bool {
	if err == nil {
		return false
	}
	var status apierrors.APIStatus
	return !errors.As(err, &status) ||
		apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsServiceUnavailable(err) || apierrors.IsTooManyRequests(err) ||
		apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsUnauthorized(err)
}

// isImpersonationRefused searches for words that the API server uses only to reject an impersonation, never to reject a patch
// (k8s.io/apiserver/pkg/endpoints/filters/impersonation).
func isImpersonationRefused(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "cannot impersonate resource")
}

// isRejectedByPolicy searches for the text that the API server puts before a policy's rejection. No other part of the response identifies the policy
// (k8s.io/apiserver/pkg/admission/plugin/policy/validating, dispatcher.Dispatch).
func isRejectedByPolicy(err error) bool {
	return strings.Contains(err.Error(),
		fmt.Sprintf("%s '%s' with binding '%s' denied request: ", kindPolicy, v1alpha1.AgentPolicy, v1alpha1.AgentPolicy))
}
