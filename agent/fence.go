package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/readahead"
	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/catalogue"
)

// AllowFile is the host's own list of what is admitted beyond the catalogue: one regular expression on canonical
// keys a line, and comments that begin with "#".
const AllowFile = "/etc/storage-client/allow.conf"

// Allowed is what an administrator admits beyond the catalogue.
type Allowed struct {
	// Parameters admit keys: regular expressions that match a whole canonical key.
	Parameters []string
	// Filesystems are directories at and below which mount options of host file systems may be set.
	Filesystems []string
}

func (a Allowed) list() (catalogue.AllowList, error) {
	list, err := catalogue.NewAllowList(a.Parameters)
	if err != nil {
		return list, err
	}
	return list.WithFilesystems(a.Filesystems)
}

// fence is the last word on what is applied.
type fence struct {
	subjects map[string]bool
	allowed  catalogue.AllowList
	// unconfirmed are values by key that took new connections away, and unconfirmedNote says so.
	unconfirmed     map[string]string
	unconfirmedNote string
	// note says why the host's list does not count.
	note string
	// restoresOnly is the reason why nothing may be changed except to restore it. Empty if settings may be changed.
	restoresOnly string
}

// newFence reads the host's list again, so that a change to it counts without a restart. A list that cannot be read
// admits nothing.
func newFence(files host.FS, subjects []host.Subject, allowed Allowed) (fence, error) {
	f := fence{subjects: map[string]bool{}}
	for _, subject := range subjects {
		f.subjects[subject.Name()] = true
	}
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
	data, err := files.ReadFile(AllowFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var patterns []string
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "#") {
			patterns = append(patterns, line)
		}
	}
	return patterns, nil
}

type refusal struct {
	state   v1alpha1.SettingState
	message string
}

// volumeName is what a PersistentVolume may be called.
var volumeName = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{0,252}$`)

// Bounds of a volume's read-ahead in KiB, as the API has them.
const (
	minReadAhead = 4
	maxReadAhead = 1 << 20
)

// checkVolume returns nil for a volume whose read-ahead may be set. Nothing else of a volume ever reaches the host.
func (f fence) checkVolume(volume v1alpha1.NodeVolume) *refusal {
	size := *volume.ReadAheadKiB
	switch {
	case !volumeName.MatchString(volume.Name):
		return &refusal{state: v1alpha1.SettingFailed, message: "refused by this node's agent: invalid volume name"}
	case size < minReadAhead || size > maxReadAhead:
		return &refusal{state: v1alpha1.SettingFailed, message: fmt.Sprintf("refused by this node's agent: must be %d to %d KiB", minReadAhead, maxReadAhead)}
	case !f.subjects[readahead.VolumesName]:
		return &refusal{state: v1alpha1.SettingUnsupported, message: "this node's agent does not support it"}
	}
	return nil
}

// checkSetting returns nil for a setting that may be applied. A key that nothing here knows is Unsupported: a newer
// manager may know more than this agent. So is a mount point that this node does not admit. A value that is wrong for a known key is Failed.
func (f fence) checkSetting(key, value string) *refusal {
	if refused := f.refusalOf(key, value, f.allowed.Check(key, value)); refused != nil {
		return refused
	}
	return f.refuseChange()
}

// refuseChange returns nil if settings may be changed.
func (f fence) refuseChange() *refusal {
	if f.restoresOnly == "" {
		return nil
	}
	return &refusal{state: v1alpha1.SettingFailed, message: notChanged(f.restoresOnly)}
}

// checkInForce is checkSetting for a value that this host has had applied before. An agent's upgrade takes no value back
// because its catalogue would not accept it anew.
func (f fence) checkInForce(key, value string) *refusal {
	return f.refusalOf(key, value, f.allowed.CheckInForce(key, value))
}

func (f fence) refusalOf(key, value string, err error) *refusal {
	if err != nil {
		state, message := v1alpha1.SettingUnsupported, err.Error()
		if _, known := catalogue.Lookup(key); known && !f.allowed.RefusesPlace(key, value) {
			state = v1alpha1.SettingFailed
		} else if f.note != "" {
			message += "; " + f.note
		}
		return &refusal{state: state, message: "refused by this node's agent: " + message}
	}
	if refused, ok := f.unconfirmed[key]; ok && refused == value {
		return &refusal{state: v1alpha1.SettingFailed, message: f.unconfirmedNote}
	}
	if subject := catalogue.Key(key).Subject(); !f.subjects[subject] {
		return &refusal{state: v1alpha1.SettingUnsupported, message: "this node's agent does not support " + subject}
	}
	return nil
}

// notChanged is the message of a setting that is not changed because only restoring is possible.
func notChanged(reason string) string { return "not changed: " + reason }

// isChangeDue reports whether a setting that the host holds already needs a change by the agent all the same.
func isChangeDue(o host.Observation) bool {
	waitsForAgent := o.Effect == host.Reboot || o.Effect == host.Action
	return o.State == host.Drifted || o.State == host.Pending && waitsForAgent
}
