package daemonset

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
)

// reader answers Get for the policy and its binding.
type reader struct {
	client.Reader
	policy, binding error
	bound           admissionv1.ValidatingAdmissionPolicyBindingSpec
	reads           int
}

func (r *reader) Get(_ context.Context, _ client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	r.reads++
	switch object := object.(type) {
	case *admissionv1.ValidatingAdmissionPolicy:
		return r.policy
	case *admissionv1.ValidatingAdmissionPolicyBinding:
		object.Spec = r.bound
		return r.binding
	}
	return errors.New("not asked for")
}

var denies = admissionv1.ValidatingAdmissionPolicyBindingSpec{
	PolicyName: v1alpha1.AgentPolicy, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
}

func TestFence(t *testing.T) {
	notFound := apierrors.NewNotFound(schema.GroupResource{}, v1alpha1.AgentPolicy)
	for name, test := range map[string]struct {
		reader *reader
		want   string
	}{
		"it stands":                        {reader: &reader{bound: denies}},
		"the API is not served":            {reader: &reader{policy: &meta.NoKindMatchError{}}, want: "1.30"},
		"the policy is missing":            {reader: &reader{policy: notFound}, want: "ValidatingAdmissionPolicy storage-client-node-agent is missing"},
		"the binding is missing":           {reader: &reader{binding: notFound}, want: "ValidatingAdmissionPolicyBinding storage-client-node-agent is missing"},
		"the binding only audits":          {reader: &reader{bound: admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: v1alpha1.AgentPolicy, ValidationActions: []admissionv1.ValidationAction{admissionv1.Audit}}}, want: "does not enforce"},
		"the binding is of another policy": {reader: &reader{bound: admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: "other", ValidationActions: denies.ValidationActions}}, want: "does not enforce"},
	} {
		t.Run(name, func(t *testing.T) {
			fence := &Fence{APIReader: test.reader, Clock: testclock.NewFakeClock(time.Unix(1000, 0))}
			got, err := fence.Missing(t.Context())
			if err != nil || (test.want == "") != (got == "") || !strings.Contains(got, test.want) {
				t.Errorf("got %q, %v, want %q", got, err, test.want)
			}
		})
	}
}

func TestFenceAsksAgainAfterAWhile(t *testing.T) {
	clock := testclock.NewFakeClock(time.Unix(1000, 0))
	api := &reader{bound: denies}
	fence := &Fence{APIReader: api, Clock: clock}
	ask := func() string {
		missing, err := fence.Missing(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return missing
	}
	ask()
	api.policy = apierrors.NewNotFound(schema.GroupResource{}, "x")
	if ask() != "" || api.reads != 2 {
		t.Errorf("asked the API server again at once: %d reads", api.reads)
	}
	clock.Step(RecheckAfter)
	if ask() == "" {
		t.Error("did not notice that the policy is gone")
	}
}

func TestFenceThatCannotBeReadIsAnErrorAndNotRemembered(t *testing.T) {
	api := &reader{policy: errors.New("refused")}
	fence := &Fence{APIReader: api, Clock: testclock.NewFakeClock(time.Unix(1000, 0))}
	if _, err := fence.Missing(t.Context()); err == nil {
		t.Error("no error")
	}
	api.policy, api.bound = nil, denies
	if missing, err := fence.Missing(t.Context()); missing != "" || err != nil {
		t.Errorf("got %q, %v", missing, err)
	}
}
