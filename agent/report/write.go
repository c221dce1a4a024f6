package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"sigs.k8s.io/yaml"

	"github.com/storageclient/operator/api/v1alpha1"
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

func (r Report) renderText() []byte {
	var b bytes.Buffer
	system := "Linux " + r.KernelVersion
	if r.Image {
		system = "an image without a running kernel: values take effect when it boots"
	}
	fmt.Fprintf(&b, "Host: %s (%s)\n", r.HostRoot, system)
	fmt.Fprintf(&b, "Boot loader: %s\n", r.Bootloader.Type)
	if r.Bootloader.Message != "" {
		fmt.Fprintf(&b, "  %s\n", r.Bootloader.Message)
	}
	if len(r.Profiles) > 0 {
		fmt.Fprintf(&b, "Profiles: %s\n", strings.Join(r.Profiles, ", "))
	}
	for _, warning := range r.Warnings {
		fmt.Fprintf(&b, "Warning: %s\n", warning)
	}
	b.WriteString("\n")
	r.writeTable(&b)
	for _, c := range r.Conflicts {
		fmt.Fprintf(&b, "\nConflict: %s is %s in profiles %s of equal priority; %s\n", c.Key,
			strings.Join(c.Values, " and "), strings.Join(c.Profiles, " and "), keptText(c))
	}
	for _, key := range r.Omitted {
		fmt.Fprintf(&b, "\nOmitted: %s: the node has too many settings\n", key)
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
		fmt.Fprintf(b, "\nAdvice, %s %s: profile %s: %s\n", a.Severity, a.ID, a.Profile, a.Text)
	}
	if len(worthKnowing) > 0 {
		slices.Sort(worthKnowing)
		fmt.Fprintf(b, "\nMore advice (in full with -o yaml): %s\n", strings.Join(slices.Compact(worthKnowing), ", "))
	}
}

func keptText(c Conflict) string {
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
		row := []string{s.Key, orDash(s.Desired), orDash(s.Observed), orDash(s.Original), string(s.TakesEffect), string(s.State)}
		if r.Command == Plan {
			row = append(row, orDash(string(s.Action)))
		}
		fmt.Fprintln(t, strings.Join(row, "\t"))
	}
	// A write to a buffer cannot fail.
	_ = t.Flush()
	for _, s := range r.Settings {
		for _, note := range []string{s.Message, s.Proof} {
			if note != "" {
				fmt.Fprintf(b, "  %s: %s\n", s.Key, note)
			}
		}
	}
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

func (r Report) verdictText() string {
	text := map[bool]string{true: "As declared.", false: "Not as declared."}[r.AsDeclared]
	switch {
	case r.Command == Restore:
		text = map[bool]string{true: "Restored.", false: "Not everything is restored."}[r.AsDeclared]
	case r.Command == Plan && r.AsDeclared:
		text = "No changes made. This host supports all declared settings."
	case r.Command == Plan:
		text = "No changes made. This host does not support all declared settings."
	case r.Image && r.AsDeclared:
		text = "The image contains all declared settings."
	}
	if r.RebootRequired {
		text += "\nA reboot is needed for " + strings.Join(r.RebootRequiredBy, ", ") + ". This command never reboots."
	}
	return text
}
