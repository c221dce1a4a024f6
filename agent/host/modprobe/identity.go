package modprobe

import (
	"fmt"
	"slices"

	"github.com/storageclient/operator/agent/host"
)

const (
	uniqueID = "nfs/nfs4_unique_id"
	// fromNode is the value for which the subject works out the identity.
	fromNode = "FromNode"
	// uniqueIDFile may be written at any time. What is written there counts for clients that are made from then on: a node would then
	// introduce itself in two ways, so it is left to when the module is loaded.
	uniqueIDFile = "/sys/module/nfs/parameters/nfs4_unique_id"
	// identifierFile wins over the parameter where it is set, in the network namespace of the host.
	identifierFile = "/sys/fs/nfs/net/nfs_client/identifier"
)

// SetNodeUID tells what the identity of the NFSv4 client is worked out from. Without it, there is none.
func (s *Subject) SetNodeUID(uid string) { s.nodeUID = uid }

// resolveIdentities puts the identity in the place of the word that stands for it.
func (s *Subject) resolveIdentities(desired []host.Setting) []host.Setting {
	resolved := slices.Clone(desired)
	for i := range resolved {
		if resolved[i].Name == uniqueID && resolved[i].Value == fromNode && s.nodeUID != "" {
			resolved[i].Value = "storage-client-" + s.nodeUID
		}
	}
	return resolved
}

// whyNoIdentity says why an identity cannot be worked out; empty where it can, and for other parameters.
func (s *Subject) whyNoIdentity(p parameter, wanted string) string {
	if p.String() == uniqueID && wanted == fromNode {
		return "it is worked out from the UID of the Node, which only an agent in a cluster knows"
	}
	return ""
}

// observeIdentity sets a state only where the client introduces itself by something else than the parameter.
func (s *Subject) observeIdentity(o *host.Observation) {
	identifier, err := s.kernel.ReadValue(identifierFile)
	if err != nil || identifier == "" || identifier == "(null)" || identifier == o.Desired {
		// Kernels before 5.10 have no such file, nor has one that no NFSv4 was mounted on.
		return
	}
	o.State = host.Shadowed
	o.Message = fmt.Sprintf("%s holds %q, which wins over the parameter", identifierFile, identifier)
}
