package overview

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/match"
	"github.com/storageclient/operator/tuning/advice"
	"github.com/storageclient/operator/tuning/lists"
)

// AdviceInput returns the input about a profile for the rules of package advice. It contains the selected nodes with the reports of their agents,
// the servers of the matched volumes, and the volumes that are left out.
func AdviceInput(profile *v1alpha1.StorageClientProfile, c Cluster, servers []advice.Server, leftOut []advice.LeftOut) advice.Input {
	selector := match.SelectorOf(profile)
	selected := slices.DeleteFunc(lists.Pointers(c.Nodes), func(node *corev1.Node) bool { return !selector.Matches(node) })
	return AdviceAbout(profile, selected, c.clientNodes(), servers, leftOut)
}

// AdviceAbout is AdviceInput for a known list of selected nodes.
func AdviceAbout(profile *v1alpha1.StorageClientProfile, selected []*corev1.Node, clientNodes map[string]*v1alpha1.StorageClientNode,
	servers []advice.Server, leftOut []advice.LeftOut,
) advice.Input {
	in := advice.Input{Profile: profile, Servers: servers, LeftOut: leftOut}
	for _, node := range selected {
		if match.IsIgnored(node) {
			continue
		}
		// The kubelet reports MemTotal as the memory's capacity.
		known := advice.Node{Name: node.Name, Kernel: node.Status.NodeInfo.KernelVersion, Memory: node.Status.Capacity.Memory().Value()}
		if clientNode := clientNodes[node.Name]; clientNode != nil {
			known.Settings, known.Build, known.Mounts = clientNode.Status.Settings, clientNode.Status.KernelBuild, clientNode.Status.Mounts
		}
		in.Nodes = append(in.Nodes, known)
	}
	return in
}
