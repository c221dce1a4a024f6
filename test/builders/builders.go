// Package builders builds volumes and profiles for the tests of the packages in controllers/volume.
package builders

import (
	"encoding/json"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/storageclient/operator/api/v1alpha1"
)

// StopValues are values of the annotations that stop changes, and whether they do.
var StopValues = map[string]bool{
	"": false, "false": false, "False": false, "FALSE": false, "fAlSe": false,
	"true": true, "True": true, "TRUE": true, "yes": true, "1": true, "0": true, "no": true, "off": true, "n": true,
	" ": true, " false": true, "falſe": true, "false\n": true, "'false'": true,
}

// VolumeOption changes a volume.
type VolumeOption func(*corev1.PersistentVolume)

// NFSVolume returns an in-tree NFS volume of the class "nfs", bound to the PersistentVolumeClaim eda/data.
func NFSVolume(options []string, more ...VolumeOption) *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{
		Name: "pv1", UID: "uid-of-pv1", ResourceVersion: "7", Annotations: map[string]string{}, Labels: map[string]string{},
	}}
	pv.Spec.NFS = &corev1.NFSVolumeSource{Server: "filer", Path: "/data"}
	pv.Spec.StorageClassName = "nfs"
	pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "eda", Name: "data", UID: "claim-uid"}
	pv.Spec.MountOptions = options
	for _, o := range more {
		o(pv)
	}
	return pv
}

// Named gives a volume another name and another UID.
func Named(name string) VolumeOption {
	return func(pv *corev1.PersistentVolume) { pv.Name, pv.UID = name, types.UID("uid-of-"+name) }
}

// Annotated sets an annotation.
func Annotated(key, value string) VolumeOption {
	return func(pv *corev1.PersistentVolume) { pv.Annotations[key] = value }
}

// Labelled sets a label.
func Labelled(key, value string) VolumeOption {
	return func(pv *corev1.PersistentVolume) { pv.Labels[key] = value }
}

// Carrying gives a volume the options and annotations that the operator writes.
func Carrying(original, applied []string, profiles ...string) VolumeOption {
	return func(pv *corev1.PersistentVolume) {
		pv.Annotations[v1alpha1.OriginalMountOptionsAnnotation] = JSON(append([]string{}, original...))
		pv.Annotations[v1alpha1.AppliedMountOptionsAnnotation] = JSON(append([]string{}, applied...))
		pv.Annotations[v1alpha1.ProfilesAnnotation] = strings.Join(profiles, ",")
	}
}

// JSON returns a value in the format of annotations.
func JSON(value any) string {
	data, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return string(data)
}

// CSI makes a volume one of a CSI driver.
func CSI(driver string, attributes map[string]string) VolumeOption {
	return func(pv *corev1.PersistentVolume) {
		pv.Spec.NFS = nil
		pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: "handle", VolumeAttributes: attributes}
	}
}

// VolumeClaimOf returns the metadata of the PersistentVolumeClaim that a volume is bound to.
func VolumeClaimOf(pv *corev1.PersistentVolume, labels map[string]string) *metav1.PartialObjectMetadata {
	volumeClaim := &metav1.PartialObjectMetadata{}
	volumeClaim.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"))
	volumeClaim.Namespace, volumeClaim.Name, volumeClaim.UID = pv.Spec.ClaimRef.Namespace, pv.Spec.ClaimRef.Name, pv.Spec.ClaimRef.UID
	volumeClaim.Labels = labels
	return volumeClaim
}

// ProfileOption changes a profile.
type ProfileOption func(*v1alpha1.StorageClientProfile)

// NFSProfile returns a profile with one rule for all NFS volumes.
func NFSProfile(name string, options []string, more ...ProfileOption) v1alpha1.StorageClientProfile {
	p := v1alpha1.StorageClientProfile{ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 1, Finalizers: []string{v1alpha1.Finalizer}}}
	p.Spec.AllNodes = true
	rule := v1alpha1.VolumeRule{Name: "rule", Selector: v1alpha1.VolumeSelector{Protocols: []v1alpha1.VolumeProtocol{v1alpha1.ProtocolNFS}}}
	for _, o := range options {
		rule.MountOptions = append(rule.MountOptions, v1alpha1.MountOption(o))
	}
	p.Spec.Volumes = []v1alpha1.VolumeRule{rule}
	for _, o := range more {
		o(&p)
	}
	return p
}

// Ruled changes a profile's one rule.
func Ruled(change func(*v1alpha1.VolumeRule)) ProfileOption {
	return func(p *v1alpha1.StorageClientProfile) { change(&p.Spec.Volumes[0]) }
}

// OnConflict sets the rule's policy for values that the volume already has.
func OnConflict(policy v1alpha1.ConflictPolicy) ProfileOption {
	return Ruled(func(r *v1alpha1.VolumeRule) { r.OnConflict = policy })
}

// Selecting gives the rule another selector.
func Selecting(selector v1alpha1.VolumeSelector) ProfileOption {
	return Ruled(func(r *v1alpha1.VolumeRule) { r.Selector = selector })
}

// Specified changes a profile's spec.
func Specified(change func(*v1alpha1.StorageClientProfileSpec)) ProfileOption {
	return func(p *v1alpha1.StorageClientProfile) { change(&p.Spec) }
}

// Deleted sets the deletion timestamp of a profile.
func Deleted(p *v1alpha1.StorageClientProfile) {
	now := metav1.Now()
	p.DeletionTimestamp = &now
}

// Paused pauses a profile by its field.
func Paused(p *v1alpha1.StorageClientProfile) { p.Spec.Paused = true }

// InModePlan sets the mode Plan.
func InModePlan(p *v1alpha1.StorageClientProfile) { p.Spec.Mode = v1alpha1.ModePlan }

// Retaining sets the deletion policy Retain.
func Retaining(p *v1alpha1.StorageClientProfile) { p.Spec.DeletionPolicy = v1alpha1.DeletionRetain }
