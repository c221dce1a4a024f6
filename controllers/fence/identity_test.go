package fence

import (
	"context"
	"errors"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/storageclient/operator/test/check"
)

func TestTheManagerStartsOnlyAsTheAccountThatThePoliciesLimit(t *testing.T) {
	reviews := schema.GroupResource{Group: "authentication.k8s.io", Resource: "selfsubjectreviews"}
	for name, test := range map[string]struct {
		user   string
		err    error
		errors []string
	}{
		"its own service account":                {user: managerUser},
		"a user outside the cluster":             {user: "kubernetes-admin"},
		"the cluster does not report the name":   {err: apierrors.NewForbidden(reviews, "", nil)},
		"the cluster does not serve the review":  {err: apierrors.NewNotFound(reviews, "")},
		"the cluster does not have the review":   {err: &meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: reviews.Group, Kind: "SelfSubjectReview"}}},
		"the API server does not respond":        {err: errors.New("connection refused"), errors: []string{"create SelfSubjectReview: connection refused"}},
		"a service account with a prefix":        {user: "system:serviceaccount:storage-client-system:a-storage-client-manager", errors: []string{"ServiceAccount storage-client-system/a-storage-client-manager,", "ServiceAccount storage-client-system/storage-client-manager,", "remove namePrefix"}},
		"a service account with a suffix":        {user: managerUser + "-a", errors: []string{"ServiceAccount storage-client-system/storage-client-manager-a,"}},
		"a service account in another namespace": {user: "system:serviceaccount:a:storage-client-manager", errors: []string{"ServiceAccount a/storage-client-manager,"}},
	} {
		t.Run(name, func(t *testing.T) {
			scheme := runtime.NewScheme()
			check.NoError(t, authenticationv1.AddToScheme(scheme))
			c := fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(interceptor.Funcs{
				Create: func(_ context.Context, _ client.WithWatch, object client.Object, _ ...client.CreateOption) error {
					object.(*authenticationv1.SelfSubjectReview).Status.UserInfo.Username = test.user
					return test.err
				},
			}).Build()
			err := CheckManager(t.Context(), c)
			if (err != nil) != (len(test.errors) > 0) {
				t.Fatalf("got error %v, want one: %t", err, len(test.errors) > 0)
			}
			for _, part := range test.errors {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("got error %v, want %q in it", err, part)
				}
			}
		})
	}
}
