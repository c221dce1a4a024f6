package drivers

import (
	"cmp"
	"slices"
	"strings"

	"github.com/storageclient/operator/tuning/lists"
)

func attribute(name string) place {
	return place{"attribute " + name, func(v Volume) string { return v.attribute(name) }}
}

// places are the places that drivers.yaml names.
var places = map[string]place{
	"specServer":  {"spec.nfs.server", host},
	"specPath":    {"spec.nfs.path", func(v Volume) string { return v.Path }},
	"specPortal":  {"spec.iscsi.targetPortal", host},
	"nfsServer":   attribute("server"),
	"nfsPath":     {"attributes share and subDir", sharePath},
	"uncServer":   {"attribute source", hostOfUNC},
	"azureServer": azureServerOf("file"),
	"azurePath":   {"account and share in the attributes or the handle", azureFilePath},
	"blobServer":  azureServerOf("blob"),
	"openZFSPath": {"attribute VolumePath, or /fsx", func(v Volume) string { return rooted(cmp.Or(v.attribute("VolumePath"), "fsx")) }},
	"sharedPath":  {"attribute volume", filestorePath},
	"serviceIP":   {"attribute AzServiceIP", withoutLocalhost},
	// diskFSType is for Azure Disk, where the attribute has priority over the field of the volume.
	"diskFSType": {"attribute fsType, or the volume's field", func(v Volume) string { return cmp.Or(v.attribute("fsType"), v.FSType) }},
}

func host(v Volume) string { return v.Host }

// sharePath returns "share/subDir". Empty if subDir contains variables, which only a provisioner replaces.
func sharePath(v Volume) string {
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

func hostOfUNC(v Volume) string {
	// mount.cifs accepts both slashes.
	server, _, _ := strings.Cut(strings.TrimLeft(strings.ReplaceAll(v.attribute("source"), `\`, "/"), "/"), "/")
	return server
}

// azureFilePath returns "/account/share" for NFS, with the folder below it. Empty with encryption in transit, because a proxy on the node
// then mounts the share.
func azureFilePath(v Volume) string {
	account, share := v.attribute("storageAccount"), v.attribute("shareName")
	if parts := strings.Split(v.Handle, "#"); len(parts) > 2 {
		account, share = cmp.Or(account, parts[1]), cmp.Or(share, parts[2])
	}
	encrypted := strings.EqualFold(v.attribute("encryptInTransit"), "true")
	if account == "" || share == "" || strings.Contains(share, "${") || encrypted {
		return ""
	}
	path := "/" + account + "/" + share
	if folder := v.attribute("folderName"); folder != "" {
		path += "/" + folder
	}
	return path
}

// azureServerOf follows the drivers of Azure: the server is the attribute server, or the name of the storage account in the domain of the
// endpoint. A volume handle is "resource group#account#share#...".
func azureServerOf(service string) place {
	return place{"attribute server, or the storage account", func(v Volume) string {
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
		return account + "." + service + "." + cmp.Or(v.attribute("storageEndpointSuffix"), "core.windows.net")
	}}
}

// filestorePath returns the path of a share. Empty for an instance with several shares, whose names are part of the handle.
func filestorePath(v Volume) string {
	volume := v.attribute("volume")
	if volume == "" || strings.HasPrefix(v.Handle, "modeMultishare/") {
		return ""
	}
	return rooted(volume)
}

// withoutLocalhost returns the address of the PowerScale service. Empty for localhost, the driver's proxy, which the driver replaces.
func withoutLocalhost(v Volume) string {
	if ip := v.attribute("AzServiceIP"); !strings.Contains(ip, "localhost") {
		return ip
	}
	return ""
}

// changes are the changes of mount options that drivers.yaml names.
var changes = map[string]optionChange{
	"sorted":   {"sorted alphabetically, without duplicates", func(_ Volume, list []string) []string { return sortedList(list) }},
	"azureNFS": {"sorted with vers=4, minorversion=1, sec=sys; actimeo=30 and noresvport if missing", azureNFSList},
	"azureSMB": {"unchanged, then file_mode, dir_mode, mfsymlinks, nosharesock and actimeo=30 if missing", azureSMBList},
	"blobNFS": {"sorted with sec=sys, vers=3, nolock; rules never add nconnect", func(_ Volume, list []string) []string {
		return sortedList(append(slices.Clone(list), "sec=sys,vers=3,nolock"))
	}},
	"vsphereNFS": appended("hard", "sec=sys", "vers=4", "minorversion=1"),
	"readWrite":  appended("rw"),
	"once":       {"unchanged, without duplicates", func(_ Volume, list []string) []string { return lists.AddMissing(nil, list...) }},
	"efsList": {"tls first, then the options in lower case, without duplicates; then version 4.1 (4.2 of S3 Files), sizes of 1 " +
		"MiB, hard, timeo=600, retrans=2 and noresvport if missing", efsUtilsList},
	"diskList": {"unchanged; nouuid for XFS", withoutUUID},
	"diskOnceList": {"unchanged, without duplicates; nouuid for XFS", func(v Volume, list []string) []string {
		return lists.AddMissing(nil, withoutUUID(v, list)...)
	}},
	"vastList": {"unchanged", func(v Volume, list []string) []string {
		if len(list) > 0 {
			return list
		}
		return sortedList(strings.Split(v.attribute("mount_options"), ","))
	}},
}

func appended(options ...string) optionChange {
	return optionChange{"unchanged, then " + strings.Join(options, ", "), func(_ Volume, list []string) []string {
		return append(slices.Clone(list), options...)
	}}
}

// sortedList returns the sorted set of options (JoinMountOptions in pkg/volume/util of Kubernetes).
func sortedList(options []string) []string {
	list := slices.DeleteFunc(slices.Clone(options), func(o string) bool { return o == "" })
	slices.Sort(list)
	return slices.Compact(list)
}

func azureNFSList(_ Volume, options []string) []string {
	list := sortedList(append(slices.Clone(options), "vers=4,minorversion=1,sec=sys"))
	return withDefaults(list, "actimeo=30", "noresvport")
}

func azureSMBList(_ Volume, options []string) []string {
	list := withDefaults(options, "file_mode=0777", "dir_mode=0777", "mfsymlinks", "nosharesock")
	isTimer := func(o string) bool { return strings.Contains(o, "acregmax") || strings.Contains(o, "acdirmax") }
	if slices.ContainsFunc(list, isTimer) {
		return list
	}
	return withDefaults(list, "actimeo=30")
}

// efsUtilsList returns the options after the changes by the driver and mount.efs. It omits the port of the tunnel, which is not known
// in advance.
func efsUtilsList(v Volume, options []string) (list []string) {
	if !strings.EqualFold(v.attribute("encryptInTransit"), "false") {
		list = append(list, "tls")
	}
	list = append(list, lists.Each(options, strings.ToLower)...)
	list = lists.AddMissing(nil, list...)
	version := "nfsvers=4.1"
	if strings.HasPrefix(v.Handle, "s3files:") {
		version = "nfsvers=4.2"
	}
	if !hasName(list, "nfsvers", "vers") {
		list = append(list, version)
	}
	for _, o := range []string{"rsize=1048576", "wsize=1048576", "timeo=600", "retrans=2", "noresvport"} {
		if name, _, _ := strings.Cut(o, "="); !hasName(list, name) {
			list = append(list, o)
		}
	}
	if !hasName(list, "hard", "soft") {
		list = append(list, "hard")
	}
	return list
}

// withoutUUID adds nouuid for XFS, so that a copy can be mounted next to its original.
func withoutUUID(v Volume, options []string) []string {
	if v.FSType != fsTypeXFS {
		return options
	}
	return lists.AddMissing(lists.AddMissing(nil, options...), "nouuid")
}

// withDefaults appends default options. It skips an option if another option begins with its name.
func withDefaults(options []string, defaults ...string) []string {
	list := slices.Clone(options)
	for _, option := range defaults {
		name, _, _ := strings.Cut(option, "=")
		if !slices.ContainsFunc(options, func(o string) bool { return strings.HasPrefix(o, name) }) {
			list = append(list, option)
		}
	}
	return list
}

func hasName(options []string, names ...string) bool {
	return slices.ContainsFunc(options, func(o string) bool {
		name, _, _ := strings.Cut(o, "=")
		return slices.Contains(names, name)
	})
}
