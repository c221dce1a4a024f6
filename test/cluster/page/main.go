// Command page writes the results of "make bench-scale" and "make bench-peers" into docs/scale.md, between its markers, and draws the
// plots next to it.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// measured contains the data in dist/scale.json that the plots use.
type measured struct {
	Runs []struct {
		Nodes      int  `json:"nodes"`
		RealAgents bool `json:"realAgents"`
		Mounts     int  `json:"mounts"`
		Parts      []struct {
			Name       string  `json:"name"`
			Seconds    float64 `json:"seconds"`
			ManagerCPU float64 `json:"managerCPU"`
			PeakMiB    float64 `json:"peakMiB"`
		} `json:"parts"`
	} `json:"runs"`
}

func main() {
	scale := flag.String("scale", "dist/scale.json", "Results of bench-scale. The Markdown file next to it contains the tables.")
	peers := flag.String("peers", "dist/peers.json", "Results of bench-peers, in the same form.")
	page := flag.String("page", "docs/scale.md", "Page to update.")
	plots := flag.String("plots", "docs/scale", "Directory for the plots.")
	flag.Parse()
	if err := errors.Join(fill(*page, "scale", *scale, images), fill(*page, "peers", *peers, ""), draw(*scale, *plots)); err != nil {
		fmt.Fprintln(os.Stderr, "page:", err)
		os.Exit(1)
	}
}

// images contains the plots in the form of the page.
const images = `

![CPU time of the manager](scale/cpu.svg)
![Memory of the manager](scale/memory.svg)
![Seconds](scale/seconds.svg)`

// fill replaces the content of a section by the tables of a measurement and the text below them. Without a measurement, it keeps the
// content.
func fill(page, section, file, below string) error {
	tables, err := os.ReadFile(strings.TrimSuffix(file, ".json") + ".md")
	if errors.Is(err, os.ErrNotExist) {
		fmt.Printf("%s is unchanged: no file %s\n", section, file)
		return nil
	}
	if err != nil {
		return err
	}
	data, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	begin, end := "<!-- "+section+" -->\n", "<!-- /"+section+" -->"
	before, rest, found := strings.Cut(string(data), begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		return fmt.Errorf("%s has no markers %q and %q", page, begin, end)
	}
	return os.WriteFile(page, []byte(before+begin+strings.TrimSpace(string(tables))+below+"\n"+end+after), 0o644)
}

// draw draws one plot for each figure: a line for each part, over the sizes with played agents.
func draw(file, directory string) error {
	data, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	var m measured
	if err := errors.Join(err, json.Unmarshal(data, &m)); err != nil {
		return err
	}
	cpu, peak, seconds := map[string][]point{}, map[string][]point{}, map[string][]point{}
	for _, run := range m.Runs {
		if run.RealAgents || run.Mounts > 0 {
			continue
		}
		for _, p := range run.Parts {
			at := float64(run.Nodes)
			cpu[p.Name] = append(cpu[p.Name], point{at, p.ManagerCPU})
			peak[p.Name] = append(peak[p.Name], point{at, p.PeakMiB})
			seconds[p.Name] = append(seconds[p.Name], point{at, p.Seconds})
		}
	}
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return err
	}
	for name, plot := range map[string]string{
		"cpu.svg": drawLines("CPU time of the manager, seconds", cpu), "memory.svg": drawLines("Largest resident set of the manager, MiB", peak),
		"seconds.svg": drawLines("Time from the edit to the profile's status, seconds", seconds),
	} {
		if err := os.WriteFile(filepath.Join(directory, name), []byte(plot), 0o644); err != nil {
			return err
		}
	}
	return nil
}
