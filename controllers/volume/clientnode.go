package volume

import "github.com/storageclient/operator/api/v1alpha1"

// CacheTransformClientNode is for the manager's cache of client nodes: of a node's mounts it keeps what is compared with
// volumes, which is little of what a large node reports, and nothing of what they did in a sample. Client nodes of the cache are therefore only ever patched, never
// updated.
func CacheTransformClientNode(object any) (any, error) {
	clientNode, ok := object.(*v1alpha1.StorageClientNode)
	if !ok {
		return object, nil
	}
	clientNode.ManagedFields = nil
	var mounts []v1alpha1.MountStatus
	for _, mount := range clientNode.Status.Mounts {
		if mount.Volume != "" {
			mounts = append(mounts, v1alpha1.MountStatus{
				MountPoint: mount.MountPoint, Volume: mount.Volume, Server: mount.Server, Protocol: mount.Protocol, Options: mount.Options,
				Connections: mount.Connections, SlotLimit: mount.SlotLimit, ReadAheadKiB: mount.ReadAheadKiB, Since: mount.Since, Used: mount.Used, State: mount.State, Message: mount.Message,
			})
		}
	}
	clientNode.Status.Mounts = mounts
	if clientNode.Status.Sample != nil {
		clientNode.Status.Sample.Mounts = nil
	}
	return clientNode, nil
}
