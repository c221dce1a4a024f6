//go:build attack

package attack

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/controllers/fence"
	"github.com/storageclient/operator/test/check"
)

// checkNames renders config/default with each transformer that renames objects, and starts the manager's check with the token of the
// renamed service account.
func checkNames(t *testing.T, c *cluster) {
	t.Helper()
	for _, test := range []struct{ name, transformer, want string }{
		{"without a transformer", "", ""},
		{"with a prefix", "namePrefix: team-", "ServiceAccount storage-client-system/team-storage-client-manager"},
		{"with a suffix", "nameSuffix: -team", "ServiceAccount storage-client-system/storage-client-manager-team"},
		{"with annotations", "commonAnnotations: {team: a}", ""},
		{"with another namespace", "namespace: other", "ServiceAccount other/storage-client-manager"},
	} {
		t.Run("the manager starts only as the account that the policies limit, "+test.name, func(t *testing.T) {
			account := accountOfManager(t, test.transformer)
			err := c.admin.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: account.Namespace, Name: account.Name}})
			check.NoError(t, client.IgnoreAlreadyExists(err))
			manager, err := client.New(c.withToken(t, account.Namespace, account.Name, nil), client.Options{Scheme: scheme})
			check.NoError(t, err)
			err = fence.CheckManager(t.Context(), manager)
			switch {
			case test.want == "" && err != nil:
				t.Errorf("got error %v, want none", err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "remove namePrefix")):
				t.Errorf("got error %v, want an error that names %s and the remedy", err, test.want)
			}
		})
	}
	t.Run("a manager outside the cluster starts", func(t *testing.T) { check.NoError(t, fence.CheckManager(t.Context(), c.admin)) })
}

// accountOfManager returns the manager's service account in manifests that kustomize renders with a transformer.
func accountOfManager(t *testing.T, transformer string) client.ObjectKey {
	t.Helper()
	objects := build(t, func(config string) string {
		if !strings.HasPrefix(transformer, "namespace:") {
			return fmt.Sprintf("resources: [%s/default]\n%s\n", config, transformer)
		}
		// kustomize rejects this transformer for several Namespaces, because all of them get one name.
		return fmt.Sprintf("resources: [%s/manager]\n%s\npatches: [{target: {kind: Namespace}, patch: '{kind: Namespace, apiVersion: v1, metadata: {name: a}, $patch: delete}'}]\n",
			config, transformer)
	})
	i := slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetKind() == "Deployment" })
	if i < 0 {
		t.Fatal("the manifests contain no Deployment")
	}
	deployment := convert[appsv1.Deployment](t, objects[i])
	return client.ObjectKey{Namespace: deployment.Namespace, Name: deployment.Spec.Template.Spec.ServiceAccountName}
}
