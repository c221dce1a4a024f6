// Package fence tells whether the cluster fences the node agent in: whether an agent may write the status of its own
// StorageClientNode and nothing else. The policy is not compared with what it should say. It is tried.
package fence

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/storageclient/operator/api/v1alpha1"
)

const (
	// RecheckAfter is how long it takes to notice that the policy or its binding has changed, and when a fence that does not
	// hold is tried again. They are not watched: in a cluster without their API, an informer for them would never start.
	RecheckAfter = 30 * time.Second
	// TryAfter is how long the answers of a fence that holds are believed, if policy and binding stay as they are: roles and
	// other admission plugins change too.
	TryAfter = time.Hour
)

// Fence tells whether the cluster fences the node agent in: where it does not, no node gets an agent. It may be shared by
// controllers.
type Fence struct {
	// APIReader reads past the cache.
	APIReader client.Reader
	// AsAgent returns a client whose requests the API server takes for those of a node's agent. See Impersonate.
	AsAgent func(node string) (client.Client, error)
	// Clock measures RecheckAfter and TryAfter.
	Clock clock.PassiveClock

	mu      sync.Mutex
	found   found
	checked time.Time // when policy and binding were last read
	missing string    // what they lacked; empty where nothing
	tried   trial
}

type found struct{ policy, binding string }

// trial is what a trial came to.
type trial struct {
	of    found
	at    time.Time
	wrong string // the answer that was wrong, and what to do; empty: none
}

// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingadmissionpolicies;validatingadmissionpolicybindings,resourceNames=storage-client-node-agent,verbs=get
// +kubebuilder:rbac:groups=tuning.storageclient.dev,resources=storageclientnodes,verbs=list
// +kubebuilder:rbac:groups="",resources=serviceaccounts,resourceNames=storage-client-node-agent,verbs=impersonate,namespace=storage-client-agent
// +kubebuilder:rbac:groups=authentication.k8s.io,resources=userextras/authentication.kubernetes.io/node-name,verbs=impersonate

// Missing says what of the fence is not there or does not hold, and what to do; empty: it holds. Before there is a first
// StorageClientNode there is nothing to try it on, and nothing that an agent could write: then policy and binding only
// have to be there.
func (f *Fence) Missing(ctx context.Context) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.Clock.Now()
	if f.checked.IsZero() || now.Sub(f.checked) >= RecheckAfter {
		missing, err := f.find(ctx)
		if err != nil {
			return "", err
		}
		f.checked, f.missing = now, missing
	}
	if f.missing != "" {
		return f.missing, nil
	}
	if f.isTried(now) {
		return f.tried.wrong, nil
	}
	clientNode, err := f.subject(ctx)
	if clientNode == nil || err != nil {
		return "", err
	}
	wrong, err := f.try(ctx, clientNode)
	if err != nil {
		return "", fmt.Errorf("try the fence on StorageClientNode %s: %w", clientNode.Name, err)
	}
	if wrong != f.tried.wrong {
		log.FromContext(ctx).Info("The fence around node agents was tried", "holds", wrong == "", "reason", wrong)
	}
	f.tried = trial{of: f.found, at: now, wrong: wrong}
	return wrong, nil
}

func (f *Fence) isTried(now time.Time) bool {
	if f.tried.at.IsZero() || f.tried.of != f.found {
		return false
	}
	if f.tried.wrong != "" {
		return now.Sub(f.tried.at) < RecheckAfter
	}
	return now.Sub(f.tried.at) < TryAfter
}

// subject returns the client node that the fence is tried on, nil where there is none.
func (f *Fence) subject(ctx context.Context) (*v1alpha1.StorageClientNode, error) {
	var clientNodes v1alpha1.StorageClientNodeList
	if err := f.APIReader.List(ctx, &clientNodes, client.Limit(1)); err != nil {
		return nil, fmt.Errorf("list StorageClientNodes: %w", err)
	}
	if len(clientNodes.Items) == 0 {
		return nil, nil
	}
	return &clientNodes.Items[0], nil
}

// find reads policy and binding, and says which of them is missing, or that it leaves out what no trial would show: a trial
// is about one StorageClientNode.
func (f *Fence) find(ctx context.Context) (string, error) {
	key := client.ObjectKey{Name: v1alpha1.AgentPolicy}
	var policy admissionv1.ValidatingAdmissionPolicy
	if missing, err := missingText(kindPolicy, f.APIReader.Get(ctx, key, &policy)); missing != "" || err != nil {
		return missing, err
	}
	var binding admissionv1.ValidatingAdmissionPolicyBinding
	if missing, err := missingText(kindBinding, f.APIReader.Get(ctx, key, &binding)); missing != "" || err != nil {
		return missing, err
	}
	f.found = found{policy: versionOf(&policy), binding: versionOf(&binding)}
	if binding.Spec.PolicyName != v1alpha1.AgentPolicy || !slices.Contains(binding.Spec.ValidationActions, admissionv1.Deny) {
		return fmt.Sprintf("%s %s does not enforce the policy of the same name: %s", kindBinding, key.Name, applyAgain), nil
	}
	leavesOut := "%s %s leaves some StorageClientNodes out, by label or name: %s"
	switch {
	case selectsSome(policy.Spec.MatchConstraints):
		return fmt.Sprintf(leavesOut, kindPolicy, key.Name, applyAgain), nil
	case selectsSome(binding.Spec.MatchResources):
		return fmt.Sprintf(leavesOut, kindBinding, key.Name, applyAgain), nil
	}
	return "", nil
}

const (
	kindPolicy  = "ValidatingAdmissionPolicy"
	kindBinding = "ValidatingAdmissionPolicyBinding"
	applyAgain  = "apply the operator's manifest again"
)

func versionOf(object client.Object) string {
	return string(object.GetUID()) + "/" + object.GetResourceVersion()
}

// selectsSome reports whether one StorageClientNode may be matched where another is not.
func selectsSome(resources *admissionv1.MatchResources) bool {
	if resources == nil {
		return false
	}
	named := func(rule admissionv1.NamedRuleWithOperations) bool { return len(rule.ResourceNames) > 0 }
	labels := resources.ObjectSelector
	return labels != nil && len(labels.MatchLabels)+len(labels.MatchExpressions) > 0 ||
		slices.ContainsFunc(resources.ResourceRules, named) || slices.ContainsFunc(resources.ExcludeResourceRules, named)
}

func missingText(kind string, err error) (string, error) {
	switch {
	case err == nil:
		return "", nil
	case meta.IsNoMatchError(err):
		return fmt.Sprintf("this cluster does not serve %s: upgrade to Kubernetes 1.30 or newer", kind), nil
	case apierrors.IsNotFound(err):
		return fmt.Sprintf("%s %s is missing: %s", kind, v1alpha1.AgentPolicy, applyAgain), nil
	}
	return "", fmt.Errorf("get %s %s: %w", kind, v1alpha1.AgentPolicy, err)
}
