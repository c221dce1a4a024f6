package drivers

import (
	"slices"
	"strings"

	"github.com/storageclient/operator/api/v1alpha1"
)

// words identify a protocol if they are a complete part of a name, or a value.
var words = map[v1alpha1.VolumeProtocol][]string{
	nfs: {"nfs", "nfsv3", "nfsv4", "nfs3", "nfs4", "efs", "nas"},
	smb: {"smb", "cifs", "samba", "smb3"},
}

var exclusiveOptions = map[v1alpha1.VolumeProtocol][]string{
	nfs: {"nfsvers", "nconnect", "nolock", "nocto", "noresvport", "local_lock", "minorversion", "lookupcache", "acregmin", "acdirmin", "nordirplus"},
	smb: {"mfsymlinks", "file_mode", "dir_mode", "nosharesock", "nobrl", "seal", "multichannel", "closetimeo", "credentials"},
}

// diskTypes are file systems of disks. ext4 is missing because provisioners set it for volumes of any kind.
var diskTypes = []string{"ext2", "ext3", fsTypeXFS, "btrfs"}

// LooksLike guesses the protocol of a volume whose driver is not in the table, based on its names, attributes and mount options. Use
// it only for messages. Empty if there is no indication.
func (v Volume) LooksLike(options []string) v1alpha1.VolumeProtocol {
	for _, p := range []v1alpha1.VolumeProtocol{nfs, smb} {
		if hasWord(v.Driver, words[p]) || slices.Contains(words[p], strings.ToLower(v.FSType)) ||
			slices.Contains(words[p], strings.ToLower(v.attribute("fsType"))) ||
			slices.Contains(words[p], strings.ToLower(v.attribute("protocol"))) || hasName(options, exclusiveOptions[p]...) {
			return p
		}
	}
	switch {
	case strings.HasPrefix(v.attribute("source"), "//"), strings.HasPrefix(v.attribute("source"), `\\`):
		return smb
	case slices.Contains(diskTypes, v.FSType):
		return block
	}
	return ""
}

func hasWord(name string, words []string) bool {
	parts := strings.FieldsFunc(strings.ToLower(name), func(r rune) bool { return strings.ContainsRune(".-_/", r) })
	return slices.ContainsFunc(parts, func(part string) bool { return slices.Contains(words, part) })
}
