package drivers

import (
	"cmp"
	"slices"
	"strings"

	"github.com/storageclient/operator/api/v1alpha1"
)

func host(v Volume) string { return v.Host }

func attribute(name string) func(Volume) string {
	return func(v Volume) string { return v.attribute(name) }
}

// nfsServer is what getServerFromSource makes of the attribute: an IPv6 address stands in brackets before mount.
func nfsServer(v Volume) string { return strings.Trim(v.attribute("server"), "[]") }

// nfsPath is "share/subDir". Names in subDir that the driver fills in are known of volumes that a provisioner made only, whose subDir
// has them filled in.
func nfsPath(v Volume) string {
	share, sub := v.attribute("share"), v.attribute("subDir")
	switch {
	case share == "" || strings.Contains(sub, "${"):
		return ""
	case sub == "":
		return rooted(share)
	}
	return rooted(strings.TrimRight(share, "/") + "/" + sub)
}

func rooted(path string) string { return "/" + strings.TrimLeft(path, "/") }

// azureFilePath is "/account/share" of NFS, with the folder below it. With encryption in transit, a proxy of the node mounts it.
func azureFilePath(v Volume) string {
	account, share := v.attribute("storageAccount"), v.attribute("shareName")
	if parts := strings.Split(v.Handle, "#"); len(parts) > 2 {
		account, share = cmp.Or(account, parts[1]), cmp.Or(share, parts[2])
	}
	encrypted := strings.EqualFold(v.attribute("encryptInTransit"), "true")
	if azureFileProtocol(v) != nfs || account == "" || share == "" || strings.Contains(share, "${") || encrypted {
		return ""
	}
	path := "/" + account + "/" + share
	if folder := v.attribute("folderName"); folder != "" {
		path += "/" + folder
	}
	return path
}

// smbServer takes the host out of "//server/share".
func smbServer(v Volume) string {
	server, _, _ := strings.Cut(strings.TrimLeft(v.attribute("source"), `/\`), "/")
	return server
}

// azureFileProtocol goes by either attribute. With a disk's file system, the volume is a disk image on an SMB share: the
// options are for the file system on it, and the driver mounts the share with options of its own.
func azureFileProtocol(v Volume) v1alpha1.VolumeProtocol {
	fsType := strings.ToLower(v.attribute("fsType"))
	switch {
	case fsType == "nfs" || strings.EqualFold(v.attribute("protocol"), "nfs"):
		return nfs
	case slices.Contains([]string{"ext2", "ext3", "ext4", fsTypeXFS}, fsType):
		return block
	}
	return smb
}

// azureFileServer follows the driver: the attribute server, else the storage account's name in the endpoint's
// domain. A volume handle is "resource group#account#share#...".
func azureFileServer(v Volume) string {
	if server := v.attribute("server"); server != "" {
		return server
	}
	account := v.attribute("storageAccount")
	if parts := strings.Split(v.Handle, "#"); account == "" && len(parts) > 2 {
		account = parts[1]
	}
	if account == "" {
		return ""
	}
	return account + ".file." + cmp.Or(v.attribute("storageEndpointSuffix"), "core.windows.net")
}

// tridentProtocol goes by the attribute protocol, file or block. Of file volumes only SMB ones are staged with a
// secret, which holds the domain user.
func tridentProtocol(v Volume) v1alpha1.VolumeProtocol {
	switch v.attribute("protocol") {
	case "file":
		if v.StageSecret {
			return smb
		}
		return nfs
	case "block", "blockOnFile":
		return block
	}
	return ""
}

// sortedList is what the kubelet's NFS plugin does: a set, sorted (JoinMountOptions in pkg/volume/util).
func sortedList(_ Volume, options []string) []string {
	list := slices.DeleteFunc(slices.Clone(options), func(o string) bool { return o == "" })
	slices.Sort(list)
	return slices.Compact(list)
}

// nfsList is what csi-driver-nfs does: the order stays, and what the class's parameter mountOptions says comes last.
func nfsList(v Volume, options []string) []string {
	list := slices.Clone(options)
	if own := v.OwnOptions(); own != "" {
		list = append(list, own)
	}
	return list
}

// azureFileList is what the Azure Files driver does with the flags that it has by default (NodeStageVolume and
// appendDefaultNfsMountOptions, appendDefaultCifsMountOptions): its own version, and defaults where nothing in the list
// begins like them.
func azureFileList(v Volume, options []string) []string {
	switch azureFileProtocol(v) {
	case nfs:
		list := sortedList(Volume{}, append(slices.Clone(options), "vers=4,minorversion=1,sec=sys"))
		return withDefaults(list, "actimeo", "actimeo=30", "noresvport", "noresvport")
	case smb:
		list := withDefaults(options, "file_mode", "file_mode=0777", "dir_mode", "dir_mode=0777", "mfsymlinks", "mfsymlinks", "nosharesock", "nosharesock")
		if contains(list, "acregmax") || contains(list, "acdirmax") {
			return list
		}
		return withDefaults(list, "actimeo", "actimeo=30")
	}
	return options
}

// withDefaults appends options unless the list has one with that beginning: pairs of a beginning and an option.
func withDefaults(options []string, pairs ...string) []string {
	list := slices.Clone(options)
	for pair := range slices.Chunk(pairs, 2) {
		if !hasPrefix(options, pair[0]) {
			list = append(list, pair[1])
		}
	}
	return list
}

func contains(options []string, part string) bool {
	return slices.ContainsFunc(options, func(o string) bool { return strings.Contains(o, part) })
}

func hasPrefix(options []string, prefix string) bool {
	return slices.ContainsFunc(options, func(o string) bool { return strings.HasPrefix(o, prefix) })
}
