package memapi

import (
	"context"
	"errors"
	"fmt"
	"sync"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Call is one request of a client to the server. Reads from a cache are not calls.
type Call struct {
	// Actor is the owner of the client.
	Actor string
	// Verb is get, list, create, update, patch, delete or evict.
	Verb string
	Kind Kind
	// Name is the name of the object. Empty for a list, except for a list of the pods of a node, which has the name of the node.
	Name string
	// Status is true if the status is written. DryRun is true if the write is not stored.
	Status, DryRun bool
}

// IsWrite reports whether the call changes an object.
func (c Call) IsWrite() bool { return c.Verb != "get" && c.Verb != "list" && !c.DryRun }

// Fate is the result of a call.
type Fate int

const (
	// Answered means that the call takes effect, and its response arrives.
	Answered Fate = iota
	// Refused means that the call has no effect.
	Refused
	// Unanswered means that the call takes effect, and its response never arrives.
	Unanswered
	// Late means that the call takes effect at the next RunLate, after its caller has given up.
	Late
)

// Client is a client of a Server. It implements client.Client.
type Client struct {
	Server *Server
	// Actor is the owner of the client.
	Actor string
	// Cache serves the reads. The server does if it is nil.
	Cache *Cache
	// ReadsOwnWrites updates the cache with the writes of this client before each read.
	ReadsOwnWrites bool
	// Decide returns the fate of a call, and the error for its caller if that is not Answered. All calls are Answered if it is nil.
	Decide func(Call) (Fate, error)
	// Lock is held during each call and each read from the cache. Nil if only one goroutine uses the client and the server.
	Lock sync.Locker
	// Token is copied into each Write, even a late one. It identifies the knowledge of the caller at the time of the call.
	Token any
}

var _ client.Client = (*Client)(nil)

// errUnsupported is the error for requests that no reconciler makes.
var errUnsupported = errors.New("memapi does not support this")

func (c *Client) lock() (unlock func()) {
	if c.Lock == nil {
		return func() {}
	}
	c.Lock.Lock()
	return c.Lock.Unlock
}

// do makes a call with the given effect.
func (c *Client) do(ctx context.Context, call Call, effect func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	defer c.lock()()
	call.Actor = c.Actor
	fate, problem := Answered, error(nil)
	if c.Decide != nil {
		fate, problem = c.Decide(call)
	}
	effect = c.Server.tokened(c.Token, effect)
	switch fate {
	case Refused:
		return problem
	case Unanswered:
		if err := effect(); err != nil {
			return err
		}
		return problem
	case Late:
		c.Server.late = append(c.Server.late, func() { _ = effect() }) // Its caller has given up.
		return problem
	case Answered:
	}
	err := effect()
	if err == nil && call.IsWrite() && c.ReadsOwnWrites && c.Cache != nil {
		c.Cache.Advance(call.Kind, c.Cache.Behind(call.Kind))
	}
	return err
}

// Get implements client.Reader.
func (c *Client) Get(ctx context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	kind, err := kindOf(object)
	if err != nil {
		return err
	}
	read := func(from *table) error {
		found := from.get(key)
		if found == nil {
			return apierrors.NewNotFound(kind.resource(), key.Name)
		}
		copyInto(found, object)
		return nil
	}
	if c.Cache != nil {
		defer c.lock()()
		return read(&c.Cache.tables[kind])
	}
	return c.do(ctx, Call{Verb: "get", Kind: kind, Name: key.Name}, func() error { return read(&c.Server.tables[kind]) })
}

// List implements client.Reader.
func (c *Client) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	kind, metadata, err := listKind(list)
	if err != nil {
		return err
	}
	var options client.ListOptions
	options.ApplyOptions(opts)
	if options.Limit > 0 || options.Continue != "" {
		return fmt.Errorf("list %s in pages: %w", kind, errUnsupported)
	}
	read := func(from table) error {
		found, err := selectFrom(from, &options)
		if err != nil {
			return err
		}
		fill(list, found, metadata || (options.UnsafeDisableDeepCopy != nil && *options.UnsafeDisableDeepCopy))
		return nil
	}
	if c.Cache != nil {
		defer c.lock()()
		return read(c.Cache.tables[kind])
	}
	node := ""
	if options.FieldSelector != nil {
		node, _ = options.FieldSelector.RequiresExactMatch("spec.nodeName")
	}
	return c.do(ctx, Call{Verb: "list", Kind: kind, Name: node}, func() error { return read(c.Server.tables[kind]) })
}

// selectFrom selects by namespace, labels, and a pod's spec.nodeName.
func selectFrom(from table, options *client.ListOptions) ([]client.Object, error) {
	node, byNode := "", false
	if options.FieldSelector != nil && !options.FieldSelector.Empty() {
		if node, byNode = options.FieldSelector.RequiresExactMatch("spec.nodeName"); !byNode || len(options.FieldSelector.Requirements()) != 1 {
			return nil, fmt.Errorf("select by %s: %w", options.FieldSelector, errUnsupported)
		}
	}
	byLabels := options.LabelSelector != nil && !options.LabelSelector.Empty()
	if !byNode && !byLabels && options.Namespace == "" {
		return from, nil
	}
	var found []client.Object
	for _, object := range from {
		if options.Namespace != "" && object.GetNamespace() != options.Namespace {
			continue
		}
		if byNode {
			name, err := nodeNameOf(object)
			if err != nil {
				return nil, err
			}
			if name != node {
				continue
			}
		}
		if !byLabels || options.LabelSelector.Matches(labels.Set(object.GetLabels())) {
			found = append(found, object)
		}
	}
	return found, nil
}

// Create implements client.Writer.
func (c *Client) Create(ctx context.Context, object client.Object, opts ...client.CreateOption) error {
	kind, err := kindOf(object)
	if err != nil {
		return err
	}
	var options client.CreateOptions
	if options.ApplyOptions(opts); len(options.DryRun) > 0 || object.GetResourceVersion() != "" || object.GetName() == "" {
		return fmt.Errorf("create %s with these options: %w", kind, errUnsupported)
	}
	return c.do(ctx, Call{Verb: "create", Kind: kind, Name: object.GetName()}, func() error {
		stored := copyOf(object)
		switch kind {
		case Nodes, ClientNodes, Profiles, Pods, Budgets:
			takeStatus(emptyOf(kind), stored)
		case ConfigMaps, Namespaces, kinds:
		}
		if err := c.Server.create(c.Actor, kind, stored); err != nil {
			return err
		}
		copyInto(stored, object)
		return nil
	})
}

// Update implements client.Writer for objects without a status.
func (c *Client) Update(ctx context.Context, object client.Object, opts ...client.UpdateOption) error {
	kind, err := kindOf(object)
	if err != nil {
		return err
	}
	var options client.UpdateOptions
	if options.ApplyOptions(opts); len(options.DryRun) > 0 || kind != ConfigMaps {
		return fmt.Errorf("update %s with these options: %w", kind, errUnsupported)
	}
	return c.do(ctx, Call{Verb: "update", Kind: kind, Name: object.GetName()}, func() error {
		before := c.Server.tables[kind].get(client.ObjectKeyFromObject(object))
		switch {
		case before == nil:
			return apierrors.NewNotFound(kind.resource(), object.GetName())
		case object.GetResourceVersion() != "" && object.GetResourceVersion() != before.GetResourceVersion():
			return conflict(kind, object.GetName())
		}
		copyInto(c.Server.replace(c.Actor, kind, before, keepIdentity(before, copyOf(object)), false), object)
		return nil
	})
}

// Delete implements client.Writer.
func (c *Client) Delete(ctx context.Context, object client.Object, opts ...client.DeleteOption) error {
	kind, err := kindOf(object)
	if err != nil {
		return err
	}
	var options client.DeleteOptions
	if options.ApplyOptions(opts); len(options.DryRun) > 0 {
		return fmt.Errorf("delete %s with these options: %w", kind, errUnsupported)
	}
	return c.do(ctx, Call{Verb: "delete", Kind: kind, Name: object.GetName()}, func() error {
		before := c.Server.tables[kind].get(client.ObjectKeyFromObject(object))
		if before == nil {
			return apierrors.NewNotFound(kind.resource(), object.GetName())
		}
		if p := options.Preconditions; p != nil && !meets(before, p) {
			return conflict(kind, object.GetName())
		}
		c.Server.delete(c.Actor, kind, before, false)
		return nil
	})
}

func meets(object client.Object, p *metav1.Preconditions) bool {
	return (p.UID == nil || *p.UID == object.GetUID()) && (p.ResourceVersion == nil || *p.ResourceVersion == object.GetResourceVersion())
}

// Patch implements client.Writer.
func (c *Client) Patch(ctx context.Context, object client.Object, patch client.Patch, opts ...client.PatchOption) error {
	var options client.PatchOptions
	if options.ApplyOptions(opts); len(options.DryRun) > 0 {
		return fmt.Errorf("patch %T with these options: %w", object, errUnsupported)
	}
	return c.patch(ctx, object, patch, false)
}

func (c *Client) patch(ctx context.Context, object client.Object, patch client.Patch, status bool) error {
	kind, err := kindOf(object)
	if err != nil {
		return err
	}
	// A late call must not change with the object of its caller.
	wanted := copyOf(object)
	return c.do(ctx, Call{Verb: "patch", Kind: kind, Name: object.GetName(), Status: status}, func() error {
		before := c.Server.tables[kind].get(client.ObjectKeyFromObject(wanted))
		if before == nil {
			return apierrors.NewNotFound(kind.resource(), wanted.GetName())
		}
		after, err := patched(kind, before, wanted, patch, status)
		if err != nil {
			return err
		}
		copyInto(c.Server.replace(c.Actor, kind, before, after, false), object)
		return nil
	})
}

// DeleteAllOf implements client.Writer.
func (c *Client) DeleteAllOf(context.Context, client.Object, ...client.DeleteAllOfOption) error {
	return errUnsupported
}

// Apply implements client.Writer.
func (c *Client) Apply(context.Context, runtime.ApplyConfiguration, ...client.ApplyOption) error {
	return errUnsupported
}

// Scheme implements client.Client.
func (c *Client) Scheme() *runtime.Scheme { return runtime.NewScheme() }

// RESTMapper implements client.Client.
func (c *Client) RESTMapper() meta.RESTMapper { return meta.NewDefaultRESTMapper(nil) }

// GroupVersionKindFor implements client.Client.
func (c *Client) GroupVersionKindFor(runtime.Object) (schema.GroupVersionKind, error) {
	return schema.GroupVersionKind{}, errUnsupported
}

// IsObjectNamespaced implements client.Client.
func (c *Client) IsObjectNamespaced(runtime.Object) (bool, error) { return false, errUnsupported }

// Status implements client.Client.
func (c *Client) Status() client.SubResourceWriter { return subresource{c, "status"} }

// SubResource implements client.Client for status and eviction.
func (c *Client) SubResource(name string) client.SubResourceClient { return subresource{c, name} }

type subresource struct {
	*Client

	name string
}

// Get implements client.SubResourceReader.
func (s subresource) Get(context.Context, client.Object, client.Object, ...client.SubResourceGetOption) error {
	return errUnsupported
}

// Create implements client.SubResourceWriter for evictions.
func (s subresource) Create(ctx context.Context, object, body client.Object, opts ...client.SubResourceCreateOption) error {
	eviction, ok := body.(*policyv1.Eviction)
	if s.name != "eviction" || !ok {
		return fmt.Errorf("create %T as %s: %w", body, s.name, errUnsupported)
	}
	var options client.SubResourceCreateOptions
	options.ApplyOptions(opts)
	dryRun := len(options.DryRun) > 0 || (eviction.DeleteOptions != nil && len(eviction.DeleteOptions.DryRun) > 0)
	call := Call{Verb: "evict", Kind: Pods, Name: object.GetName(), DryRun: dryRun}
	key := client.ObjectKeyFromObject(object)
	return s.do(ctx, call, func() error { return s.Server.evict(s.Actor, key, eviction.DeleteOptions, dryRun) })
}

// Update implements client.SubResourceWriter.
func (s subresource) Update(context.Context, client.Object, ...client.SubResourceUpdateOption) error {
	return errUnsupported
}

// Patch implements client.SubResourceWriter for status.
func (s subresource) Patch(ctx context.Context, object client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
	var options client.SubResourcePatchOptions
	if options.ApplyOptions(opts); len(options.DryRun) > 0 || s.name != "status" || options.SubResourceBody != nil {
		return fmt.Errorf("patch %s of %T with these options: %w", s.name, object, errUnsupported)
	}
	return s.patch(ctx, object, patch, true)
}

// Apply implements client.SubResourceWriter.
func (s subresource) Apply(context.Context, runtime.ApplyConfiguration, ...client.SubResourceApplyOption) error {
	return errUnsupported
}

func conflict(kind Kind, name string) error {
	return apierrors.NewConflict(kind.resource(), name, errors.New("the object has been modified"))
}

// keepIdentity copies the fields that only the server writes.
func keepIdentity(before, after client.Object) client.Object {
	after.SetUID(before.GetUID())
	after.SetCreationTimestamp(before.GetCreationTimestamp())
	after.SetDeletionTimestamp(before.GetDeletionTimestamp())
	return after
}
