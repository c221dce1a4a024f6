// Package localreport contains the result of the node agent's commands for one machine. It describes the state of each declared setting, the
// planned or completed action, and whether a reboot is required.
package localreport

import (
	"slices"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/nodesettings"
	"github.com/storageclient/operator/tuning/standing"
)

// Commands.
const (
	Plan    = "plan"
	Apply   = "apply"
	Observe = "observe"
	Restore = "restore"
)

// Action is the change that "apply" would make to a setting, according to "plan".
type Action string

// Actions. The zero value means that no change is needed.
const (
	// Set writes a live value and its persistent file, or only the file.
	Set Action = "Set"
	// Stage adds a kernel argument to the boot menu, or writes the option file of a module that is loaded at boot.
	Stage Action = "Stage"
	// Do runs an action, such as a flush.
	Do Action = "Do"
	// RestoreOriginal restores the original.
	RestoreOriginal Action = "PutBack"
	// Leave makes no change, because the declared value cannot work on this host. The message contains the reason.
	Leave Action = "Leave"
)

// Setting is the state of one setting.
type Setting struct {
	v1alpha1.SettingStatus
	// Profile is the name of the profile that declares it.
	Profile string `json:"profile,omitempty"`
	// Action is the planned change. Set only by "plan".
	Action Action `json:"action,omitempty"`
	// Proof describes the proof that is required before the value is kept. Set only by "plan", for settings that affect the network.
	Proof string `json:"proof,omitempty"`
}

// Advice is advice about the values of a profile, in combination and on this machine.
type Advice struct {
	v1alpha1.Advice
	// Profile is the name of the profile.
	Profile string `json:"profile"`
}

// Report is the result of one command.
type Report struct {
	Command  string `json:"command"`
	HostRoot string `json:"hostRoot"`
	// Image is true if the host root is a tree without a running kernel. Live values are then unchanged.
	Image         bool                `json:"image"`
	BootID        string              `json:"bootID,omitempty"`
	KernelVersion string              `json:"kernelVersion,omitempty"`
	Bootloader    v1alpha1.Bootloader `json:"bootloader"`
	// Profiles are the names of the given profiles, in the given order.
	Profiles []string `json:"profiles,omitempty"`
	// Hash is the hash of the merged settings, as in a StorageClientNode.
	Hash     string    `json:"hash,omitempty"`
	Settings []Setting `json:"settings,omitempty"`
	// RebootRequired is true if settings take effect at the next boot. For "plan", it describes the state after "apply".
	RebootRequired   bool     `json:"rebootRequired"`
	RebootRequiredBy []string `json:"rebootRequiredBy,omitempty"`
	// Conflicts are undecided keys. Omitted are the keys beyond the maximum number of settings.
	Conflicts []nodesettings.Conflict `json:"conflicts,omitempty"`
	Omitted   []string                `json:"omitted,omitempty"`
	// Warnings are about valid profile fields that may not have the expected effect, or have no effect on this machine.
	Warnings []string `json:"warnings,omitempty"`
	// Advice is grouped by profile, most severe first. It never prevents a setting from being applied.
	Advice []Advice `json:"advice,omitempty"`
	// AsDeclared is false if a setting differs from its declaration and will not reach it on its own or at a boot.
	AsDeclared bool `json:"asDeclared"`
}

// Evaluate sets AsDeclared from the other fields. A setting that waits for a boot or for new transports counts as declared for "apply" and
// in an image. It does not count for "observe", which reports effective values. For "plan", every setting counts that "apply" can set.
func (r *Report) Evaluate() {
	wrong := func(s Setting) bool { return !r.isGood(standing.Of(s.SettingStatus, false)) }
	r.AsDeclared = len(r.Conflicts) == 0 && len(r.Omitted) == 0 && !slices.ContainsFunc(r.Settings, wrong)
}

func (r *Report) isGood(state standing.Standing) bool {
	switch {
	case state == standing.Effective:
		return true
	case state.IsPending():
		return r.Command != Observe || r.Image
	}
	return r.Command == Plan && (state == standing.Drifted || state == standing.Unstaged)
}
