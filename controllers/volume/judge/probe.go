package judge

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/mountoptions"
)

// ProbeTarget is the mount that a probe of a volume's options would make.
type ProbeTarget struct {
	// Server, Path and FSType identify the mounted file system.
	Server, Path, FSType string
	// Options are the arguments that mount would get with the declared options, Own with the current ones.
	Options, Own []string
	// ChangesRequests is true if Options change the requests to the server.
	ChangesRequests bool
	// Obstacle explains why the options cannot be probed in a separate network namespace. Empty if they can.
	Obstacle string
	// Clone is the desired content of a clone of the volume.
	Clone CloneTarget
}

var (
	probedServer = regexp.MustCompile(`^[A-Za-z0-9:][A-Za-z0-9._:-]{0,252}$`)
	probedPath   = regexp.MustCompile(`^/[A-Za-z0-9_.,:=/@+-]*$`)
)

const maxProbedPath = 1024

// ProbeTargetOf returns the mount that a probe of a verdict's options would make. clones lists the allowed clones; nil if there are none.
func ProbeTargetOf(pv *corev1.PersistentVolume, v Verdict, clones *corev1.ConfigMap) ProbeTarget {
	t := targetOf(pv)
	source := t.Source()
	out := ProbeTarget{
		Server: source.Server, Path: t.MountedPath(), FSType: "nfs",
		Options: mountoptions.SplitOptions(t.PassedOptions(v.Options)), Own: mountoptions.SplitOptions(t.PassedOptions(pv.Spec.MountOptions)),
	}
	out.ChangesRequests = t.options.ChangesTransport(out.Own, out.Options)
	out.Obstacle, out.Clone = probeObstacle(source, out), CloneTarget{
		Options: v.Options, Own: slices.Clone(pv.Spec.MountOptions), Declared: v.DeclaredOptions(), Protocol: SourceOf(pv).Protocol,
		Obstacle: cloneObstacle(pv, clones),
	}
	return out
}

// probeObstacle explains why a mount in a separate network namespace, by the agent's rules, is impossible or would show nothing.
func probeObstacle(source Source, t ProbeTarget) string {
	switch {
	case source.Protocol != v1alpha1.ProtocolNFS:
		return "only NFS can be mounted in a separate network namespace"
	case t.Server == "":
		return "the volume does not name its server"
	case t.Path == "":
		return "the path that driver " + source.Driver + " mounts is unknown"
	case !probedServer.MatchString(t.Server) || len(t.Path) > maxProbedPath || !probedPath.MatchString(t.Path):
		return "server or path contains characters that the agent rejects"
	}
	for _, list := range [][]string{t.Options, t.Own} {
		for _, problem := range mountoptions.Errors(mountoptions.NFS, list) {
			return "the agent rejects mount option " + problem.Option + ": " + problem.Message
		}
	}
	return cmp.Or(mountoptions.NeedsNodeNetwork(t.Options), mountoptions.NeedsNodeNetwork(t.Own))
}

// CloneTarget is the desired content of a clone of a volume.
type CloneTarget struct {
	// Options are the mount options after the write, Own the current ones, both as in spec.mountOptions. Declared are the options from profiles among
	// Options.
	Options, Own, Declared []string
	// Protocol is the protocol between the client and the server.
	Protocol v1alpha1.VolumeProtocol
	// Obstacle explains why the volume cannot be cloned. Empty if it can.
	Obstacle string
}

// cloneObstacle explains why a clone is not allowed, might share state with the volume, or could not be mounted.
func cloneObstacle(pv *corev1.PersistentVolume, allowed *corev1.ConfigMap) string {
	t := describeSource(pv)
	switch {
	case !t.MayBeCloned():
		return "volumes of driver " + t.Driver + " cannot be cloned: support for two volumes of one source is unknown"
	case t.Source().Server == "":
		return "the volume does not name its server"
	case pv.Spec.NodeAffinity != nil:
		return "the volume has node affinity"
	case allowed == nil:
		return "clones need config/components/clones and ConfigMap " + v1alpha1.ClonesConfigMap
	}
	driver := strings.TrimPrefix(t.Driver, "kubernetes.io/")
	secrets, isListed := allowed.Data[driver]
	if !isListed {
		return "ConfigMap " + v1alpha1.ClonesConfigMap + " does not list driver " + driver
	}
	csi := cmp.Or(pv.Spec.CSI, &corev1.CSIPersistentVolumeSource{})
	for _, ref := range []*corev1.SecretReference{csi.NodeStageSecretRef, csi.NodePublishSecretRef} {
		if ref != nil && !slices.Contains(strings.Fields(secrets), ref.Namespace+"/"+ref.Name) {
			return fmt.Sprintf("ConfigMap %s does not list Secret %s/%s for driver %s", v1alpha1.ClonesConfigMap, ref.Namespace, ref.Name, driver)
		}
	}
	return ""
}

// CloneSpec returns the specification of a clone: the same source with the given mount options, bound to the PersistentVolumeClaim of the given name.
// It copies only fields that a mount needs, and changes the handle: drivers of clones use it only as a name. Deletion of the clone keeps the data.
func CloneSpec(pv *corev1.PersistentVolume, name string, list []string) corev1.PersistentVolumeSpec {
	of := pv.Spec.DeepCopy()
	spec := corev1.PersistentVolumeSpec{
		Capacity: of.Capacity, AccessModes: of.AccessModes, VolumeMode: of.VolumeMode, MountOptions: slices.Clone(list),
		PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
		ClaimRef: &corev1.ObjectReference{
			APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: v1alpha1.TrialNamespace, Name: name,
		},
	}
	if of.NFS != nil {
		spec.NFS = of.NFS
		return spec
	}
	spec.CSI = &corev1.CSIPersistentVolumeSource{
		Driver: of.CSI.Driver, VolumeHandle: of.CSI.VolumeHandle + "#" + name, ReadOnly: of.CSI.ReadOnly, FSType: of.CSI.FSType,
		VolumeAttributes: of.CSI.VolumeAttributes, NodeStageSecretRef: of.CSI.NodeStageSecretRef, NodePublishSecretRef: of.CSI.NodePublishSecretRef,
	}
	return spec
}
