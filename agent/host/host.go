// Package host is the only code that touches the machine. It contains the parts that its subjects share: a file system rooted where the host is
// mounted, a runner of host commands by argv, and the types of settings and observations. Each subject has a package below it. No code here knows
// Kubernetes.
package host

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/storageclient/operator/tuning/lists"
)

// Effect is the time when a setting takes effect.
type Effect string

// Effects, named as in the API.
const (
	Live         Effect = "Live"
	NextMount    Effect = "NextMount"
	NewTransport Effect = "NewTransport"
	Reboot       Effect = "Reboot"
	Action       Effect = "Action"
)

// State is the state of a setting.
type State string

// States, named as in the API.
const (
	InSync      State = "InSync"
	Pending     State = "Pending"
	Drifted     State = "Drifted"
	Shadowed    State = "Shadowed"
	Clamped     State = "Clamped"
	Unsupported State = "Unsupported"
	Failed      State = "Failed"
)

// Setting is one desired value. Name is the canonical key without its subject, e.g. "net.core.rmem_max" or "sunrpc/tcp_max_slot_table_entries".
type Setting struct {
	Name, Value string
	// AtLeast is set for a sysctl that the agent only raises. The agent's file contains Value. A live value is in sync if no number in it is below the
	// one in Value.
	AtLeast bool
}

// Original is the effective value before the first change.
type Original struct {
	// Present is false if there was no value, e.g. for a kernel argument that was not passed.
	Present bool `json:"present"`
	// Value is the value, if there was one.
	Value string `json:"value,omitempty"`
	// Counterpart is the value of the setting's counterpart (see Subject). Empty if the setting has none, and in journals of releases that did not
	// record it.
	Counterpart string `json:"counterpart,omitempty"`
}

// Observation is the state of one setting on the host. Observed is the effective value, not the written one.
type Observation struct {
	Name, Desired, Observed string
	Effect                  Effect
	State                   State
	Message                 string
	// Kept is true if Restore has not changed the value that the next boot sets.
	Kept bool
}

// Subject applies, observes and restores the settings of one kind. Its methods are called one at a time. A method must be safe to repeat after a
// crash at any point, and ends with its context. A Subject embeds Inert and implements the methods that its kind of settings needs.
type Subject interface {
	// Name returns the first part of the subject's keys, e.g. "sysctl".
	Name() string
	// Attend sets whether an agent will check the machine after the next boot. Without an agent, there are no trial boots: the boot is never
	// confirmed, and the boot after it would revert it. Values that no file contains are lost too.
	Attend(attended bool)
	// Confine sets the function that returns the reason why a place on the host, given by its path, must not be touched. Empty if it may be touched.
	// The function applies from the next call on.
	Confine(refuse func(place string) string)
	// Original reads the effective value of a setting that the agent has never changed. After an error, the setting is not changed.
	Original(ctx context.Context, name string) (Original, error)
	// Counterpart returns the setting that the kernel clears when it sets this one, and the reverse. Empty if a setting has none.
	Counterpart(name string) string
	// Apply makes the agent's settings on the host exactly these: in the agent's files, and live if the kernel allows that. It removes settings that
	// are not in the list from the agent's files. It does not write if the host is already as desired. It never stages settings that Observe would
	// report as Clamped or Unsupported. Observe reports failures of single settings. The error is for failures of the whole subject.
	Apply(ctx context.Context, desired []Setting) error
	// FollowMounts applies the settings, which Apply has received before, to mounts that are new since the last call. It skips other mounts: changes
	// to these are drift, which Observe reports.
	FollowMounts(ctx context.Context, desired []Setting)
	// Set makes values effective before they are saved, in order, and writes no file of the agent. It returns the errors by name. If values fail,
	// Restore restores the values that Original returned before.
	Set(ctx context.Context, settings []Setting) map[string]error
	// OutlivesBoot reports whether values from Set are still effective after a boot.
	OutlivesBoot() bool
	// Observe reads every setting back and returns its state.
	Observe(ctx context.Context, desired []Setting) []Observation
	// Restore restores the live value of settings that Apply has already removed from the agent's files. The observations report whether the original
	// value is effective again: InSync, Pending (until a boot or a new transport) or Failed.
	Restore(ctx context.Context, originals map[string]Original) []Observation
	// Rearm makes the next boot a trial if one is due, whatever has happened to the trial since. The boot after it returns to the previous state. It
	// is called right before a permitted reboot, and without a permit if that reboot does not happen. After an error, there is no reboot.
	Rearm(permitted bool) error
}

// Inert has the methods of a Subject that most kinds of settings do not need: no setting has a counterpart, can be set without a file, depends on
// mounts, places or the next boot.
type Inert struct{}

// Attend implements Subject.
func (Inert) Attend(bool) {}

// Confine implements Subject.
func (Inert) Confine(func(place string) string) {}

// Counterpart implements Subject.
func (Inert) Counterpart(string) string { return "" }

// FollowMounts implements Subject.
func (Inert) FollowMounts(context.Context, []Setting) {}

// Set implements Subject. It sets no value.
func (Inert) Set(_ context.Context, settings []Setting) map[string]error {
	return lists.Map(settings, func(setting Setting) (string, error) { return setting.Name, errors.ErrUnsupported })
}

// OutlivesBoot implements Subject. Values that a newer agent has set are restored after a boot too.
func (Inert) OutlivesBoot() bool { return true }

// Rearm implements Subject.
func (Inert) Rearm(bool) error { return nil }

// Runner runs a host command by its argv, never through a shell, in the host's root.
type Runner interface {
	// Run returns standard output. The error contains the argv, the exit status and the end of standard error.
	Run(ctx context.Context, argv ...string) ([]byte, error)
}

// ObserveEach observes settings one by one. If look returns an error, the setting has failed.
func ObserveEach(desired []Setting, effect Effect, look func(o *Observation, setting Setting) error) []Observation {
	return lists.Each(desired, func(setting Setting) Observation {
		o := Observation{Name: setting.Name, Desired: setting.Value, Effect: effect}
		if err := look(&o, setting); err != nil {
			o.State, o.Message = Failed, err.Error()
		}
		return o
	})
}

// RestoreEach restores originals one by one, by name. A setting is InSync unless restore sets another state, and Failed if restore returns an error.
func RestoreEach(originals map[string]Original, effect Effect, restore func(o *Observation, original Original) error) []Observation {
	names := lists.Each(slices.Sorted(maps.Keys(originals)), func(name string) Setting {
		return Setting{Name: name, Value: originals[name].Value}
	})
	return ObserveEach(names, effect, func(o *Observation, setting Setting) error {
		o.State = InSync
		return restore(o, originals[setting.Name])
	})
}

// Kernel is the part of the file system that may change a value when it is written.
type Kernel interface {
	ReadValue(name string) (string, error)
	WriteValue(name, value string) error
}

// SetValue writes a value and reads it back, because the kernel rounds and clamps some values.
func SetValue(k Kernel, file, value string, same func(actual, value string) bool) error {
	if err := k.WriteValue(file, value); err != nil {
		return fmt.Errorf("the kernel rejects %q: %w", value, err)
	}
	actual, err := k.ReadValue(file)
	if err == nil && !same(actual, value) {
		err = fmt.Errorf("the kernel set %q instead of %q", actual, value)
	}
	return err
}
