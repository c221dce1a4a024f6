// Package objects lists objects of the cluster without copies: those that a manager's cache holds, as all who read share them.
package objects

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// All lists objects, which are not to be changed. If reader is a client that ShareCache has made, they are the cache's own: a list holds
// copies of all that an object is at its first level, which of tens of thousands are tens of megabytes for each pass. list tells the kind.
func All[T client.Object](ctx context.Context, reader client.Reader, list client.ObjectList, opts ...client.ListOption) ([]T, error) {
	if sharing, ok := reader.(*sharingClient); ok {
		store, options, err := sharing.storeOf(ctx, list, opts)
		if err != nil {
			return nil, err
		}
		if store != nil {
			return objectsOf[T](store.List(), options.Namespace)
		}
	}
	if err := reader.List(ctx, list, append(slices.Clone(opts), client.UnsafeDisableDeepCopy)...); err != nil {
		return nil, err
	}
	out := make([]T, 0, apimeta.LenList(list))
	return out, apimeta.EachListItem(list, func(item runtime.Object) error {
		object, ok := item.(T)
		if !ok {
			return fmt.Errorf("%T lists %T", list, item)
		}
		out = append(out, object)
		return nil
	})
}

// objectsOf returns those of a namespace; an empty one stands for all.
func objectsOf[T client.Object](objects []any, namespace string) ([]T, error) {
	out := make([]T, 0, len(objects))
	for _, cached := range objects {
		object, ok := cached.(T)
		if !ok {
			return nil, fmt.Errorf("the cache holds %T, not %T", cached, *new(T))
		}
		if namespace == "" || object.GetNamespace() == namespace {
			out = append(out, object)
		}
	}
	return out, nil
}

// ShareCache makes a manager's client of which All gets the cache's own objects. It is a client.NewClientFunc.
func ShareCache(config *rest.Config, options client.Options) (client.Client, error) {
	cached, err := client.New(config, options)
	if err != nil {
		return nil, fmt.Errorf("create client: %w", err)
	}
	informers, ok := options.Cache.Reader.(cache.Informers)
	if !ok {
		return nil, fmt.Errorf("%T has no informers", options.Cache.Reader)
	}
	return &sharingClient{Client: cached, informers: informers}, nil
}

// sharingClient has All read the informers' stores.
type sharingClient struct {
	client.Client

	informers cache.Informers
}

// storeOf returns the store that holds all objects of a kind, once it has what was written by this client. It is nil for a part of them by
// labels or fields, and for a kind of which the cache holds only some namespaces: the client lists these.
func (c *sharingClient) storeOf(ctx context.Context, list client.ObjectList, opts []client.ListOption) (toolscache.Store, *client.ListOptions, error) {
	options := (&client.ListOptions{}).ApplyOptions(opts)
	if options.LabelSelector != nil || options.FieldSelector != nil {
		return nil, options, nil
	}
	object, err := c.newObject(list)
	if err != nil {
		return nil, nil, err
	}
	informer, err := c.informers.GetInformer(ctx, object)
	if err != nil {
		return nil, nil, fmt.Errorf("cache %T: %w", object, err)
	}
	whole, ok := informer.(toolscache.SharedIndexInformer)
	if !ok {
		return nil, options, nil
	}
	// To list one waits for what was written.
	return whole.GetIndexer(), options, c.List(ctx, list, append(slices.Clone(opts), client.UnsafeDisableDeepCopy, client.Limit(1))...)
}

func (c *sharingClient) newObject(list client.ObjectList) (client.Object, error) {
	kind, err := apiutil.GVKForObject(list, c.Scheme())
	if err != nil {
		return nil, fmt.Errorf("kind of %T: %w", list, err)
	}
	kind.Kind = strings.TrimSuffix(kind.Kind, "List")
	if _, ok := list.(*metav1.PartialObjectMetadataList); ok {
		object := &metav1.PartialObjectMetadata{}
		object.SetGroupVersionKind(kind)
		return object, nil
	}
	created, err := c.Scheme().New(kind)
	if err != nil {
		return nil, fmt.Errorf("create %s: %w", kind.Kind, err)
	}
	object, ok := created.(client.Object)
	if !ok {
		return nil, fmt.Errorf("%T is no object", created)
	}
	return object, nil
}
