// Package host is the only code that touches the machine. It holds what its subjects share: a file system
// rooted where the host is mounted, a runner of host commands by argv, and the form in which settings
// come in and observations go out. There is one package per subject below it. Nothing here knows Kubernetes.
package host

import "context"

// Effect says when a setting takes effect.
type Effect string

// Effects. The words are those of the API.
const (
	Live         Effect = "Live"
	NextMount    Effect = "NextMount"
	NewTransport Effect = "NewTransport"
	Reboot       Effect = "Reboot"
	Action       Effect = "Action"
)

// State says how a setting stands.
type State string

// States. The words are those of the API.
const (
	InSync      State = "InSync"
	Pending     State = "Pending"
	Drifted     State = "Drifted"
	Shadowed    State = "Shadowed"
	Clamped     State = "Clamped"
	Unsupported State = "Unsupported"
	Failed      State = "Failed"
)

// Setting is one wanted value. Name is the canonical key without its subject, e.g. "net.core.rmem_max" or
// "sunrpc/tcp_max_slot_table_entries".
type Setting struct {
	Name, Value string
}

// Original is what was in force before the first change.
type Original struct {
	// Present is false where there was no value, e.g. a boot argument that nobody passed.
	Present bool `json:"present"`
	// Value is the value, where there was one.
	Value string `json:"value,omitempty"`
	// Counterpart is the value that the setting's counterpart had (see Coupled). Empty where it has none, and in journals of
	// releases that did not keep it.
	Counterpart string `json:"counterpart,omitempty"`
}

// Observation is how one setting stands on the host. Observed is what is in force, not what was written.
type Observation struct {
	Name, Desired, Observed string
	Effect                  Effect
	State                   State
	Message                 string
}

// Subject applies, observes and puts back the settings of one kind. Its methods are called one at a time.
// A method must be safe to repeat after a crash at any point.
type Subject interface {
	// Name is the first part of the keys that the subject serves, e.g. "sysctl".
	Name() string
	// Original reads what is in force for a setting that has never been changed by us.
	Original(ctx context.Context, name string) (Original, error)
	// Apply makes the host hold exactly these settings of ours: in our own files, and live where the kernel lets
	// it. What we held before and is not in the list leaves our files. It changes nothing where the host already
	// is as wanted, and never stages what Observe would call Clamped or Unsupported.
	// Failures of single settings are reported by Observe; the error is for what keeps the whole subject from working.
	Apply(ctx context.Context, desired []Setting) error
	// Observe reads every setting back.
	Observe(ctx context.Context, desired []Setting) []Observation
	// Restore puts the live value of settings back that Apply has already taken out of our files. The returned
	// observations tell for each whether what is in force is the original again: InSync, Pending (at a boot or a
	// new transport) or Failed.
	Restore(ctx context.Context, originals map[string]Original) []Observation
}

// Renamer is a Subject whose files had other names in earlier releases.
type Renamer interface {
	Subject
	// TakeOverFiles gives files of former names their names of today, and changes nothing that they say. Where that
	// fails, they count under the former name, and Observe tells.
	TakeOverFiles()
}

// Coupled is a Subject with settings that exclude each other: the kernel clears one of a pair when the other is written.
type Coupled interface {
	Subject
	// Counterpart names the other setting of the pair, empty where a setting has none.
	Counterpart(name string) string
}

// Setter is a Subject whose values can be in force before they are kept: what goes wrong with them is put back by Restore,
// from what Original said before.
type Setter interface {
	Subject
	// Set brings values about, in order, and writes no file of ours. It returns by name why a value could not be brought
	// about.
	Set(ctx context.Context, settings []Setting) map[string]error
	// OutlivesBoot tells whether what Set has brought about is there after a boot as well.
	OutlivesBoot() bool
}

// MountFollower is a Subject whose settings go to every mount when it is made.
type MountFollower interface {
	Subject
	// FollowMounts brings the settings, which Apply has had before, to mounts that are new since the last call. It
	// leaves others alone: what was changed on those is drift, which Observe tells.
	FollowMounts(ctx context.Context, desired []Setting)
}

// Confined is a Subject that acts only at places on the host that somebody else decides on.
type Confined interface {
	Subject
	// Confine tells why a place may not be touched, by its path; empty where it may. It holds from the next call on.
	Confine(refuse func(place string) string)
}

// Attender is a Subject that asks whether an agent will be there after the next boot.
type Attender interface {
	Subject
	// Attend tells whether somebody will look after the machine when it has booted. Where nobody will, nothing is tried
	// once: what no one has found well would be taken back by the boot after that. And what no file keeps is lost.
	Attend(attended bool)
}

// BootTrier is a Subject that can have the next boot tried once, and the one after it go back to what was before.
type BootTrier interface {
	Attender
	// Rearm makes the next boot one that is tried, where a trial is due, whatever has become of it since. It is called
	// right before a reboot.
	Rearm() error
}

// Runner runs a host command by its argv, never through a shell, in the host's root.
type Runner interface {
	// Run returns standard output. The error holds the argv, the exit status and the end of standard error.
	Run(ctx context.Context, argv ...string) ([]byte, error)
}
