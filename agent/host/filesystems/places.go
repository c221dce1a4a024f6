package filesystems

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/storageclient/operator/agent/host/mounts"
)

// findPlaceObstacle returns the reason why a file system must not be changed, whatever its desired options are: its mount point, or content on it.
// Names are compared after their symbolic links are resolved.
func (s *Subject) findPlaceObstacle(t table, at target) string {
	if s.checkPlace == nil {
		return ""
	}
	resolved, err := s.fs.Resolve(at.point)
	if err != nil {
		return "cannot resolve its mount point: " + err.Error()
	}
	if reason := cmp.Or(s.checkPlace(at.point), s.checkPlace(resolved)); reason != "" {
		return reason
	}
	for _, dir := range s.SystemDirs {
		resolvedDir, err := s.fs.Resolve(dir)
		switch {
		case err != nil:
			return "cannot check whether it contains " + dir + ": " + err.Error()
		case mounts.IsBelow(resolvedDir, resolved):
			return fmt.Sprintf("it contains %s: a mount option there can prevent the node from booting", dir)
		case resolvedDir != dir && mounts.IsBelow(resolved, resolvedDir):
			return fmt.Sprintf("it is in %s, which resolves to %s", dir, resolvedDir)
		}
	}
	return s.findUseObstacle(t, at)
}

// findUseObstacle finds other mounts that show the purpose of a file system: system directories, or layers of containers. A bind mount inherits the
// options of the mount that it is made from.
func (s *Subject) findUseObstacle(t table, at target) string {
	if at.mount == nil {
		return ""
	}
	for _, point := range slices.Sorted(maps.Keys(t.mounts)) {
		m := t.mounts[point]
		if layers := upperDir(m); layers != "" && mounts.IsBelow(layers, at.point) {
			return "it contains container layers: " + layers
		}
		if m.Device == at.mount.Device && point != at.point && s.isSystemMount(point) {
			return fmt.Sprintf("it is also mounted at %s: a mount option there can prevent the node from booting", point)
		}
	}
	return ""
}

// isSystemMount reports whether a mount is part of a system directory. Volumes of pods, which the kubelet mounts in its own directory, are not.
func (s *Subject) isSystemMount(point string) bool {
	if strings.Contains(point, "/pods/") || strings.Contains(point, "/plugins/") {
		return false
	}
	return slices.ContainsFunc(s.SystemDirs, func(dir string) bool {
		return mounts.IsBelow(dir, point) || mounts.IsBelow(point, dir)
	})
}

// mayStay reports whether options that an earlier release staged are harmless.
func (s *Subject) mayStay(at target) bool {
	return at.unit.name != "" && s.fs.Exists(at.unit.dropIn()) && !slices.ContainsFunc(at.desired, s.Hazardous)
}

func upperDir(m *mounts.Entry) string {
	if m.FSType != "overlay" {
		return ""
	}
	dir, _ := valueOf(m.Super, "upperdir")
	return dir
}
