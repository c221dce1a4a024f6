// Package objects lists objects of the cluster without copies: the objects of a manager's cache, which all readers share.
package objects

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// All lists objects, which the caller must not change. If reader is a client from ShareCache, the objects belong to the cache. An ordinary list
// contains shallow copies: with tens of thousands of objects, these are tens of megabytes in each pass. The type of list determines the kind.
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
			return fmt.Errorf("unexpected item %T in %T", item, list)
		}
		out = append(out, object)
		return nil
	})
}

// objectsOf returns the objects of a namespace; an empty one stands for all.
func objectsOf[T client.Object](objects []any, namespace string) ([]T, error) {
	out := make([]T, 0, len(objects))
	for _, cached := range objects {
		object, ok := cached.(T)
		if !ok {
			return nil, fmt.Errorf("cache contains %T, not %T", cached, *new(T))
		}
		if namespace == "" || object.GetNamespace() == namespace {
			out = append(out, object)
		}
	}
	return out, nil
}

// maxWait is the longest time for which a read waits for the client's own writes. A webhook can hold a write for 30 seconds.
const maxWait = 10 * time.Second

// ShareCache creates a manager's client whose cached objects All can use without copies. It is a client.NewClientFunc.
func ShareCache(config *rest.Config, options client.Options) (client.Client, error) {
	cached, err := client.New(config, options)
	if err != nil {
		return nil, fmt.Errorf("create client: %w", err)
	}
	informers, ok := options.Cache.Reader.(cache.Informers)
	if !ok {
		return nil, fmt.Errorf("%T has no informers", options.Cache.Reader)
	}
	separate := func() (client.Client, error) { return ShareCache(config, options) }
	return &sharingClient{Client: cached, informers: informers, separate: separate, maxWait: maxWait}, nil
}

// Separate returns a client with the cache of a client from ShareCache, whose reads wait only for its own writes. With a client for each
// controller, a webhook that holds the write of one controller does not delay the others.
func Separate(c client.Client) (client.Client, error) {
	sharing, ok := c.(*sharingClient)
	if !ok {
		return nil, fmt.Errorf("%T is not a client from ShareCache", c)
	}
	return sharing.separate()
}

// sharingClient lets All read the stores of the informers.
type sharingClient struct {
	client.Client

	informers cache.Informers
	separate  func() (client.Client, error)
	maxWait   time.Duration
}

// Get waits at most maxWait, as List does.
func (c *sharingClient) Get(ctx context.Context, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
	return c.bounded(ctx, object, func(ctx context.Context) error { return c.Client.Get(ctx, key, object, opts...) })
}

// List waits at most maxWait for the writes of the kind by this client.
func (c *sharingClient) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return c.bounded(ctx, list, func(ctx context.Context) error { return c.Client.List(ctx, list, opts...) })
}

func (c *sharingClient) bounded(ctx context.Context, object runtime.Object, read func(context.Context) error) error {
	bounded, cancel := context.WithTimeout(ctx, c.maxWait)
	defer cancel()
	err := read(bounded)
	if err == nil || bounded.Err() == nil || ctx.Err() != nil {
		return err
	}
	kind, _ := apiutil.GVKForObject(object, c.Scheme())
	return fmt.Errorf("read %s: the cache does not contain the latest writes of this controller after %s; trying again: %w", kind.Kind, c.maxWait, err)
}

// storeOf returns the store of all objects of a kind, once it contains the writes of this client. It is nil for lists with a label or field
// selector, and for kinds of which the cache contains only some namespaces: the client lists these.
func (c *sharingClient) storeOf(ctx context.Context, list client.ObjectList, opts []client.ListOption,
) (toolscache.Store, *client.ListOptions, error) {
	options := (&client.ListOptions{}).ApplyOptions(opts)
	if options.LabelSelector != nil || options.FieldSelector != nil {
		return nil, options, nil
	}
	kind, err := apiutil.GVKForObject(list, c.Scheme())
	if err != nil {
		return nil, nil, fmt.Errorf("get kind of %T: %w", list, err)
	}
	kind.Kind = strings.TrimSuffix(kind.Kind, "List")
	var informer cache.Informer
	if _, ok := list.(*metav1.PartialObjectMetadataList); ok {
		object := &metav1.PartialObjectMetadata{}
		object.SetGroupVersionKind(kind)
		informer, err = c.informers.GetInformer(ctx, object)
	} else {
		informer, err = c.informers.GetInformerForKind(ctx, kind)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("cache %s: %w", kind.Kind, err)
	}
	whole, ok := informer.(toolscache.SharedIndexInformer)
	if !ok {
		return nil, options, nil
	}
	// A list of one object waits for the writes.
	return whole.GetIndexer(), options, c.List(ctx, list, append(slices.Clone(opts), client.UnsafeDisableDeepCopy, client.Limit(1))...)
}

// ListVersions requests only the resource versions of all objects of a kind from the API server, by name: objects of the same version are equal.
// kind is the kind of the list, for objects without a namespace.
func ListVersions(ctx context.Context, live client.Reader, kind schema.GroupVersionKind) (map[string]string, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind)
	if err := live.List(ctx, list); err != nil {
		return nil, fmt.Errorf("list the versions of %ss: %w", strings.TrimSuffix(kind.Kind, "List"), err)
	}
	versions := make(map[string]string, len(list.Items))
	for i := range list.Items {
		versions[list.Items[i].Name] = list.Items[i].ResourceVersion
	}
	return versions, nil
}

// FindOutdated returns the names of objects whose known version is not current: the object is newer, new or gone.
func FindOutdated[T client.Object](versions map[string]string, known map[string]T) sets.Set[string] {
	out := sets.New[string]()
	for name, version := range versions {
		if object, found := known[name]; !found || object.GetResourceVersion() != version {
			out.Insert(name)
		}
	}
	for name := range known {
		if _, found := versions[name]; !found {
			out.Insert(name)
		}
	}
	return out
}
