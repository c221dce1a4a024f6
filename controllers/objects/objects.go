// Package objects lists objects of the cluster without copies: those that a manager's cache holds, as all who read share them.
package objects

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// All lists objects, which are not to be changed. Those of a client that ShareCache has made are the cache's own: a list holds copies of all
// that an object is at its first level, which of tens of thousands are tens of megabytes for each pass. list tells the kind.
func All[T client.Object](ctx context.Context, reader client.Reader, list client.ObjectList, opts ...client.ListOption) ([]T, error) {
	wanted := &shareObjects{}
	if err := reader.List(ctx, list, slices.Concat(opts, []client.ListOption{wanted, client.UnsafeDisableDeepCopy})...); err != nil {
		return nil, err
	}
	if wanted.isAnswered {
		return objectsOf[T](wanted.objects)
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

func objectsOf[T client.Object](objects []any) ([]T, error) {
	out := make([]T, 0, len(objects))
	for _, cached := range objects {
		object, ok := cached.(T)
		if !ok {
			return nil, fmt.Errorf("the cache holds %T, not %T", cached, *new(T))
		}
		out = append(out, object)
	}
	return out, nil
}

// shareObjects is an option of All that a client which shares its cache answers.
type shareObjects struct {
	isAnswered bool
	objects    []any
}

// ApplyToList leaves the options as they are: whoever does not know of this one lists.
func (*shareObjects) ApplyToList(*client.ListOptions) {}

func sharingIn(opts []client.ListOption) *shareObjects {
	for _, option := range opts {
		if wanted, ok := option.(*shareObjects); ok {
			return wanted
		}
	}
	return nil
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
	return &sharingClient{Client: cached, informers: informers, stores: map[storeKey]lister{}}, nil
}

// sharingClient answers All out of the informers' stores.
type sharingClient struct {
	client.Client

	informers cache.Informers
	mutex     sync.Mutex
	stores    map[storeKey]lister
}

// storeKey is a kind, as whole objects or as their metadata.
type storeKey struct {
	kind       schema.GroupVersionKind
	isMetadata bool
}

// lister is an informer's store.
type lister interface{ List() []any }

// List lists as the client does that it embeds, which waits until the cache has what was written by it. The store is read after that.
func (c *sharingClient) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	wanted := sharingIn(opts)
	if wanted == nil {
		return c.Client.List(ctx, list, opts...)
	}
	options := (&client.ListOptions{}).ApplyOptions(opts)
	if options.LabelSelector != nil || options.FieldSelector != nil {
		return c.Client.List(ctx, list, opts...)
	}
	store, err := c.storeOf(ctx, list)
	if err != nil {
		return err
	}
	if err := c.Client.List(ctx, list, append(slices.Clone(opts), client.Limit(1))...); err != nil {
		return err
	}
	wanted.isAnswered, wanted.objects = true, store.List()
	if options.Namespace != "" {
		wanted.objects = slices.DeleteFunc(wanted.objects, func(object any) bool {
			namespaced, ok := object.(metav1.Object)
			return !ok || namespaced.GetNamespace() != options.Namespace
		})
	}
	return nil
}

func (c *sharingClient) storeOf(ctx context.Context, list client.ObjectList) (lister, error) {
	kind, err := apiutil.GVKForObject(list, c.Scheme())
	if err != nil {
		return nil, fmt.Errorf("kind of %T: %w", list, err)
	}
	kind.Kind = strings.TrimSuffix(kind.Kind, "List")
	_, isMetadata := list.(*metav1.PartialObjectMetadataList)
	key := storeKey{kind: kind, isMetadata: isMetadata}
	if known := c.keep(key, nil); known != nil {
		return known, nil
	}
	object, err := c.newObject(key)
	if err != nil {
		return nil, err
	}
	informer, err := c.informers.GetInformer(ctx, object)
	if err != nil {
		return nil, fmt.Errorf("cache %ss: %w", kind.Kind, err)
	}
	store, err := storeOfInformer(ctx, informer)
	if err != nil {
		return nil, fmt.Errorf("cache %ss: %w", kind.Kind, err)
	}
	return c.keep(key, store), nil
}

// keep knows the first store of a kind, and returns it. A kind that cannot be cached holds up nobody who asks for others.
func (c *sharingClient) keep(key storeKey, store lister) lister {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.stores[key] == nil && store != nil {
		c.stores[key] = store
	}
	return c.stores[key]
}

func (c *sharingClient) newObject(key storeKey) (client.Object, error) {
	if key.isMetadata {
		object := &metav1.PartialObjectMetadata{}
		object.SetGroupVersionKind(key.kind)
		return object, nil
	}
	created, err := c.Scheme().New(key.kind)
	if err != nil {
		return nil, fmt.Errorf("create %s: %w", key.kind, err)
	}
	object, ok := created.(client.Object)
	if !ok {
		return nil, fmt.Errorf("%T is no object", created)
	}
	return object, nil
}

// storeOfInformer is the store of an informer. One over some namespaces has none for all: for it there is one that watches, in which what was
// written a moment ago may not be yet.
func storeOfInformer(ctx context.Context, informer cache.Informer) (lister, error) {
	if whole, ok := informer.(toolscache.SharedIndexInformer); ok {
		return whole.GetIndexer(), nil
	}
	store := toolscache.NewStore(toolscache.MetaNamespaceKeyFunc)
	registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { _ = store.Add(object) },
		UpdateFunc: func(_, object any) { _ = store.Update(object) },
		DeleteFunc: func(object any) { _ = store.Delete(stateOf(object)) },
	})
	if err != nil {
		return nil, fmt.Errorf("watch: %w", err)
	}
	if !toolscache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
		return nil, errors.Join(ctx.Err(), informer.RemoveEventHandler(registration))
	}
	return store, nil
}

// stateOf is the object of an event, or its last known state where the event of its end was missed.
func stateOf(object any) any {
	if gone, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
		return gone.Obj
	}
	return object
}
