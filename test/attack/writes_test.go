//go:build attack

package attack

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
)

// Writes and reads of an actor, for the fields try and twin of an attack.

func merge(object client.Object, patch string) func(*actor) error {
	return func(a *actor) error {
		return a.client.Patch(a.ctx, copyOf(object), client.RawPatch(types.MergePatchType, []byte(patch)))
	}
}

func jsonPatch(object client.Object, patch string) func(*actor) error {
	return func(a *actor) error {
		return a.client.Patch(a.ctx, copyOf(object), client.RawPatch(types.JSONPatchType, []byte(patch)))
	}
}

func strategic(object client.Object, patch string) func(*actor) error {
	return func(a *actor) error {
		return a.client.Patch(a.ctx, copyOf(object), client.RawPatch(types.StrategicMergePatchType, []byte(patch)))
	}
}

func mergeStatus(object client.Object, patch string) func(*actor) error {
	return func(a *actor) error {
		return a.client.Status().Patch(a.ctx, copyOf(object), client.RawPatch(types.MergePatchType, []byte(patch)))
	}
}

func strategicStatus(object client.Object, patch string) func(*actor) error {
	return func(a *actor) error {
		return a.client.Status().Patch(a.ctx, copyOf(object), client.RawPatch(types.StrategicMergePatchType, []byte(patch)))
	}
}

func create(object client.Object) func(*actor) error {
	return func(a *actor) error { return a.client.Create(a.ctx, copyOf(object)) }
}

func remove(object client.Object) func(*actor) error {
	return func(a *actor) error { return a.client.Delete(a.ctx, copyOf(object)) }
}

// overwrite updates an object with a change.
func overwrite[T client.Object](object T, change func(T)) func(*actor) error {
	return func(a *actor) error {
		live := copyOf(object).(T)
		a.get(live)
		change(live)
		return a.client.Update(a.ctx, live)
	}
}

func get(object client.Object) func(*actor) error {
	return func(a *actor) error { return a.client.Get(a.ctx, client.ObjectKeyFromObject(object), copyOf(object)) }
}

func list(objects client.ObjectList, options ...client.ListOption) func(*actor) error {
	return func(a *actor) error {
		return a.client.List(a.ctx, objects.DeepCopyObject().(client.ObjectList), options...)
	}
}

func raw(method, path string) func(*actor) error {
	return func(a *actor) error { return a.raw(method, path) }
}

func evict(namespace, name string) func(*actor) error {
	return func(a *actor) error {
		pod := &corev1.Pod{ObjectMeta: named(namespace, name)}
		return a.client.SubResource("eviction").Create(a.ctx, pod, &policyv1.Eviction{ObjectMeta: pod.ObjectMeta})
	}
}

// inTurn runs several writes one after the other.
func inTurn(steps ...func(*actor) error) func(*actor) error {
	return func(a *actor) error {
		for _, step := range steps {
			if err := step(a); err != nil {
				return err
			}
		}
		return nil
	}
}

func copyOf(object client.Object) client.Object { return object.DeepCopyObject().(client.Object) }

func node(name string) *corev1.Node { return &corev1.Node{ObjectMeta: named("", name)} }

func clientNode(name string) *v1alpha1.StorageClientNode {
	return &v1alpha1.StorageClientNode{ObjectMeta: named("", name)}
}

func profile(name string) *v1alpha1.StorageClientProfile {
	return &v1alpha1.StorageClientProfile{ObjectMeta: named("", name)}
}

func volume(name string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{ObjectMeta: named("", name)}
}

func secret(namespace, name string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: named(namespace, name)}
}

func configMap(namespace, name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: named(namespace, name)}
}

// thing returns an unstructured object.
func thing(group, version, kind, namespace, name string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: version, Kind: kind})
	object.SetNamespace(namespace)
	object.SetName(name)
	return object
}

func admissionPolicy(name string) *unstructured.Unstructured {
	return thing("admissionregistration.k8s.io", "v1", "ValidatingAdmissionPolicy", "", name)
}

func admissionBinding(name string) *unstructured.Unstructured {
	return thing("admissionregistration.k8s.io", "v1", "ValidatingAdmissionPolicyBinding", "", name)
}

// impersonating runs a request as another user.
func impersonating(user string, groups []string, extra map[string][]string, do func(*actor) error) func(*actor) error {
	return func(a *actor) error {
		other := *a.world.newActor(a.t, a.config)
		other.config.Impersonate.UserName, other.config.Impersonate.Groups, other.config.Impersonate.Extra = user, groups, extra
		other = *a.world.newActor(a.t, other.config)
		return do(other.as(a.t))
	}
}

// onlyTry sends a write as a dry run.
func onlyTry(do func(*actor) error) func(*actor) error {
	return func(a *actor) error {
		b := *a
		b.client = dryRun{WithWatch: a.client, dry: client.NewDryRunClient(a.client)}
		return do(&b)
	}
}

// dryRun returns a client whose writes are dry runs.
type dryRun struct {
	client.WithWatch
	dry client.Client
}

func (d dryRun) Create(ctx context.Context, object client.Object, options ...client.CreateOption) error {
	return d.dry.Create(ctx, object, options...)
}

func (d dryRun) Patch(ctx context.Context, object client.Object, patch client.Patch, options ...client.PatchOption) error {
	return d.dry.Patch(ctx, object, patch, options...)
}

func (d dryRun) Status() client.SubResourceWriter { return d.dry.Status() }

// requestToken requests a token of a service account.
func requestToken(namespace, account, pod string) func(*actor) error {
	return func(a *actor) error {
		request := tokenRequest(nil)
		if pod != "" {
			request = tokenRequest(a.world.cluster.boundTo(a.t, namespace, pod))
		}
		return a.client.SubResource("token").Create(a.ctx, &corev1.ServiceAccount{ObjectMeta: named(namespace, account)}, request)
	}
}

// unchanged stops a write that the API server accepts but ignores: the value of the object is the same before and after.
func unchanged[T client.Object](object T, valueOf func(T) string, do func(*actor) error) func(*actor) error {
	return func(a *actor) error {
		before, after := copyOf(object).(T), copyOf(object).(T)
		a.get(before)
		if err := do(a); err != nil {
			return err
		}
		a.get(after)
		if valueOf(before) == valueOf(after) {
			return stopped{by: byKubernetes, message: "ignored: still " + valueOf(after)}
		}
		return nil
	}
}

func metadataOf[T client.Object](object T) string {
	return fmt.Sprint(object.GetLabels(), object.GetAnnotations(), object.GetFinalizers(), object.GetOwnerReferences())
}
