package machine

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/storageclient/operator/agent/host/hosttest"
)

const (
	// blsArguments says which arguments of boot entries are ours.
	blsArguments = "/var/lib/storage-client/journal/boot-arguments"
	// pristineHost is what /boot and /etc were before the first change.
	pristineHost = "/pristine-host"
)

// bootEntries are the names of the boot loader entries, on a tree that has some.
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

// readEntries adds to found what the entries pass, and returns where our argument may stand. An entry may be empty where a
// change was cut short between grubby's writing and the agent's sync: the agent's next pass has to bring it back.
func (m *Machine) readEntries(entries []string, found map[string]string) []string {
	inFlux := m.Doing > m.Done || m.Restoring
	for _, name := range entries {
		data := m.read(name)
		if strings.Trim(data, "\x00") == "" && inFlux {
			continue
		}
		value, _, _ := strings.Cut(between(data, argument+"="), " ")
		if !strings.HasPrefix(data, "title ") {
			value = "an entry in pieces"
		}
		found[name] = value
	}
	return append(slices.Clone(entries), blsArguments)
}

// CompareFiles compares, after everything was put back, /etc and /boot with what they were, to the byte. What grubby's own sed leaves
// where it is killed does not count: no system reads a file of that name, and a name is no proof that the agent may delete it.
func (m *Machine) CompareFiles() error {
	before, err := filesBelow(m.root+pristineHost, "boot", "etc")
	if err != nil {
		return err
	}
	after, err := filesBelow(m.root, "boot", "etc")
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

// filesBelow are mode and bytes of the files below some directories of a tree.
func filesBelow(tree string, dirs ...string) (map[string]string, error) {
	files := map[string]string{}
	for _, dir := range dirs {
		err := filepath.WalkDir(filepath.Join(tree, dir), func(name string, entry fs.DirEntry, err error) error {
			if err != nil || !entry.Type().IsRegular() || entry.Name() == hosttest.SedLeftover {
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
