package servermap

import (
	"maps"
	"slices"

	"github.com/storageclient/operator/api/v1alpha1"
)

// Namesakes are nodes whose NFSv4 clients introduce themselves alike. A server that two of them mount takes each for the other after a
// restart, and throws away what the other holds.
type Namesakes struct {
	Name  string   `json:"name"`
	Nodes []string `json:"nodes"`
}

// FindNamesakes finds them among all nodes, sorted by name: which servers they share changes with each pod.
func FindNamesakes(clientNodes []v1alpha1.StorageClientNode) []Namesakes {
	nodes := nodesByName{}
	for i := range clientNodes {
		nodes.add(&clientNodes[i])
	}
	return nodes.findNamesakes()
}

// nodesByName are nodes by what their NFSv4 clients call themselves.
type nodesByName map[string]map[string]bool

func (n nodesByName) add(clientNode *v1alpha1.StorageClientNode) {
	name := clientNode.Status.NFS4ClientName
	if name == "" {
		return
	}
	if n[name] == nil {
		n[name] = map[string]bool{}
	}
	n[name][clientNode.Name] = true
}

func (n nodesByName) findNamesakes() []Namesakes {
	var found []Namesakes
	for _, name := range slices.Sorted(maps.Keys(n)) {
		if len(n[name]) > 1 {
			found = append(found, Namesakes{Name: name, Nodes: slices.Sorted(maps.Keys(n[name]))})
		}
	}
	return found
}
