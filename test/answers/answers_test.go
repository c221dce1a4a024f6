package answers

import (
	"path/filepath"
	"testing"
)

func TestRowsWithTheSameAnswersBecomeOneLine(t *testing.T) {
	var rows []Row
	for _, a := range []string{"1", "2", "3"} {
		for _, b := range []string{"x", "y", "z"} {
			answer := "small"
			if a == "3" && b != "y" {
				answer = "large"
			}
			rows = append(rows, Row{[]string{a, b}, answer})
		}
	}
	var f File
	f.Printf("# %s\n", "head")
	f.Add(rows)
	if got, want := f.text.String(), "# head\n1,2 any: small\n3 x,z: large\n3 y: small\n"; got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
	name := filepath.Join(t.TempDir(), "file")
	f.Check(t, name, true)
	f.Check(t, name, false)
}
