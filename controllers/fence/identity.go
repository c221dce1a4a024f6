package fence

import (
	"context"
	"fmt"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
)

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
	if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
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
