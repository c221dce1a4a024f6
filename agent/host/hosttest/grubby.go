package hosttest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// SedLeftover is the name of the file that is left where grubby is killed within a "sed -i": sed's own names are "sed" and six letters.
const SedLeftover = "sedAbCdEf"

// noDefaultFile is the option without which grubby edits /etc/default/grub. Its script knows it or does not.
const noDefaultFile = "--no-etc-grub-update"

// runGrubby does what the agent asks of the real one: --info=ALL, and --update-kernel=ALL with --args and --remove-args. Like
// it, it makes /etc/kernel/cmdline where there is none, turns runs of blanks into one, takes every line of /etc/default/grub
// that begins with GRUB_CMDLINE_LINUX for that variable, and syncs nothing.
func (c *Commands) runGrubby(args []string) ([]byte, error) {
	entries, err := filepath.Glob(filepath.Join(c.Dir, "boot", "loader", "entries", "*.conf"))
	if err != nil {
		return nil, err
	}
	slices.Reverse(entries)
	script, err := os.ReadFile(filepath.Join(c.Dir, "usr", "sbin", "grubby"))
	if err != nil {
		return nil, err
	}
	var add, remove []string
	defaults := []string{filepath.Join(c.Dir, "etc", "default", "grub")}
	for _, arg := range args {
		name, value, _ := strings.Cut(arg, "=")
		switch name {
		case "--info":
			return grubbyInfo(entries)
		case noDefaultFile:
			if !strings.Contains(string(script), "no-etc-grub-update") {
				return nil, errors.New("grubby: unrecognized option '" + noDefaultFile + "'")
			}
			defaults = nil
		case "--args":
			add = strings.Fields(value)
		case "--remove-args":
			remove = strings.Fields(value)
		}
	}
	later := filepath.Join(c.Dir, "etc", "kernel", "cmdline")
	if !fileExists(later) && len(entries) > 0 {
		if err := makeCommandLine(later, entries[0]); err != nil {
			return nil, err
		}
	}
	for _, file := range append(entries, later) {
		if err := changeArguments(file, add, remove); err != nil {
			return nil, err
		}
	}
	for _, file := range defaults {
		if err := changeDefaults(file, add, remove); err != nil {
			return nil, err
		}
	}
	if c.AfterGrubby != nil {
		c.AfterGrubby()
	}
	return nil, nil
}

// makeCommandLine gives /etc/kernel/cmdline what an entry passes.
func makeCommandLine(later, entry string) error {
	data, err := os.ReadFile(entry)
	if err != nil {
		return err
	}
	_, options, _ := strings.Cut(string(data), "\noptions ")
	options, _, _ = strings.Cut(options, "\n")
	if err := os.MkdirAll(filepath.Dir(later), 0o755); err != nil {
		return err
	}
	return os.WriteFile(later, []byte(options+"\n"), 0o644)
}

// changeDefaults makes of every line that begins with GRUB_CMDLINE_LINUX the changed value of that variable.
func changeDefaults(file string, add, remove []string) error {
	data, err := os.ReadFile(file)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	_, value, found := strings.Cut("\n"+string(data), "\nGRUB_CMDLINE_LINUX=")
	if !found {
		return nil
	}
	value, _, _ = strings.Cut(value, "\n")
	words := changeWords(strings.Fields(strings.Trim(value, `"`)), add, remove)
	lines := strings.Split(string(data), "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, "GRUB_CMDLINE_LINUX") {
			lines[i] = `GRUB_CMDLINE_LINUX="` + strings.Join(words, " ") + `"`
		}
	}
	return replaceFile(file, []byte(strings.Join(lines, "\n")))
}

// replaceFile replaces a file as "sed -i" does: with the mode of the one before, by a rename, and without a sync.
func replaceFile(file string, data []byte) error {
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	temp := filepath.Join(filepath.Dir(file), SedLeftover)
	if err := os.WriteFile(temp, data, info.Mode().Perm()); err != nil {
		return err
	}
	return os.Rename(temp, file)
}

func changeWords(words, add, remove []string) []string {
	words = slices.DeleteFunc(words, func(word string) bool { return slices.Contains(remove, word) })
	for _, word := range add {
		if !slices.Contains(words, word) {
			words = append(words, word)
		}
	}
	return words
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
		lines[i], done = strings.Join(changeWords(strings.Fields(line), add, remove), " "), true
	}
	if !done {
		return errors.New("grubby: no options in " + file)
	}
	return replaceFile(file, []byte(strings.Join(lines, "\n")))
}
