package catalogue

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/storageclient/operator/tuning/lists"
)

// dataDirs are the directories at and below which file systems contain only data. The system does not run from them. On
// image-based systems (rpm-ostree), /mnt and /srv point below /var, and the mount table contains the names below /var.
var dataDirs = []string{"/mnt", "/data", "/srv", "/var/mnt", "/var/srv"}

// libDir contains a directory for each application. The directories in systemDirs belong to the system.
const libDir = "/var/lib"

// systemDirs are directories below /var/lib that a node needs to work or to boot: directories of the kubelet, of container
// runtimes, of distributions' package managers and cloud agents, and of the operator.
var systemDirs = []string{
	"cloud", "cni", "containerd", "containers", "cri-dockerd", "crio", "docker", "dpkg", "google", "k0s", "k3s", "kubelet", "microk8s",
	"rancher", "rpm", "snapd", "storage-client", "systemd", "toolbox", "waagent",
}

// hazards are options that, from the next mount on, break a file system that is needed early or contains programs.
var hazards = []string{"noexec", "nosuid", "nodev", "_netdev"}

// SystemDirs returns the directories that no configurable file system may contain, regardless of its mount point.
func SystemDirs() []string {
	inLib := func(name string) string { return path.Join(libDir, name) }
	return append([]string{"/boot", "/etc", "/usr"}, lists.Each(systemDirs, inLib)...)
}

// WithFilesystems returns an allow-list that also admits mount points at and below these directories, e.g. /scratch. It returns an
// error if a directory is not a clean absolute path, or is the root.
func (a AllowList) WithFilesystems(dirs []string) (AllowList, error) {
	for _, dir := range dirs {
		if !path.IsAbs(dir) || path.Clean(dir) != dir || strings.ContainsAny(dir, "*?[\\") {
			return AllowList{}, fmt.Errorf("allow file system %q: must be a clean absolute path without wildcards", dir)
		}
		if dir == "/" {
			return AllowList{}, errors.New("allow file system /: it contains the system's file systems; name data directories")
		}
	}
	a.filesystems = slices.Concat(a.filesystems, dirs)
	return a, nil
}

// ValidateMountPoint returns the reason why mount options must not be set at a mount point, or at the matches of a glob. Empty if they
// may be set. For a glob, the directory before its first wildcard counts.
func (a AllowList) ValidateMountPoint(point string) string {
	dir, isGlob := point, false
	if at := strings.IndexAny(point, "*?["); at >= 0 {
		dir, isGlob = path.Dir(point[:at]+"x"), true
	}
	if slices.ContainsFunc(a.filesystems, func(allowed string) bool { return isBelow(dir, allowed) && !isSystem(dir, allowed) }) {
		return ""
	}
	if slices.ContainsFunc(dataDirs, func(data string) bool { return isBelow(dir, data) }) {
		return ""
	}
	name, inLib := strings.CutPrefix(dir, libDir+"/")
	name, _, _ = strings.Cut(name, "/")
	switch {
	case isSystem(dir, ""):
		return fmt.Sprintf("%s/%s belongs to the system: a mount option there can prevent the node from booting", libDir, name)
	case inLib:
		return ""
	}
	allow := dir
	if isGlob && dir == "/" {
		return "the glob also matches the system's file systems: start it with a data directory, such as /mnt/*"
	}
	return fmt.Sprintf("only file systems at or below %s and %s/<application> can be set; to allow %s, start manager and agents with "+
		"--allow-filesystem=%s",
		strings.Join(dataDirs, ", "), libDir, dir, allow)
}

func isBelow(dir, top string) bool { return dir == top || strings.HasPrefix(dir, top+"/") }

// isSystem reports whether a directory belongs to the system below /var/lib. It returns false if an administrator has allowed a
// directory inside that system directory.
func isSystem(dir, allowed string) bool {
	return slices.ContainsFunc(systemDirs, func(name string) bool {
		system := path.Join(libDir, name)
		return isBelow(dir, system) && !isBelow(allowed, system)
	})
}

// RejectsOnlyMountPoint reports whether a file system setting is rejected only because of its mount point.
func (a AllowList) RejectsOnlyMountPoint(key, value string) bool {
	anywhere := a
	anywhere.everyPlace = true
	return Key(key).Subject() == Filesystems && a.Check(key, value) != nil && anywhere.Check(key, value) == nil
}

// MayStay reports whether a file system setting that an earlier release applied may stay although its mount point is now rejected.
// It must be valid at other mount points, and must not contain an option that breaks a system's file system.
func (a AllowList) MayStay(key, value string) bool {
	if !a.RejectsOnlyMountPoint(key, value) {
		return false
	}
	_, options := ParseFilesystemValue(value)
	return !slices.ContainsFunc(options, IsHazard)
}

// IsHazard reports whether an option breaks a file system that the system needs.
func IsHazard(option string) bool { return slices.Contains(hazards, option) }
