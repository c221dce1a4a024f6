package bundle

import (
	"archive/tar"
	"compress/gzip"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/storageclient/operator/cmd/internal/terminal"
)

// maxFile is the maximum size of one file in the archive, in bytes.
const maxFile = 16 << 20

// Bundle collects the files of the archive. Texts are redacted when the archive is written, so that a name from one object is also
// found in files that were collected before.
type Bundle struct {
	Redactor *Redactor
	// Missing describes missing content, with the reason.
	Missing []string
	files   map[string]string
}

// New returns an empty bundle.
func New(redactor *Redactor) *Bundle { return &Bundle{Redactor: redactor, files: map[string]string{}} }

// AddText adds a file.
func (b *Bundle) AddText(name, text string) {
	if len(text) > maxFile {
		b.AddMissing("the start of "+name, fmt.Errorf("longer than %d MiB", maxFile>>20))
		text = text[len(text)-maxFile:]
	}
	b.files[name] = text
}

// AddYAML adds a value as a file.
func (b *Bundle) AddYAML(name string, value any) {
	data, err := terminal.YAML(value)
	if err != nil {
		b.AddMissing(name, err)
		return
	}
	b.AddText(name, string(data))
}

// AddMissing records missing content, with the reason.
func (b *Bundle) AddMissing(description string, reason error) {
	b.Missing = append(b.Missing, fmt.Sprintf("%s: %v", description, reason))
}

// Files returns the sorted names of the files.
func (b *Bundle) Files() []string {
	names := make([]string, 0, len(b.files))
	for name := range b.files {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

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
	if err := write("README.txt", b.Redactor.Text(b.describe(now))); err != nil {
		return err
	}
	for _, name := range b.Files() {
		if err := write(name, b.Redactor.Text(b.files[name])); err != nil {
			return err
		}
	}
	if err := archive.Close(); err != nil {
		return fmt.Errorf("close archive: %w", err)
	}
	if err := zipped.Close(); err != nil {
		return fmt.Errorf("close archive: %w", err)
	}
	return nil
}

func (b *Bundle) describe(now time.Time) string {
	var out strings.Builder
	fmt.Fprintf(&out, "Support bundle of the storage-client operator, %s.\n\n", now.UTC().Format(time.RFC3339))
	if b.Redactor.off {
		out.WriteString("Addresses and mount sources are unchanged (--no-redact). Passwords and tokens are replaced.\n")
	} else {
		out.WriteString(
			"IP addresses, servers, and mount sources have pseudonyms, which are the same in the whole bundle. Labels and names of profiles,\n" +
				"nodes, volumes, pods, and namespaces are unchanged. Passwords, tokens, and user names are replaced.\n")
	}
	out.WriteString("No Secret was read.\n\nFiles:\n")
	for _, name := range b.Files() {
		out.WriteString("  " + name + "\n")
	}
	if len(b.Missing) == 0 {
		out.WriteString("\nThe bundle is complete.\n")
		return out.String()
	}
	out.WriteString("\nOmitted:\n")
	for _, entry := range b.Missing {
		out.WriteString("  " + entry + "\n")
	}
	return out.String()
}
