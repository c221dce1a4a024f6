// Package readahead sets the read-ahead window of mounts by file system type. Existing mounts get it immediately. Later mounts get it from files that
// nfs-utils and udev read, and from the agent itself when they appear.
package readahead

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/mounts"
	"github.com/storageclient/operator/tuning/text"
)

// Name is the subject's part of a setting's key.
const Name = "readAhead"

// kernelDefault is the kernel's window for NFS mounts in KiB, from Linux 5.4 on.
const kernelDefault = "128"

var (
	fsTypeBytes = regexp.MustCompile(`^[a-z0-9_]+$`)
	sizeBytes   = regexp.MustCompile(`^\d{1,7}$`)
)

// Subject implements host.Subject for the settings "readAhead/<file system type>", in KiB.
type Subject struct {
	host.Inert

	fs      host.FS
	kernel  host.Kernel
	entries func() ([]mounts.Entry, error)
	// known contains the inodes of the windows that were set to the desired value once, by file.
	known map[string]uint64
	// applied contains, by type, the value that was applied last.
	applied map[string]string
	// failed contains, by type, the error of the last Apply.
	failed map[string]string
	// fileErr is the error of the last Apply if it could not keep the agent's files.
	fileErr error
	// places are the directories of the agent's files.
	places map[valueSource]*mounts.Place
	// wanted contains, by type, the value that was desired last, even if it could not be applied.
	wanted map[string]string
	// volumes sets separate windows for single volumes.
	volumes *Volumes
}

var _ host.Subject = &Subject{}

// New returns the two subjects for one host: for types and for single volumes. entries reads its mount table, and volumeEntries its mounted volumes.
// journalled is called for originals with the keys of both subjects.
func New(
	files host.FS, entries func() ([]mounts.Entry, error), volumeEntries func() ([]mounts.VolumeEntry, error),
	journalled func(key string) (host.Original, bool),
) (*Subject, *Volumes) {
	s := &Subject{
		fs: files, kernel: files, entries: entries,
		known: map[string]uint64{}, applied: map[string]string{}, failed: map[string]string{},
		places: map[valueSource]*mounts.Place{
			byNFSUtils: mounts.NewPlace(files, path.Dir(NFSConf)), byUdev: mounts.NewPlace(files, path.Dir(UdevRule)),
		},
	}
	s.volumes = &Volumes{
		types: s, entries: volumeEntries, journalled: journalled,
		wanted: map[string]string{}, known: map[string]uint64{}, failed: map[string]string{},
	}
	return s, s.volumes
}

// Name implements host.Subject.
func (s *Subject) Name() string { return Name }

// Original implements host.Subject. The original is the window of the type's mounts. If they differ, it is the most frequent window, followed by the
// others one by one. Without a mount, there is no original.
func (s *Subject) Original(_ context.Context, name string) (host.Original, error) {
	values, err := s.readWindows(name)
	if err != nil {
		return host.Original{}, err
	}
	if err := s.addOwned(values, name); err != nil {
		return host.Original{}, err
	}
	if len(values) == 0 {
		return host.Original{}, nil
	}
	return host.Original{Present: true, Value: encodeWindows(values)}, nil
}

// addOwned adds the windows that volumes revert to: when the setting of the type is gone, the setting of the volume may be gone too.
func (s *Subject) addOwned(values map[string]string, fsType string) error {
	owned, err := s.volumes.volumeWindows()
	if err != nil || len(owned) == 0 {
		return err
	}
	all, err := s.allWindows(fsType)
	if err != nil {
		return err
	}
	for _, file := range all {
		volume, isOwned := owned[file]
		if !isOwned {
			continue
		}
		before := s.volumes.windowBefore(VolumesName+"/"+volume, fsType, file)
		if before == "" {
			if before, err = s.kernel.ReadValue(file); err != nil {
				continue
			}
		}
		values[file] = before
	}
	return nil
}

func (s *Subject) setDesired(desired []host.Setting) {
	s.wanted = map[string]string{}
	for _, setting := range desired {
		if checkSetting(setting) == nil {
			s.wanted[setting.Name] = setting.Value
		}
	}
}

// Apply implements host.Subject.
func (s *Subject) Apply(_ context.Context, desired []host.Setting) error {
	s.failed = map[string]string{}
	s.setDesired(desired)
	wanted := s.wanted
	if s.fileErr = s.writeFiles(wanted); s.fileErr != nil {
		return s.fileErr
	}
	for _, fsType := range slices.Sorted(maps.Keys(wanted)) {
		s.applied[fsType] = wanted[fsType]
		if err := s.setWindows(fsType, wanted[fsType], func(string) bool { return true }); err != nil {
			s.failed[fsType] = err.Error()
		}
	}
	return nil
}

// FollowMounts implements host.Subject.
func (s *Subject) FollowMounts(_ context.Context, desired []host.Setting) {
	s.setDesired(desired)
	for _, setting := range desired {
		if checkSetting(setting) != nil {
			continue
		}
		if err := s.setWindows(setting.Name, setting.Value, func(file string) bool { return s.known[file] != s.inodeOf(file) }); err != nil {
			s.failed[setting.Name] = err.Error()
		}
	}
}

// setWindows writes the window of the chosen mounts of a type, unless they already have the desired one.
func (s *Subject) setWindows(fsType, wanted string, chosen func(file string) bool) error {
	files, err := s.windowFiles(fsType)
	if err != nil {
		return err
	}
	for _, file := range files {
		if !chosen(file) {
			continue
		}
		inode := s.inodeOf(file)
		if err := s.writeWindow(file, wanted); err != nil {
			return err
		}
		s.known[file] = inode
	}
	maps.DeleteFunc(s.known, func(file string, _ uint64) bool { return !s.fs.Exists(file) })
	return nil
}

// inodeOf returns the inode of a window. Zero if the window is gone. The kernel gives a new mount the lowest free device number, so its window may
// have the name of a former one. sysfs gives each new file another inode (measured on 6.18).
func (s *Subject) inodeOf(file string) uint64 {
	info, err := s.fs.Stat(file)
	if err != nil {
		return 0
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return stat.Ino
	}
	return 0
}

// writeWindow writes one window and reads it back. If the window is gone by then, it was unmounted.
func (s *Subject) writeWindow(file, wanted string) error {
	value, err := s.kernel.ReadValue(file)
	if err == nil && value == grantedSize(wanted) {
		return nil
	}
	if err := host.SetValue(s.kernel, file, wanted, isGranted); err != nil && s.fs.Exists(file) {
		return err
	}
	return nil
}

// Observe implements host.Subject. Observed is the smallest window of all mounts of the type.
func (s *Subject) Observe(_ context.Context, desired []host.Setting) []host.Observation {
	s.setDesired(desired)
	saved := s.readFiles()
	return host.ObserveEach(desired, host.Live, func(o *host.Observation, setting host.Setting) error {
		if err := checkSetting(setting); err != nil {
			return err
		}
		return s.observeSetting(o, saved)
	})
}

func (s *Subject) observeSetting(o *host.Observation, saved files) error {
	values, err := s.readWindows(o.Name)
	if err != nil {
		return err
	}
	var deviations []string
	for file, value := range values {
		if o.Observed == "" || parseNumber(value) < parseNumber(o.Observed) {
			o.Observed = value
		}
		if !isGranted(value, o.Desired) {
			deviations = append(deviations, windowID(file)+" has "+value)
		}
	}
	lost := saved.lostReason(s.sourceOf(o.Name), o.Name, o.Desired)
	switch {
	case len(deviations) > 0 && s.failed[o.Name] != "":
		o.State, o.Message = host.Failed, s.failed[o.Name]
	case len(deviations) > 0:
		o.State, o.Message = host.Drifted, host.ListNames(deviations)
	case lost != "" && s.fileErr != nil:
		o.State, o.Message = host.Failed, lost+": "+s.fileErr.Error()
	case lost != "":
		o.State, o.Message = host.Drifted, lost
	case len(values) == 0:
		o.State, o.Effect = host.Pending, host.NextMount
		o.Message = "no mount of this type yet, except volumes with a separate window; later mounts get it from " +
			cmp.Or(fileOf[s.sourceOf(o.Name)], "the agent within 5 s")
	case o.Observed != o.Desired:
		o.State, o.Message = host.InSync, "the kernel rounds it down to whole pages"
	default:
		o.State = host.InSync
	}
	return nil
}

// Restore implements host.Subject. Newer mounts with an unknown original keep their window until they are mounted again.
func (s *Subject) Restore(_ context.Context, originals map[string]host.Original) []host.Observation {
	return host.RestoreEach(originals, host.Live, s.restoreType)
}

func (s *Subject) restoreType(o *host.Observation, original host.Original) error {
	found, err := s.windowFiles(o.Name)
	if err != nil {
		return err
	}
	remaining := 0
	for _, file := range found {
		back := originalOf(original, o.Name, file)
		value, err := s.kernel.ReadValue(file)
		switch {
		case back != "":
			if err := s.writeWindow(file, back); err != nil {
				return err
			}
		case err == nil && value == grantedSize(s.applied[o.Name]):
			remaining++
		}
		delete(s.known, file)
	}
	if remaining > 0 {
		o.State, o.Effect = host.Pending, host.NextMount
		o.Message = text.Count(remaining, "newer mount") + ": the window stays until the next mount"
	}
	return nil
}

func (s *Subject) readWindows(fsType string) (map[string]string, error) {
	found, err := s.windowFiles(fsType)
	if err != nil {
		return nil, err
	}
	values := map[string]string{}
	for _, file := range found {
		value, err := s.kernel.ReadValue(file)
		if err != nil && !s.fs.Exists(file) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read read-ahead: %w", err)
		}
		values[file] = value
	}
	return values, nil
}

// windowFiles returns the files with the windows of the type's mounts, except windows that volumes control.
func (s *Subject) windowFiles(fsType string) ([]string, error) {
	owned, err := s.volumes.volumeWindows()
	if err != nil {
		return nil, err
	}
	all, err := s.allWindows(fsType)
	return slices.DeleteFunc(all, func(file string) bool { return owned[file] != "" }), err
}

// allWindows returns the files with the windows of the type's mounts, each once. NFS names a window by the superblock's device number. A disk's
// window has the disk's device number, and a partition uses the window of its disk. All other file systems name it by the type and a number that no
// mount table shows (super_setup_bdi in fs/super.c).
func (s *Subject) allWindows(fsType string) ([]string, error) {
	entries, err := s.entries()
	if err != nil {
		return nil, err
	}
	var found []string
	for _, entry := range entries {
		if entry.FSType != fsType {
			continue
		}
		if file := s.windowFile(entry.Device); file != "" {
			found = append(found, file)
		}
	}
	named, err := s.fs.Glob(bdiDir, fsType+"-[0-9]*/"+windowFile)
	if err != nil {
		return nil, err
	}
	found = append(found, named...)
	slices.Sort(found)
	return slices.Compact(found), nil
}

const (
	bdiDir     = "/sys/class/bdi"
	windowFile = "read_ahead_kb"
)

func (s *Subject) windowFile(device string) string {
	if file := path.Join(bdiDir, device, windowFile); s.fs.Exists(file) {
		return file
	}
	block, err := s.fs.Resolve(path.Join("/sys/dev/block", device))
	if err != nil {
		return ""
	}
	if file := path.Join(path.Dir(block), "queue", windowFile); s.fs.Exists(file) {
		return file
	}
	return ""
}

// diskOf returns the name of the disk whose window a device uses. Another text if it uses no disk.
func (s *Subject) diskOf(device string) string {
	block, _ := s.fs.Resolve(path.Join("/sys/dev/block", windowID(s.windowFile(device))))
	return path.Base(block)
}

func checkSetting(setting host.Setting) error {
	if !fsTypeBytes.MatchString(setting.Name) || !sizeBytes.MatchString(setting.Value) {
		return fmt.Errorf("read-ahead %s=%q: must be a file system type and a number of KiB", setting.Name, setting.Value)
	}
	return nil
}

// grantedSize returns the window that the kernel sets: it counts in pages.
func grantedSize(wanted string) string {
	page := os.Getpagesize() >> 10
	return strconv.Itoa(parseNumber(wanted) / page * page)
}

// isGranted reports whether the kernel has set a desired window. It rounds some of them down.
func isGranted(value, wanted string) bool { return value == grantedSize(wanted) || value == wanted }

func parseNumber(value string) int {
	n, _ := strconv.Atoi(value)
	return n
}

func windowID(file string) string {
	dir := path.Dir(file)
	if path.Base(dir) == "queue" {
		dir = path.Dir(dir)
	}
	return path.Base(dir)
}

// encodeWindows writes the most frequent window, and then the windows that differ.
func encodeWindows(values map[string]string) string {
	count := map[string]int{}
	for _, value := range values {
		count[value]++
	}
	common := slices.MaxFunc(slices.Sorted(maps.Keys(count)), func(a, b string) int { return count[a] - count[b] })
	words := []string{common}
	for _, file := range slices.Sorted(maps.Keys(values)) {
		if values[file] != common {
			words = append(words, windowID(file)+"="+values[file])
		}
	}
	return strings.Join(words, " ")
}

func decodeWindows(encoded string) (common string, single map[string]string) {
	single = map[string]string{}
	for i, word := range strings.Fields(encoded) {
		name, value, found := strings.Cut(word, "=")
		switch {
		case found:
			single[name] = value
		case i == 0:
			common = word
		}
	}
	return common, single
}
