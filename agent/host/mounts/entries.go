package mounts

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/storageclient/operator/tuning/counters"
)

// Entry is one line of the host's mount table, of any type. See proc_pid_mountinfo(5).
type Entry struct {
	// ID is the number of the mount. The kernel can reuse it once the mount is gone.
	ID string
	// Device is the major:minor of the superblock.
	Device string
	// Root is the directory of the file system that is mounted. It is "/" unless the mount is a bind mount of a part.
	Root string
	// Point is the mount point as process 1 sees it.
	Point string
	// FSType and Source are the type and the source.
	FSType, Source string
	// Flags are the options of the mount itself. Super are the options of its superblock.
	Flags, Super []string
}

// Entries reads the whole mount table, in its order: if two lines have one mount point, the later one is on top. It omits lines that cannot be
// parsed.
func (r Reader) Entries() ([]Entry, error) {
	lines, _, err := r.readMountinfo()
	return lines, err
}

// VolumeEntry is a file system that pods have mounted as a volume.
type VolumeEntry struct {
	// Volume is the volume's name in the kubelet's path. Device is the major:minor of the superblock. FSType is its type.
	Volume, Device, FSType string
}

// VolumeEntries returns the file systems that the kubelet's pods have mounted as volumes, sorted. It returns each pair of volume and device once. It
// reads the mount table only.
func (r Reader) VolumeEntries() ([]VolumeEntry, error) {
	lines, _, err := r.readMountinfo()
	if err != nil {
		return nil, err
	}
	k := findKubelets(lines, r.kubeletDir)
	var entries []VolumeEntry
	for _, line := range lines {
		if at := k.placeOf(line.Point); at.volume != "" &&
			(isNFS(line.FSType) || isSMB(line.FSType) || line.FSType == "xfs" && !k.nodeDevices[line.Device]) {
			entries = append(entries, VolumeEntry{Volume: at.volume, Device: line.Device, FSType: line.FSType})
		}
	}
	slices.SortFunc(entries, func(a, b VolumeEntry) int {
		return cmp.Or(cmp.Compare(a.Volume, b.Volume), cmp.Compare(a.Device, b.Device))
	})
	return slices.Compact(entries), nil
}

// backing identifies the object that is mounted: the superblock, or a device file, because all device files are in the superblock of /dev.
func (e Entry) backing() string {
	if e.FSType == "devtmpfs" {
		return e.Device + e.Root
	}
	return e.Device
}

// parseMountinfo parses a mount table. It counts and skips the lines that it cannot parse.
func parseMountinfo(data string) (lines []Entry, malformed int) {
	for text := range strings.Lines(data) {
		text = strings.TrimSpace(text)
		if text == "" {
			continue
		}
		line, ok := parseMountLine(text)
		if !ok {
			malformed++
			continue
		}
		lines = append(lines, line)
	}
	return lines, malformed
}

// MountedAt returns the source and type of the mount at a point, from the text of a mountinfo file. If there are several, it returns the upper one.
// Both are empty if there is none.
func MountedAt(mountinfo, point string) (source, fsType string) {
	lines, _ := parseMountinfo(mountinfo)
	for _, line := range lines {
		if line.Point == point {
			source, fsType = line.Source, line.FSType
		}
	}
	return source, fsType
}

func parseMountLine(text string) (Entry, bool) {
	// Blanks inside a field are escaped, so the separator is unambiguous. It has at least six fields before it and two after it. A source may be
	// empty, which leaves two blanks in a row.
	head, tail, found := strings.Cut(text, " - ")
	fields, rest := strings.Fields(head), strings.Split(tail, " ")
	if !found || len(fields) < 6 || len(rest) < 2 || !isDevice(fields[2]) || !strings.HasPrefix(fields[4], "/") {
		return Entry{}, false
	}
	line := Entry{
		ID:     fields[0],
		Device: fields[2],
		Root:   unescapeField(fields[3]),
		Point:  unescapeField(fields[4]),
		Flags:  strings.Split(fields[5], ","),
		FSType: rest[0],
		Source: unescapeField(rest[1]),
	}
	if len(rest) > 2 {
		line.Super = strings.Split(rest[len(rest)-1], ",")
	}
	return line, true
}

func isDevice(s string) bool {
	major, minor, found := strings.Cut(s, ":")
	return found && isNumber(major) && isNumber(minor)
}

func isNumber(s string) bool {
	_, err := strconv.ParseUint(s, 10, 32)
	return err == nil
}

// unescapeField decodes the kernel's escapes of blank, tab, newline, backslash and hash: a backslash and three octal digits.
func unescapeField(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if c, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(c))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// stats contains the data in mountstats about one NFS mount.
type stats struct {
	options []string
	// sourcePorts are the local ports of the transports, one per transport. Zero if the port is not reserved.
	sourcePorts []int
	// age is the time since the superblock was mounted, in seconds. -1 if it is not reported.
	age        int
	bytes      counters.Bytes
	events     counters.Events
	transports []TransportCounters
	// perOperation is true once the lines that count operations have started.
	perOperation bool
	// operations are the operations with at least one request, by name.
	operations map[string]Operation
}

// parseMountstats parses the blocks of all mounts that have statistics, by mount point. It skips blocks and lines that it does not understand, and
// still parses all others.
func parseMountstats(data string) map[string]stats {
	found, point := map[string]stats{}, ""
	for text := range strings.Lines(data) {
		fields := strings.Fields(text)
		switch {
		case len(fields) == 0:
		case !strings.HasPrefix(text, "\t") && !strings.HasPrefix(text, " "):
			// If two mounts have the same point, the upper one comes later and wins.
			if point = statsPoint(fields); point != "" {
				found[point] = stats{age: -1}
			}
		case point != "":
			found[point] = found[point].addFields(fields)
		}
	}
	return found
}

// StatsAt returns the effective options and the number of transports of the mount at a point, from the text of a mountstats file.
func StatsAt(mountstats, point string) (options []string, transports int) {
	s := parseMountstats(mountstats)[point]
	return s.options, len(s.sourcePorts)
}

// statsPoint parses "device SOURCE mounted on POINT with fstype TYPE statvers=1.1". A mount without statistics has no "statvers".
func statsPoint(fields []string) string {
	if len(fields) < 9 || fields[0] != "device" || fields[2] != "mounted" || fields[5] != "with" {
		return ""
	}
	return unescapeField(fields[4])
}

func (s stats) addFields(fields []string) stats {
	if len(fields) < 2 {
		return s
	}
	if s.perOperation {
		if o, ok := parseOperation(fields); ok && o.Count > 0 {
			if s.operations == nil {
				s.operations = map[string]Operation{}
			}
			s.operations[o.Name] = o
		}
		return s
	}
	switch fields[0] {
	case "per-op":
		s.perOperation = true
	case "opts:":
		s.options = strings.Split(fields[1], ",")
	case "age:":
		if age, err := strconv.Atoi(fields[1]); err == nil && age >= 0 {
			s.age = age
		}
	case "bytes:":
		if n, ok := parseCounts(fields[1:]); ok && len(n) >= 6 {
			s.bytes = counters.Bytes{Read: n[0], Written: n[1], DirectRead: n[2], DirectWritten: n[3], WireRead: n[4], WireWritten: n[5]}
		}
	case "events:":
		if n, ok := parseCounts(fields[1:]); ok && len(n) >= 18 {
			s.events = counters.Events{DataInvalidations: n[2], AttributeInvalidations: n[3], Opens: n[4], Listings: n[12], Flushes: n[14], Syncs: n[15]}
		}
	case "xprt:":
		port := 0
		if len(fields) > 2 && fields[1] != "local" {
			port, _ = strconv.Atoi(fields[2])
		}
		s.sourcePorts = append(s.sourcePorts, port)
		if t, ok := parseTransportLine(fields); ok {
			s.transports = append(s.transports, t)
		}
	}
	return s
}
