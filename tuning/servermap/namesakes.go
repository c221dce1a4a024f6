package servermap

import (
	"maps"
	"slices"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/lists"
)

// DuplicateClientID are nodes with duplicate NFSv4 client IDs. A server that both nodes mount confuses them after a restart and discards the
// state of the other node.
type DuplicateClientID struct {
	Name  string   `json:"name"`
	Nodes []string `json:"nodes"`
}

// FindDuplicateClientIDs finds duplicates among all nodes, sorted by client ID. It checks all nodes because every new pod can change the
// servers of a node.
func FindDuplicateClientIDs(clientNodes []v1alpha1.StorageClientNode) []DuplicateClientID {
	nodes := nodesByName{}
	for i := range clientNodes {
		nodes.add(&clientNodes[i])
	}
	return nodes.findDuplicates()
}

// nodesByName maps NFSv4 client IDs to nodes.
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

func (n nodesByName) findDuplicates() []DuplicateClientID {
	return lists.Pick(slices.Sorted(maps.Keys(n)), func(name string) (DuplicateClientID, bool) {
		return DuplicateClientID{Name: name, Nodes: slices.Sorted(maps.Keys(n[name]))}, len(n[name]) > 1
	})
}
