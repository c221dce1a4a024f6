// Package v1alpha1 is the contract between users, the manager and the node agent: the kinds StorageClientProfile,
// StorageClientNode and StorageClientTrial, and the names that they share.
//
// +kubebuilder:object:generate=true
// +groupName=tuning.storageclient.dev
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	// GroupVersion is the API group and version of this package.
	GroupVersion = schema.GroupVersion{Group: "tuning.storageclient.dev", Version: "v1alpha1"}

	// SchemeBuilder collects the functions that register this package's kinds.
	SchemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

	// AddToScheme registers this package's kinds.
	AddToScheme = SchemeBuilder.AddToScheme
)

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion,
		&StorageClientProfile{}, &StorageClientProfileList{},
		&StorageClientNode{}, &StorageClientNodeList{},
		&StorageClientTrial{}, &StorageClientTrialList{},
	)
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
