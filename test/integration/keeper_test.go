package integration

import (
	"context"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/storageclient/operator/api/v1alpha1"
)

func intOrString(text string) intstr.IntOrString { return intstr.Parse(text) }

// retryUpdate changes a profile as a user would, and retries on conflicts.
func retryUpdate(name string, change func(*v1alpha1.StorageClientProfile)) error {
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		object := &v1alpha1.StorageClientProfile{}
		if err := k8s.Get(ctx, client.ObjectKey{Name: name}, object); err != nil {
			return err
		}
		change(object)
		return k8s.Update(ctx, object)
	})
}

// setAnnotation sets an annotation to a JSON value; null removes it.
func setAnnotation(object client.Object, key, value string) {
	GinkgoHelper()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, key, value)
	target := object.DeepCopyObject().(client.Object)
	Expect(k8s.Patch(ctx, target, client.RawPatch(types.MergePatchType, []byte(patch)))).To(Succeed())
}

// cutLast splits off the description after " on ".
func cutLast(text string) (key, where string, found bool) { return strings.Cut(text, " on ") }

// staleReads returns a client whose StorageClientNode changes before each patch.
func staleReads(change func()) client.WithWatch {
	return interceptor.NewClient(k8s, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if _, isClientNode := object.(*v1alpha1.StorageClientNode); isClientNode {
				change()
			}
			return c.Patch(ctx, object, patch, opts...)
		},
	})
}
