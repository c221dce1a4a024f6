package fence

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

// cluster simulates the API server. It holds objects and responds to agents.
type cluster struct {
	client.Reader
	policyErr, bindingErr, listErr error
	policy                         admissionv1.ValidatingAdmissionPolicy
	binding                        admissionv1.ValidatingAdmissionPolicyBinding
	clientNodes                    []v1alpha1.StorageClientNode
	reads, lists                   int

	// results contains the error of each request. Requests without an entry are admitted.
	results  map[string]error
	requests []string
}

func (c *cluster) Get(_ context.Context, _ client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	c.reads++
	switch object := object.(type) {
	case *admissionv1.ValidatingAdmissionPolicy:
		*object = c.policy
		return c.policyErr
	case *admissionv1.ValidatingAdmissionPolicyBinding:
		*object = c.binding
		return c.bindingErr
	}
	return errors.New("not asked for")
}

func (c *cluster) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	c.lists++
	list.(*v1alpha1.StorageClientNodeList).Items = c.clientNodes
	return c.listErr
}

// agent returns a client that responds to the writes of a node's agent and records them.
func (c *cluster) agent(node string) (client.Client, error) {
	respond := func(target string, object client.Object, patch client.Patch, dryRun []string) error {
		data, err := patch.Data(object)
		if err != nil {
			return err
		}
		request := fmt.Sprintf("%s: %s of %s: %s", node, target, object.GetName(), data)
		c.requests = append(c.requests, request)
		if !cmp.Equal(dryRun, []string{metav1.DryRunAll}) {
			return errors.New("not a dry run")
		}
		for part, err := range c.results {
			if strings.HasPrefix(request, part) {
				return err
			}
		}
		return nil
	}
	return fake.NewClientBuilder().WithScheme(runtime.NewScheme()).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(_ context.Context, _ client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			return respond("object", object, patch, (&client.PatchOptions{}).ApplyOptions(options).DryRun)
		},
		SubResourcePatch: func(_ context.Context, _ client.Client, name string, object client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
			return respond(name, object, patch, (&client.SubResourcePatchOptions{}).ApplyOptions(options).DryRun)
		},
	}).Build(), nil
}

const (
	own      = `a: status of a: {"status":{"hash":`
	others   = `a.other: status of a: {"status":{"hash":`
	note     = `a: status of a: {"status":{"rollout":`
	spec     = `a: object of a: {"spec":`
	metadata = `a: object of a: {"metadata":`
)

func forbidden(reason string) error {
	return apierrors.NewForbidden(schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "storageclientnodes"}, "a", errors.New(reason))
}

var (
	byPolicy = forbidden("ValidatingAdmissionPolicy 'storage-client-node-agent' with binding 'storage-client-node-agent' denied request: no")
	byRole   = forbidden(`User "system:serviceaccount:storage-client-agent:storage-client-node-agent" cannot patch resource`)
	byOther  = forbidden("ValidatingAdmissionPolicy 'other' with binding 'storage-client-node-agent' denied request: no")
)

// fenced returns a cluster with an effective fence and one StorageClientNode.
func fenced() *cluster {
	c := &cluster{results: map[string]error{others: byPolicy, note: byPolicy, spec: byRole, metadata: byRole}}
	c.clientNodes = []v1alpha1.StorageClientNode{{ObjectMeta: metav1.ObjectMeta{Name: "a"}}}
	c.policy.ResourceVersion, c.binding.ResourceVersion = "1", "1"
	c.binding.Spec = admissionv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: v1alpha1.AgentPolicy, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
	}
	return c
}

func newFence(c *cluster) (*Fence, *testclock.FakeClock) {
	clock := testclock.NewFakeClock(time.Unix(1000, 0))
	return &Fence{APIReader: c, AsAgent: c.agent, Clock: clock}, clock
}

func TestMissingReportsMissingParts(t *testing.T) {
	notFound := apierrors.NewNotFound(schema.GroupResource{}, v1alpha1.AgentPolicy)
	labelled := &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
	named := []admissionv1.NamedRuleWithOperations{{ResourceNames: []string{"a"}}}
	for name, test := range map[string]struct {
		change func(*cluster)
		want   string
	}{
		"it holds":                         {func(*cluster) {}, ""},
		"the API is not served":            {func(c *cluster) { c.policyErr = &meta.NoKindMatchError{} }, "1.30"},
		"the policy is missing":            {func(c *cluster) { c.policyErr = notFound }, "ValidatingAdmissionPolicy storage-client-node-agent is missing"},
		"the binding is missing":           {func(c *cluster) { c.bindingErr = notFound }, "ValidatingAdmissionPolicyBinding storage-client-node-agent is missing"},
		"the binding only audits":          {func(c *cluster) { c.binding.Spec.ValidationActions[0] = admissionv1.Audit }, "does not enforce"},
		"the binding is of another policy": {func(c *cluster) { c.binding.Spec.PolicyName = "other" }, "does not enforce"},
		"the policy selects by label": {
			func(c *cluster) {
				c.policy.Spec.MatchConstraints = &admissionv1.MatchResources{ObjectSelector: labelled}
			}, "ValidatingAdmissionPolicy storage-client-node-agent excludes some"},
		"the binding selects by label": {
			func(c *cluster) {
				c.binding.Spec.MatchResources = &admissionv1.MatchResources{ObjectSelector: labelled}
			}, "ValidatingAdmissionPolicyBinding storage-client-node-agent excludes some"},
		"the binding is about one object": {
			func(c *cluster) {
				c.binding.Spec.MatchResources = &admissionv1.MatchResources{ResourceRules: named}
			}, "excludes some"},
		"the binding excludes one object": {
			func(c *cluster) {
				c.binding.Spec.MatchResources = &admissionv1.MatchResources{ExcludeResourceRules: named}
			}, "excludes some"},
		"the binding explicitly matches everything": {
			func(c *cluster) {
				c.binding.Spec.MatchResources = &admissionv1.MatchResources{ObjectSelector: &metav1.LabelSelector{}}
			}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := fenced()
			test.change(c)
			fence, _ := newFence(c)
			got, err := fence.Missing(t.Context())
			if err != nil || (test.want == "") != (got == "") || !strings.Contains(got, test.want) {
				t.Errorf("got %q, %v, want %q", got, err, test.want)
			}
		})
	}
}

func TestMissingReportsWrongResponses(t *testing.T) {
	impersonation := apierrors.NewForbidden(schema.GroupResource{Resource: "serviceaccounts"}, v1alpha1.AgentServiceAccount,
		errors.New(`User "m" cannot impersonate resource "serviceaccounts" in API group "" in the namespace "storage-client-agent"`))
	for name, test := range map[string]struct {
		question string
		answer   error
		want     string
	}{
		"the agent's own status is rejected":                  {own, byPolicy, "an agent may not write the status of its StorageClientNode"},
		"the agent's own status is found invalid":             {own, apierrors.NewInvalid(schema.GroupKind{}, "a", nil), "an agent may not write the status of its"},
		"the manager may not impersonate":                     {own, impersonation, "may not impersonate"},
		"the manager may not impersonate another node":        {others, impersonation, "may not impersonate"},
		"another node's status is admitted":                   {others, nil, "an agent may write the status of another node's"},
		"another node's status is rejected by the role":       {others, byRole, "was rejected for another reason"},
		"another node's status is rejected by another policy": {others, byOther, "was rejected for another reason"},
		"status.rollout is admitted":                          {note, nil, "status.rollout"},
		"status.rollout is rejected by another policy":        {note, byOther, "was rejected for another reason"},
		"spec is admitted":                                    {spec, nil, "write the spec"},
		"spec is rejected by the policy, as valid as by role": {spec, byPolicy, ""},
		"spec is not rejected but invalid":                    {spec, apierrors.NewInvalid(schema.GroupKind{}, "a", nil), "was rejected for another reason"},
		"metadata is admitted":                                {metadata, nil, "write the metadata"},
	} {
		t.Run(name, func(t *testing.T) {
			c := fenced()
			c.results[test.question] = test.answer
			fence, _ := newFence(c)
			got, err := fence.Missing(t.Context())
			if err != nil || (test.want == "") != (got == "") || !strings.Contains(got, test.want) {
				t.Errorf("got %q, %v, want %q", got, err, test.want)
			}
			if got != "" && !strings.Contains(got, applyAgain) {
				t.Errorf("got %q, want the action in it", got)
			}
		})
	}
}

func TestQuestionsChangeSomething(t *testing.T) {
	c := fenced()
	c.clientNodes[0].Spec.Release = true
	c.clientNodes[0].Status.Rollout = &v1alpha1.RolloutStatus{Attempts: 2}
	fence, _ := newFence(c)
	if _, err := fence.Missing(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := []string{
		own + `"trial-of-the-fence"}}`,
		others + `"trial-of-the-fence"}}`,
		note + `{"attempts":3}}}`,
		spec + `{"release":false}}`,
		metadata + `{"annotations":{"tuning.storageclient.dev/paused":"trial-of-the-fence"}}}`,
	}
	check.Equal(t, "requests", want, c.requests)
}

func TestAnErrorIsNoResult(t *testing.T) {
	for name, fail := range map[string]func(*cluster){
		"the policy cannot be read":  func(c *cluster) { c.policyErr = errors.New("refused") },
		"the binding cannot be read": func(c *cluster) { c.bindingErr = errors.New("refused") },
		"no client node can be read": func(c *cluster) { c.listErr = errors.New("refused") },
		"the network":                func(c *cluster) { c.results[own] = errors.New("connection refused") },
		"an overload":                func(c *cluster) { c.results[others] = apierrors.NewTooManyRequests("later", 1) },
		"an expired token":           func(c *cluster) { c.results[own] = apierrors.NewUnauthorized("the token has expired") },
		"a token that just expired":  func(c *cluster) { c.results[others] = apierrors.NewUnauthorized("the token has expired") },
		"an object that has gone":    func(c *cluster) { c.results[spec] = apierrors.NewNotFound(schema.GroupResource{}, "a") },
	} {
		t.Run(name, func(t *testing.T) {
			c, healthy := fenced(), fenced()
			fail(c)
			fence, _ := newFence(c)
			if missing, err := fence.Missing(t.Context()); err == nil {
				t.Fatalf("got no error, but %q", missing)
			}
			c.policyErr, c.bindingErr, c.listErr = nil, nil, nil
			maps.DeleteFunc(c.results, func(string, error) bool { return true })
			maps.Copy(c.results, healthy.results)
			if missing, err := fence.Missing(t.Context()); missing != "" || err != nil {
				t.Errorf("later: %q, %v", missing, err)
			}
		})
	}
}

func TestTheFenceIsTestedAgain(t *testing.T) {
	c := fenced()
	fence, clock := newFence(c)
	ask := func() string {
		t.Helper()
		c.requests = nil
		missing, err := fence.Missing(t.Context())
		check.NoError(t, err)
		return missing
	}
	expect := func(moment string, trials bool, reads int) {
		t.Helper()
		if got := len(c.requests) > 0; got != trials {
			t.Errorf("%s: got trials %t, want %t", moment, got, trials)
		}
		if c.reads != reads {
			t.Errorf("%s: got %d reads of policy and binding, want %d", moment, c.reads, reads)
		}
	}
	ask()
	expect("at first", true, 2)
	ask()
	expect("at once", false, 2)
	clock.Step(RecheckAfter)
	ask()
	expect("after half a minute", false, 4)
	clock.Step(RecheckAfter)
	c.policy.ResourceVersion = "2"
	ask()
	expect("another policy", true, 6)
	clock.Step(RecheckAfter)
	c.binding.UID = "another"
	ask()
	expect("another binding", true, 8)
	clock.Step(TryAfter - time.Second)
	ask()
	expect("nearly an hour later", false, 10)
	clock.Step(time.Second)
	c.results[others] = nil
	if ask() == "" {
		t.Error("after an hour: got the fence still effective, want it missing")
	}
	c.results[others] = byPolicy
	if ask() == "" {
		t.Error("got another trial immediately, want none")
	}
	clock.Step(RecheckAfter)
	if ask() != "" {
		t.Error("half a minute later: got the fence missing, want it effective again")
	}
	clock.Step(RecheckAfter)
	c.policyErr = apierrors.NewNotFound(schema.GroupResource{}, "x")
	if ask() == "" {
		t.Error("got the fence effective without the policy")
	}
}

func TestMissingWithoutStorageClientNodes(t *testing.T) {
	c := fenced()
	none := c.clientNodes
	c.clientNodes = nil
	fence, _ := newFence(c)
	for range 2 {
		if missing, err := fence.Missing(t.Context()); missing != "" || err != nil || len(c.requests) > 0 {
			t.Fatalf("got %q, %v, requests %v", missing, err, c.requests)
		}
	}
	if c.reads != 2 || c.lists != 2 {
		t.Errorf("got %d reads of policy and binding and %d lists, want 2 and 2", c.reads, c.lists)
	}
	c.clientNodes, c.results[others] = none, nil
	if missing, err := fence.Missing(t.Context()); missing == "" || err != nil {
		t.Errorf("the first StorageClientNode: got %q, %v; want an immediate trial", missing, err)
	}
}
