package objects

import (
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ListVersions requests only the resource versions of all objects of a kind from the API server, by name: objects of the same version are equal.
// kind is the kind of the list, for objects without a namespace.
func ListVersions(ctx context.Context, live client.Reader, kind schema.GroupVersionKind) (map[string]string, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind)
	if err := live.List(ctx, list); err != nil {
		return nil, fmt.Errorf("list the versions of %ss: %w", strings.TrimSuffix(kind.Kind, "List"), err)
	}
	versions := make(map[string]string, len(list.Items))
	for i := range list.Items {
		versions[list.Items[i].Name] = list.Items[i].ResourceVersion
	}
	return versions, nil
}

// FindOutdated returns the names of objects whose known version is not current: the object is newer, new or gone.
func FindOutdated[T client.Object](versions map[string]string, known map[string]T) sets.Set[string] {
	out := sets.New[string]()
	for name, version := range versions {
		if object, found := known[name]; !found || object.GetResourceVersion() != version {
			out.Insert(name)
		}
	}
	for name := range known {
		if _, found := versions[name]; !found {
			out.Insert(name)
		}
	}
	return out
}
