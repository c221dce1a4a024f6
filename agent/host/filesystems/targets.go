package filesystems

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/storageclient/operator/agent/host/mounts"
)

// plain matches mount points and devices that may be passed to commands and files.
var plain = regexp.MustCompile(`^/[A-Za-z0-9_.,:=/@+-]+$`)

type target struct {
	point string
	// unit is the mount unit. Its name is empty if there is none.
	unit unit
	// mount is the entry of the mount table. Nil if the file system is not mounted.
	mount *mounts.Entry
	// desired are the desired options. problem is the reason why they cannot work here.
	desired []string
	problem string
	// stays is true if the place is the problem, and options that an earlier release staged there are harmless.
	stays bool
}

func effectiveOptions(m *mounts.Entry) []string { return append(slices.Clone(m.Super), m.Flags...) }

type table struct {
	units  map[string]unit
	mounts map[string]*mounts.Entry
	// root is the device of the root file system.
	root string
}

func (s *Subject) readTable() (table, error) {
	s.place.Refresh()
	entries, err := s.entries()
	if err != nil {
		return table{}, err
	}
	t := table{mounts: map[string]*mounts.Entry{}}
	for i := range entries {
		t.mounts[entries[i].Point] = &entries[i]
	}
	if root := t.mounts["/"]; root != nil {
		t.root = root.Device
	}
	t.units, err = readUnits(s.fs)
	return t, err
}

// targetsOf returns the file systems that a setting matches, mounted or not, sorted by mount point. It excludes bind mounts of a part of a file
// system, and kernel file systems unless their type is requested.
func (t table) targetsOf(glob, fsType string) []target {
	found := map[string]target{}
	for point, m := range t.mounts {
		isDisk := !strings.HasPrefix(m.Device, "0:") || strings.HasPrefix(m.Source, "/dev/")
		if point != "/" && matchesGlob(glob, point) && m.Root == "/" && (fsType == m.FSType || fsType == "" && isDisk) {
			found[point] = target{point: point, unit: t.units[point], mount: m}
		}
	}
	for point, u := range t.units {
		isDisk := strings.HasPrefix(u.source, "/dev/")
		if point != "/" && t.mounts[point] == nil && matchesGlob(glob, point) && (fsType == u.fsType || fsType == "" && isDisk) {
			found[point] = target{point: point, unit: u}
		}
	}
	return slices.SortedFunc(maps.Values(found), func(a, b target) int { return strings.Compare(a.point, b.point) })
}

func matchesGlob(glob, point string) bool {
	ok, err := path.Match(glob, point)
	return ok && err == nil
}

func (s *Subject) findObstacle(ctx context.Context, t table, at target) string {
	switch {
	case !plain.MatchString(at.point):
		return "its mount point has characters that are not allowed in files and commands: set its options in fstab or its mount unit"
	case at.mount != nil && at.mount.Device == t.root:
		return "the kernel mounts the root file system: set its options by the kernel argument rootflags=, e.g. rootflags=" +
			strings.Join(at.desired, ",")
	case s.place.PersistenceProblem() != "":
		return s.place.PersistenceProblem() + ", so systemd would not read the agent's drop-in when it mounts it"
	case at.unit.name == "":
		return "neither fstab nor a systemd mount unit mounts it: set the options in the program that mounts it"
	}
	if weakness := s.findWeakness(at); weakness != "" {
		return weakness
	}
	if value := mounts.OptionValue(at.desired, "logbsize"); value != "" {
		return s.findLogObstacle(ctx, at, value)
	}
	return ""
}

// findWeakness returns a message if a desired option would make a mount weaker than its unit does, or would drop effective quotas. Only the unit
// decides about write access, because an error may have made a file system read-only.
func (s *Subject) findWeakness(at target) string {
	minimums := [][]string{at.unit.originalOptions()}
	if at.mount != nil {
		minimums = append(minimums, slices.DeleteFunc(effectiveOptions(at.mount), func(o string) bool { return o == "ro" }))
	}
	for _, options := range minimums {
		if option, loses := s.Weakened(options, at.desired); option != "" {
			return fmt.Sprintf("%s would weaken its mount, which has %s: remove %s from mountOptions in spec.node.filesystems", option, loses, option)
		}
	}
	return ""
}

// findLogObstacle reads the version and the stripe unit of the log: a mount with a buffer that does not fit them fails. The effective buffer fits.
func (s *Subject) findLogObstacle(ctx context.Context, at target, value string) string {
	if at.mount == nil {
		return "it is not mounted: its log can be checked only while it is mounted"
	}
	if len(s.Differences([]string{"logbsize=" + value}, effectiveOptions(at.mount))) == 0 {
		return ""
	}
	out, err := s.runner.Run(ctx, "xfs_info", at.point)
	if errors.Is(err, exec.ErrNotFound) {
		return "the version of its log is unknown: install xfsprogs for xfs_info"
	}
	if err != nil {
		return "the version of its log is unknown: " + err.Error()
	}
	log := parseLog(string(out))
	switch size := parseSize(value); {
	case log.version == 0:
		return "xfs_info does not show the version of its log: remove logbsize from mountOptions in spec.node.filesystems"
	case log.version == 1 && size > maxLogV1:
		return fmt.Sprintf("its log is version 1, with buffers of at most 32k: unmount it and run xfs_admin -j %s, or create it again", at.mount.Source)
	case size < log.stripeUnit:
		return fmt.Sprintf("the stripe unit of its log is %dk: it cannot be mounted with a smaller logbsize", log.stripeUnit>>10)
	}
	return ""
}

// maxLogV1 is the largest buffer of a log of version 1, in bytes.
const maxLogV1 = 32 << 10

// logInfo contains the output of xfs_info about a log. The stripe unit is in bytes.
type logInfo struct {
	version    int
	stripeUnit int64
}

var logWord = regexp.MustCompile(`\b(bsize|version|sunit)=(\d+)`)

// parseLog parses the two lines that start with "log":
//
//	log      =internal log           bsize=4096   blocks=16384, version=2
//	         =                       sectsz=512   sunit=0 blks, lazy-count=1
func parseLog(out string) logInfo {
	_, rest, found := strings.Cut("\n"+out, "\nlog ")
	if !found {
		return logInfo{}
	}
	rest, _, _ = strings.Cut(rest, "\nrealtime ")
	values := map[string]int64{}
	for _, m := range logWord.FindAllStringSubmatch(rest, -1) {
		if n, err := strconv.ParseInt(m[2], 10, 64); err == nil {
			values[m[1]] = n
		}
	}
	return logInfo{version: int(values["version"]), stripeUnit: values["sunit"] * values["bsize"]}
}

// parseSize parses a number with or without the suffix k or m.
func parseSize(text string) int64 {
	digits := strings.TrimRight(text, "kKmM")
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return 0
	}
	switch strings.ToLower(text[len(digits):]) {
	case "k":
		n <<= 10
	case "m":
		n <<= 20
	}
	return n
}

// bufferNote returns a message with the memory use of the log buffers of a file system. Empty if no logbsize is desired.
func bufferNote(desired []string, m *mounts.Entry) string {
	size, count := mounts.OptionValue(desired, "logbsize"), mounts.OptionValue(desired, "logbufs")
	if size == "" {
		return ""
	}
	if m != nil {
		count = cmp.Or(count, mounts.OptionValue(effectiveOptions(m), "logbufs"))
	}
	count = cmp.Or(count, "8")
	return fmt.Sprintf("its log buffers use %s x %s = %d KiB of memory", count, size, parseSize(count)*parseSize(size)>>10)
}

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
	return mounts.OptionValue(m.Super, "upperdir")
}
