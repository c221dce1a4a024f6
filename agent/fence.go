package agent

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/storageclient/operator/agent/bounds"
	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/journal"
	"github.com/storageclient/operator/agent/host/readahead"
	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/lists"
)

// AllowFile lists additional keys that this host permits. Each line is one regular expression for canonical keys. Comment lines start
// with "#".
const AllowFile = "/etc/storage-client/allow.conf"

// Allowed contains the keys and directories that an administrator permits in addition to the catalogue.
type Allowed struct {
	// Parameters are regular expressions that match a whole canonical key.
	Parameters []string
	// Filesystems are directories. Mount options of host file systems may be set at and below them.
	Filesystems []string
}

func (a Allowed) list() (catalogue.AllowList, error) {
	list, err := catalogue.NewAllowList(a.Parameters)
	if err != nil {
		return list, err
	}
	return list.WithFilesystems(a.Filesystems)
}

// fence makes the final decision about which settings are applied.
type fence struct {
	subjects map[string]bool
	allowed  catalogue.AllowList
	// unconfirmed contains, by key, the values that broke new connections. unconfirmedNote is their message.
	unconfirmed     map[string]string
	unconfirmedNote string
	note            string
	// restoresOnly is the reason why settings can only be restored. Empty if settings may be changed.
	restoresOnly string
}

// newFence reads AllowFile again, so that a change applies without a restart. An unreadable file permits nothing.
func newFence(files host.FS, subjects []host.Subject, allowed Allowed) (fence, error) {
	f := fence{subjects: lists.Map(subjects, func(subject host.Subject) (string, bool) { return subject.Name(), true })}
	local, err := readPatterns(files)
	if err == nil {
		f.allowed, err = Allowed{Parameters: slices.Concat(local, allowed.Parameters), Filesystems: allowed.Filesystems}.list()
	}
	if err == nil {
		return f, nil
	}
	f.note = AllowFile + " is ignored: " + err.Error()
	f.allowed, err = allowed.list()
	return f, err
}

func readPatterns(files host.FS) ([]string, error) {
	data, err := files.ReadIfThere(AllowFile)
	if err != nil {
		return nil, err
	}
	lines := lists.Each(strings.Split(string(data), "\n"), strings.TrimSpace)
	return lists.Filter(lines, func(line string) bool { return line != "" && !strings.HasPrefix(line, "#") }), nil
}

type rejection struct {
	state   v1alpha1.SettingState
	message string
	// connections are the connections that failed with the value.
	connections []string
}

var volumeName = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{0,252}$`)

// checkVolume returns nil if the read-ahead of the volume may be set. No other field of a volume reaches the host.
func (f fence) checkVolume(volume v1alpha1.NodeVolume) *rejection {
	size := *volume.ReadAheadKiB
	switch {
	case !volumeName.MatchString(volume.Name):
		return &rejection{state: v1alpha1.SettingFailed, message: "rejected by this node's agent: invalid volume name"}
	case size < bounds.MinReadAhead || size > bounds.MaxReadAhead:
		message := fmt.Sprintf("rejected by this node's agent: must be %d to %d KiB", bounds.MinReadAhead, bounds.MaxReadAhead)
		return &rejection{state: v1alpha1.SettingFailed, message: message}
	case !f.subjects[readahead.VolumesName]:
		return &rejection{state: v1alpha1.SettingUnsupported, message: "this node's agent does not support it"}
	}
	return nil
}

// checkSetting returns nil if the setting may be applied. An unknown key is Unsupported, because a newer manager may know more keys than
// this agent. A mount point that this node does not permit is also Unsupported. An invalid value of a known key is Failed.
func (f fence) checkSetting(key, value string) *rejection {
	if rejection := f.refusalOf(key, value, f.allowed.Check(key, value)); rejection != nil {
		return rejection
	}
	return f.checkChange()
}

func (f fence) checkChange() *rejection {
	if f.restoresOnly == "" {
		return nil
	}
	return &rejection{state: v1alpha1.SettingFailed, message: notChanged(f.restoresOnly)}
}

// checkApplied is checkSetting for a value that was applied on this host before. An agent upgrade must not revert a value only
// because the catalogue no longer accepts it.
func (f fence) checkApplied(key, value string) *rejection {
	return f.refusalOf(key, value, f.allowed.CheckApplied(key, value))
}

func (f fence) refusalOf(key, value string, err error) *rejection {
	if err != nil {
		state, message := v1alpha1.SettingUnsupported, err.Error()
		if _, known := catalogue.Lookup(key); known && !f.allowed.RejectsOnlyMountPoint(key, value) {
			state = v1alpha1.SettingFailed
		} else if f.note != "" {
			message += "; " + f.note
		}
		return &rejection{state: state, message: "rejected by this node's agent: " + message}
	}
	if unconfirmedValue, ok := f.unconfirmed[key]; ok && unconfirmedValue == value {
		return &rejection{state: v1alpha1.SettingFailed, message: f.unconfirmedNote, connections: journal.FailedConnections(f.unconfirmed, key)}
	}
	if subject := catalogue.Key(key).Subject(); !f.subjects[subject] {
		return &rejection{state: v1alpha1.SettingUnsupported, message: "this node's agent does not support " + subject}
	}
	return nil
}

// notChanged returns the message of a setting that is unchanged because only restoring is possible.
func notChanged(reason string) string { return "not changed: " + reason }

// isChangeDue reports whether the agent must still change a setting that is already on the host.
func isChangeDue(o host.Observation) bool {
	waitsForAgent := o.Effect == host.Reboot || o.Effect == host.Action
	return o.State == host.Drifted || o.State == host.Pending && waitsForAgent
}
