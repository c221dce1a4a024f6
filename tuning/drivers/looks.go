package drivers

import (
	"slices"
	"strings"

	"github.com/storageclient/operator/api/v1alpha1"
)

// words that tell a protocol, as whole parts of a name or as a value.
var words = map[v1alpha1.VolumeProtocol][]string{
	nfs: {"nfs", "nfsv3", "nfsv4", "nfs3", "nfs4", "efs", "nas"},
	smb: {"smb", "cifs", "samba", "smb3"},
}

// tellTale are options that only one protocol takes.
var tellTale = map[v1alpha1.VolumeProtocol][]string{
	nfs: {"nfsvers", "nconnect", "nolock", "nocto", "noresvport", "local_lock", "minorversion", "lookupcache", "acregmin", "acdirmin", "nordirplus"},
	smb: {"mfsymlinks", "file_mode", "dir_mode", "nosharesock", "nobrl", "seal", "multichannel", "closetimeo", "credentials"},
}

// diskTypes are file systems of disks. Provisioners give ext4 to volumes of whatever kind.
var diskTypes = []string{"ext2", "ext3", fsTypeXFS, "btrfs"}

// LooksLike is what a volume of a driver that the table does not have seems to be, by its name, its attributes and its own options.
// Nobody should rely on it: it is for telling people. Empty where nothing tells.
func (v Volume) LooksLike(options []string) v1alpha1.VolumeProtocol {
	for _, p := range []v1alpha1.VolumeProtocol{nfs, smb} {
		if hasWord(v.Driver, words[p]) || slices.Contains(words[p], strings.ToLower(v.FSType)) || slices.Contains(words[p], strings.ToLower(v.attribute("fsType"))) ||
			slices.Contains(words[p], strings.ToLower(v.attribute("protocol"))) || hasName(options, tellTale[p]...) {
			return p
		}
	}
	switch {
	case strings.HasPrefix(v.attribute("source"), "//"):
		return smb
	case slices.Contains(diskTypes, v.FSType):
		return block
	}
	return ""
}

// hasWord says whether a name has one of some words among its parts.
func hasWord(name string, words []string) bool {
	parts := strings.FieldsFunc(strings.ToLower(name), func(r rune) bool { return strings.ContainsRune(".-_/", r) })
	return slices.ContainsFunc(parts, func(part string) bool { return slices.Contains(words, part) })
}
