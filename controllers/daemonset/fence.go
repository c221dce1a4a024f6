package daemonset

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

	"github.com/storageclient/operator/api/v1alpha1"
)

// RecheckAfter is how long an answer holds. The policy is not watched: in a cluster without its API, an informer for
// it would never start.
const RecheckAfter = 30 * time.Second

// Fence tells whether the cluster fences the node agent in: without the admission policy that ties an agent to its own
// object, no agent is rolled out. It asks the API server at most every RecheckAfter. It may be shared by controllers.
type Fence struct {
	// APIReader reads past the cache.
	APIReader client.Reader
	// Clock measures RecheckAfter.
	Clock clock.PassiveClock

	mu      sync.Mutex
	checked time.Time
	missing string
}

// Missing says what of the fence is not there, and what to do; empty: it stands.
func (f *Fence) Missing(ctx context.Context) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.Clock.Now()
	if !f.checked.IsZero() && now.Sub(f.checked) < RecheckAfter {
		return f.missing, nil
	}
	missing, err := f.findMissing(ctx)
	if err != nil {
		return "", err
	}
	f.checked, f.missing = now, missing
	return missing, nil
}

func (f *Fence) findMissing(ctx context.Context) (string, error) {
	key := client.ObjectKey{Name: v1alpha1.AgentPolicy}
	var policy admissionv1.ValidatingAdmissionPolicy
	if missing, err := missingText("ValidatingAdmissionPolicy", f.APIReader.Get(ctx, key, &policy)); missing != "" || err != nil {
		return missing, err
	}
	var binding admissionv1.ValidatingAdmissionPolicyBinding
	if missing, err := missingText("ValidatingAdmissionPolicyBinding", f.APIReader.Get(ctx, key, &binding)); missing != "" || err != nil {
		return missing, err
	}
	if binding.Spec.PolicyName != v1alpha1.AgentPolicy || !slices.Contains(binding.Spec.ValidationActions, admissionv1.Deny) {
		return fmt.Sprintf("ValidatingAdmissionPolicyBinding %s does not enforce the policy of the same name: apply the operator's manifest again", key.Name), nil
	}
	return "", nil
}

func missingText(kind string, err error) (string, error) {
	switch {
	case err == nil:
		return "", nil
	case meta.IsNoMatchError(err):
		return fmt.Sprintf("this cluster does not serve %s: upgrade to Kubernetes 1.30 or newer", kind), nil
	case apierrors.IsNotFound(err):
		return fmt.Sprintf("%s %s is missing: apply the operator's manifest again", kind, v1alpha1.AgentPolicy), nil
	}
	return "", fmt.Errorf("get %s %s: %w", kind, v1alpha1.AgentPolicy, err)
}
