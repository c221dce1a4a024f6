package bootloader

import (
	"cmp"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/storageclient/operator/agent/host"
)

// readEntries returns the boot loader entries in the order in which GRUB shows them, without the entry that is booted once.
func (s *Subject) readEntries() ([]*menuEntry, error) {
	files, err := s.fs.Glob(entriesDir, "*.conf")
	if err != nil {
		return nil, err
	}
	var entries []*menuEntry
	for _, file := range files {
		if file == onceEntry {
			continue
		}
		data, err := s.fs.ReadFile(file)
		if err != nil {
			return nil, err
		}
		entry := &menuEntry{id: strings.TrimSuffix(path.Base(file), ".conf"), section: entriesDir, file: file, text: string(data)}
		line, number := bootLine{}, 0
		for text := range strings.Lines(entry.text) {
			number++
			switch key, value, _ := strings.Cut(strings.TrimSpace(text), " "); key {
			case "title":
				entry.title = strings.TrimSpace(value)
			case "linux":
				line.kernel = strings.TrimSpace(value)
			case "options":
				line.number = number
			}
		}
		if line.kernel == "" {
			continue
		}
		line.id, line.title, line.args = entry.id, entry.title, host.ParseArguments(entryOptions(entry.text))
		entry.lines = []bootLine{line}
		entries = append(entries, entry)
	}
	slices.SortStableFunc(entries, func(a, b *menuEntry) int { return compareEntries(b.id, a.id) })
	return entries, nil
}

// compareEntries compares the names of two entries like GRUB: by package name, version and release, which the last two dashes separate.
func compareEntries(a, b string) int {
	partsA, partsB := packageParts(a), packageParts(b)
	for i := range partsA {
		if order := compareVersions(partsA[i], partsB[i]); order != 0 {
			return order
		}
	}
	return 0
}

func packageParts(name string) [3]string {
	parts := strings.Split(name, "-")
	if n := len(parts); n > 3 {
		parts = append([]string{strings.Join(parts[:n-2], "-")}, parts[n-2:]...)
	}
	return [3]string(append(parts, "", "")[:3])
}

var versionSegments = regexp.MustCompile(`~|\+|[0-9]+|[A-Za-z]+`)

// compareVersions compares versions like rpm: "~" sorts before the end of a version, and "+" after it, but before all other segments.
func compareVersions(a, b string) int {
	segmentsA, segmentsB := versionSegments.FindAllString(a, -1), versionSegments.FindAllString(b, -1)
	for i := range max(len(segmentsA), len(segmentsB)) {
		kindA, textA := segmentAt(segmentsA, i)
		kindB, textB := segmentAt(segmentsB, i)
		length := 0
		if kindA == segmentNumber {
			length = cmp.Compare(len(textA), len(textB))
		}
		if order := cmp.Or(cmp.Compare(kindA, kindB), length, strings.Compare(textA, textB)); order != 0 {
			return order
		}
	}
	return 0
}

// The kinds of segments of a version, in their order.
const (
	segmentTilde = iota
	segmentEnd
	segmentPlus
	segmentLetters
	segmentNumber
)

// segmentAt returns the kind and the text of a segment. A number has no leading zeros.
func segmentAt(segments []string, at int) (kind int, text string) {
	switch {
	case at >= len(segments):
		return segmentEnd, ""
	case segments[at] == "~":
		return segmentTilde, ""
	case segments[at] == "+":
		return segmentPlus, ""
	case segments[at][0] <= '9':
		return segmentNumber, strings.TrimLeft(segments[at], "0")
	}
	return segmentLetters, segments[at]
}
