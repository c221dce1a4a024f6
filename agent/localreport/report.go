// Package localreport contains the result of the node agent's commands for one machine. It describes the state of each declared setting, the
// planned or completed action, and whether a reboot is required.
package localreport

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"text/tabwriter"

	"sigs.k8s.io/yaml"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/nodesettings"
	"github.com/storageclient/operator/tuning/standing"
	"github.com/storageclient/operator/tuning/text"
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

// Formats are the supported formats of Write.
var Formats = []string{"text", "json", "yaml"}

// Write writes the report as text, JSON, or YAML.
func (r Report) Write(w io.Writer, format string) error {
	return Encode(w, format, r, func() ([]byte, error) { return r.renderText(), nil })
}

// Encode writes a report of any type in the given format. renderText renders the text format.
func Encode(w io.Writer, format string, report any, renderText func() ([]byte, error)) error {
	var data []byte
	var err error
	switch format {
	case "json":
		if data, err = json.MarshalIndent(report, "", "  "); err == nil {
			data = append(data, '\n')
		}
	case "yaml":
		data, err = yaml.Marshal(report)
	case "text":
		data, err = renderText()
	default:
		err = fmt.Errorf("format %q: must be %s", format, strings.Join(Formats, ", "))
	}
	if err != nil {
		return err
	}
	_, err = w.Write(data)
	return err
}

// Printf formats a text like fmt.Fprintf. It shows invisible characters in texts from the host as escapes.
func Printf(w io.Writer, format string, args ...any) {
	for i := range args {
		if s := reflect.ValueOf(args[i]); s.Kind() == reflect.String {
			args[i] = text.Escape(s.String(), "")
		}
	}
	fmt.Fprintf(w, format, args...)
}

func (r Report) renderText() []byte {
	var b bytes.Buffer
	system := "Linux " + r.KernelVersion
	if r.Image {
		system = "an image without a running kernel: values take effect when it boots"
	}
	Printf(&b, "Host: %s (%s)\n", r.HostRoot, system)
	Printf(&b, "Boot loader: %s\n", r.Bootloader.Type)
	if r.Bootloader.Message != "" {
		Printf(&b, "  %s\n", r.Bootloader.Message)
	}
	if len(r.Profiles) > 0 {
		Printf(&b, "Profiles: %s\n", strings.Join(r.Profiles, ", "))
	}
	for _, warning := range r.Warnings {
		Printf(&b, "Warning: %s\n", warning)
	}
	b.WriteString("\n")
	r.writeTable(&b)
	for _, c := range r.Conflicts {
		Printf(&b, "\nConflict: %s is %s in profiles %s of equal priority; %s\n", c.Key,
			strings.Join(c.Values, " and "), strings.Join(c.Profiles, " and "), keptText(c))
	}
	for _, key := range r.Omitted {
		Printf(&b, "\nOmitted: %s: the node has too many settings\n", key)
	}
	r.writeAdvice(&b)
	b.WriteString("\n" + r.verdictText() + "\n")
	return b.Bytes()
}

// writeAdvice prints advice about likely problems in full. For informational advice, it prints only the IDs.
func (r Report) writeAdvice(b *bytes.Buffer) {
	var worthKnowing []string
	for _, a := range r.Advice {
		if a.Severity == v1alpha1.SeverityInfo {
			worthKnowing = append(worthKnowing, a.ID)
			continue
		}
		Printf(b, "\nAdvice, %s %s: profile %s: %s\n", a.Severity, a.ID, a.Profile, a.Text)
	}
	if len(worthKnowing) > 0 {
		slices.Sort(worthKnowing)
		Printf(b, "\nMore advice (in full with -o yaml): %s\n", strings.Join(slices.Compact(worthKnowing), ", "))
	}
}

func keptText(c nodesettings.Conflict) string {
	if c.Kept == "" {
		return "neither is applied"
	}
	return c.Kept + " stays"
}

func (r Report) writeTable(b *bytes.Buffer) {
	if len(r.Settings) == 0 {
		b.WriteString("No settings.\n")
		return
	}
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	header := "SETTING\tDESIRED\tOBSERVED\tORIGINAL\tTAKES EFFECT\tSTATE"
	if r.Command == Plan {
		header += "\tTO DO"
	}
	fmt.Fprintln(t, header)
	for _, s := range r.Settings {
		row := []string{s.Key, cmp.Or(s.Desired, "-"), cmp.Or(s.Observed, "-"), cmp.Or(s.Original, "-"), string(s.TakesEffect), string(s.State)}
		if r.Command == Plan {
			row = append(row, cmp.Or(string(s.Action), "-"))
		}
		for i := range row {
			row[i] = text.Escape(row[i], "")
		}
		fmt.Fprintln(t, strings.Join(row, "\t"))
	}
	// A write to a buffer cannot fail.
	_ = t.Flush()
	for _, s := range r.Settings {
		for _, note := range []string{s.Message, s.Proof} {
			if note != "" {
				Printf(b, "  %s: %s\n", s.Key, note)
			}
		}
	}
}

func (r Report) verdictText() string {
	out := map[bool]string{true: "As declared.", false: "Not as declared."}[r.AsDeclared]
	switch {
	case r.Command == Restore:
		out = map[bool]string{true: "Restored.", false: "Not everything is restored."}[r.AsDeclared]
	case r.Command == Plan && r.AsDeclared:
		out = "No changes made. This host supports all declared settings."
	case r.Command == Plan:
		out = "No changes made. This host does not support all declared settings."
	case r.Image && r.AsDeclared:
		out = "The image contains all declared settings."
	}
	if r.RebootRequired {
		out += "\nA reboot is needed for " + strings.Join(r.RebootRequiredBy, ", ") + ". This command never reboots."
	}
	return out
}
