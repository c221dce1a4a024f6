package bundle

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/cmd/internal/terminal"
)

// Bundle collects the files of the archive.
type Bundle struct {
	Redactor *Redactor
	// Missing describes missing content, with the reason. omitted is the same without texts from the cluster.
	Missing []string
	omitted []string
	files   map[string]string
}

// New returns an empty bundle.
func New(redactor *Redactor) *Bundle { return &Bundle{Redactor: redactor, files: map[string]string{}} }

// AddLog adds the log of a container.
func (b *Bundle) AddLog(name, log string) { b.files[name] = b.Redactor.Log(log) }

// AddYAML adds the listed fields of a value as a file. class is the class of values in it that are no objects.
func (b *Bundle) AddYAML(name, class string, value any) {
	filtered, err := b.Redactor.Keep(value, class)
	if err == nil {
		var data []byte
		data, err = terminal.YAML(filtered)
		b.files[name] = string(data)
	}
	if err != nil {
		b.AddMissing(name, err)
	}
}

// AddMissing records missing content, with the reason. The archive contains only the reason's type, because the message can contain names.
func (b *Bundle) AddMissing(description string, reason error) {
	b.Missing = append(b.Missing, fmt.Sprintf("%s: %v", description, reason))
	b.omitted = append(b.omitted, description+": "+cmp.Or(string(apierrors.ReasonForError(reason)), "see the output of the command"))
}

// AddNote records missing content, with a reason that has no text from the cluster.
func (b *Bundle) AddNote(description, reason string) {
	b.Missing = append(b.Missing, description+": "+reason)
	b.omitted = append(b.omitted, description+": "+reason)
}

// Files returns the sorted names of the files.
func (b *Bundle) Files() []string { return slices.Sorted(maps.Keys(b.files)) }

// Write writes a gzipped tar archive: a directory with the given name, and a README that lists its content and missing content.
func (b *Bundle) Write(w io.Writer, dir string, now time.Time) error {
	zipped := gzip.NewWriter(w)
	archive := tar.NewWriter(zipped)
	write := func(name, text string) error {
		header := &tar.Header{Name: path.Join(dir, name), Mode: 0o600, Size: int64(len(text)), ModTime: now, Format: tar.FormatPAX}
		if err := archive.WriteHeader(header); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
		if _, err := io.WriteString(archive, text); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
		return nil
	}
	if err := write("README.txt", b.describe(now)); err != nil {
		return err
	}
	for _, name := range b.Files() {
		if err := write(name, b.files[name]); err != nil {
			return err
		}
	}
	if err := errors.Join(archive.Close(), zipped.Close()); err != nil {
		return fmt.Errorf("close archive: %w", err)
	}
	return nil
}

func (b *Bundle) describe(now time.Time) string {
	var out strings.Builder
	fmt.Fprintf(&out, "Support bundle of the storage-client operator, %s.\n\n", now.UTC().Format(time.RFC3339))
	if b.Redactor.off {
		out.WriteString("Names, addresses, servers, and mount sources are unchanged (--no-redact).\n")
	} else {
		out.WriteString("Names, addresses, servers, and mount sources have pseudonyms, which are the same in the whole bundle.\n")
	}
	out.WriteString(
		"Fields are on a list; all others are omitted. Free texts, such as messages, are replaced with a number and their length. Values that\n" +
			"are numbers, times, hashes, versions, known settings, mount options, states, or reasons are unchanged. No Secret was read.\n\nFiles:\n")
	for _, name := range b.Files() {
		out.WriteString("  " + name + "\n")
	}
	if len(b.Missing) == 0 {
		out.WriteString("\nThe bundle is complete.\n")
		return out.String()
	}
	out.WriteString("\nOmitted:\n")
	for _, entry := range b.omitted {
		out.WriteString("  " + entry + "\n")
	}
	return out.String()
}

// IsOperatorEvent reports whether the operator reported an event, or whether the event is about the operator's workloads.
func IsOperatorEvent(e *corev1.Event) bool {
	o := e.InvolvedObject
	return strings.HasPrefix(cmp.Or(e.ReportingController, e.Source.Component), "storage-client") || strings.HasPrefix(o.Kind, "StorageClient") ||
		o.Namespace == v1alpha1.ManagerNamespace || o.Namespace == v1alpha1.AgentNamespace
}

// LastSeen returns the last time of an event.
func LastSeen(e *corev1.Event) time.Time {
	switch {
	case e.Series != nil:
		return e.Series.LastObservedTime.Time
	case e.LastTimestamp.IsZero():
		return e.EventTime.Time
	}
	return e.LastTimestamp.Time
}
