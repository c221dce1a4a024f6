package mounts

import (
	"slices"
	"strings"
)

const (
	hostNameFile   = "/proc/sys/kernel/hostname"
	identifierFile = "/sys/fs/nfs/net/nfs_client/identifier"
	uniqueIDFile   = "/sys/module/nfs/parameters/nfs4_unique_id"
	// unsetIdentifier is the kernel's output if no identifier was written.
	unsetIdentifier = "(null)"
)

// ClientName returns the name by which the host's NFSv4 client identifies itself to every server, next to the protocol's version. Empty if the host
// has no NFSv4 mount. Source: nfs4_init_uniform_client_string and nfs4_get_uniquifier in fs/nfs/nfs4proc.c.
func (r Reader) ClientName() string {
	lines, _, err := r.readMountinfo()
	if err != nil || !hasNFSv4(lines) {
		return ""
	}
	name, err := r.fs.ReadValue(hostNameFile)
	if err != nil || name == "" {
		return ""
	}
	for _, file := range []string{identifierFile, uniqueIDFile} {
		if id, err := r.fs.ReadValue(file); err == nil && id != "" && id != unsetIdentifier {
			return id + "/" + name
		}
	}
	return name
}

func hasNFSv4(lines []Entry) bool {
	return slices.ContainsFunc(lines, func(line Entry) bool {
		return isNFS(line.FSType) && strings.HasPrefix(OptionValue(line.Super, "vers"), "4")
	})
}
