package hosttest

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Tree makes random files of .d directories.
type Tree struct {
	*rand.Rand
	// Directories, Names and Lines are the choices.
	Directories, Names, Lines []string
}

// Write replaces the files of the directories: files with lines, empty files, links to /dev/null, to nothing and to another file.
func (r Tree) Write(t testing.TB, dir, other string) {
	t.Helper()
	for _, directory := range r.Directories {
		if err := os.RemoveAll(filepath.Join(dir, directory)); err != nil {
			t.Fatal(err)
		}
		for _, name := range r.Names {
			name = filepath.Join(directory, name)
			switch r.IntN(12) {
			case 0:
				WriteFile(t, dir, name, "")
			case 1:
				WriteLink(t, dir, name, "/dev/null")
			case 2:
				WriteLink(t, dir, name, "/missing")
			case 3:
				WriteLink(t, dir, name, other)
			case 4, 5:
				WriteFile(t, dir, name, r.Text())
			}
		}
	}
	WriteFile(t, dir, other, r.Text())
}

// Text returns up to four lines, of which the last may lack its end.
func (r Tree) Text() string {
	var b strings.Builder
	for range 1 + r.IntN(4) {
		b.WriteString(r.Lines[r.IntN(len(r.Lines))] + "\n")
	}
	return strings.TrimSuffix(b.String(), []string{"", "\n"}[r.IntN(2)])
}
