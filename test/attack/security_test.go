//go:build attack

package attack

import (
	"bytes"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

const (
	root         = "../.."
	securityFile = root + "/docs/security-reference.md"
	beginMark    = "<!-- attacks -->"
	endMark      = "<!-- /attacks -->"
)

func readSecurity(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile(securityFile)
	check.NoError(t, err)
	return string(content)
}

// section returns the text between two marks of the security reference.
func section(t *testing.T, name string) string {
	t.Helper()
	_, rest, begins := strings.Cut(readSecurity(t), "<!-- "+name+" -->")
	text, _, ends := strings.Cut(rest, "<!-- /"+name+" -->")
	if !begins || !ends || strings.TrimSpace(text) == "" {
		t.Fatalf("the section between the marks of %s is empty or missing in the security reference", name)
	}
	return text
}

var quoted = regexp.MustCompile("`([^`]+)`")

// quotedIn returns the texts in backticks.
func quotedIn(text string) []string {
	var all []string
	for _, match := range quoted.FindAllStringSubmatch(text, -1) {
		all = append(all, match[1])
	}
	return all
}

func TestAttackNamesAreUnique(t *testing.T) {
	seen := map[string]bool{}
	for _, a := range allAttacks() {
		if seen[a.id] || a.id == "" || a.by == "" || a.tries == "" || a.stop == "" || a.try == nil {
			t.Errorf("attack %q is a duplicate or has an empty field", a.id)
		}
		seen[a.id] = true
	}
	if len(seen) < 80 {
		t.Errorf("got %d attacks, want at least 80", len(seen))
	}
}

// The threats name only existing attacks and tests, and every attack. An attack that is not stopped is named in full.
func TestThreatsNameTheirDefenses(t *testing.T) {
	tests := testNames(t)
	named := map[string]bool{}
	for line := range strings.Lines(section(t, "threats")) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) != 8 || !strings.Contains(cells[6], "`") {
			continue
		}
		for _, name := range quotedIn(cells[6]) {
			found := tests[name]
			for _, a := range allAttacks() {
				if ok, _ := path.Match(name, a.id); ok && (a.stop != notStopped || name == a.id) {
					found, named[a.id] = true, true
				}
			}
			if !found {
				t.Errorf("the security reference mentions %s, want an existing attack or test", name)
			}
		}
	}
	for _, a := range allAttacks() {
		if !named[a.id] {
			t.Errorf("no threat mentions attack %s", a.id)
		}
	}
}

// testNames returns the names of all tests and fuzz targets of the repository.
func testNames(t *testing.T) map[string]bool {
	t.Helper()
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	names := map[string]bool{}
	check.NoError(t, filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(name, "_test.go") {
			return err
		}
		content, err := os.ReadFile(name)
		for _, match := range declared.FindAllStringSubmatch(string(content), -1) {
			names[match[1]] = true
		}
		return err
	}))
	return names
}

// SECURITY.md and its reference name only existing tests.
func TestSecurityPagesNameExistingTests(t *testing.T) {
	names := testNames(t)
	summary, err := os.ReadFile(root + "/SECURITY.md")
	check.NoError(t, err)
	for _, name := range quotedIn(string(summary) + readSecurity(t)) {
		if strings.HasPrefix(name, "Test") && !names[name] {
			t.Errorf("the security pages mention %s, want an existing test", name)
		}
	}
}

// SECURITY.md is one page with a picture, all attackers, and the two switches that matter.
func TestSecurityIsOnePage(t *testing.T) {
	text, err := os.ReadFile(root + "/SECURITY.md")
	check.NoError(t, err)
	if words := len(strings.Fields(string(text))); words > 1200 {
		t.Errorf("got %d words, want at most 1200", words)
	}
	for _, part := range []string{
		"```mermaid", "## Report a vulnerability", "## What an attacker can still do", "| a profile author |", "| an approver |", "| the manager |", "| one node |",
		"| a storage server |", "| volumes ", "| a namespace ", "| the images |", "components/cert-manager` or", "components/guardrails` |",
	} {
		if !strings.Contains(string(text), part) {
			t.Errorf("SECURITY.md lacks %q", part)
		}
	}
}

// The security reference names each Namespace that the manager may read.
func TestReferenceNamesWhatTheManagerReads(t *testing.T) {
	text, err := os.ReadFile(configDir + "/rbac/role.yaml")
	check.NoError(t, err)
	threats := section(t, "threats")
	found := 0
	for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096); ; {
		var role rbacv1.ClusterRole
		if err := decoder.Decode(&role); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		for _, rule := range role.Rules {
			for _, name := range rule.ResourceNames {
				if slices.Contains(rule.Resources, "namespaces") && !strings.Contains(threats, "`"+name+"`") {
					t.Errorf("the security reference does not name Namespace %s, which the manager may %s", name, strings.Join(rule.Verbs, " and "))
				}
				found++
			}
		}
	}
	if found < 5 {
		t.Errorf("got %d names in the manager's roles, want at least 5", found)
	}
}

// agentSource calls visit for each function of the agent's source, and for each declaration outside of functions.
func agentSource(t *testing.T, visit func(position string, of ast.Node)) {
	t.Helper()
	for _, dir := range []string{"agent", "cmd/node-agent"} {
		check.NoError(t, filepath.WalkDir(filepath.Join(root, dir), func(name string, entry fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || strings.Contains(name, "hosttest") || entry.IsDir() {
				return err
			}
			files := token.NewFileSet()
			file, err := parser.ParseFile(files, name, nil, 0)
			if err != nil {
				return err
			}
			for _, declaration := range file.Decls {
				visit(files.Position(declaration.Pos()).String(), declaration)
			}
			return nil
		}))
	}
}

// stringsIn returns the string literals below a node.
func stringsIn(of ast.Node) []string {
	var all []string
	ast.Inspect(of, func(n ast.Node) bool {
		if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
			if text, err := strconv.Unquote(literal.Value); err == nil {
				all = append(all, text)
			}
		}
		return true
	})
	return all
}

// hostPath matches an absolute path of a host, not of an API.
var hostPath = regexp.MustCompile(`^/(bin|boot|dev|etc|home|lib|lib64|media|mnt|opt|proc|root|run|sbin|srv|sys|sysroot|tmp|usr|var)(/[^ ]*)?$`)

func TestTheAgentNamesNoOtherPath(t *testing.T) {
	listed := quotedIn(section(t, "writes") + section(t, "reads") + section(t, "sockets") + section(t, "runner"))
	found := 0
	agentSource(t, func(position string, of ast.Node) {
		for _, text := range stringsIn(of) {
			if !hostPath.MatchString(text) {
				continue
			}
			found++
			if !slices.ContainsFunc(listed, func(entry string) bool { return covers(entry, text) }) {
				t.Errorf("%s: path %s is missing in the security reference", position, text)
			}
		}
	})
	if found < 50 {
		t.Errorf("got %d paths in the source, want at least 50", found)
	}
}

// covers reports whether an entry is the path, contains it, or is in the directory that the path names.
func covers(entry, name string) bool {
	if matched, _ := path.Match(entry, name); matched {
		return true
	}
	entry, name = strings.TrimSuffix(entry, "/"), strings.TrimSuffix(name, "/")
	return entry == name || strings.HasPrefix(name, entry+"/")
}

// Every command runs by its argv. If that is a variable, its literals are in the same function.
func TestTheAgentRunsNoOtherCommand(t *testing.T) {
	listed := quotedIn(section(t, "commands"))
	found := map[string]bool{}
	agentSource(t, func(position string, of ast.Node) {
		for _, argv := range commandsIn(of) {
			command := strings.Join(argv, " ")
			found[argv[0]] = true
			if !slices.ContainsFunc(listed, func(entry string) bool { return entry == command || strings.HasPrefix(entry, command+" ") }) {
				t.Errorf("%s: command %s is missing in the security reference", position, command)
			}
		}
	})
	for _, entry := range listed {
		if name := strings.Fields(entry)[0]; !found[name] {
			t.Errorf("the security reference mentions command %s, which the agent does not run", name)
		}
	}
}

// commandsIn returns the literal prefixes of the commands that a function runs or returns as an argv.
func commandsIn(of ast.Node) [][]string {
	var all [][]string
	ast.Inspect(of, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			name := ""
			switch called := n.Fun.(type) {
			case *ast.SelectorExpr:
				name = called.Sel.Name
			case *ast.Ident:
				name = called.Name
			}
			if (name == "Run" || name == "runCommand") && len(n.Args) > 1 {
				all = append(all, leading(n.Args[1:]))
			}
		case *ast.CompositeLit:
			all = append(all, commandsOf(n)...)
		}
		return true
	})
	return slices.DeleteFunc(all, func(argv []string) bool { return len(argv) == 0 })
}

// programs are the first words by which a list of strings counts as an argv.
var programs = []string{
	"clevis", "cryptsetup", "dmesg", "grub-mkconfig", "grub-probe", "grub2-mkconfig", "grub2-probe", "grubby", "journalctl", "systemctl", "systemd-run", "tuned-adm", "xfs_info",
}

func commandsOf(list *ast.CompositeLit) [][]string {
	argv := leading(list.Elts)
	if len(argv) == 0 || !slices.Contains(programs, argv[0]) || len(argv) > 1 && slices.Contains(programs, argv[1]) {
		return nil // the second list contains programs that may run in an image
	}
	return [][]string{argv}
}

// leading returns the literal prefixes of expressions.
func leading(expressions []ast.Expr) []string {
	var all []string
	for _, expression := range expressions {
		literal, ok := expression.(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING {
			break
		}
		text, err := strconv.Unquote(literal.Value)
		if err != nil {
			break
		}
		all = append(all, text)
	}
	return all
}

// The lists contain all files and commands of the agent for a setting of each kind, on hosts with each boot loader.
func TestTheAgentChangesNoOtherFile(t *testing.T) {
	writes, commands := quotedIn(section(t, "writes")), quotedIn(section(t, "commands"))
	for name, least := range map[string]int{"debian-12": 4, "rocky-9": 3, "ubuntu-24.04-cloudimg": 4} {
		t.Run(name, func(t *testing.T) {
			machine := newMachine(t, name)
			before := machine.tree(t)
			spec := v1alpha1.StorageClientNodeSpec{Settings: []v1alpha1.NodeSetting{
				settingOf("sysctl/net.core.rmem_max", "16777216"), settingOf("module/sunrpc/tcp_slot_table_entries", "128"),
				settingOf("kernelArgument/ihash_entries", "1048576"), settingOf("readAhead/nfs4", "15360"), settingOf("tuned/profile", "latency-performance"),
				settingOf("nfsMountDefaults/filer1", "nconnect=4"), settingOf("filesystem/mnt/*", "xfs:noatime"),
			}}
			machine.run(t, spec)
			machine.run(t, v1alpha1.StorageClientNodeSpec{Settings: spec.Settings, Release: true})
			changed := changes(before, machine.seen)
			for _, file := range changed {
				if !slices.ContainsFunc(writes, func(entry string) bool { return covers(entry, file) }) {
					t.Errorf("the agent changed %s, which is missing in the security reference", file)
				}
			}
			if len(changed) < least {
				t.Errorf("got changed files %v, want at least %d", changed, least)
			}
			for _, command := range machine.commands.Ran {
				if !slices.ContainsFunc(commands, func(entry string) bool { return fits(entry, command) }) {
					t.Errorf("the agent ran %q, which is missing in the security reference", command)
				}
			}
		})
	}
}

// fits reports whether a command line matches an entry. Words in capitals are placeholders.
func fits(entry, command string) bool {
	pattern := regexp.MustCompile(`[A-Z]{4,}`).ReplaceAllString(regexp.QuoteMeta(entry), ".*")
	return regexp.MustCompile(`^` + pattern + `( .*)?$`).MatchString(command)
}

func changes(before, after map[string]string) []string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if previous, found := before[name]; !found || previous != after[name] {
			all = append(all, name)
		}
	}
	return all
}
