package modprobe

import (
	"fmt"
	"slices"

	"github.com/storageclient/operator/agent/host"
)

const (
	uniqueID = "nfs/nfs4_unique_id"
	// fromNode is the value for which the subject derives the identity.
	fromNode = "FromNode"
	// uniqueIDFile is writable at any time, but a new value applies only to clients that are created afterwards. The node would then use two
	// identities, so the value is set only when the module is loaded.
	uniqueIDFile = "/sys/module/nfs/parameters/nfs4_unique_id"
	// identifierFile overrides the parameter if it is set, in the network namespace of the host.
	identifierFile = "/sys/fs/nfs/net/nfs_client/identifier"
)

// SetNodeUID sets the UID from which the identity of the NFSv4 client is derived. Without it, there is no identity.
func (s *Subject) SetNodeUID(uid string) { s.nodeUID = uid }

func (s *Subject) resolveIdentities(desired []host.Setting) []host.Setting {
	resolved := slices.Clone(desired)
	for i := range resolved {
		if resolved[i].Name == uniqueID && resolved[i].Value == fromNode && s.nodeUID != "" {
			resolved[i].Value = "storage-client-" + s.nodeUID
		}
	}
	return resolved
}

// observeIdentity sets a state only if the client's identity is not the parameter.
func (s *Subject) observeIdentity(o *host.Observation) {
	identifier, err := s.kernel.ReadValue(identifierFile)
	if err != nil || identifier == "" || identifier == "(null)" || identifier == o.Desired {
		// Kernels before 5.10 do not have this file. Other kernels do not have it until NFSv4 is mounted.
		return
	}
	o.State = host.Shadowed
	o.Message = fmt.Sprintf("%s contains %q, which overrides the parameter", identifierFile, identifier)
}
