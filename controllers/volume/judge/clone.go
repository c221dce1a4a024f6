package judge

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/storageclient/operator/api/v1alpha1"
)

// CloneTarget is what a clone of a volume is to have.
type CloneTarget struct {
	// Options are the list that is declared, Own that of today, each as it stands in the volume. Declared are the options that profiles
	// bring to it.
	Options, Own, Declared []string
	// Protocol is the one that its server is asked by.
	Protocol v1alpha1.VolumeProtocol
	// Obstacle says why the volume cannot be cloned; empty where it can.
	Obstacle string
}

// cloneObstacle says why nobody could tell that a clone shares nothing with the volume, or where it could be mounted.
func cloneObstacle(pv *corev1.PersistentVolume) string {
	t := describeSource(pv)
	switch {
	case !t.MayBeCloned():
		return "volumes of driver " + t.Driver + " cannot be cloned: it is not known to mount a second one of the same source beside the first"
	case t.Source().Server == "":
		return "the volume does not name its server"
	case pv.Spec.NodeAffinity != nil:
		return "the volume is for certain nodes only"
	}
	return ""
}

// CloneSpec is the specification of a clone: the same source under a name of its own, with a list, and nothing else of the volume's. What is
// in it stays when it goes.
func CloneSpec(pv *corev1.PersistentVolume, name string, list []string) corev1.PersistentVolumeSpec {
	of := pv.Spec.DeepCopy()
	spec := corev1.PersistentVolumeSpec{
		Capacity: of.Capacity, AccessModes: of.AccessModes, VolumeMode: of.VolumeMode, MountOptions: slices.Clone(list),
		PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
		ClaimRef:                      &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: v1alpha1.TrialNamespace, Name: name},
	}
	if of.NFS != nil {
		spec.NFS = of.NFS
		return spec
	}
	spec.CSI = &corev1.CSIPersistentVolumeSource{
		Driver: of.CSI.Driver, VolumeHandle: describeSource(pv).HandleOfClone("#" + name), ReadOnly: of.CSI.ReadOnly, FSType: of.CSI.FSType,
		VolumeAttributes: of.CSI.VolumeAttributes, NodeStageSecretRef: of.CSI.NodeStageSecretRef, NodePublishSecretRef: of.CSI.NodePublishSecretRef,
	}
	return spec
}
