//go:build attack

package attack

import (
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

// The attackers. Each has the credentials that a cluster would give it: tokens that the API server signed for a Pod, or client
// certificates.
const (
	agentOne      = "agent of node-1"
	agentUnbound  = "agent's account, no Pod"
	agentHomeless = "agent's Pod on no node"
	agentOfNode   = "agent's account, node-1"
	agentGone     = "token of a deleted Pod"
	manager       = "manager"
	author        = "profile author"
	approver      = "approver"
	editor        = "profile editor"
	viewer        = "viewer"
	tenant        = "namespace editor"
	nodeOne       = "kubelet of node-1"
	scraper       = "metrics reader"
	anonymous     = "anonymous"
	specWriter    = "spec writer for node-1"
)

const (
	tenantNamespace = "tenant"
	otherNamespace  = "other"
)

// identities returns the client configuration of each attacker.
func (c *cluster) identities(t *testing.T) map[string]*rest.Config {
	t.Helper()
	all := map[string]*rest.Config{
		agentOne:      c.agentToken(t, "agent-node-1"),
		agentUnbound:  c.withToken(t, v1alpha1.AgentNamespace, v1alpha1.AgentServiceAccount, nil),
		agentHomeless: c.agentToken(t, "agent-homeless"),
		agentOfNode:   c.nodeToken(t, "node-1"),
		agentGone:     c.agentToken(t, "agent-gone"),
		manager:       c.managerToken(t),
		author:        c.user(t, "alice", nil, "storage-client-profile-author"),
		approver:      c.user(t, "bob", nil, "storage-client-approver"),
		editor:        c.user(t, "carol", nil, "storage-client-profile-editor"),
		viewer:        c.user(t, "dave", nil, "storage-client-viewer"),
		nodeOne:       c.user(t, "system:node:node-1", []string{"system:nodes"}, ""),
		tenant:        c.user(t, "erin", nil, ""),
		anonymous:     rest.AnonymousClientConfig(c.config),
		specWriter:    c.config,
	}
	c.bind(t, tenantNamespace, "edit", rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "erin"})

	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: otherNamespace, Name: "scraper"}}
	check.NoError(t, c.admin.Create(t.Context(), account))
	c.bind(t, "", "storage-client-metrics-reader", rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: otherNamespace, Name: "scraper"})
	all[scraper] = c.withToken(t, otherNamespace, "scraper", nil)

	gone := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.AgentNamespace, Name: "agent-gone"}}
	check.NoError(t, c.admin.Delete(t.Context(), gone, client.GracePeriodSeconds(0)))
	return all
}

// user gives a person, or a kubelet, a client certificate, and binds a ClusterRole to the name.
func (c *cluster) user(t *testing.T, name string, groups []string, role string) *rest.Config {
	t.Helper()
	user, err := c.environment.AddUser(envtest.User{Name: name, Groups: groups}, c.config)
	check.NoError(t, err)
	if role != "" {
		c.bind(t, "", role, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name})
	}
	return user.Config()
}

// bind binds a ClusterRole in a namespace, or everywhere.
func (c *cluster) bind(t *testing.T, namespace, role string, subject rbacv1.Subject) {
	t.Helper()
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}
	meta := metav1.ObjectMeta{Namespace: namespace, Name: "attack-" + role}
	if namespace == "" {
		check.NoError(t, c.admin.Create(t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: []rbacv1.Subject{subject}}))
		return
	}
	check.NoError(t, c.admin.Create(t.Context(), &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: []rbacv1.Subject{subject}}))
}

// agentToken returns the token that a kubelet would mount into a Pod of the agent.
func (c *cluster) agentToken(t *testing.T, pod string) *rest.Config {
	t.Helper()
	return c.withToken(t, v1alpha1.AgentNamespace, v1alpha1.AgentServiceAccount, c.boundTo(t, v1alpha1.AgentNamespace, pod))
}

// nodeToken returns a token of the agent's account that is bound to a Node and not to a Pod.
func (c *cluster) nodeToken(t *testing.T, name string) *rest.Config {
	t.Helper()
	node := &corev1.Node{}
	check.NoError(t, c.admin.Get(t.Context(), client.ObjectKey{Name: name}, node))
	bound := &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Node", Name: name, UID: node.UID}
	return c.withToken(t, v1alpha1.AgentNamespace, v1alpha1.AgentServiceAccount, bound)
}

func (c *cluster) managerToken(t *testing.T) *rest.Config {
	t.Helper()
	return c.withToken(t, v1alpha1.ManagerNamespace, v1alpha1.ManagerDeployment, c.boundTo(t, v1alpha1.ManagerNamespace, "manager-1"))
}

func (c *cluster) boundTo(t *testing.T, namespace, name string) *authenticationv1.BoundObjectReference {
	t.Helper()
	pod := &corev1.Pod{}
	check.NoError(t, c.admin.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, pod))
	return &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: name, UID: pod.UID}
}

// withToken returns the access of a service account with a token that may be bound to a Pod.
func (c *cluster) withToken(t *testing.T, namespace, name string, bound *authenticationv1.BoundObjectReference) *rest.Config {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	request := tokenRequest(bound)
	check.NoError(t, c.admin.SubResource("token").Create(t.Context(), account, request))
	out := rest.AnonymousClientConfig(c.config)
	out.BearerToken = request.Status.Token
	return out
}

func tokenRequest(bound *authenticationv1.BoundObjectReference) *authenticationv1.TokenRequest {
	return &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: bound}}
}
