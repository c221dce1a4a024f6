package memapi

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
)

// Kind is a kind of objects in a Server.
type Kind int

// The kinds.
const (
	Nodes Kind = iota
	ClientNodes
	Profiles
	Pods
	Budgets
	ConfigMaps
	Namespaces
	kinds
)

// schemas contains the API names of the kinds.
var schemas = [kinds]struct {
	group, kind, resource string
	// counted is true if the API server counts generations of the spec.
	counted bool
}{
	Nodes:       {"", "Node", "nodes", false},
	ClientNodes: {v1alpha1.GroupVersion.Group, "StorageClientNode", "storageclientnodes", true},
	Profiles:    {v1alpha1.GroupVersion.Group, "StorageClientProfile", "storageclientprofiles", true},
	Pods:        {"", "Pod", "pods", false},
	Budgets:     {"policy", "PodDisruptionBudget", "poddisruptionbudgets", true},
	ConfigMaps:  {"", "ConfigMap", "configmaps", false},
	Namespaces:  {"", "Namespace", "namespaces", false},
}

// String returns the API name of the kind.
func (k Kind) String() string { return schemas[k].kind }

func (k Kind) resource() schema.GroupResource {
	return schema.GroupResource{Group: schemas[k].group, Resource: schemas[k].resource}
}

// kindOf returns the kind of an object.
func kindOf(object client.Object) (Kind, error) {
	switch object.(type) {
	case *corev1.Node:
		return Nodes, nil
	case *v1alpha1.StorageClientNode:
		return ClientNodes, nil
	case *v1alpha1.StorageClientProfile:
		return Profiles, nil
	case *corev1.Pod:
		return Pods, nil
	case *policyv1.PodDisruptionBudget:
		return Budgets, nil
	case *corev1.ConfigMap:
		return ConfigMaps, nil
	case *corev1.Namespace:
		return Namespaces, nil
	}
	return 0, fmt.Errorf("memapi does not support objects of type %T", object)
}

func copyOf[T client.Object](object T) T { return object.DeepCopyObject().(T) }

// copyInto overwrites an object with another of the same kind.
func copyInto(from, to client.Object) {
	switch from := from.(type) {
	case *corev1.Node:
		from.DeepCopyInto(to.(*corev1.Node))
	case *v1alpha1.StorageClientNode:
		from.DeepCopyInto(to.(*v1alpha1.StorageClientNode))
	case *v1alpha1.StorageClientProfile:
		from.DeepCopyInto(to.(*v1alpha1.StorageClientProfile))
	case *corev1.Pod:
		from.DeepCopyInto(to.(*corev1.Pod))
	case *policyv1.PodDisruptionBudget:
		from.DeepCopyInto(to.(*policyv1.PodDisruptionBudget))
	case *corev1.ConfigMap:
		from.DeepCopyInto(to.(*corev1.ConfigMap))
	case *corev1.Namespace:
		from.DeepCopyInto(to.(*corev1.Namespace))
	}
}

// specOf returns the part of an object whose changes a generation counts.
func specOf(object client.Object) any {
	switch object := object.(type) {
	case *v1alpha1.StorageClientNode:
		return object.Spec
	case *v1alpha1.StorageClientProfile:
		return object.Spec
	case *policyv1.PodDisruptionBudget:
		return object.Spec
	}
	return nil
}

// takeStatus sets the status of an object to the status of another.
func takeStatus(from, to client.Object) {
	switch from := from.(type) {
	case *corev1.Node:
		to.(*corev1.Node).Status = from.Status
	case *v1alpha1.StorageClientNode:
		to.(*v1alpha1.StorageClientNode).Status = from.Status
	case *v1alpha1.StorageClientProfile:
		to.(*v1alpha1.StorageClientProfile).Status = from.Status
	case *corev1.Pod:
		to.(*corev1.Pod).Status = from.Status
	case *policyv1.PodDisruptionBudget:
		to.(*policyv1.PodDisruptionBudget).Status = from.Status
	}
}

// sameContent reports whether a write would not change the object.
func sameContent(before, after client.Object) bool {
	return equality.Semantic.DeepEqual(before, after)
}

// listKind returns the kind of a list, and whether only metadata is requested.
func listKind(list client.ObjectList) (kind Kind, metadata bool, err error) {
	switch list := list.(type) {
	case *corev1.NodeList:
		return Nodes, false, nil
	case *v1alpha1.StorageClientNodeList:
		return ClientNodes, false, nil
	case *v1alpha1.StorageClientProfileList:
		return Profiles, false, nil
	case *corev1.PodList:
		return Pods, false, nil
	case *policyv1.PodDisruptionBudgetList:
		return Budgets, false, nil
	case *metav1.PartialObjectMetadataList:
		for k := range kinds {
			if list.Kind == schemas[k].kind+"List" && list.GroupVersionKind().Group == schemas[k].group {
				return k, true, nil
			}
		}
	}
	return 0, false, fmt.Errorf("memapi does not support lists of type %T (%s)", list, list.GetObjectKind().GroupVersionKind())
}

// fill puts objects into a list. Shared objects must not be changed.
func fill(list client.ObjectList, found []client.Object, shared bool) {
	switch list := list.(type) {
	case *corev1.NodeList:
		list.Items = make([]corev1.Node, len(found))
		for i, o := range found {
			copyItem(o.(*corev1.Node), &list.Items[i], shared, (*corev1.Node).DeepCopyInto)
		}
	case *v1alpha1.StorageClientNodeList:
		list.Items = make([]v1alpha1.StorageClientNode, len(found))
		for i, o := range found {
			copyItem(o.(*v1alpha1.StorageClientNode), &list.Items[i], shared, (*v1alpha1.StorageClientNode).DeepCopyInto)
		}
	case *v1alpha1.StorageClientProfileList:
		list.Items = make([]v1alpha1.StorageClientProfile, len(found))
		for i, o := range found {
			copyItem(o.(*v1alpha1.StorageClientProfile), &list.Items[i], shared, (*v1alpha1.StorageClientProfile).DeepCopyInto)
		}
	case *corev1.PodList:
		list.Items = make([]corev1.Pod, len(found))
		for i, o := range found {
			copyItem(o.(*corev1.Pod), &list.Items[i], shared, (*corev1.Pod).DeepCopyInto)
		}
	case *policyv1.PodDisruptionBudgetList:
		list.Items = make([]policyv1.PodDisruptionBudget, len(found))
		for i, o := range found {
			copyItem(o.(*policyv1.PodDisruptionBudget), &list.Items[i], shared, (*policyv1.PodDisruptionBudget).DeepCopyInto)
		}
	case *metav1.PartialObjectMetadataList:
		list.Items = make([]metav1.PartialObjectMetadata, len(found))
		for i, o := range found {
			list.Items[i].Name, list.Items[i].Namespace = o.GetName(), o.GetNamespace()
			list.Items[i].UID, list.Items[i].ResourceVersion = o.GetUID(), o.GetResourceVersion()
		}
	}
}

func copyItem[T any](from, to *T, shared bool, deep func(from, to *T)) {
	if shared {
		*to = *from
		return
	}
	deep(from, to)
}

func sameSpec(before, after client.Object) bool {
	return equality.Semantic.DeepEqual(specOf(before), specOf(after))
}
