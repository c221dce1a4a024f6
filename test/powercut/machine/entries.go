package machine

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/storageclient/operator/agent/host/hosttest"
)

const (
	// blsArguments lists the arguments of boot entries that the agent set.
	blsArguments = "/var/lib/storage-client/journal/boot-arguments"
	// pristineHost contains /boot and /etc from before the first change.
	pristineHost = "/pristine-host"
)

// bootEntries returns the names of the boot loader entries, if the tree has any.
func (m *Machine) bootEntries() []string {
	found, err := filepath.Glob(m.root + "/boot/loader/entries/*.conf")
	if err != nil {
		return nil
	}
	for i, name := range found {
		found[i] = strings.TrimPrefix(name, m.root)
	}
	return found
}

// readEntries adds the arguments of the entries to found, and returns the files that may contain the argument of the agent.
func (m *Machine) readEntries(entries []string, found map[string]string) []string {
	for _, name := range entries {
		data := m.read(name)
		value, _, _ := strings.Cut(between(data, argument+"="), " ")
		if !strings.HasPrefix(data, "title ") {
			value = "an incomplete entry"
		}
		found[name] = value
	}
	return append(slices.Clone(entries), blsArguments)
}

// shortTemp matches the short name of a temporary file on VFAT, of which a cut has kept only a part of the directory entries.
var shortTemp = regexp.MustCompile(`~\d+\.STO$`)

// CompareFiles compares /etc and /boot with their original content after everything was restored, byte by byte. It ignores the temporary
// file of a killed sed that grubby started, and a temporary file on VFAT that has only its short name. No system reads a file of these names, and
// the name alone does not permit the agent to delete it.
func (m *Machine) CompareFiles() error { return compareTrees(m.root, "boot", "etc") }

func compareTrees(root string, dirs ...string) error {
	before, err := filesBelow(root+pristineHost, dirs...)
	if err != nil {
		return err
	}
	after, err := filesBelow(root, dirs...)
	if err != nil {
		return err
	}
	names := maps.Clone(before)
	maps.Copy(names, after)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if before[name] != after[name] {
			return fmt.Errorf("%s is %q, was %q", name, after[name], before[name])
		}
	}
	return nil
}

// filesBelow returns the mode and content of the files below some directories of a tree.
func filesBelow(tree string, dirs ...string) (map[string]string, error) {
	files := map[string]string{}
	for _, dir := range dirs {
		err := filepath.WalkDir(filepath.Join(tree, dir), func(name string, entry fs.DirEntry, err error) error {
			if err != nil || !entry.Type().IsRegular() || entry.Name() == hosttest.SedLeftover || shortTemp.MatchString(entry.Name()) {
				return err
			}
			info, err := entry.Info()
			if err != nil {
				return err
			}
			data, err := os.ReadFile(name)
			files[strings.TrimPrefix(name, tree)] = fmt.Sprintf("%s %s", info.Mode(), data)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return files, nil
}
