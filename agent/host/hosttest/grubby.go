package hosttest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// runGrubby does what the agent asks of the real one: --info=ALL, and --update-kernel=ALL with --args and --remove-args.
func (c *Commands) runGrubby(args []string) ([]byte, error) {
	entries, err := filepath.Glob(filepath.Join(c.Dir, "boot", "loader", "entries", "*.conf"))
	if err != nil {
		return nil, err
	}
	slices.Reverse(entries)
	var add, remove []string
	for _, arg := range args {
		name, value, _ := strings.Cut(arg, "=")
		switch name {
		case "--info":
			return grubbyInfo(entries)
		case "--args":
			add = strings.Fields(value)
		case "--remove-args":
			remove = strings.Fields(value)
		}
	}
	files := entries
	if later := filepath.Join(c.Dir, "etc", "kernel", "cmdline"); fileExists(later) {
		files = append(files, later)
	}
	for _, file := range files {
		if err := changeArguments(file, add, remove); err != nil {
			return nil, err
		}
	}
	if c.AfterGrubby != nil {
		c.AfterGrubby()
	}
	return nil, nil
}

func fileExists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

func grubbyInfo(entries []string) ([]byte, error) {
	var b strings.Builder
	for i, file := range entries {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		fields := map[string]string{}
		for line := range strings.Lines(string(data)) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
			fields[name] = value
		}
		root := ""
		var rest []string
		for _, word := range strings.Fields(fields["options"]) {
			if value, ok := strings.CutPrefix(word, "root="); ok {
				root = value
			} else {
				rest = append(rest, word)
			}
		}
		fmt.Fprintf(&b, "index=%d\nkernel=\"/boot%s\"\nargs=\"%s\"\nroot=\"%s\"\ninitrd=\"/boot%s\"\ntitle=\"%s\"\nid=\"%s\"\n",
			i, fields["linux"], strings.Join(rest, " "), root, fields["initrd"], fields["title"],
			strings.TrimSuffix(filepath.Base(file), ".conf"))
	}
	return []byte(b.String()), nil
}

// changeArguments changes the line "options" of an entry, or the one line of /etc/kernel/cmdline.
func changeArguments(file string, add, remove []string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	lines, done := strings.Split(string(data), "\n"), false
	for i, line := range lines {
		if strings.HasSuffix(file, ".conf") && !strings.HasPrefix(line, "options ") || done {
			continue
		}
		words := slices.DeleteFunc(strings.Fields(line), func(word string) bool { return slices.Contains(remove, word) })
		for _, word := range add {
			if !slices.Contains(words, word) {
				words = append(words, word)
			}
		}
		lines[i], done = strings.Join(words, " "), true
	}
	if !done {
		return errors.New("grubby: no options in " + file)
	}
	return os.WriteFile(file, []byte(strings.Join(lines, "\n")), 0o644)
}
