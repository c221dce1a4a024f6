package bootloader

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/storageclient/operator/agent/host"
)

// readEntries returns the boot loader entries in the order in which the loader shows them, without the entry that is booted once.
func (b entryLoader) readEntries() ([]*menuEntry, error) {
	files, err := b.fs.Glob(b.at.entries, "*.conf")
	if err != nil {
		return nil, err
	}
	var entries []*menuEntry
	for _, file := range files {
		if file == b.at.onceEntry() {
			continue
		}
		// kernel-install may have removed the file since.
		data, err := b.fs.ReadIfThere(file)
		if err != nil {
			return nil, err
		}
		entry := &menuEntry{id: strings.TrimSuffix(path.Base(file), ".conf"), section: b.at.entries, file: file, text: string(data)}
		line, number := bootLine{}, 0
		for text := range strings.Lines(entry.text) {
			number++
			switch key, value := cutField(text); key {
			case "title":
				entry.title = value
			case "linux":
				line.kernel = value
			case "options":
				line.number = number
			}
		}
		if line.id, line.title, line.args = entry.id, entry.title, host.ParseArguments(entryOptions(entry.text)); line.kernel != "" {
			entry.lines = []bootLine{line}
		}
		entries = append(entries, entry)
	}
	slices.SortStableFunc(entries, b.tool.compare)
	return entries, nil
}

var versionSegments = regexp.MustCompile(`[~+^.-]|\d+|[A-Za-z]+`)

// versionKey returns a key that sorts versions. marks are the characters that count, in their order, with "$" for the end of a version. Letters
// follow, and then numbers. A longer number is larger, without leading zeros.
func versionKey(version, marks string) string {
	key := ""
	for _, segment := range versionSegments.FindAllString(version, -1) {
		digits, mark := strings.TrimLeft(segment, "0"), strings.Index(marks, segment)
		switch {
		case mark >= 0:
			key += string(rune(mark))
		case strings.ContainsAny(segment, "~+^.-"):
		case segment[0] > '9':
			key += string(rune(len(marks))) + segment
		default:
			key += fmt.Sprintf("%c%04d%s", len(marks)+1, len(digits), digits)
		}
	}
	return key + string(rune(strings.Index(marks, "$")))
}
