package main

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/sysctl"
)

const (
	// blsArguments says which arguments of boot entries are ours.
	blsArguments = "/var/lib/storage-client/journal/boot-arguments"
	// pristineHost is what /boot and /etc were before the first change.
	pristineHost = "/pristine-host"
)

// bootEntries are the names of the boot loader entries, on a tree that has some.
func bootEntries() []string {
	found, err := filepath.Glob(root + "/boot/loader/entries/*.conf")
	if err != nil {
		return nil
	}
	for i, name := range found {
		found[i] = strings.TrimPrefix(name, root)
	}
	return found
}

// readEntries adds to found what the entries pass, and returns where our argument may stand. An entry may be empty where a
// change was cut short between grubby's writing and the agent's sync: the agent's next pass has to bring it back.
func (m *machine) readEntries(entries []string, found map[string]string) []string {
	inFlux := m.doing > m.done || m.restoring
	for _, name := range entries {
		data := read(name)
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

// compareEntries compares, after everything was put back, what grubby touches with what it was, to the byte.
func compareEntries() error {
	if len(bootEntries()) == 0 {
		return nil
	}
	before, err := filesBelow(root+pristineHost, "boot", "etc")
	if err != nil {
		return err
	}
	after, err := filesBelow(root, "boot", "etc")
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
			if err != nil || !entry.Type().IsRegular() {
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

// pairs are values of which this kernel clears one when the other is set.
var pairs = map[string][2]string{
	"vm.dirty_ratio":            {"/proc/sys/vm/dirty_bytes", "50000000"},
	"vm.dirty_background_ratio": {"/proc/sys/vm/dirty_background_bytes", "25000000"},
}

// checkPairs sets and puts back, in this very kernel, ratios in whose place bytes were in force.
func checkPairs() error {
	files, err := host.OpenFS("/")
	if err != nil {
		return err
	}
	defer files.Close()
	subject, originals, ctx := sysctl.New(files), map[string]host.Original{}, context.Background()
	var wanted []host.Setting
	for _, name := range slices.Sorted(maps.Keys(pairs)) {
		if err := files.WriteValue(pairs[name][0], pairs[name][1]); err != nil {
			return err
		}
		if originals[name], err = subject.Original(ctx, name); err != nil {
			return err
		}
		wanted = append(wanted, host.Setting{Name: name, Value: "15"})
	}
	if err := subject.Apply(ctx, wanted); err != nil {
		return err
	}
	for _, o := range subject.Observe(ctx, wanted) {
		if o.State != host.InSync {
			return fmt.Errorf("%s is %s: %s", o.Name, o.State, o.Message)
		}
	}
	if err := subject.Apply(ctx, nil); err != nil {
		return err
	}
	for _, o := range subject.Restore(ctx, originals) {
		bytes, err := files.ReadValue(pairs[o.Name][0])
		if err != nil || bytes != pairs[o.Name][1] || o.State != host.InSync {
			return fmt.Errorf("%s was put back (%s, %s), and %s is %q, %w", o.Name, o.State, o.Message, pairs[o.Name][0], bytes, err)
		}
	}
	return nil
}
