package memapi

import (
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Write is one change of an object.
type Write struct {
	// Actor is the client that made it.
	Actor string
	Kind  Kind
	// Before is nil for a new object, After for a removed one. Neither must be changed.
	Before, After client.Object
	// Eviction is true if an eviction requested the deletion of a pod.
	Eviction bool
	// Token is the Token of the client at the time of the call.
	Token any
}

// Server holds the objects.
type Server struct {
	// Now returns the time of the server.
	Now func() time.Time
	// Observe is called after each change, if it is set.
	Observe func(Write)
	// Prune removes the fields of a new version that the definitions of the server do not have. It may be nil.
	Prune func(client.Object)

	tables   [kinds]table
	changes  [kinds][]change
	revision int
	uids     int
	late     []func()
	token    any
}

// NewServer returns a server without objects.
func NewServer(now func() time.Time) *Server { return &Server{Now: now} }

// Get returns an object that must not be changed. Nil if there is none.
func (s *Server) Get(kind Kind, namespace, name string) client.Object {
	return s.tables[kind].get(types.NamespacedName{Namespace: namespace, Name: name})
}

// All returns the objects of a kind, sorted by name. They must not be changed.
func (s *Server) All(kind Kind) []client.Object { return s.tables[kind] }

// Add creates an object with its status and returns the stored object.
func (s *Server) Add(actor string, object client.Object) client.Object {
	kind, err := kindOf(object)
	if err != nil {
		panic(err)
	}
	stored := copyOf(object)
	if err := s.create(actor, kind, stored); err != nil {
		panic(err)
	}
	return stored
}

// Change changes any part of an object and reports whether the object exists. It ignores resource versions.
func Change[T client.Object](s *Server, actor string, object T, change func(T)) bool {
	kind, err := kindOf(object)
	if err != nil {
		panic(err)
	}
	before := s.tables[kind].get(client.ObjectKeyFromObject(object))
	if before == nil {
		return false
	}
	after := copyOf(before).(T)
	change(after)
	s.replace(actor, kind, before, after, false)
	return true
}

// Delete deletes an object once its finalizers, or the grace period of a pod, permit it.
func (s *Server) Delete(actor string, object client.Object) {
	kind, err := kindOf(object)
	if err != nil {
		panic(err)
	}
	if before := s.tables[kind].get(client.ObjectKeyFromObject(object)); before != nil {
		s.delete(actor, kind, before, false)
	}
}

// Remove removes an object immediately, as a kubelet does with a finished pod.
func (s *Server) Remove(actor string, object client.Object) {
	kind, err := kindOf(object)
	if err != nil {
		panic(err)
	}
	if before := s.tables[kind].get(client.ObjectKeyFromObject(object)); before != nil {
		s.store(Write{Actor: actor, Kind: kind, Before: before})
	}
}

// RunLate runs the calls that were in progress when their callers gave up.
func (s *Server) RunLate() {
	late := s.late
	s.late = nil
	for _, call := range late {
		call()
	}
}

// tokened returns the effect of a call with the token in its writes.
func (s *Server) tokened(token any, effect func() error) func() error {
	if token == nil {
		return effect
	}
	return func() error {
		before := s.token
		s.token = token
		defer func() { s.token = before }()
		return effect()
	}
}

// NewUID returns an unused UID.
func (s *Server) NewUID() types.UID {
	s.uids++
	return types.UID("uid-" + strconv.Itoa(s.uids))
}

func (s *Server) create(actor string, kind Kind, object client.Object) error {
	key := client.ObjectKeyFromObject(object)
	if s.tables[kind].get(key) != nil {
		return apierrors.NewAlreadyExists(kind.resource(), key.Name)
	}
	if object.GetUID() == "" {
		object.SetUID(s.NewUID())
	}
	if created := object.GetCreationTimestamp(); created.IsZero() {
		object.SetCreationTimestamp(metav1.NewTime(s.Now()))
	}
	if schemas[kind].counted {
		object.SetGeneration(1)
	}
	s.store(Write{Actor: actor, Kind: kind, After: object})
	return nil
}

// replace stores the next version of an object, unless it is the same.
func (s *Server) replace(actor string, kind Kind, before, after client.Object, eviction bool) client.Object {
	after.SetResourceVersion(before.GetResourceVersion())
	after.SetGeneration(before.GetGeneration())
	if s.Prune != nil {
		s.Prune(after)
	}
	if sameContent(before, after) {
		return before
	}
	if schemas[kind].counted && (!sameSpec(before, after) || before.GetDeletionTimestamp().IsZero() != after.GetDeletionTimestamp().IsZero()) {
		after.SetGeneration(before.GetGeneration() + 1)
	}
	if !after.GetDeletionTimestamp().IsZero() && len(after.GetFinalizers()) == 0 && kind != Pods {
		s.store(Write{Actor: actor, Kind: kind, Before: before})
		return after
	}
	s.store(Write{Actor: actor, Kind: kind, Before: before, After: after, Eviction: eviction})
	return after
}

func (s *Server) delete(actor string, kind Kind, before client.Object, eviction bool) {
	if len(before.GetFinalizers()) == 0 && kind != Pods {
		s.store(Write{Actor: actor, Kind: kind, Before: before})
		return
	}
	if !before.GetDeletionTimestamp().IsZero() {
		return
	}
	after := copyOf(before)
	now := metav1.NewTime(s.Now())
	after.SetDeletionTimestamp(&now)
	s.replace(actor, kind, before, after, eviction)
}

func (s *Server) store(w Write) {
	object := w.After
	if object == nil {
		object = w.Before
	}
	key := client.ObjectKeyFromObject(object)
	s.revision++
	w.Token = s.token
	if w.After != nil {
		w.After.SetResourceVersion(strconv.Itoa(s.revision))
	}
	s.tables[w.Kind].set(key, w.After)
	s.changes[w.Kind] = append(s.changes[w.Kind], change{key: key, object: w.After})
	if s.Observe != nil {
		s.Observe(w)
	}
}

// nodeNameOf returns the node of a pod.
func nodeNameOf(object client.Object) (string, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return "", fmt.Errorf("memapi does not support field selectors for %T", object)
	}
	return pod.Spec.NodeName, nil
}
