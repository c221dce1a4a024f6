package bundle

import (
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/storageclient/operator/api/v1alpha1"
)

// keyPrefix is the prefix of the operator's labels and annotations.
const keyPrefix = "tuning.storageclient.dev/"

// Object contains the metadata of an object without confidential data.
type Object struct {
	Namespace         string            `json:"namespace,omitempty"`
	Name              string            `json:"name"`
	UID               types.UID         `json:"uid,omitempty"`
	ResourceVersion   string            `json:"resourceVersion,omitempty"`
	Generation        int64             `json:"generation,omitempty"`
	CreationTimestamp metav1.Time       `json:"creationTimestamp"`
	DeletionTimestamp *metav1.Time      `json:"deletionTimestamp,omitempty"`
	Finalizers        []string          `json:"finalizers,omitempty"`
	Labels            map[string]string `json:"labels,omitempty"`
	Annotations       map[string]string `json:"annotations,omitempty"`
	// Managers are the field managers of the object.
	Managers []string `json:"managers,omitempty"`
}

// objectOf keeps the operator's annotations and the named ones, because other annotations can contain anything.
func objectOf(o metav1.Object, annotations ...string) Object {
	out := Object{
		Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(), ResourceVersion: o.GetResourceVersion(), Generation: o.GetGeneration(),
		CreationTimestamp: o.GetCreationTimestamp(), DeletionTimestamp: o.GetDeletionTimestamp(), Finalizers: o.GetFinalizers(), Labels: o.GetLabels(),
	}
	for key, value := range o.GetAnnotations() {
		if strings.HasPrefix(key, keyPrefix) || slices.Contains(annotations, key) {
			if out.Annotations == nil {
				out.Annotations = map[string]string{}
			}
			out.Annotations[key] = value
		}
	}
	for _, entry := range o.GetManagedFields() {
		if !slices.Contains(out.Managers, entry.Manager) {
			out.Managers = append(out.Managers, entry.Manager)
		}
	}
	slices.Sort(out.Managers)
	return out
}

// Node contains the collected fields of a Node, without addresses, images and attached volumes.
type Node struct {
	Metadata      Object                 `json:"metadata"`
	Unschedulable bool                   `json:"unschedulable,omitempty"`
	Taints        []corev1.Taint         `json:"taints,omitempty"`
	Conditions    []corev1.NodeCondition `json:"conditions,omitempty"`
	Capacity      corev1.ResourceList    `json:"capacity,omitempty"`
	NodeInfo      corev1.NodeSystemInfo  `json:"nodeInfo"`
}

// TrimNode returns the collected fields of a Node.
func TrimNode(n *corev1.Node) Node {
	return Node{
		Metadata: objectOf(n), Unschedulable: n.Spec.Unschedulable, Taints: n.Spec.Taints, Conditions: n.Status.Conditions,
		Capacity: n.Status.Capacity, NodeInfo: n.Status.NodeInfo,
	}
}

// Volume contains the collected fields of a PersistentVolume.
type Volume struct {
	Metadata      Object                               `json:"metadata"`
	Phase         corev1.PersistentVolumePhase         `json:"phase,omitempty"`
	Class         string                               `json:"storageClassName,omitempty"`
	AccessModes   []corev1.PersistentVolumeAccessMode  `json:"accessModes,omitempty"`
	VolumeMode    *corev1.PersistentVolumeMode         `json:"volumeMode,omitempty"`
	ReclaimPolicy corev1.PersistentVolumeReclaimPolicy `json:"persistentVolumeReclaimPolicy,omitempty"`
	ClaimRef      string                               `json:"claimRef,omitempty"`
	MountOptions  []string                             `json:"mountOptions,omitempty"`
	NFS           *corev1.NFSVolumeSource              `json:"nfs,omitempty"`
	CSI           *CSI                                 `json:"csi,omitempty"`
	// Other reports whether the volume has another source, which is not collected.
	Other bool `json:"otherSource,omitempty"`
}

// CSI contains the collected fields of a CSI volume. It contains names of Secrets, but never their values.
type CSI struct {
	Driver       string `json:"driver"`
	VolumeHandle string `json:"volumeHandle"`
	FSType       string `json:"fsType,omitempty"`
	ReadOnly     bool   `json:"readOnly,omitempty"`
	// Attributes are the attributes of the volume.
	Attributes map[string]string `json:"volumeAttributes,omitempty"`
	// SecretRefs maps fields to namespace/name.
	SecretRefs map[string]string `json:"secretRefs,omitempty"`
}

// plainAttributes are CSI attributes that do not identify a location. The values of other attributes get a pseudonym.
var plainAttributes = []string{"protocol", "mountOptions", "mountPermissions", "fsType", "skuName", "csi.storage.k8s.io/pvc/name", "csi.storage.k8s.io/pvc/namespace", "csi.storage.k8s.io/pv/name"}

// TrimVolume returns the collected fields of a volume, and registers its server and source.
func (r *Redactor) TrimVolume(pv *corev1.PersistentVolume) Volume {
	out := Volume{
		Metadata: objectOf(pv, corev1.MountOptionAnnotation, "pv.kubernetes.io/provisioned-by"), Phase: pv.Status.Phase, Class: pv.Spec.StorageClassName,
		AccessModes: pv.Spec.AccessModes, VolumeMode: pv.Spec.VolumeMode, ReclaimPolicy: pv.Spec.PersistentVolumeReclaimPolicy, MountOptions: pv.Spec.MountOptions,
	}
	if ref := pv.Spec.ClaimRef; ref != nil {
		out.ClaimRef = ref.Namespace + "/" + ref.Name
	}
	switch {
	case pv.Spec.NFS != nil:
		out.NFS = &corev1.NFSVolumeSource{Server: r.Server(pv.Spec.NFS.Server), Path: r.Source(pv.Spec.NFS.Path), ReadOnly: pv.Spec.NFS.ReadOnly}
	case pv.Spec.CSI != nil:
		out.CSI = r.trimCSI(pv.Name, pv.Spec.CSI)
	default:
		out.Other = true
	}
	return out
}

func (r *Redactor) trimCSI(name string, source *corev1.CSIPersistentVolumeSource) *CSI {
	handle := source.VolumeHandle
	if handle != name {
		handle = r.Source(handle)
	}
	out := &CSI{Driver: source.Driver, VolumeHandle: handle, FSType: source.FSType, ReadOnly: source.ReadOnly, Attributes: map[string]string{}, SecretRefs: map[string]string{}}
	for _, key := range slices.Sorted(maps.Keys(source.VolumeAttributes)) {
		value := source.VolumeAttributes[key]
		switch {
		case slices.Contains(plainAttributes, key), value == "true", value == "false", value == name:
		case strings.EqualFold(key, "server"):
			value = r.Server(value)
		default:
			value = r.Source(value)
		}
		out.Attributes[key] = value
	}
	for field, ref := range map[string]*corev1.SecretReference{
		"nodeStageSecretRef": source.NodeStageSecretRef, "nodePublishSecretRef": source.NodePublishSecretRef,
		"controllerPublishSecretRef": source.ControllerPublishSecretRef, "controllerExpandSecretRef": source.ControllerExpandSecretRef, "nodeExpandSecretRef": source.NodeExpandSecretRef,
	} {
		if ref != nil {
			out.SecretRefs[field] = ref.Namespace + "/" + ref.Name
		}
	}
	return out
}

// Profile contains the collected fields of a profile: everything except for kubectl's copy of it.
type Profile struct {
	Metadata Object                              `json:"metadata"`
	Spec     v1alpha1.StorageClientProfileSpec   `json:"spec"`
	Status   v1alpha1.StorageClientProfileStatus `json:"status"`
}

// TrimProfile returns the collected fields of a profile, and registers the servers that it names.
func (r *Redactor) TrimProfile(p *v1alpha1.StorageClientProfile) Profile {
	spec := p.Spec.DeepCopy()
	if spec.Node != nil {
		for i := range spec.Node.NFSMountDefaults {
			spec.Node.NFSMountDefaults[i].Server = r.Server(spec.Node.NFSMountDefaults[i].Server)
		}
	}
	for i := range spec.Volumes {
		for j, server := range spec.Volumes[i].Selector.Servers {
			spec.Volumes[i].Selector.Servers[j] = r.Server(server)
		}
	}
	return Profile{Metadata: objectOf(p), Spec: *spec, Status: p.Status}
}

// ClientNode contains the collected fields of a StorageClientNode.
type ClientNode struct {
	Metadata Object                           `json:"metadata"`
	Spec     v1alpha1.StorageClientNodeSpec   `json:"spec"`
	Status   v1alpha1.StorageClientNodeStatus `json:"status"`
}

// TrimClientNode returns the collected fields of a StorageClientNode, and registers the servers that it mounts from.
func (r *Redactor) TrimClientNode(c *v1alpha1.StorageClientNode) ClientNode {
	status := c.Status.DeepCopy()
	for i := range status.Mounts {
		status.Mounts[i].Server = r.Server(status.Mounts[i].Server)
	}
	return ClientNode{Metadata: objectOf(c), Spec: c.Spec, Status: *status}
}

// Pod contains the collected fields of a Pod of the operator.
type Pod struct {
	Metadata   Object                   `json:"metadata"`
	Node       string                   `json:"nodeName,omitempty"`
	Phase      corev1.PodPhase          `json:"phase,omitempty"`
	Conditions []corev1.PodCondition    `json:"conditions,omitempty"`
	Containers []corev1.ContainerStatus `json:"containerStatuses,omitempty"`
}

// TrimPod returns the collected fields of a Pod.
func TrimPod(p *corev1.Pod) Pod {
	return Pod{Metadata: objectOf(p), Node: p.Spec.NodeName, Phase: p.Status.Phase, Conditions: p.Status.Conditions, Containers: p.Status.ContainerStatuses}
}

// Workload describes the manager or the agent: images and flags, but no environment.
type Workload struct {
	Kind       string              `json:"kind"`
	Metadata   Object              `json:"metadata"`
	Containers []WorkloadContainer `json:"containers"`
	Status     any                 `json:"status"`
}

// WorkloadContainer is a container of a Workload.
type WorkloadContainer struct {
	Name  string   `json:"name"`
	Image string   `json:"image"`
	Args  []string `json:"args,omitempty"`
}

// TrimDeployment returns the collected fields of the manager's Deployment.
func TrimDeployment(d *appsv1.Deployment) Workload {
	return Workload{Kind: "Deployment", Metadata: objectOf(d), Containers: containersOf(&d.Spec.Template), Status: d.Status}
}

// TrimDaemonSet returns the collected fields of the agent's DaemonSet.
func TrimDaemonSet(d *appsv1.DaemonSet) Workload {
	return Workload{Kind: "DaemonSet", Metadata: objectOf(d), Containers: containersOf(&d.Spec.Template), Status: d.Status}
}

func containersOf(template *corev1.PodTemplateSpec) []WorkloadContainer {
	var out []WorkloadContainer
	for _, c := range template.Spec.Containers {
		out = append(out, WorkloadContainer{Name: c.Name, Image: c.Image, Args: c.Args})
	}
	return out
}

// Event contains the collected fields of an event.
type Event struct {
	LastSeen  metav1.Time `json:"lastSeen"`
	Count     int32       `json:"count,omitempty"`
	Type      string      `json:"type"`
	Regarding string      `json:"regarding"`
	Reason    string      `json:"reason"`
	Message   string      `json:"message"`
	Reporter  string      `json:"reporter,omitempty"`
}

// TrimEvent returns the collected fields of an event. It also reports whether the operator reported it, or whether it is about the
// operator's workloads.
func TrimEvent(e *corev1.Event) (Event, bool) {
	reporter := e.ReportingController
	if reporter == "" {
		reporter = e.Source.Component
	}
	seen := e.LastTimestamp
	if seen.IsZero() {
		seen = metav1.Time{Time: e.EventTime.Time}
	}
	if e.Series != nil {
		seen = metav1.Time{Time: e.Series.LastObservedTime.Time}
	}
	o := e.InvolvedObject
	isOperatorEvent := strings.HasPrefix(reporter, "storage-client") || strings.HasPrefix(o.Kind, "StorageClient") ||
		o.Namespace == v1alpha1.ManagerNamespace || o.Namespace == v1alpha1.AgentNamespace
	regarding := o.Kind + " " + o.Name
	if o.Namespace != "" {
		regarding = o.Kind + " " + o.Namespace + "/" + o.Name
	}
	return Event{LastSeen: seen, Count: e.Count, Type: e.Type, Regarding: regarding, Reason: e.Reason, Message: e.Message, Reporter: reporter}, isOperatorEvent
}
