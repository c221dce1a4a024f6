// Package fence checks whether the cluster fences the node agent: the admission policy limits each agent to the status of its own StorageClientNode.
// The package does not compare the policy with its expected content. It sends dry-run requests as an agent.
package fence

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/storageclient/operator/api/v1alpha1"
)

// Checker returns the reason why agents are not rolled out, with the remedy; empty if there is none. Fence implements it.
type Checker interface {
	Missing(ctx context.Context) (string, error)
}

const (
	// RecheckAfter is the interval between reads of the policy and its binding, and between trials of a fence that does not hold. Policy and binding
	// are not watched: in a cluster without their API, an informer for them would never start.
	RecheckAfter = 30 * time.Second
	// TryAfter is the time for which a successful trial is valid if policy and binding do not change. It is limited because roles and other admission
	// plugins can also change.
	TryAfter = time.Hour
)

// Fence checks whether the cluster fences the node agent. Without a fence, no further node gets an agent. Several controllers may share a Fence.
type Fence struct {
	// APIReader bypasses the cache.
	APIReader client.Reader
	// AsAgent returns a client that sends requests as the agent of a node. See Impersonate.
	AsAgent func(node string) (client.Client, error)
	// Clock measures RecheckAfter and TryAfter.
	Clock clock.PassiveClock

	mu      sync.Mutex
	found   string    // the versions of policy and binding
	checked time.Time // when policy and binding were last read
	missing string    // the defect found in them; empty if there is none
	tried   trial
}

type trial struct {
	of    string // the versions of policy and binding
	at    time.Time
	wrong string // the wrong response, with the remedy; empty if there is none
}

// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingadmissionpolicies;validatingadmissionpolicybindings,resourceNames=storage-client-node-agent,verbs=get
// +kubebuilder:rbac:groups=tuning.storageclient.dev,resources=storageclientnodes,verbs=list
// +kubebuilder:rbac:groups="",resources=serviceaccounts,resourceNames=storage-client-node-agent,verbs=impersonate,namespace=storage-client-agent
// +kubebuilder:rbac:groups=authentication.k8s.io,resources=userextras/authentication.kubernetes.io/node-name,verbs=impersonate

// Missing describes the part of the fence that is missing or does not hold, with the remedy; empty if the fence holds. Without a StorageClientNode, a
// trial is impossible, and an agent has no object to write. Missing then checks only policy and binding.
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
		return "", fmt.Errorf("test the fence on StorageClientNode %s: %w", clientNode.Name, err)
	}
	if wrong != f.tried.wrong {
		log.FromContext(ctx).Info("Tested the fence around node agents", "holds", wrong == "", "reason", wrong)
	}
	f.tried = trial{of: f.found, at: now, wrong: wrong}
	return wrong, nil
}

func (f *Fence) isTried(now time.Time) bool {
	validFor := TryAfter
	if f.tried.wrong != "" {
		validFor = RecheckAfter
	}
	return !f.tried.at.IsZero() && f.tried.of == f.found && now.Sub(f.tried.at) < validFor
}

// subject returns the StorageClientNode for the trial, nil if there is none.
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

// find reads policy and binding, and describes a defect; empty if there is none. One defect is an exclusion by label or name: a trial would not
// detect it, because it uses one StorageClientNode.
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
	f.found = versionOf(&policy) + " " + versionOf(&binding)
	if binding.Spec.PolicyName != v1alpha1.AgentPolicy || !slices.Contains(binding.Spec.ValidationActions, admissionv1.Deny) {
		return fmt.Sprintf("%s %s does not enforce the policy of the same name; %s", kindBinding, key.Name, applyAgain), nil
	}
	leavesOut := "%s %s excludes some StorageClientNodes by label or name; %s"
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

// selectsSome reports whether the resources can match one StorageClientNode but not another.
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
		return fmt.Sprintf("this cluster does not serve %s; upgrade to Kubernetes 1.30 or newer", kind), nil
	case apierrors.IsNotFound(err):
		return fmt.Sprintf("%s %s is missing; %s", kind, v1alpha1.AgentPolicy, applyAgain), nil
	}
	return "", fmt.Errorf("get %s %s: %w", kind, v1alpha1.AgentPolicy, err)
}

const (
	serviceAccount = "system:serviceaccount:"
	// managerUser is the only user that the admission policies on the manager match.
	managerUser = serviceAccount + v1alpha1.ManagerNamespace + ":" + v1alpha1.ManagerDeployment
)

// CheckManager returns an error if the client's user is a service account that the admission policies on the manager do not match, for example
// because a kustomization renamed it. A manager outside the cluster has no service account. The client must not use a cache.
func CheckManager(ctx context.Context, c client.Client) error {
	review := &authenticationv1.SelfSubjectReview{}
	err := c.Create(ctx, review)
	if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return nil // this cluster does not report the name
	}
	if err != nil {
		return fmt.Errorf("create SelfSubjectReview: %w", err)
	}
	account, isAccount := strings.CutPrefix(review.Status.UserInfo.Username, serviceAccount)
	if !isAccount || serviceAccount+account == managerUser {
		return nil
	}
	namespace, name, _ := strings.Cut(account, ":")
	return fmt.Errorf("the manager runs as ServiceAccount %s/%s, but the admission policies limit ServiceAccount %s/%s, and this program uses the names in "+
		"the operator's manifests: remove namePrefix, nameSuffix and namespace from the kustomization, and apply the manifests with their names",
		namespace, name, v1alpha1.ManagerNamespace, v1alpha1.ManagerDeployment)
}
