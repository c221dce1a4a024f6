//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"

	"github.com/storageclient/operator/api/v1alpha1"
)

// dump saves the information that explains a failure next to the logs of the run, and prints the end of each part.
func dump(ctx SpecContext) {
	const lines = 80
	dir := filepath.Join(dirs.Logs(), "failure")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		fmt.Println(err)
		return
	}
	parts := map[string][]string{
		"profiles.yaml":           {"get", "storageclientprofiles", "-o", "yaml"},
		"storageclientnodes.yaml": {"get", "storageclientnodes", "-o", "yaml"},
		"nodes.yaml":              {"get", "nodes", "-o", "yaml"},
		"volumes.yaml":            {"get", "persistentvolumes", "-o", "yaml"},
		"pods.txt":                {"get", "pods", "-A", "-o", "wide"},
		"pods.yaml":               {"get", "pods", "-A", "-o", "yaml"},
		"events.txt":              {"get", "events", "-A", "--sort-by=.lastTimestamp"},
		"claims.yaml":             {"get", "configmap", "-n", v1alpha1.ManagerNamespace, v1alpha1.BudgetConfigMap, "-o", "yaml"},
	}
	for name, args := range parts {
		out, err := kubectl(ctx, args...)
		if err != nil {
			out += err.Error()
		}
		show(dir, name, out, lines)
	}
	logs, _ := filepath.Glob(filepath.Join(dirs.Logs(), "pods", "*.log"))
	for _, path := range logs {
		showFile(path, 60)
	}
	for _, m := range nodes.Machines() {
		journal, err := m.Run(ctx, "journalctl --no-pager --boot --lines=1000")
		if err != nil {
			journal += err.Error()
		}
		show(dir, m.Name+".journal", journal, 40)
		showFile(m.ConsolePath(), 20)
	}
	fmt.Printf("All of it, and the logs of the control plane: %s\n", dirs.Logs())
}

func show(dir, name, text string, lines int) {
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		fmt.Println(err)
	}
	showFile(path, lines)
}

func showFile(path string, lines int) {
	text, err := os.ReadFile(path)
	if err != nil {
		fmt.Println(err)
	}
	all := strings.Split(strings.TrimSpace(string(text)), "\n")
	fmt.Printf("\n--- %s\n%s\n", filepath.Base(path), strings.Join(all[max(0, len(all)-lines):], "\n"))
}
