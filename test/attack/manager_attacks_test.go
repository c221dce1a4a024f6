//go:build attack

package attack

import (
	"encoding/json"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/webhook"
)

// Two harmless writes of the manager.
var (
	cordon  = merge(node("node-1"), `{"metadata":{"annotations":{"`+v1alpha1.DisruptionAnnotation+`":"{}"}},"spec":{"unschedulable":true}}`)
	options = merge(volume("pv-1"), `{"metadata":{"annotations":{"`+v1alpha1.AppliedMountOptionsAnnotation+`":"[]"}},"spec":{"mountOptions":["hard","nconnect=4"]}}`)
)

func managerAttacksOnWorkloads() []attack {
	drain := evict(tenantNamespace, "web-2")
	privileged := thing("apps", "v1", "DaemonSet", v1alpha1.AgentNamespace, "other")
	content, _ := json.Marshal(map[string]any{"selector": map[string]any{"matchLabels": map[string]string{"app": "b"}}, "template": templateOf("b")})
	var spec map[string]any
	_ = json.Unmarshal(content, &spec)
	privileged.Object["spec"] = spec
	agents := thing("apps", "v1", "DaemonSet", v1alpha1.AgentNamespace, v1alpha1.AgentDaemonSet)
	job := thing("batch", "v1", "Job", tenantNamespace, "job")
	return []attack{
		{id: "manager-creates-daemonset", by: manager, tries: "create a DaemonSet in the privileged namespace",
			stop: byRBAC, want: `cannot create resource "daemonsets"`, try: create(privileged), twin: drain},
		{id: "manager-patches-daemonset", by: manager, tries: "give the agents another image",
			stop: byRBAC, want: `cannot patch resource "daemonsets"`, twin: drain,
			try: strategic(agents, `{"spec":{"template":{"spec":{"containers":[{"name":"node-agent","image":"evil.example.com/agent"}]}}}}`)},
		{id: "manager-deletes-daemonset", by: manager, tries: "delete the agents' DaemonSet",
			stop: byRBAC, want: `cannot delete resource "daemonsets"`, try: remove(agents), twin: drain},
		{id: "manager-creates-deployment", by: manager, tries: "create a Deployment in the privileged namespace",
			stop: byRBAC, want: `cannot create resource "deployments"`, try: create(deploymentOf(v1alpha1.AgentNamespace, "other")), twin: drain},
		{id: "manager-patches-deployment", by: manager, tries: "give a tenant's Deployment another image",
			stop: byRBAC, want: `cannot patch resource "deployments"`, twin: drain,
			try: strategic(deploymentOf(tenantNamespace, "web"), `{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"evil.example.com/app"}]}}}}`)},
		{id: "manager-creates-job", by: manager, tries: "create a Job",
			stop: byRBAC, want: `cannot create resource "jobs"`, try: create(job), twin: drain},
		{id: "manager-creates-pod", by: manager, tries: "create a Pod in the privileged namespace",
			stop: byRBAC, want: `cannot create resource "pods"`, try: create(podOf(v1alpha1.AgentNamespace, "other", "node-1", v1alpha1.AgentServiceAccount)), twin: drain},
		{id: "manager-creates-pod-at-home", by: manager, tries: "create a Pod in its own namespace",
			stop: byRBAC, want: `cannot create resource "pods"`, try: create(podOf(v1alpha1.ManagerNamespace, "other", "node-1", v1alpha1.ManagerDeployment)), twin: drain},
		{id: "manager-patches-pod", by: manager, tries: "give an agent's Pod another image",
			stop: byRBAC, want: `cannot patch resource "pods"`, twin: drain,
			try: jsonPatch(podOf(v1alpha1.AgentNamespace, "agent-node-1", "", ""), `[{"op":"replace","path":"/spec/containers/0/image","value":"evil.example.com/a"}]`)},
		{id: "manager-deletes-pod", by: manager, tries: "delete a Pod in spite of its PodDisruptionBudget",
			stop: byRBAC, want: `cannot delete resource "pods"`, try: remove(podOf(tenantNamespace, "web-2", "", "")), twin: drain},
		{id: "manager-exec", by: manager, tries: "run a command in an agent's Pod",
			stop: byRBAC, want: `cannot create resource "pods/exec"`, twin: drain,
			try: raw("POST", "/api/v1/namespaces/"+v1alpha1.AgentNamespace+"/pods/agent-node-1/exec")},
		{id: "manager-debug-container", by: manager, tries: "put a debugging container into an agent's Pod",
			stop: byRBAC, want: `cannot patch resource "pods/ephemeralcontainers"`, twin: drain,
			try: func(a *actor) error {
				patch := client.RawPatch("application/strategic-merge-patch+json", []byte(`{"spec":{"ephemeralContainers":[{"name":"d","image":"evil.example.com/a"}]}}`))
				return a.client.SubResource("ephemeralcontainers").Patch(a.ctx, podOf(v1alpha1.AgentNamespace, "agent-node-1", "", ""), patch)
			}},
		{id: "manager-kubelet", by: manager, tries: "reach a kubelet through the API server",
			stop: byRBAC, want: `cannot get resource "nodes/proxy"`, try: raw("GET", "/api/v1/nodes/node-1/proxy/pods"), twin: drain},
		{id: "manager-evicts", by: manager, tries: "evict any Pod, within its PodDisruptionBudget", stop: notStopped, try: drain},
		{id: "manager-evicts-at-once", by: manager, tries: "evict a Pod without a termination grace period", stop: notStopped, try: func(a *actor) error {
			pod := podOf(tenantNamespace, "web-2", "", "")
			now := &metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}
			return a.client.SubResource("eviction").Create(a.ctx, pod, &policyv1.Eviction{ObjectMeta: pod.ObjectMeta, DeleteOptions: now})
		}},
	}
}

func managerAttacksOnNodes() []attack {
	nodes := byManagerFence
	conditions := func(condition string) func(*actor) error {
		return strategicStatus(node("node-1"), `{"status":{"conditions":[{"type":"`+condition+`","status":"True","reason":"Test","message":"",`+
			`"lastTransitionTime":"2026-01-01T00:00:00Z","lastHeartbeatTime":"2026-01-01T00:00:00Z"}]}}`)
	}
	tuned := conditions(v1alpha1.TunedNodeCondition)
	otherTaint := `{"key":"example.com/dedicated","value":"database","effect":"NoSchedule"}`
	untuned := `{"key":"` + v1alpha1.UntunedTaint + `","effect":"NoSchedule"}`
	return []attack{
		{id: "manager-node-label", by: manager, tries: "move a Node to another zone by its label",
			stop: nodes, want: "labels", try: merge(node("node-1"), `{"metadata":{"labels":{"topology.kubernetes.io/zone":"zone-2"}}}`),
			twin: merge(node("node-1"), `{"metadata":{"labels":{"`+v1alpha1.ManagedLabel+`":null}}}`)},
		{id: "manager-node-role", by: manager, tries: "make a Node one of the control plane",
			stop: nodes, want: "labels", try: merge(node("node-1"), `{"metadata":{"labels":{"node-role.kubernetes.io/control-plane":""}}}`),
			twin: merge(node("node-1"), `{"metadata":{"labels":{"node.kubernetes.io/exclude-from-external-load-balancers":"true"}}}`)},
		{id: "manager-control-plane-managed", by: manager, tries: "bring an agent to a control-plane node",
			stop: nodes, want: "install the component control-plane", try: merge(node("server-1"), `{"metadata":{"labels":{"`+v1alpha1.ManagedLabel+`":"true"}}}`), twin: cordon},
		{id: "manager-control-plane-trial", by: manager, tries: "bring the trial runner to a control-plane node",
			stop: nodes, want: "install the component control-plane", try: merge(node("server-1"), `{"metadata":{"labels":{"`+v1alpha1.TrialLabel+`":"true"}}}`), twin: cordon},
		{id: "manager-control-plane-cordon", by: manager, tries: "cordon a control-plane node",
			stop: nodes, want: "install the component control-plane", try: merge(node("server-1"), `{"spec":{"unschedulable":true}}`), twin: cordon},
		{id: "manager-control-plane-disruption", by: manager, tries: "claim a control-plane node for a disruption",
			stop: nodes, want: "install the component control-plane", twin: cordon,
			try: merge(node("server-1"), `{"metadata":{"annotations":{"`+v1alpha1.DisruptionAnnotation+`":"{}"}}}`)},
		{id: "manager-control-plane-load-balancers", by: manager, tries: "remove a control-plane node from external load balancers",
			stop: nodes, want: "install the component control-plane", twin: cordon,
			try: merge(node("server-1"), `{"metadata":{"labels":{"node.kubernetes.io/exclude-from-external-load-balancers":"true"}}}`)},
		{id: "manager-control-plane-role", by: manager, tries: "manage a control-plane node after the removal of its label",
			stop: nodes, want: "component control-plane", twin: cordon,
			try: merge(node("server-1"), `{"metadata":{"labels":{"node.kubernetes.io/microk8s-controlplane":null,"`+v1alpha1.ManagedLabel+`":"true"}}}`)},
		{id: "manager-node-annotation", by: manager, tries: "change another user's annotation of a Node",
			stop: nodes, want: "annotations", try: merge(node("node-1"), `{"metadata":{"annotations":{"example.com/owner":"nobody"}}}`),
			twin: merge(node("node-1"), `{"metadata":{"annotations":{"cluster-autoscaler.kubernetes.io/scale-down-disabled":"true","karpenter.sh/do-not-disrupt":"true"}}}`)},
		{id: "manager-never-disrupt", by: manager, tries: "disrupt a Node with the annotation never-disrupt, by changing the annotation",
			stop: nodes, want: "annotations", try: merge(node("node-1"), `{"metadata":{"annotations":{"`+v1alpha1.NeverDisruptAnnotation+`":"false"}}}`), twin: cordon},
		{id: "manager-node-taint", by: manager, tries: "remove another user's taint",
			stop: nodes, want: "taint", try: merge(node("node-1"), `{"spec":{"taints":[`+untuned+`]}}`),
			twin: merge(node("node-1"), `{"spec":{"taints":[`+otherTaint+`]}}`)},
		{id: "manager-node-new-taint", by: manager, tries: "evict all Pods of a Node with a taint NoExecute",
			stop: nodes, want: "taint", try: merge(node("node-1"), `{"spec":{"taints":[`+untuned+`,`+otherTaint+`,{"key":"example.com/out","effect":"NoExecute"}]}}`),
			twin: cordon},
		{id: "manager-node-provider", by: manager, tries: "make the cloud treat a Node as another machine",
			stop: nodes, want: "spec", try: merge(node("node-1"), `{"spec":{"providerID":"azure:///other"}}`), twin: cordon},
		{id: "manager-node-pod-cidr", by: manager, tries: "give a Node another range of addresses",
			stop: nodes, want: "spec", try: merge(node("node-1"), `{"spec":{"podCIDR":"10.9.0.0/24","podCIDRs":["10.9.0.0/24"]}}`), twin: cordon},
		{id: "manager-node-finalizer", by: manager, tries: "keep a Node from being deleted",
			stop: nodes, want: "finalizers", try: merge(node("node-1"), `{"metadata":{"finalizers":["example.com/stay"]}}`), twin: cordon},
		{id: "manager-node-owner", by: manager, tries: "have the garbage collector delete a Node",
			stop: nodes, want: "owner", try: merge(node("node-1"), `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"gone","uid":"u"}]}}`), twin: cordon},
		{id: "manager-node-ready", by: manager, tries: "report a Node not Ready, so that its Pods are evicted",
			stop: nodes, want: "condition", twin: tuned,
			try: strategicStatus(node("node-1"), `{"status":{"conditions":[{"type":"Ready","status":"Unknown","reason":"Test","message":"",`+
				`"lastTransitionTime":"2026-01-01T00:00:00Z","lastHeartbeatTime":"2026-01-01T00:00:00Z"}]}}`)},
		{id: "manager-node-condition", by: manager, tries: "report a condition that an automatic repair acts on",
			stop: nodes, want: "condition", try: conditions("KernelDeadlock"), twin: conditions("MaintenanceInProgress")},
		{id: "manager-node-capacity", by: manager, tries: "report another capacity",
			stop: nodes, want: "status", try: mergeStatus(node("node-1"), `{"status":{"capacity":{"cpu":"400"}}}`), twin: tuned},
		{id: "manager-node-address", by: manager, tries: "redirect the API server to another kubelet",
			stop: nodes, want: "status", try: mergeStatus(node("node-1"), `{"status":{"addresses":[{"type":"InternalIP","address":"10.6.6.6"}]}}`), twin: tuned},
		{id: "manager-node-delete", by: manager, tries: "delete a Node",
			stop: byRBAC, want: `cannot delete resource "nodes"`, try: remove(node("node-1")), twin: cordon},
		{id: "manager-node-create", by: manager, tries: "register a Node",
			stop: byRBAC, want: `cannot create resource "nodes"`, try: create(node("node-3")), twin: cordon},
		{id: "manager-cordons", by: manager, tries: "cordon any Node", stop: notStopped, try: cordon},
		{id: "manager-load-balancers", by: manager, tries: "remove any Node from external load balancers", stop: notStopped,
			try: merge(node("node-1"), `{"metadata":{"labels":{"node.kubernetes.io/exclude-from-external-load-balancers":"true"}}}`)},
		{id: "manager-trial-of-any-option", by: manager, tries: "order a trial with an option that hides a second option",
			stop: byCRD, want: "spec.trial.mountOptions", try: merge(clientNode("node-1"), trialOrder(`"hard,suid"`)),
			twin: merge(clientNode("node-1"), trialOrder(`"hard"`))},
		{id: "manager-orders-trials", by: manager, tries: "have a node's trial runner mount any export once, and label the node for it", stop: notStopped,
			try: merge(clientNode("node-1"), trialOrder(`"hard"`))},
		{id: "manager-calls-agents-off", by: manager, tries: "remove the agent from a Node by the operator's label", stop: notStopped,
			try: merge(node("node-1"), `{"metadata":{"labels":{"`+v1alpha1.ManagedLabel+`":null}}}`)},
	}
}

// trialOrder is a patch that orders a trial with an option.
func trialOrder(option string) string {
	return `{"spec":{"trial":{"id":"t1","kind":"Probe","volume":"pv-1","server":"filer","path":"/export","fsType":"nfs","mountOptions":[` + option +
		`],"runAsUser":65534,"timeoutSeconds":60}}}`
}

func managerAttacksOnVolumes() []attack {
	pv, fence := volume("pv-1"), byManagerFence
	return []attack{
		{id: "manager-pv-source", by: manager, tries: "point a volume to another server",
			stop: byKubernetes, want: "immutable", try: merge(pv, `{"spec":{"nfs":{"server":"evil.example.com"}}}`), twin: options},
		{id: "manager-pv-claim", by: manager, tries: "give a volume to another namespace",
			stop: fence, want: "only mountOptions", try: merge(pv, `{"spec":{"claimRef":{"namespace":"other","name":"mine","uid":null}}}`), twin: options},
		{id: "manager-pv-reclaim", by: manager, tries: "have a volume's data deleted with its claim",
			stop: fence, want: "only mountOptions", try: merge(pv, `{"spec":{"persistentVolumeReclaimPolicy":"Delete"}}`), twin: options},
		{id: "manager-pv-capacity", by: manager, tries: "change a volume's capacity",
			stop: fence, want: "only mountOptions", try: merge(pv, `{"spec":{"capacity":{"storage":"9Gi"}}}`), twin: options},
		{id: "manager-pv-affinity", by: manager, tries: "bind a volume to one node",
			stop: fence, want: "only mountOptions", twin: options,
			try: merge(pv, `{"spec":{"nodeAffinity":{"required":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"a","operator":"Exists"}]}]}}}}`)},
		{id: "manager-pv-modes", by: manager, tries: "let others write to a volume",
			stop: fence, want: "only mountOptions", try: merge(pv, `{"spec":{"accessModes":["ReadOnlyMany"]}}`), twin: options},
		{id: "manager-pv-class", by: manager, tries: "move a volume to another StorageClass",
			stop: fence, want: "only mountOptions", try: merge(pv, `{"spec":{"storageClassName":"fast"}}`), twin: options},
		{id: "manager-pv-label", by: manager, tries: "change a volume's labels",
			stop: fence, want: "labels", try: merge(pv, `{"metadata":{"labels":{"a":"b"}}}`), twin: options},
		{id: "manager-pv-annotation", by: manager, tries: "change another user's annotation of a volume",
			stop: fence, want: "annotations", try: merge(pv, `{"metadata":{"annotations":{"example.com/owner":"nobody"}}}`), twin: options},
		{id: "manager-pv-finalizer", by: manager, tries: "remove a volume's protection",
			stop: fence, want: "finalizers", try: merge(pv, `{"metadata":{"finalizers":null}}`), twin: options},
		{id: "manager-pv-owner", by: manager, tries: "have the garbage collector delete a volume",
			stop: fence, want: "owner", try: merge(pv, `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"gone","uid":"u"}]}}`), twin: options},
		{id: "manager-pv-delete", by: manager, tries: "delete a volume",
			stop: byRBAC, want: `cannot delete resource "persistentvolumes"`, try: remove(pv), twin: options},
		{id: "manager-pv-create", by: manager, tries: "create a volume for another user's data",
			stop: byRBAC, want: `cannot create resource "persistentvolumes"`, try: create(volumeOf("pv-2")), twin: options},
		{id: "manager-pv-status", by: manager, tries: "report a volume's phase",
			stop: byRBAC, want: `cannot patch resource "persistentvolumes/status"`, try: mergeStatus(pv, `{"status":{"phase":"Failed"}}`), twin: options},
		{id: "manager-pvc", by: manager, tries: "write a PersistentVolumeClaim",
			stop: byRBAC, want: `cannot patch resource "persistentvolumeclaims"`, twin: options,
			try: merge(volumeClaimOf("data", ""), `{"spec":{"resources":{"requests":{"storage":"9Gi"}}}}`)},
		{id: "manager-pvc-create", by: manager, tries: "claim another user's volume",
			stop: byRBAC, want: `cannot create resource "persistentvolumeclaims"`, try: create(volumeClaimOf("mine", "pv-1")), twin: options},
		{id: "manager-pvc-delete", by: manager, tries: "delete a PersistentVolumeClaim",
			stop: byRBAC, want: `cannot delete resource "persistentvolumeclaims"`, try: remove(volumeClaimOf("data", "")), twin: options},
		{id: "manager-mount-options", by: manager, tries: "give a volume any mount options, suid and dev among them", stop: notStopped,
			try: merge(pv, `{"spec":{"mountOptions":["suid","dev"]}}`)},
	}
}

func managerAttacksOnOurs() []attack {
	fence := byManagerFence
	note := mergeStatus(clientNode("node-1"), `{"status":{"rollout":{"phase":"UpToDate"}}}`)
	finalizer := merge(profile("fleet"), `{"metadata":{"finalizers":["`+v1alpha1.Finalizer+`"]}}`)
	budget := overwrite(configMap(v1alpha1.ManagerNamespace, v1alpha1.BudgetConfigMap), func(c *corev1.ConfigMap) { c.Data = map[string]string{"node-1": "{}"} })
	write := func(namespace, name string) func(*actor) error {
		return func(a *actor) error {
			live := configMap(namespace, name)
			if err := a.world.cluster.admin.Get(a.ctx, client.ObjectKeyFromObject(live), live); err != nil {
				return err
			}
			live.Data = map[string]string{"node.sysctls.allowed": "*"}
			return a.client.Update(a.ctx, live)
		}
	}
	return []attack{
		{id: "manager-profile-spec", by: manager, tries: "change the spec of a profile",
			stop: fence, want: "spec", try: merge(profile("fleet"), `{"spec":{"priority":5}}`), twin: finalizer},
		{id: "manager-approves", by: manager, tries: "approve a plan",
			stop: byApproval + " or storage-client-manager-profiles", want: "boots", try: approve("boots"), twin: finalizer},
		{id: "manager-profile-label", by: manager, tries: "change a profile's labels",
			stop: fence, want: "labels", try: merge(profile("fleet"), `{"metadata":{"labels":{"a":"b"}}}`), twin: finalizer},
		{id: "manager-profile-delete", by: manager, tries: "delete a profile",
			stop: byRBAC, want: `cannot delete resource "storageclientprofiles"`, try: remove(profile("fleet")), twin: finalizer},
		{id: "manager-profile-create", by: manager, tries: "create a profile",
			stop: byRBAC, want: `cannot create resource "storageclientprofiles"`, try: create(profileOf("mine")), twin: finalizer},
		{id: "manager-profile-other-finalizer", by: manager, tries: "block the deletion of a profile with another user's finalizer",
			stop: fence, want: "finalizer", try: merge(profile("fleet"), `{"metadata":{"finalizers":["example.com/stay"]}}`), twin: finalizer},
		{id: "manager-reports-for-agent", by: manager, tries: "report a node's settings instead of its agent",
			stop: fence, want: "only rollout", try: mergeStatus(clientNode("node-1"), `{"status":{"hash":"forged","rebootRequired":false}}`), twin: note},
		{id: "manager-forges-creation", by: manager, tries: "create a StorageClientNode with a forged status",
			stop: byKubernetes, want: "ignored", twin: note, try: func(a *actor) error {
				forged := ownedBy("Node", "node-3")
				forged.Status.Hash = "forged"
				if err := a.client.Create(a.ctx, forged); err != nil {
					return err
				}
				if a.get(forged); forged.Status.Hash == "" {
					return stopped{by: byKubernetes, message: "ignored: the status is a subresource"}
				}
				return nil
			}},
		{id: "manager-client-node-without-owner", by: manager, tries: "create a StorageClientNode that no Node owns",
			stop: fence, want: "one owner reference", try: create(clientNode("node-3")), twin: create(ownedBy("Node", "node-3"))},
		{id: "manager-client-node-of-another-node", by: manager, tries: "create a StorageClientNode for another Node than its owner",
			stop: fence, want: "one owner reference", try: create(withMeta(ownedBy("Node", "node-2"), func(o *metav1.ObjectMeta) { o.Name = "node-3" })), twin: note},
		{id: "manager-client-node-of-a-pod", by: manager, tries: "create a StorageClientNode that a Pod owns",
			stop: fence, want: "one owner reference", try: create(ownedBy("Pod", "node-3")), twin: note},
		{id: "manager-client-node-born-with-label", by: manager, tries: "create a StorageClientNode with a label",
			stop: fence, want: "without labels", try: create(withMeta(ownedBy("Node", "node-3"), func(o *metav1.ObjectMeta) { o.Labels = map[string]string{"example.com/pool": "red"} })), twin: note},
		{id: "manager-client-node-born-with-annotation", by: manager, tries: "create a StorageClientNode with an annotation",
			stop: fence, want: "without labels", try: create(withMeta(ownedBy("Node", "node-3"), func(o *metav1.ObjectMeta) { o.Annotations = map[string]string{"example.com/a": "b"} })), twin: note},
		{id: "manager-client-node-born-with-finalizer", by: manager, tries: "create a StorageClientNode that cannot be deleted",
			stop: fence, want: "without labels", try: create(withMeta(ownedBy("Node", "node-3"), func(o *metav1.ObjectMeta) { o.Finalizers = []string{"example.com/stay"} })), twin: note},
		{id: "manager-client-node-blocks-deletion", by: manager, tries: "create a StorageClientNode that delays the deletion of its Node",
			stop: fence, want: "one owner reference", twin: note, try: create(withMeta(ownedBy("Node", "node-3"), func(o *metav1.ObjectMeta) { o.OwnerReferences[0].BlockOwnerDeletion = ptr.To(true) }))},
		{id: "manager-client-node-label", by: manager, tries: "change the labels of a StorageClientNode",
			stop: fence, want: "labels", try: merge(clientNode("node-1"), `{"metadata":{"labels":{"example.com/pool":"red"}}}`), twin: note},
		{id: "manager-guardrails", by: manager, tries: "raise the guardrails",
			stop: fence, want: "ConfigMap", try: write(v1alpha1.ManagerNamespace, "storage-client-guardrails"), twin: budget},
		{id: "manager-other-configmap", by: manager, tries: "write another ConfigMap of its namespace",
			stop: fence, want: "ConfigMap", try: write(v1alpha1.ManagerNamespace, "settings"), twin: budget},
		{id: "manager-new-configmap", by: manager, tries: "create another ConfigMap in its namespace",
			stop: fence, want: "ConfigMap", try: create(configMap(v1alpha1.ManagerNamespace, "other")),
			twin: create(configMap(v1alpha1.ManagerNamespace, "storage-client-failures"))},
		{id: "manager-ledger-name", by: manager, tries: "create a ConfigMap whose name only starts like the name of a volumes ConfigMap",
			stop: fence, want: "ConfigMap", try: create(configMap(v1alpha1.ManagerNamespace, v1alpha1.VolumesConfigMapPrefix+"1.crt")),
			twin: create(configMap(v1alpha1.ManagerNamespace, v1alpha1.VolumesConfigMapPrefix+"1"))},
		{id: "manager-configmap-elsewhere", by: manager, tries: "write a ConfigMap of another namespace",
			stop: byRBAC, want: `cannot create resource "configmaps"`, try: create(configMap("kube-system", "other")), twin: budget},
		{id: "manager-configmap-delete", by: manager, tries: "delete the guardrails",
			stop: fence, want: "ConfigMap", try: remove(configMap(v1alpha1.ManagerNamespace, "storage-client-guardrails")), twin: budget},
		{id: "manager-namespace", by: manager, tries: "weaken its namespace's Pod Security",
			stop: byRBAC, want: `cannot patch resource "namespaces"`, twin: get(&corev1.Namespace{ObjectMeta: named("", v1alpha1.ManagerNamespace)}),
			try: merge(&corev1.Namespace{ObjectMeta: named("", v1alpha1.ManagerNamespace)}, `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"privileged"}}}`)},
		{id: "manager-namespaces", by: manager, tries: "list all namespaces",
			stop: byRBAC, want: `cannot list resource "namespaces"`, try: list(&corev1.NamespaceList{}),
			twin: get(&corev1.Namespace{ObjectMeta: named("", v1alpha1.ManagerNamespace)})},
		{id: "manager-crd", by: manager, tries: "remove the rules from the CustomResourceDefinition",
			stop: byRBAC, want: `cannot patch resource "customresourcedefinitions"`, twin: finalizer,
			try: merge(thing("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "", "storageclientnodes.tuning.storageclient.dev"), `{"metadata":{"labels":{"a":"b"}}}`)},
		{id: "manager-spec", by: manager, tries: "have an agent set any value that the agent's catalogue accepts", stop: notStopped,
			try: merge(clientNode("node-1"), `{"spec":{"settings":[{"key":"sysctl/net.core.rmem_max","value":"4096","profile":"p","onRemoval":"Restore"}]}}`)},
		{id: "manager-release", by: manager, tries: "have an agent restore everything", stop: notStopped,
			try: merge(clientNode("node-1"), `{"spec":{"release":true}}`)},
		{id: "manager-permit", by: manager, tries: "permit a reboot that no profile requested; the agent checks the host first", stop: notStopped,
			try: merge(clientNode("node-1"), `{"spec":{"rebootPermit":{"id":"p","bootID":"boot-1"}}}`)},
		{id: "manager-lies", by: manager, tries: "report a false status of a profile", stop: notStopped,
			try: mergeStatus(profile("fleet"), `{"status":{"plan":{"hash":"other"}}}`)},
	}
}

func managerAttacksOnIdentities() []attack {
	secretOf := func(namespace, name string) func(*actor) error {
		return list(&corev1.SecretList{}, client.InNamespace(namespace), client.MatchingFields{"metadata.name": name})
	}
	own := secretOf(v1alpha1.ManagerNamespace, webhook.Name)
	caBundle := jsonPatch(thing("admissionregistration.k8s.io", "v1", "MutatingWebhookConfiguration", "", webhook.Name),
		`[{"op":"add","path":"/metadata/labels/a","value":"b"}]`)
	anything := []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}}
	nodeName := map[string][]string{"authentication.kubernetes.io/node-name": {"node-1"}}
	asAgent := func(do func(*actor) error) func(*actor) error { return impersonating(agentUser, nil, nodeName, do) }
	fenceTried := asAgent(onlyTry(reportOf("node-1")))
	return []attack{
		{id: "manager-secret-elsewhere", by: manager, tries: "read a tenant's Secret",
			stop: byRBAC, want: `cannot list resource "secrets"`, try: secretOf(tenantNamespace, "database"), twin: own},
		{id: "manager-secret-at-home", by: manager, tries: "read another Secret of its namespace",
			stop: byRBAC, want: `cannot list resource "secrets"`, try: secretOf(v1alpha1.ManagerNamespace, "registry"), twin: own},
		{id: "manager-all-secrets", by: manager, tries: "read all Secrets",
			stop: byRBAC, want: `cannot list resource "secrets"`, try: list(&corev1.SecretList{}), twin: own},
		{id: "manager-reads-pods", by: manager, tries: "read all Pods' specs, environment included", stop: notStopped, try: list(&corev1.PodList{})},
		{id: "manager-lease", by: manager, tries: "take the lease of another controller",
			stop: byRBAC, want: `cannot create resource "leases"`, try: create(thing("coordination.k8s.io", "v1", "Lease", "kube-system", "kube-scheduler")),
			twin: create(thing("coordination.k8s.io", "v1", "Lease", v1alpha1.ManagerNamespace, v1alpha1.ManagerLease))},
		{id: "manager-cluster-role", by: manager, tries: "create a ClusterRole",
			stop: byRBAC, want: `cannot create resource "clusterroles"`, try: create(&rbacv1.ClusterRole{ObjectMeta: named("", "all"), Rules: anything}), twin: own},
		{id: "manager-own-role", by: manager, tries: "widen its own ClusterRole",
			stop: byRBAC, want: `cannot patch resource "clusterroles"`, twin: own,
			try: merge(&rbacv1.ClusterRole{ObjectMeta: named("", v1alpha1.ManagerDeployment)}, `{"rules":[{"apiGroups":["*"],"resources":["*"],"verbs":["*"]}]}`)},
		{id: "manager-cluster-admin", by: manager, tries: "bind itself to cluster-admin",
			stop: byRBAC, want: `cannot create resource "clusterrolebindings"`, twin: own,
			try: create(&rbacv1.ClusterRoleBinding{ObjectMeta: named("", "mine"), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
				Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: v1alpha1.ManagerNamespace, Name: v1alpha1.ManagerDeployment}}})},
		{id: "manager-policy", by: manager, tries: "weaken the agents' fence",
			stop: byRBAC, want: `cannot patch resource "validatingadmissionpolicies"`, twin: own,
			try: merge(admissionPolicy(v1alpha1.AgentPolicy), `{"spec":{"failurePolicy":"Ignore"}}`)},
		{id: "manager-own-policy", by: manager, tries: "change the policy on its writes to Nodes, so that it may remove any taint",
			stop: byRBAC, want: `cannot patch resource "validatingadmissionpolicies"`, twin: own,
			try: jsonPatch(admissionPolicy("storage-client-manager-nodes"), `[{"op":"replace","path":"/spec/variables/0/expression","value":"'example.com/dedicated'"}]`)},
		{id: "manager-policy-delete", by: manager, tries: "delete the policy that limits its writes to Nodes",
			stop: byRBAC, want: `cannot delete resource "validatingadmissionpolicies"`, try: remove(admissionPolicy("storage-client-manager-nodes")), twin: own},
		{id: "manager-binding-patch", by: manager, tries: "have the agents' fence only warn",
			stop: byRBAC, want: `cannot patch resource "validatingadmissionpolicybindings"`, twin: own,
			try: merge(admissionBinding(v1alpha1.AgentPolicy), `{"spec":{"validationActions":["Warn"]}}`)},
		{id: "manager-binding-delete", by: manager, tries: "delete the binding of the agents' fence",
			stop: byRBAC, want: `cannot delete resource "validatingadmissionpolicybindings"`, try: remove(admissionBinding(v1alpha1.AgentPolicy)), twin: own},
		{id: "manager-foreign-webhook", by: manager, tries: "change another user's webhook",
			stop: byRBAC, want: `cannot patch resource "validatingwebhookconfigurations"`, twin: caBundle,
			try: merge(foreignWebhook(), `{"webhooks":[]}`)},
		{id: "manager-new-webhook", by: manager, tries: "create a webhook",
			stop: byRBAC, want: `cannot create resource "mutatingwebhookconfigurations"`, twin: caBundle,
			try: create(thing("admissionregistration.k8s.io", "v1", "MutatingWebhookConfiguration", "", "mine"))},
		{id: "manager-webhook-rules", by: manager, tries: "have its mutating webhook called for every Pod",
			stop: notStopped, try: askedAboutPods},
		{id: "manager-agent-token", by: manager, tries: "get a token of an agent",
			stop: byRBAC, want: `cannot create resource "serviceaccounts/token"`,
			try: requestToken(v1alpha1.AgentNamespace, v1alpha1.AgentServiceAccount, "agent-node-1"), twin: own},
		{id: "manager-own-token", by: manager, tries: "get itself a token that outlives its Pod",
			stop: byRBAC, want: `cannot create resource "serviceaccounts/token"`,
			try: requestToken(v1alpha1.ManagerNamespace, v1alpha1.ManagerDeployment, ""), twin: own},
		{id: "manager-certificate", by: manager, tries: "request a client certificate",
			stop: byRBAC, want: `cannot create resource "certificatesigningrequests"`, twin: own,
			try: create(thing("certificates.k8s.io", "v1", "CertificateSigningRequest", "", "mine"))},
		{id: "manager-impersonates-admin", by: manager, tries: "act as an administrator",
			stop: byRBAC, want: " cannot impersonate", try: impersonating("admin", []string{"system:masters"}, nil, get(secret(tenantNamespace, "database"))), twin: fenceTried},
		{id: "manager-impersonates-account", by: manager, tries: "act as another service account",
			stop: byRBAC, want: " cannot impersonate", twin: fenceTried,
			try: impersonating("system:serviceaccount:kube-system:clusterrole-aggregation-controller", nil, nil, get(secret(tenantNamespace, "database")))},
		{id: "manager-impersonates-group", by: manager, tries: "act as an agent in the group system:masters",
			stop: byRBAC, want: " cannot impersonate", twin: fenceTried,
			try: impersonating(agentUser, []string{"system:masters"}, nodeName, get(secret(tenantNamespace, "database")))},
		{id: "manager-impersonates-agent", by: manager, tries: "report as an agent, and not as a dry run",
			stop: byAgentFence, want: "bound", try: asAgent(reportOf("node-1")), twin: fenceTried},
		{id: "manager-impersonates-agents-pod", by: manager, tries: "report as an agent's Pod",
			stop: byRBAC, want: "authentication.kubernetes.io/pod-name", twin: fenceTried,
			try: impersonating(agentUser, nil, map[string][]string{
				"authentication.kubernetes.io/node-name": {"node-1"}, "authentication.kubernetes.io/pod-name": {"agent-node-1"},
			}, reportOf("node-1"))},
		{id: "manager-dry-run-of-another-node", by: manager, tries: "report as the agent of node-1 for node-2, as a dry run, as in its test of the fence",
			stop: byAgentFence, want: "only its own StorageClientNode", try: asAgent(onlyTry(reportOf("node-2"))), twin: fenceTried},
		{id: "manager-reviews-tokens", by: manager, tries: "look up the owner of a token that a client sent to its metrics", stop: notStopped,
			try: create(&authenticationv1.TokenReview{ObjectMeta: named("", ""), Spec: authenticationv1.TokenReviewSpec{Token: "x"}})},
	}
}

// askedAboutPods registers the manager's mutating webhook for every new Pod.
var askedAboutPods = jsonPatch(thing("admissionregistration.k8s.io", "v1", "MutatingWebhookConfiguration", "", webhook.Name),
	`[{"op":"replace","path":"/webhooks/0/rules","value":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["pods"]}]},`+
		`{"op":"remove","path":"/webhooks/0/matchConditions"}]`)

// controlPlaneAttacks run with the component control-plane.
func controlPlaneAttacks() []attack {
	return []attack{
		{id: "component-control-plane", by: manager, tries: "bring an agent to a control-plane node, with `config/components/control-plane`",
			stop: notStopped, try: merge(node("server-1"), `{"metadata":{"labels":{"`+v1alpha1.ManagedLabel+`":"true"}}}`)},
	}
}

// certificateAttacks run with the roles of a component that removes the manager's right on the webhooks' certificate.
func certificateAttacks() []attack {
	validating := jsonPatch(thing("admissionregistration.k8s.io", "v1", "ValidatingWebhookConfiguration", "", webhook.Name), `[{"op":"remove","path":"/webhooks"}]`)
	key := merge(secret(v1alpha1.ManagerNamespace, webhook.Name), `{"data":{"tls.key":"eA=="}}`)
	own := list(&corev1.SecretList{}, client.InNamespace(v1alpha1.ManagerNamespace), client.MatchingFields{"metadata.name": webhook.Name})
	return []attack{
		{id: "given-certificate-webhook", by: manager, tries: "have its mutating webhook called for every Pod, with `config/components/cert-manager`",
			stop: byRBAC, want: `cannot patch resource "mutatingwebhookconfigurations"`, try: askedAboutPods, twin: cordon},
		{id: "given-certificate-validating", by: manager, tries: "turn off the validation of profiles, with `config/components/cert-manager`",
			stop: byRBAC, want: `cannot patch resource "validatingwebhookconfigurations"`, try: validating, twin: cordon},
		{id: "given-certificate-secret", by: manager, tries: "replace its webhook's key, with `config/components/cert-manager`",
			stop: byRBAC, want: `cannot patch resource "secrets"`, try: key, twin: own},
	}
}

// ownedBy returns a StorageClientNode with an owner of the same name.
func ownedBy(kind, name string) *v1alpha1.StorageClientNode {
	object := clientNode(name)
	object.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: kind, Name: name, UID: "uid"}}
	return object
}

func withMeta(object *v1alpha1.StorageClientNode, change func(*metav1.ObjectMeta)) *v1alpha1.StorageClientNode {
	change(&object.ObjectMeta)
	return object
}
