package rights

import (
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/test/cluster/controlplane"
)

func TestCompare(t *testing.T) {
	rule := func(group, resource string, names []string, verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, ResourceNames: names, Verbs: verbs}
	}
	patchStatus := controlplane.Request{Verb: "patch", Resource: "nodes", Subresource: "status", Name: "n1"}
	getBudget := controlplane.Request{Verb: "get", Resource: "configmaps", Namespace: "ns", Name: "budget"}
	for name, test := range map[string]struct {
		granted  []Right
		requests []controlplane.Request
		spare    map[string]string
		want     []string
	}{
		"all granted rights are used": {
			granted:  append(Granted("", rule("", "nodes/status", nil, "patch")), Granted("ns", rule("", "configmaps", []string{"budget"}, "get"))...),
			requests: []controlplane.Request{patchStatus, getBudget},
		},
		"a subresource is not the resource": {
			granted: Granted("", rule("", "nodes", nil, "patch")), requests: []controlplane.Request{patchStatus},
			want: []string{"granted, but never used: patch nodes", "used, but not granted by any role: patch nodes/status n1"},
		},
		"another verb is not used": {
			granted: Granted("", rule("", "nodes/status", nil, "patch", "update")), requests: []controlplane.Request{patchStatus},
			want: []string{"granted, but never used: update nodes/status"},
		},
		"another group is not used": {
			granted: Granted("", rule("", "nodes/status", nil, "patch"), rule("apps", "nodes/status", nil, "patch")), requests: []controlplane.Request{patchStatus},
			want: []string{"granted, but never used: patch nodes.apps/status"},
		},
		"each name is a separate right": {
			granted: Granted("ns", rule("", "configmaps", []string{"budget", "other"}, "get")), requests: []controlplane.Request{getBudget},
			want: []string{"granted, but never used: get configmaps other in ns"},
		},
		"a right in another namespace does not count": {
			granted: Granted("elsewhere", rule("", "configmaps", nil, "get")), requests: []controlplane.Request{getBudget},
			want: []string{"granted, but never used: get configmaps in elsewhere", "used, but not granted by any role: get configmaps budget in ns"},
		},
		"a broad right is unused if a narrow one suffices": {
			granted:  append(Granted("", rule("", "configmaps", nil, "get")), Granted("ns", rule("", "configmaps", []string{"budget"}, "get"))...),
			requests: []controlplane.Request{getBudget}, want: []string{"granted, but never used: get configmaps"},
		},
		"a spare right may be unused, but must be granted": {
			granted: Granted("", rule("", "nodes/status", nil, "patch", "update")), requests: []controlplane.Request{patchStatus},
			spare: map[string]string{"update nodes/status": "a reason", "delete nodes": "another one"},
			want:  []string{"spare, but not granted: delete nodes"},
		},
		"a rejected request is reported once": {
			granted: Granted("ns", rule("", "configmaps", []string{"budget"}, "get")),
			requests: []controlplane.Request{
				getBudget, {Verb: "list", Resource: "secrets", Code: 403, Forbidden: true}, {Verb: "list", Resource: "secrets", Code: 403, Forbidden: true},
			},
			want: []string{"rejected: list secrets (403)"},
		},
		"without bounds": {
			granted: Granted("", rule("", "*", nil, "get")), spare: map[string]string{"get *": "a reason"},
			want: []string{"granted without bounds: get *"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			check.Equal(t, "result", test.want, Compare(test.granted, test.requests, test.spare))
		})
	}
}

func TestOfAccount(t *testing.T) {
	objects := []client.Object{
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "m"}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"list"}}}},
		&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "m", Namespace: "a"}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}}}},
		&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "m", Namespace: "b"}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get"}}}},
		binding("a", "m"), binding("b", "other"),
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "m"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "m"},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "ns", Name: "m"}},
		},
	}
	got, err := OfAccount(objects, "ns", "m")
	check.NoError(t, err)
	want := []Right{{Verb: "get", Resource: "pods", Namespace: "a"}, {Verb: "list", Resource: "nodes"}}
	check.Equal(t, "result", want, got)
	if _, err := OfAccount([]client.Object{binding("a", "m")}, "ns", "m"); err == nil {
		t.Error("got no error for a binding without a role")
	}
}

func binding(namespace, account string) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "m"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "m"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "ns", Name: account}},
	}
}
