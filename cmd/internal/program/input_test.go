package program

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"pgregory.net/rapid"

	"github.com/storageclient/operator/test/check"
)

// endless is a reader without an end.
type endless struct{ read int }

func (e *endless) Read(p []byte) (int, error) {
	e.read += len(p)
	return len(p), nil
}

// sparse creates a file of zeros that uses no disk.
func sparse(t *testing.T, size int64) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "profile.yaml")
	check.NoError(t, errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, size)))
	return path
}

// fifo creates a named pipe into which a writer writes without an end.
func fifo(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pipe")
	check.NoError(t, syscall.Mkfifo(path, 0o600))
	go func() {
		if w, err := os.OpenFile(path, os.O_WRONLY, 0); err == nil {
			_, _ = io.Copy(w, &endless{})
			_ = w.Close()
		}
	}()
	return path
}

func TestInputsHaveAnEnd(t *testing.T) {
	stdin := &endless{}
	for name, test := range map[string]struct {
		path string
		want string // empty: read
	}{
		"a file of the limit":      {sparse(t, maxInput), ""},
		"a file above the limit":   {sparse(t, maxInput+1), "input has 8388609 bytes or more"},
		"a file of a terabyte":     {sparse(t, 1<<40), "input has 1099511627776 bytes or more"},
		"a pipe without an end":    {fifo(t), "input has 8388609 bytes or more"},
		"standard input":           {"-", "input has 8388609 bytes or more"},
		"a file that is not there": {filepath.Join(t.TempDir(), "none"), "no such file or directory"},
	} {
		in := Inputs{Stdin: stdin}
		data, err := in.Read(test.path)
		if test.want == "" && (err != nil || len(data) != maxInput) || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: got %d bytes, %v, want %q", name, len(data), err, test.want)
		}
	}
	if stdin.read > 2*maxInput {
		t.Errorf("read %d bytes of standard input", stdin.read)
	}
}

func TestInputsHaveAnEndTogether(t *testing.T) {
	in, path := Inputs{}, sparse(t, maxInput)
	for range maxInputs / maxInput {
		if _, err := in.Read(path); err != nil {
			t.Fatal(err)
		}
	}
	small := sparse(t, 1)
	if _, err := in.Read(small); err == nil || !strings.Contains(err.Error(), "67108864 for all inputs") {
		t.Errorf("got %v for a byte above the limit of all inputs", err)
	}
	if _, err := in.Read(sparse(t, 0)); err != nil {
		t.Errorf("got %v for an empty file", err)
	}
}

func TestInputsAreFilesAndPipes(t *testing.T) {
	dir := t.TempDir()
	socket, link := filepath.Join(dir, "socket"), filepath.Join(dir, "link")
	listener, err := net.Listen("unix", socket)
	check.NoError(t, err)
	defer listener.Close()
	check.NoError(t, os.Symlink("/dev/zero", link))
	// To open a socket is another error.
	for _, path := range []string{"/dev/zero", "/dev/null", link, socket, dir} {
		in := Inputs{}
		if data, err := in.Read(path); err == nil || !strings.Contains(err.Error(), "neither a file nor a pipe") {
			t.Errorf("%s: got %d bytes, %v", path, len(data), err)
		}
	}
	reader, writer, err := os.Pipe()
	check.NoError(t, err)
	defer reader.Close()
	go func() {
		_, _ = writer.WriteString("a: b")
		_ = writer.Close()
	}()
	in := Inputs{}
	if data, err := in.Read(fmt.Sprintf("/dev/fd/%d", reader.Fd())); err != nil || string(data) != "a: b" {
		t.Errorf("a pipe of the shell: got %q, %v", data, err)
	}
}

func TestAwaitEndsWithTheContext(t *testing.T) {
	if err := Await(t.Context(), func() error { return io.ErrUnexpectedEOF }); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := make(chan struct{})
	defer close(stop)
	err := Await(ctx, func() error {
		cancel(io.ErrClosedPipe)
		<-stop
		return nil
	})
	if !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("got %v", err)
	}
}

// checkParsed fails if a document costs more than its limit.
func checkParsed(t interface {
	Helper()
	Fatalf(string, ...any)
}, document string) (accepted bool) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	content, err := Parse([]byte(document))
	runtime.ReadMemStats(&after)
	// A limit of 8 MiB becomes up to 6 bytes for each byte as JSON, which is copied a few times.
	if used := after.TotalAlloc - before.TotalAlloc; used > 100*maxInput {
		t.Fatalf("%d bytes used %d bytes of memory: %.100q", len(document), used, document)
	}
	if err != nil {
		return false
	}
	text, err := json.Marshal(content)
	if err != nil || len(text) > 8*maxInput {
		t.Fatalf("%d bytes became %d (%v): %.100q", len(document), len(text), err, document)
	}
	return true
}

func TestAliasesDoNotMultiplyADocument(t *testing.T) {
	text := strings.Repeat("x", 1<<14)
	levels := func(width, depth int) string {
		var out strings.Builder
		out.WriteString("a0: &a0 " + text[:1000] + "\n")
		for i := 1; i <= depth; i++ {
			fmt.Fprintf(&out, "a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i-1), width), ", "))
		}
		return out.String()
	}
	for name, test := range map[string]struct {
		document string
		accepted bool
	}{
		"no alias":                 {"a: '*'\nb: '&'", true},
		"labels that are reused":   {"a: &l {app: a}\nb: *l\nc: {<<: *l, d: e}", true},
		"a list of a hundred":      {"a: &a b\nb: [" + strings.Repeat("*a, ", 99) + "*a]", true},
		"one long text":            {"a: &a " + text + "\nb: [" + strings.Repeat("*a, ", 2000) + "]", false},
		"one long binary":          {"a: &a !!binary " + text + "\nb: [" + strings.Repeat("*a, ", 2000) + "]", false},
		"one long key":             {"a: &a " + text + "\nb: [" + strings.Repeat("{*a : 1}, ", 2000) + "]", false},
		"merged maps":              {"a: &a {k: " + text + "}\nb: [" + strings.Repeat("{<<: *a}, ", 2000) + "]", false},
		"lists of lists of lists":  {levels(10, 9), false},
		"pairs of pairs":           {levels(2, 30), false},
		"an anchor within itself":  {"a: &a [*a, *a]", false},
		"an anchor of two nodes":   {"a: &a x\nb: &a [*a, *a]\nc: *a", false},
		"an alias without anchor":  {"a: *b", false},
		"a document of JSON":       {`{"a": "*", "b": "\u0026"}`, true},
		"a deep list with a star":  {"'*': " + strings.Repeat("[", 20000), false},
		"a deep block with a star": {"'*':\n" + strings.Repeat("- ", 20000), false},
	} {
		t.Run(name, func(t *testing.T) {
			check.Equal(t, "accepted", test.accepted, checkParsed(t, test.document))
		})
	}
}

// hostileYAML draws a document of nested lists and maps, anchors, aliases, tags and long texts. It may be invalid.
func hostileYAML(t *rapid.T) string {
	var out strings.Builder
	piece := rapid.SampledFrom([]string{
		"[", "]", "{", "}", ", ", ": ", "? ", "- ", "\n", "\n  ", "\n    ", "a", "k: ", "&a ", "&b ", "*a", "*b", "*a, *a, *b", "<<: *a", "'", "\"", "\\", "|\n", ">-\n", "#",
		"!!binary ", "!!str ", "!!int ", "!<", "%YAML 1.1\n", "---\n", "...\n", "\t", "\x00", "\ufeff", "\xff", "0x7f", "1e999", "~", "kind: List\nitems: ",
	})
	for range rapid.IntRange(0, 60).Draw(t, "pieces") {
		text := piece.Draw(t, "piece")
		repeat := rapid.SampledFrom([]int{1, 1, 1, 2, 100, 20000 / len(text)}).Draw(t, "repeat")
		out.WriteString(strings.Repeat(text, repeat))
	}
	return out.String()
}

func TestHostileDocumentsEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { checkParsed(t, hostileYAML(t)) })
}
