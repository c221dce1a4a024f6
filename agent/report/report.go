// Package report is what the node agent's commands for one machine say: how each declared setting stands, what is to
// be done about it or was done, and whether a reboot is needed.
package report

import (
	"slices"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/standing"
)

// Commands.
const (
	Plan    = "plan"
	Apply   = "apply"
	Observe = "observe"
	Restore = "restore"
)

// Action is what "plan" says that "apply" would do about a setting.
type Action string

// Actions. The zero value means that nothing is to be done.
const (
	// Set writes a live value and the file that keeps it, or that file alone.
	Set Action = "Set"
	// Stage puts an argument into the boot menu, or an option of a module that is loaded at boot into its file.
	Stage Action = "Stage"
	// Do does an action, e.g. a flush.
	Do Action = "Do"
	// PutBack brings the original back.
	PutBack Action = "PutBack"
	// Leave touches nothing: what is declared cannot work here, and the message says why.
	Leave Action = "Leave"
)

// Setting is how one setting stands.
type Setting struct {
	v1alpha1.SettingStatus
	// Profile is the profile that it comes from.
	Profile string `json:"profile,omitempty"`
	// Action is what is to be done; of "plan" alone.
	Action Action `json:"action,omitempty"`
	// Proof says how it is proven before it is kept; of "plan" alone, and of what touches the network.
	Proof string `json:"proof,omitempty"`
}

// Conflict is a key on which profiles of equal priority disagree.
type Conflict struct {
	Key      string   `json:"key"`
	Profiles []string `json:"profiles"`
	Values   []string `json:"values"`
	// Kept is the value that stays; empty where the key is left out.
	Kept string `json:"kept,omitempty"`
}

// Advice is what a profile's values mean together and on this machine.
type Advice struct {
	v1alpha1.Advice
	// Profile is the profile that it is about.
	Profile string `json:"profile"`
}

// Report is the result of one command.
type Report struct {
	Command  string `json:"command"`
	HostRoot string `json:"hostRoot"`
	// Image is true where the host's root is a tree without a running kernel: live values were not touched.
	Image         bool                `json:"image"`
	BootID        string              `json:"bootID,omitempty"`
	KernelVersion string              `json:"kernelVersion,omitempty"`
	Bootloader    v1alpha1.Bootloader `json:"bootloader"`
	// Profiles are the names of the profiles given, in the order in which they were given.
	Profiles []string `json:"profiles,omitempty"`
	// Hash is that of the merged settings, as in a StorageClientNode.
	Hash     string    `json:"hash,omitempty"`
	Settings []Setting `json:"settings,omitempty"`
	// RebootRequired is true where something takes effect at the next boot, and for "plan" would after "apply".
	RebootRequired   bool     `json:"rebootRequired"`
	RebootRequiredBy []string `json:"rebootRequiredBy,omitempty"`
	// Conflicts and Omitted are keys that are not decided, and that do not fit.
	Conflicts []Conflict `json:"conflicts,omitempty"`
	Omitted   []string   `json:"omitted,omitempty"`
	// Warnings are about fields of the profiles that work and may not do what is expected, or do nothing here.
	Warnings []string `json:"warnings,omitempty"`
	// Advice is by profile, what hurts first. It never keeps anything from being applied.
	Advice []Advice `json:"advice,omitempty"`
	// AsDeclared is false where something declared is not so, and will not be by itself or by a boot.
	AsDeclared bool `json:"asDeclared"`
}

// Judge sets AsDeclared from what else the report says. What waits for a boot, or for new transports, is as declared
// to "apply" and in an image, and not to "observe", which tells what is in force. To "plan" all is that "apply" can
// bring about.
func (r *Report) Judge() {
	wrong := func(s Setting) bool { return !r.isGood(standing.Of(s.SettingStatus, false)) }
	r.AsDeclared = len(r.Conflicts) == 0 && len(r.Omitted) == 0 && !slices.ContainsFunc(r.Settings, wrong)
}

func (r *Report) isGood(is standing.Standing) bool {
	switch {
	case is == standing.Effective:
		return true
	case is.Waits():
		return r.Command != Observe || r.Image
	}
	return r.Command == Plan && (is == standing.Drifted || is == standing.Unstaged)
}
