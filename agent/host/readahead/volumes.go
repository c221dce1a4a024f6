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

// VolumesName is the part of a key that stands for the windows of single volumes.
const VolumesName = "volumeReadAhead"

// Volumes serves the settings "volumeReadAhead/<PersistentVolume>", in KiB. They are narrower than those of the types and
// win: it is to be asked before the Subject that it was made from, which leaves the windows of these volumes alone. No
// file keeps them, since neither udev nor nfs-utils knows volumes: the agent brings them to every mount. It implements
// host.MountFollower.
type Volumes struct {
	types   *Subject
	entries func() ([]mounts.VolumeEntry, error)
	// journalled returns the original of a setting that the host holds, by its key.
	journalled func(key string) (host.Original, bool)
	// wanted is what was asked for last, by volume, in KiB.
	wanted map[string]string
	// known are the windows that have been brought to the wanted value once, by file.
	known map[string]bool
	// failed holds, for each volume, why the last write could not bring the value about.
	failed map[string]string
}

var _ host.MountFollower = &Volumes{}

// NewVolumes returns the subject for the host of another one. entries reads which volumes are mounted; journalled is
// asked for originals under the keys of both.
func NewVolumes(types *Subject, entries func() ([]mounts.VolumeEntry, error), journalled func(key string) (host.Original, bool)) *Volumes {
	v := &Volumes{types: types, entries: entries, journalled: journalled, wanted: map[string]string{}, known: map[string]bool{}, failed: map[string]string{}}
	types.volumes = v
	return v
}

// Name implements host.Subject.
func (v *Volumes) Name() string { return VolumesName }

// Original implements host.Subject. Where the window is that of a type, what was there before that counts.
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

// windowBefore is what a window had before a setting that the journal holds, empty where it holds none or nobody knows.
func (v *Volumes) windowBefore(key, fsType, file string) string {
	original, held := v.journalled(key)
	if !held {
		return ""
	}
	return originalOf(original, fsType, file)
}

// originalOf is what a window goes back to. An NFS mount that is younger than the original goes back to the kernel's own.
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

// Apply implements host.Subject.
func (v *Volumes) Apply(_ context.Context, desired []host.Setting) error {
	v.failed = map[string]string{}
	v.setDesired(desired)
	v.setWindows(func(string) bool { return true })
	return nil
}

// FollowMounts implements host.MountFollower.
func (v *Volumes) FollowMounts(_ context.Context, desired []host.Setting) {
	v.setDesired(desired)
	v.setWindows(func(file string) bool { return !v.known[file] })
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
		if err := v.types.writeWindow(file, v.wanted[owned[file]]); err != nil {
			v.failed[owned[file]] = err.Error()
			continue
		}
		v.known[file] = true
	}
	// What is gone may come again as another mount of the same number.
	maps.DeleteFunc(v.known, func(file string, _ bool) bool { return !v.types.fs.Exists(file) })
}

// volumeWindows are the windows that volumes decide about, with the volume of each. Where volumes share one, as those of one
// export do, it is that of the first by name.
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
		value, err := "", error(nil)
		if file != "" {
			value, err = v.types.kernel.ReadValue(file)
		}
		if file == "" || err != nil {
			continue
		}
		windows++
		if o.Observed == "" || parseNumber(value) < parseNumber(o.Observed) {
			o.Observed = value
		}
		if value != grantedSize(o.Desired) && value != o.Desired {
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
		o.State, o.Message = host.Unsupported, "cannot tell which read-ahead window belongs to this mount"
	case other != "":
		o.State, o.Message = host.Unsupported, "shares its read-ahead window with volume "+other+", whose value wins"
	case len(differ) > 0 && v.failed[o.Name] != "":
		o.State, o.Message = host.Failed, v.failed[o.Name]
	case len(differ) > 0:
		o.State, o.Message = host.Drifted, host.ListNames(differ)
	default:
		o.State = host.InSync
	}
}

// Restore implements host.Subject. A window goes to what the setting of its type says, or to what it was. What nobody
// knows the original of keeps its window until it is mounted again.
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
