// Package rights compares the rights that roles grant with their use.
package rights

import (
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/test/cluster/controlplane"
)

// Right is one permission of a role.
type Right struct {
	// Verb, Group and Resource are the operation and its kind. A subresource follows a slash.
	Verb, Group, Resource string
	// Name is the name of the only object. Empty for all objects.
	Name string
	// Namespace is the namespace of the right. Empty for all namespaces and for cluster-scoped objects.
	Namespace string
}

// String returns a form like: patch nodes/status, get configmaps NAME in NAMESPACE, create leases.coordination.k8s.io in NAMESPACE.
func (r Right) String() string {
	resource, subresource, _ := strings.Cut(r.Resource, "/")
	text := r.Verb + " " + resource
	if r.Group != "" {
		text += "." + r.Group
	}
	if subresource != "" {
		text += "/" + subresource
	}
	if r.Name != "" {
		text += " " + r.Name
	}
	if r.Namespace != "" {
		text += " in " + r.Namespace
	}
	return text
}

// Granted lists the rights that rules grant in a namespace, or everywhere.
func Granted(namespace string, rules ...rbacv1.PolicyRule) []Right {
	var granted []Right
	for _, rule := range rules {
		names := rule.ResourceNames
		if len(names) == 0 {
			names = []string{""}
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					for _, name := range names {
						granted = append(granted, Right{Verb: verb, Group: group, Resource: resource, Name: name, Namespace: namespace})
					}
				}
			}
		}
	}
	return granted
}

// OfAccount lists the rights that the given bindings and roles grant to a service account.
func OfAccount(objects []client.Object, namespace, name string) ([]Right, error) {
	rules := map[rbacv1.RoleRef]map[string][]rbacv1.PolicyRule{}
	for _, object := range objects {
		ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Name: object.GetName()}
		switch role := object.(type) {
		case *rbacv1.Role:
			ref.Kind = "Role"
			rules[ref] = with(rules[ref], role.Namespace, role.Rules)
		case *rbacv1.ClusterRole:
			ref.Kind = "ClusterRole"
			rules[ref] = with(rules[ref], "", role.Rules)
		}
	}
	account := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}
	var granted []Right
	for _, object := range objects {
		var ref rbacv1.RoleRef
		var subjects []rbacv1.Subject
		switch binding := object.(type) {
		case *rbacv1.RoleBinding:
			ref, subjects = binding.RoleRef, binding.Subjects
		case *rbacv1.ClusterRoleBinding:
			ref, subjects = binding.RoleRef, binding.Subjects
		}
		if !slices.Contains(subjects, account) {
			continue
		}
		where := object.GetNamespace()
		of := where
		if ref.Kind == "ClusterRole" {
			of = ""
		}
		if rules[ref][of] == nil {
			return nil, fmt.Errorf("binding %s of namespace %q: no %s %s", object.GetName(), where, ref.Kind, ref.Name)
		}
		granted = append(granted, Granted(where, rules[ref][of]...)...)
	}
	return granted, nil
}

func with(all map[string][]rbacv1.PolicyRule, namespace string, rules []rbacv1.PolicyRule) map[string][]rbacv1.PolicyRule {
	if all == nil {
		all = map[string][]rbacv1.PolicyRule{}
	}
	all[namespace] = rules
	return all
}

// allows reports whether the right permits a request.
func (r Right) allows(request controlplane.Request) bool {
	return r.Verb == request.Verb && r.Group == request.Group && r.Resource == resourceOf(request) &&
		(r.Name == "" || r.Name == request.Name) && (r.Namespace == "" || r.Namespace == request.Namespace)
}

// bounds counts the restrictions of the right.
func (r Right) bounds() int {
	bounds := 0
	for _, bound := range []string{r.Name, r.Namespace} {
		if bound != "" {
			bounds++
		}
	}
	return bounds
}

func resourceOf(request controlplane.Request) string {
	if request.Subresource == "" {
		return request.Resource
	}
	return request.Resource + "/" + request.Subresource
}

// Compare returns the unused rights, without the spare ones by their String, and the requests that no right permits.
func Compare(granted []Right, requests []controlplane.Request, spare map[string]string) []string {
	var problems []string
	used := map[Right]bool{}
	for _, request := range requests {
		right, allowed := smallest(granted, request)
		used[right] = allowed
		needed := Right{Verb: request.Verb, Group: request.Group, Resource: resourceOf(request), Name: request.Name, Namespace: request.Namespace}
		switch {
		case request.Forbidden:
			problems = append(problems, fmt.Sprintf("rejected: %s (%d)", needed, request.Code))
		case !allowed:
			problems = append(problems, "used, but not granted by any role: "+needed.String())
		}
	}
	texts := map[string]bool{}
	for _, right := range granted {
		text := right.String()
		texts[text] = true
		if strings.Contains(text, "*") {
			problems = append(problems, "granted without bounds: "+text)
		}
		if spare[text] == "" && !used[right] {
			problems = append(problems, "granted, but never used: "+text)
		}
	}
	for text := range spare {
		if !texts[text] {
			problems = append(problems, "spare, but not granted: "+text)
		}
	}
	slices.Sort(problems)
	return slices.Compact(problems)
}

// smallest returns the most restricted right that permits a request, so that a broader right counts as unused.
func smallest(granted []Right, request controlplane.Request) (Right, bool) {
	var found Right
	allowed := false
	for _, right := range granted {
		if right.allows(request) && (!allowed || right.bounds() > found.bounds()) {
			found, allowed = right, true
		}
	}
	return found, allowed
}
