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
	"github.com/storageclient/operator/tuning/text"
)

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
