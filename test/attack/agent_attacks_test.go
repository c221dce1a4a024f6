//go:build attack

package attack

import (
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
)

const (
	agentUser   = "system:serviceaccount:" + v1alpha1.AgentNamespace + ":" + v1alpha1.AgentServiceAccount
	managerUser = "system:serviceaccount:" + v1alpha1.ManagerNamespace + ":" + v1alpha1.ManagerDeployment
)

// reportOf returns the status write of an agent for a node.
func reportOf(name string) func(*actor) error {
	return mergeStatus(clientNode(name), `{"status":{"hash":"0123456789abcdef","rebootRequired":false}}`)
}

func agentAttacks() []attack {
	own := reportOf("node-1")
	daemonSet := thing("apps", "v1", "DaemonSet", v1alpha1.AgentNamespace, v1alpha1.AgentDaemonSet)
	return []attack{
		{id: "agent-status-of-another-node", by: agentOne, tries: "report for node-2",
			stop: byAgentFence, want: "only its own StorageClientNode", try: reportOf("node-2"), twin: own},
		{id: "agent-spec-of-another-node", by: agentOne, tries: "change the spec of node-2's StorageClientNode",
			stop: byRBAC, want: `cannot patch resource "storageclientnodes"`, try: merge(clientNode("node-2"), `{"spec":{"release":true}}`), twin: own},
		{id: "agent-own-spec", by: agentOne, tries: "change its own spec",
			stop: byRBAC, want: `cannot patch resource "storageclientnodes"`, try: merge(clientNode("node-1"), `{"spec":{"release":true}}`), twin: own},
		{id: "agent-own-permit", by: agentOne, tries: "give itself a permit to reboot",
			stop: byRBAC, want: `cannot patch resource "storageclientnodes"`,
			try: merge(clientNode("node-1"), `{"spec":{"rebootPermit":{"id":"mine","bootID":"boot-1"}}}`), twin: own},
		{id: "agent-orders-trial", by: agentOne, tries: "order itself a trial",
			stop: byRBAC, want: `cannot patch resource "storageclientnodes"`, try: merge(clientNode("node-1"), trialOrder(`"hard"`)), twin: own},
		{id: "agent-note", by: agentOne, tries: "change the manager's status.rollout of its node",
			stop: byAgentFence, want: "a node agent may not change status.rollout",
			try: mergeStatus(clientNode("node-1"), `{"status":{"rollout":{"phase":"UpToDate"}}}`), twin: own},
		{id: "agent-note-removed", by: agentOne, tries: "remove the manager's status.rollout of its node",
			stop: byAgentFence, want: "a node agent may not change status.rollout", try: mergeStatus(clientNode("node-1"), `{"status":{"rollout":null}}`), twin: own},
		{id: "agent-label", by: agentOne, tries: "change the labels of its StorageClientNode",
			stop: byRBAC, want: `cannot patch resource "storageclientnodes"`,
			try: merge(clientNode("node-1"), `{"metadata":{"labels":{"example.com/pool":null}}}`), twin: own},
		{id: "agent-metadata-by-status", by: agentOne, tries: "change labels, owners and finalizers along with its status",
			stop: byKubernetes, want: "ignored", twin: own,
			try: unchanged(clientNode("node-1"), metadataOf, mergeStatus(clientNode("node-1"), `{"status":{"hash":"a"},"metadata":{`+
				`"labels":{"example.com/pool":"red"},"annotations":{"a":"b"},"finalizers":["example.com/stay"],`+
				`"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"node-2","uid":"u"}]}}`))},
		{id: "agent-finalizer", by: agentOne, tries: "block the deletion of its StorageClientNode with a finalizer",
			stop: byRBAC, want: `cannot patch resource "storageclientnodes"`,
			try: merge(clientNode("node-1"), `{"metadata":{"finalizers":["example.com/stay"]}}`), twin: own},
		{id: "agent-owner", by: agentOne, tries: "make another Node the owner of its StorageClientNode",
			stop: byRBAC, want: `cannot patch resource "storageclientnodes"`, twin: own,
			try: merge(clientNode("node-1"), `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"node-2","uid":"u"}]}}`)},
		{id: "agent-deletes", by: agentOne, tries: "delete its StorageClientNode",
			stop: byRBAC, want: `cannot delete resource "storageclientnodes"`, try: remove(clientNode("node-1")), twin: own},
		{id: "agent-creates", by: agentOne, tries: "create a StorageClientNode",
			stop: byRBAC, want: `cannot create resource "storageclientnodes"`, try: create(clientNode("node-3")), twin: own},
		{id: "agent-reads-client-nodes", by: agentOne, tries: "read all StorageClientNodes; they contain no secret",
			stop: notStopped, try: list(&v1alpha1.StorageClientNodeList{})},
		{id: "agent-lies", by: agentOne, tries: "report a false status for its own node", stop: notStopped, try: own},
		{id: "agent-reads-profiles", by: agentOne, tries: "read profiles",
			stop: byRBAC, want: `cannot list resource "storageclientprofiles"`, try: list(&v1alpha1.StorageClientProfileList{}), twin: own},
		{id: "agent-approves", by: agentOne, tries: "approve a plan",
			stop: byRBAC, want: `cannot patch resource "storageclientprofiles"`, try: approve("boots"), twin: own},
		{id: "agent-reads-nodes", by: agentOne, tries: "read Nodes",
			stop: byRBAC, want: `cannot get resource "nodes"`, try: get(node("node-1")), twin: get(clientNode("node-1"))},
		{id: "agent-cordons", by: agentOne, tries: "uncordon or cordon its Node",
			stop: byRBAC, want: `cannot patch resource "nodes"`, try: merge(node("node-1"), `{"spec":{"unschedulable":true}}`), twin: own},
		{id: "agent-managed-label", by: agentOne, tries: "remove the label from its Node that keeps the agent there",
			stop: byRBAC, want: `cannot patch resource "nodes"`,
			try: merge(node("node-1"), `{"metadata":{"labels":{"`+v1alpha1.ManagedLabel+`":null}}}`), twin: own},
		{id: "agent-node-condition", by: agentOne, tries: "report a condition of its Node",
			stop: byRBAC, want: `cannot patch resource "nodes/status"`, try: mergeStatus(node("node-1"), `{"status":{"conditions":[]}}`), twin: own},
		{id: "agent-reads-pods", by: agentOne, tries: "read Pods",
			stop: byRBAC, want: `cannot list resource "pods"`, try: list(&corev1.PodList{}), twin: own},
		{id: "agent-evicts", by: agentOne, tries: "evict a Pod",
			stop: byRBAC, want: `cannot create resource "pods/eviction"`, try: evict(tenantNamespace, "web-1"), twin: own},
		{id: "agent-exec", by: agentOne, tries: "run a command in the manager's Pod", stop: byRBAC, want: `cannot create resource "pods/exec"`,
			try: raw("POST", "/api/v1/namespaces/"+v1alpha1.ManagerNamespace+"/pods/manager-1/exec"), twin: own},
		{id: "agent-reads-secrets", by: agentOne, tries: "read Secrets in its own namespace",
			stop: byRBAC, want: `cannot list resource "secrets"`, try: list(&corev1.SecretList{}, client.InNamespace(v1alpha1.AgentNamespace)), twin: own},
		{id: "agent-daemonset", by: agentOne, tries: "change its own DaemonSet",
			stop: byRBAC, want: `cannot patch resource "daemonsets"`, try: merge(daemonSet, `{"metadata":{"labels":{"a":"b"}}}`), twin: own},
		{id: "agent-managers-token", by: agentOne, tries: "get a token of the manager",
			stop: byRBAC, want: `cannot create resource "serviceaccounts/token"`,
			try: requestToken(v1alpha1.ManagerNamespace, v1alpha1.ManagerDeployment, ""), twin: own},
		{id: "agent-impersonates", by: agentOne, tries: "act as the manager",
			stop: byRBAC, want: " cannot impersonate", try: impersonating(managerUser, nil, nil, reportOf("node-2")), twin: own},
		{id: "agent-events", by: agentOne, tries: "write events",
			stop: byRBAC, want: `cannot create resource "events"`, try: create(eventOf("forged", "web-1", "pv-1")), twin: own},
		{id: "agent-unbound-token", by: agentUnbound, tries: "report with a token that is not bound to a Pod",
			stop: byAgentFence, want: "not bound to a Pod", try: own, twin: own, twinBy: agentOne},
		{id: "agent-node-token", by: agentOfNode, tries: "report with a token that is bound to a Node, not to a Pod",
			stop: byAgentFence, want: "not bound to a Pod", try: own, twin: own, twinBy: agentOne},
		{id: "agent-homeless-token", by: agentHomeless, tries: "report with the token of a Pod that is on no node",
			stop: byAgentFence, want: "not bound to a Pod", try: own, twin: own, twinBy: agentOne},
		{id: "agent-replayed-token", by: agentGone, tries: "report with the token of a deleted Pod, after a Pod with the same name was created",
			stop: byToken, want: "Unauthorized", try: own, twin: own, twinBy: agentOne},
	}
}
