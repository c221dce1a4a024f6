package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/storageclient/operator/test/check"
)

func TestFillReplacesTheTextBetweenTheMarkers(t *testing.T) {
	dir := t.TempDir()
	page, tables := filepath.Join(dir, "page.md"), filepath.Join(dir, "scale.md")
	write := func(file, data string) {
		check.NoError(t, os.WriteFile(file, []byte(data), 0o600))
	}
	const before = "# Page\n<!-- scale -->\nold\n<!-- /scale -->\nend\n"
	write(page, before)
	check.NoError(t, fill(page, "scale", filepath.Join(dir, "scale.json"), "\nbelow"))
	if data, _ := os.ReadFile(page); string(data) != before {
		t.Errorf("without a measurement, got the page\n%s", data)
	}
	write(tables, "\n| new |\n\n")
	check.NoError(t, fill(page, "scale", filepath.Join(dir, "scale.json"), "\nbelow"))
	if data, _ := os.ReadFile(page); string(data) != "# Page\n<!-- scale -->\n| new |\nbelow\n<!-- /scale -->\nend\n" {
		t.Errorf("got the page\n%s", data)
	}
	write(page, "no markers")
	if err := fill(page, "scale", filepath.Join(dir, "scale.json"), "\nbelow"); err == nil {
		t.Error("got no error for a page without markers")
	}
}

func TestDrawLinesEndsTheScaleAboveTheLargestValue(t *testing.T) {
	plot := drawLines("a < b", map[string][]point{"live": {{500, 3}, {5000, 30}}})
	for _, want := range []string{">40</text>", ">500</text>", ">5000</text>", "a &lt; b"} {
		if !strings.Contains(plot, want) {
			t.Errorf("got a plot without %s:\n%s", want, plot)
		}
	}
}
