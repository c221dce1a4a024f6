package catalogue

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
)

// dataDirs are the directories at and below which file systems hold data: nothing that the system runs from. /mnt and /srv lead below
// /var where the root is an image (rpm-ostree), and the mount table has them by that name.
var dataDirs = []string{"/mnt", "/data", "/srv", "/var/mnt", "/var/srv"}

// libDir holds a directory for each application: those of systemDirs are the system's.
const libDir = "/var/lib"

// systemDirs are directories below /var/lib without which a node does not work, or does not come up: of the kubelet, of container
// runtimes, of distributions' package managers and cloud agents, and ours.
var systemDirs = []string{
	"cloud", "cni", "containerd", "containers", "cri-dockerd", "crio", "docker", "dpkg", "google", "k0s", "k3s", "kubelet", "microk8s",
	"rancher", "rpm", "snapd", "storage-client", "systemd", "toolbox", "waagent",
}

// hazards are options with which a file system that programs are run from, or that is needed early, breaks at its next mount.
var hazards = []string{"noexec", "nosuid", "nodev", "_netdev"}

// SystemDirs are the directories that no file system may hold whose options are to be set, whatever it is called.
func SystemDirs() []string {
	dirs := []string{"/boot", "/etc", "/usr"}
	for _, name := range systemDirs {
		dirs = append(dirs, path.Join(libDir, name))
	}
	return dirs
}

// WithFilesystems also admits mount points at and below these directories, e.g. /scratch. It is an error where one is not a clean
// absolute path, or the root.
func (a AllowList) WithFilesystems(dirs []string) (AllowList, error) {
	for _, dir := range dirs {
		if !path.IsAbs(dir) || path.Clean(dir) != dir || strings.ContainsAny(dir, "*?[\\") {
			return AllowList{}, fmt.Errorf("allowed file system %q: must be a clean absolute path without wildcards", dir)
		}
		if dir == "/" {
			return AllowList{}, errors.New("allowed file system /: would admit the system's own; name directories of data")
		}
	}
	a.filesystems = slices.Concat(a.filesystems, dirs)
	return a, nil
}

// RefusePoint says why mount options may not be set at a mount point, or at all that a glob may stand for; empty where they may.
// Of a glob, the directory counts that comes before its first wildcard.
func (a AllowList) RefusePoint(point string) string {
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
		return fmt.Sprintf("%s/%s belongs to the system: a mount option there can keep the node from coming up", libDir, name)
	case inLib:
		return ""
	}
	allow := dir
	if isGlob && dir == "/" {
		return "the glob also stands for the system's own file systems: begin it with a directory of data, such as /mnt/*"
	}
	return fmt.Sprintf("only file systems at or below %s and %s/<application> can be set; to allow %s, start manager and agents with --allow-filesystem=%s",
		strings.Join(dataDirs, ", "), libDir, dir, allow)
}

// isBelow is true for the directory itself, too.
func isBelow(dir, top string) bool { return dir == top || strings.HasPrefix(dir, top+"/") }

// isSystem tells whether a directory is one of the system's below /var/lib. It is not where the directory that an administrator has
// allowed is itself in there.
func isSystem(dir, allowed string) bool {
	return slices.ContainsFunc(systemDirs, func(name string) bool {
		system := path.Join(libDir, name)
		return isBelow(dir, system) && !isBelow(allowed, system)
	})
}

// RefusesPlace tells whether a file system setting is refused for its mount point alone.
func (a AllowList) RefusesPlace(key, value string) bool {
	return Key(key).Subject() == Filesystems && a.Check(key, value) != nil && a.anywhere().Check(key, value) == nil
}

// MayStay tells whether a file system setting, which was applied before its place was refused, may stay as it is: it would be
// admitted elsewhere, and has no option that breaks a system's file system.
func (a AllowList) MayStay(key, value string) bool {
	if !a.RefusesPlace(key, value) {
		return false
	}
	_, options := ParseFilesystemValue(value)
	return !slices.ContainsFunc(options, IsHazard)
}

// IsHazard tells whether a file system that the system needs breaks with an option.
func IsHazard(option string) bool { return slices.Contains(hazards, option) }

// anywhere is the list without regard to places.
func (a AllowList) anywhere() AllowList {
	a.everyPlace = true
	return a
}
