package v1alpha1

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Names that the manager, the agent, the manifests and the users share.
const (
	// ManagerNamespace contains the manager and the rollout budget. Pod Security "restricted".
	ManagerNamespace = "storage-client-system"
	// AgentNamespace contains the node agent. Pod Security "privileged".
	AgentNamespace = "storage-client-agent"
	// AgentDaemonSet is the name of the DaemonSet that runs the node agent.
	AgentDaemonSet = "storage-client-node-agent"
	// AgentServiceAccount is the service account of the node agent, in the agent's namespace.
	AgentServiceAccount = "storage-client-node-agent"
	// TrialDaemonSet is the name of the DaemonSet that runs the trial runner, in the agent's namespace.
	TrialDaemonSet = "storage-client-trial-runner"
	// AgentPolicy is the name of the ValidatingAdmissionPolicy and its binding that limit an agent to its own StorageClientNode.
	AgentPolicy = "storage-client-node-agent"
	// ApprovalPolicy is the name of the ValidatingAdmissionPolicy and its binding that require the verb approve.
	ApprovalPolicy = "storage-client-approval"
	// TrialPolicy is the name of the ValidatingAdmissionPolicy and its binding that require the verb try.
	TrialPolicy = "storage-client-trial-options"
	// ApproverRole is the ClusterRole of users who approve plans and have no other write permission.
	ApproverRole = "storage-client-approver"
	// ManagerDeployment is the name of the manager's Deployment and of its service account.
	ManagerDeployment = "storage-client-manager"
	// ManagerLease is the Lease, in the manager's namespace, that elects the leading Pod of the manager.
	ManagerLease = "storage-client-manager"
	// BudgetConfigMap contains one claim for each node that the rollout disrupts, in the manager's namespace.
	BudgetConfigMap = "storage-client-rollout"
	// FailuresConfigMap contains the recorded node failures by profile, in the manager's namespace.
	FailuresConfigMap = "storage-client-failures"
	// VolumesConfigMapPrefix is the prefix of the names of the ConfigMaps that contain the records on changed PersistentVolumes, in
	// the manager's namespace. A number follows.
	VolumesConfigMapPrefix = "storage-client-volumes-"
	// CanaryConfigMapPrefix is the prefix of the names of the ConfigMaps that reserve a new PersistentVolume as the canary of an option
	// set, in the manager's namespace. The hash of the set follows.
	CanaryConfigMapPrefix = "storage-client-canary-"

	// ManagedLabel is "true" on every Node that runs the agent.
	ManagedLabel = "tuning.storageclient.dev/managed"
	// TrialLabel is "true" on a Node while a trial should run there. The trial runner runs only on these Nodes.
	TrialLabel = "tuning.storageclient.dev/trial"
	// PausedAnnotation set to "true" (see IsStopped) on a profile, a Node or the manager's namespace prevents new changes there.
	PausedAnnotation = "tuning.storageclient.dev/paused"
	// IgnoreAnnotation set to "true" (see IsStopped) prevents changes to a Node, a PersistentVolume or the volume of a PersistentVolumeClaim.
	IgnoreAnnotation = "tuning.storageclient.dev/ignore"
	// NeverDisruptAnnotation set to "true" (see IsStopped) on a Node prevents its cordon, drain and reboot. Live settings are still applied.
	NeverDisruptAnnotation = "tuning.storageclient.dev/never-disrupt"
	// DisruptionAnnotation identifies a cordon by the operator. The same patch sets and removes it and spec.unschedulable.
	DisruptionAnnotation = "tuning.storageclient.dev/disruption"
	// DisruptionGuardsAnnotation on a Node lists the protection annotations and labels that the operator added for a disruption. They
	// were missing before. The value is JSON with the lists "annotations" and "labels". The same patch sets and removes it and the
	// listed annotations and labels.
	DisruptionGuardsAnnotation = "tuning.storageclient.dev/disruption-guards"
	// ApprovedPlanAnnotation on a profile approves the plan with the hash in its value.
	ApprovedPlanAnnotation = "tuning.storageclient.dev/approved-plan"
	// RetryAnnotation on a profile clears recorded failures, once for each new value. A new value such as the time clears all nodes.
	// A value followed by a slash and the name of a node clears that node.
	RetryAnnotation = "tuning.storageclient.dev/retry"
	// ServerLimitsAnnotation on a profile contains the limits of one server, e.g. "connections=3000,requests=10000". Advice compares
	// them with the maximum load of the profile's nodes.
	ServerLimitsAnnotation = "tuning.storageclient.dev/server-limits"
	// ServerChunkAnnotation on a profile is the size in KiB of the chunks that its servers read ahead. Advice compares it with rsize
	// and read-ahead.
	ServerChunkAnnotation = "tuning.storageclient.dev/server-chunk-kib"
	// UntunedTaint is the default key of the taint that is removed once a Node is tuned.
	UntunedTaint = "tuning.storageclient.dev/untuned"
	// OriginalMountOptionsAnnotation contains the original mount options of a PersistentVolume, as a JSON list.
	OriginalMountOptionsAnnotation = "tuning.storageclient.dev/original-mount-options"
	// AppliedMountOptionsAnnotation contains the mount options that the operator wrote last, as a JSON list.
	AppliedMountOptionsAnnotation = "tuning.storageclient.dev/applied-mount-options"
	// ProfilesAnnotation contains the names of the profiles whose options a PersistentVolume has, separated by commas.
	ProfilesAnnotation = "tuning.storageclient.dev/profiles"
	// MountOptionsStepAnnotation describes the last change of a PersistentVolume by the operator, in JSON. since is the time of its
	// batch; written is the time of this volume's change. set is the hash of the option set: the declared options and the driver that
	// mounts them. rules are the rules of the set, as profile/rule. unproven means that the set was not known to work at the time of
	// the change. evidence is the observation that proves it, from before or after the change. probed means that a probe proved it,
	// only for the volume's server. replaced contains the options of the StorageClass that rules with UseProfileOverClass replaced, by
	// profile. It is only set if the operator replaced a value of the volume. created means that the volume was created with these options. It then belongs to no
	// batch, unless canary is set: it was the first volume with them.
	MountOptionsStepAnnotation = "tuning.storageclient.dev/mount-options-step"
	// FailedMountOptionsAnnotation is set on a PersistentVolume whose options were restored because a pod could not mount it. It
	// contains JSON with set and rules, as in MountOptionsStepAnnotation, and driver, options and the event's message. The ConfigMaps
	// storage-client-volumes-N prevent other volumes from getting the options of that set. The annotation has this effect for the
	// previous release.
	FailedMountOptionsAnnotation = "tuning.storageclient.dev/failed-mount-options"
	// Finalizer stays on a profile until every reachable node and volume is restored.
	Finalizer = "tuning.storageclient.dev/restore"

	// TunedNodeCondition is the type of the condition that the manager maintains on each managed Node.
	TunedNodeCondition = "tuning.storageclient.dev/Tuned"
	// StorageReachableNodeCondition is the type of the condition that the manager maintains on each managed Node. It is False while a
	// storage server that the node has mounts of does not respond to it.
	StorageReachableNodeCondition = "tuning.storageclient.dev/StorageReachable"

	// ManagerFieldManager is the field manager of the manager's writes.
	ManagerFieldManager = "storage-client-manager"
	// AgentFieldManager is the field manager of a node agent's writes.
	AgentFieldManager = "storage-client-node-agent"
	// VolumesFieldManager is the field manager of the mount options that the operator writes into PersistentVolumes.
	VolumesFieldManager = "storage-client-volumes"
	// PluginFieldManager is the field manager of the kubectl plugin's writes, and of the commands that it prints. Flux removes fields
	// whose field manager begins with "kubectl".
	PluginFieldManager = "storageclient-plugin"

	// FromNconnect as the sysctl sunrpc.tcp_max_slot_table_entries derives the limit from the node's largest declared nconnect.
	FromNconnect = "FromNconnect"
)

// True is the value of enabled annotations and labels of the operator.
const True = "true"

// IsStopped reports whether PausedAnnotation, IgnoreAnnotation or NeverDisruptAnnotation stops changes to an object. Every value does, except ""
// and "false" in any case. The admission policies use the same rule.
func IsStopped(obj metav1.Object, annotation string) bool {
	value := obj.GetAnnotations()[annotation]
	return value != "" && strings.ToLower(value) != "false"
}

// OddStop returns the text that follows the name of an annotation in messages if IsStopped is true by another value than "true". Otherwise it
// is empty.
func OddStop(obj metav1.Object, annotation string) string {
	value := obj.GetAnnotations()[annotation]
	if !IsStopped(obj, annotation) || strings.ToLower(value) == True {
		return ""
	}
	return fmt.Sprintf("=%.32q (counts as true; use true or false)", value)
}

// ControlPlaneLabels are the labels of nodes that run a part of the control plane or a member of etcd. The manifests exclude the same labels.
var ControlPlaneLabels = []string{
	"node-role.kubernetes.io/control-plane",
	"node-role.kubernetes.io/master",       // clusters before Kubernetes 1.24, OpenShift
	"node-role.kubernetes.io/controlplane", // RKE
	"node-role.kubernetes.io/etcd",         // RKE, RKE2 and k3s
	"node-role.kubernetes.io/api-server",   // kOps, nodes that run only API servers
	"node-role.kubernetes.io/arbiter",      // OpenShift, a voter of etcd without workloads
	"node.kubernetes.io/microk8s-controlplane",
}
