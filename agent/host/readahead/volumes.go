package readahead

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/mounts"
)

// VolumesName is the subject's part of a key for the windows of single volumes.
const VolumesName = "volumeReadAhead"

// Volumes implements host.Subject for the settings "volumeReadAhead/<PersistentVolume>", in KiB. They are narrower than the settings of types
// and win. Volumes must be called before its Subject, which skips the windows of these volumes. No file contains the settings,
// because neither udev nor nfs-utils knows volumes: the agent applies them to every mount.
type Volumes struct {
	host.Inert

	types   *Subject
	entries func() ([]mounts.VolumeEntry, error)
	// journalled returns the journaled original of a setting, by its key.
	journalled func(key string) (host.Original, bool)
	// wanted contains, by volume, the value that was desired last, in KiB.
	wanted map[string]string
	// known contains the inodes of the windows that were set to the desired value once, by file.
	known map[string]uint64
	// failed contains, by volume, the error of the last write.
	failed map[string]string
}

var _ host.Subject = &Volumes{}

// Name implements host.Subject.
func (v *Volumes) Name() string { return VolumesName }

// Original implements host.Subject. If a setting of the type has set the window, the original is the window before that.
func (v *Volumes) Original(_ context.Context, name string) (host.Original, error) {
	all, err := v.entries()
	if err != nil {
		return host.Original{}, err
	}
	values := map[string]string{}
	for _, entry := range all {
		file := v.types.windowFile(entry.Device)
		if entry.Volume != name || file == "" {
			continue
		}
		value, err := v.types.kernel.ReadValue(file)
		if err != nil {
			continue
		}
		if before := v.windowBefore(Name+"/"+entry.FSType, entry.FSType, file); before != "" {
			value = before
		}
		values[file] = value
	}
	if len(values) == 0 {
		return host.Original{}, nil
	}
	return host.Original{Present: true, Value: encodeWindows(values)}, nil
}

// windowBefore returns the window before a setting in the journal changed it. Empty if there is no such setting, or the window is unknown.
func (v *Volumes) windowBefore(key, fsType, file string) string {
	original, ok := v.journalled(key)
	if !ok {
		return ""
	}
	return originalOf(original, fsType, file)
}

// originalOf returns the window to restore. An NFS mount that is newer than the original gets the kernel's window.
func originalOf(original host.Original, fsType, file string) string {
	common, single := decodeWindows(original.Value)
	if value, known := single[windowID(file)]; known {
		return value
	}
	if !original.Present && sourceOf(fsType) == byNFSUtils {
		return kernelDefault
	}
	return common
}

// SettingOfDisk returns the setting in the journal that sets the window of a disk such as sda: "readAhead/xfs", or "volume" and its name. Empty if
// there is none, or if the mount table cannot be read.
func (v *Volumes) SettingOfDisk(disk string) string {
	volumes, _ := v.entries()
	for _, entry := range volumes {
		if _, isSet := v.journalled(VolumesName + "/" + entry.Volume); isSet && v.types.diskOf(entry.Device) == disk {
			return "volume " + entry.Volume
		}
	}
	all, _ := v.types.entries()
	for _, entry := range all {
		if _, isSet := v.journalled(Name + "/" + entry.FSType); isSet && v.types.diskOf(entry.Device) == disk {
			return Name + "/" + entry.FSType
		}
	}
	return ""
}

// Apply implements host.Subject.
func (v *Volumes) Apply(_ context.Context, desired []host.Setting) error {
	v.failed = map[string]string{}
	v.setDesired(desired)
	v.setWindows(func(string) bool { return true })
	return nil
}

// FollowMounts implements host.Subject.
func (v *Volumes) FollowMounts(_ context.Context, desired []host.Setting) {
	v.setDesired(desired)
	v.setWindows(func(file string) bool { return v.known[file] != v.types.inodeOf(file) })
}

func (v *Volumes) setDesired(desired []host.Setting) {
	v.wanted = map[string]string{}
	for _, setting := range desired {
		if sizeBytes.MatchString(setting.Value) {
			v.wanted[setting.Name] = setting.Value
		}
	}
}

func (v *Volumes) setWindows(chosen func(file string) bool) {
	owned, err := v.volumeWindows()
	if err != nil {
		for volume := range v.wanted {
			v.failed[volume] = err.Error()
		}
		return
	}
	for _, file := range slices.Sorted(maps.Keys(owned)) {
		if !chosen(file) {
			continue
		}
		inode := v.types.inodeOf(file)
		if err := v.types.writeWindow(file, v.wanted[owned[file]]); err != nil {
			v.failed[owned[file]] = err.Error()
			continue
		}
		v.known[file] = inode
	}
	maps.DeleteFunc(v.known, func(file string, _ uint64) bool { return !v.types.fs.Exists(file) })
}

// volumeWindows returns the windows that volumes control, with the volume of each. The first by name controls a shared window, e.g. of one export.
func (v *Volumes) volumeWindows() (map[string]string, error) {
	owned := map[string]string{}
	if len(v.wanted) == 0 {
		return owned, nil
	}
	all, err := v.entries()
	if err != nil {
		return nil, err
	}
	for _, entry := range all {
		file := v.types.windowFile(entry.Device)
		if v.wanted[entry.Volume] == "" || file == "" {
			continue
		}
		if first, taken := owned[file]; !taken || entry.Volume < first {
			owned[file] = entry.Volume
		}
	}
	return owned, nil
}

// Observe implements host.Subject. Observed is the smallest window of the volume's mounts.
func (v *Volumes) Observe(_ context.Context, desired []host.Setting) []host.Observation {
	v.setDesired(desired)
	all, err := v.entries()
	owned, ownedErr := v.volumeWindows()
	return host.ObserveEach(desired, host.Live, func(o *host.Observation, setting host.Setting) error {
		if v.wanted[setting.Name] == "" {
			return errors.New("read-ahead " + setting.Value + ": not a number of KiB")
		}
		failure := cmp.Or(err, ownedErr)
		if failure == nil {
			v.observeVolume(o, all, owned)
		}
		return failure
	})
}

func (v *Volumes) observeVolume(o *host.Observation, all []mounts.VolumeEntry, owned map[string]string) {
	mounted, windows, other := 0, 0, ""
	var differ []string
	for _, entry := range all {
		if entry.Volume != o.Name {
			continue
		}
		mounted++
		file := v.types.windowFile(entry.Device)
		value, err := v.types.kernel.ReadValue(file)
		if file == "" || err != nil {
			continue
		}
		windows++
		if o.Observed == "" || parseNumber(value) < parseNumber(o.Observed) {
			o.Observed = value
		}
		if !isGranted(value, o.Desired) {
			differ = append(differ, windowID(file)+" has "+value)
			if owned[file] != o.Name {
				other = owned[file]
			}
		}
	}
	switch {
	case mounted == 0:
		o.State, o.Effect = host.Pending, host.NextMount
	case windows == 0:
		o.State, o.Message = host.Unsupported, "the read-ahead window of this mount is unknown"
	case other != "":
		o.State, o.Message = host.Unsupported, "shares its read-ahead window with volume "+other+", whose value applies"
	case len(differ) > 0 && v.failed[o.Name] != "":
		o.State, o.Message = host.Failed, v.failed[o.Name]
	case len(differ) > 0:
		o.State, o.Message = host.Drifted, host.ListNames(differ)
	default:
		o.State = host.InSync
	}
}

// Restore implements host.Subject. A window gets the value from the setting of its type, or its original value. A window with an unknown original
// stays until it is mounted again.
func (v *Volumes) Restore(_ context.Context, originals map[string]host.Original) []host.Observation {
	all, err := v.entries()
	owned, ownedErr := v.volumeWindows()
	return host.RestoreEach(originals, host.Live, func(o *host.Observation, original host.Original) error {
		failure := cmp.Or(err, ownedErr)
		for _, entry := range all {
			file := v.types.windowFile(entry.Device)
			if entry.Volume != o.Name || file == "" || owned[file] != "" || failure != nil {
				continue
			}
			back, typed := v.types.wanted[entry.FSType]
			if !typed {
				back = originalOf(original, entry.FSType, file)
			}
			if back != "" {
				failure = v.types.writeWindow(file, back)
			}
			delete(v.known, file)
		}
		return failure
	})
}
