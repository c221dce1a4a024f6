// Package measure contains the common parts of the measurements in this directory: a description of the machine, and counts of API
// requests by user.
package measure

import (
	"context"
	"os"
	"os/exec"
	"runtime"
	"strings"
)

// Machine describes the machine of a measurement.
type Machine struct {
	CPU    string `json:"cpu"`
	CPUs   int    `json:"cpus"`
	Kernel string `json:"kernel"`
	Go     string `json:"go"`
	Commit string `json:"commit"`
	// Load is the load average before the measurement, of 1, 5 and 15 minutes.
	Load string `json:"load"`
}

// ThisMachine describes the machine, and the commit that is checked out in root.
func ThisMachine(root string) Machine {
	return Machine{
		CPU: cpuModel(), CPUs: runtime.NumCPU(), Kernel: firstWord("/proc/sys/kernel/osrelease"), Go: runtime.Version(), Commit: commit(root), Load: LoadAverage(),
	}
}

func commit(root string) string {
	out, err := exec.CommandContext(context.Background(), "git", "-C", root, "describe", "--always", "--dirty", "--abbrev=12").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

func firstWord(file string) string {
	data, err := os.ReadFile(file)
	if words := strings.Fields(string(data)); err == nil && len(words) > 0 {
		return words[0]
	}
	return "unknown"
}

func cpuModel() string {
	data, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "an unknown CPU"
	}
	for line := range strings.Lines(string(data)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "an unknown CPU"
}

// LoadAverage returns the load average of the machine, of 1, 5 and 15 minutes.
func LoadAverage() string {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(data))[:3], ", ")
}
