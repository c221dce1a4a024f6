package modprobe

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/tuning/lists"
)

const (
	// DropIn is the agent's file. It is read after the files that guides recommend, such as sunrpc.conf.
	DropIn = "/etc/modprobe.d/zz-storage-client.conf"

	commandLine = "/proc/cmdline"
	modulesDir  = "/lib/modules"
)

var (
	nameBytes  = regexp.MustCompile(`^[A-Za-z0-9_]+$`)
	valueBytes = regexp.MustCompile(`^[A-Za-z0-9_.,:=/@+-]+$`)
)

// parameter names a parameter of a module, both spelled with "_" as in /sys/module.
type parameter struct {
	module, name string
}

func (p parameter) String() string { return p.module + "/" + p.name }

func parseName(name string) (parameter, error) {
	module, param, _ := strings.Cut(name, "/")
	p := parameter{module: host.CanonicalName(module), name: host.CanonicalName(param)}
	if !nameBytes.MatchString(p.module) || !nameBytes.MatchString(p.name) {
		return p, fmt.Errorf("module parameter %q: must be module/parameter", name)
	}
	return p, nil
}

func checkSetting(setting host.Setting) (parameter, error) {
	if !valueBytes.MatchString(setting.Value) {
		return parameter{}, fmt.Errorf("module parameter %s: the value %q has characters that are not allowed",
			setting.Name, setting.Value)
	}
	return parseName(setting.Name)
}

// sameValue reports whether two values are equal. The kernel shows a number as a decimal, and a flag as Y or N.
func sameValue(a, b string) bool { return canonicalValue(a) == canonicalValue(b) }

func canonicalValue(value string) string {
	if n, err := strconv.ParseInt(value, 0, 64); err == nil && !strings.Contains(value, "_") {
		value = strconv.FormatInt(n, 10)
	}
	switch value {
	case "Y", "y", "1":
		return "1"
	case "N", "n", "0":
		return "0"
	}
	return value
}

// optionFile contains the parameters that one file sets, by "module/parameter".
type optionFile struct {
	name    string
	options map[string]string
	// afterLoad is the sysctl in the file that sets the value after the module is loaded. Empty for values that modprobe passes.
	afterLoad string
}

// optionFiles returns the parameters that modprobe passes to modules, in its order: the kernel uses the last one. The kernel command line
// (module.parameter=value) comes after all files. Values that are set once the module is loaded come after that.
// modprobe skips an unreadable file.
func (s *Subject) optionFiles() []optionFile {
	names, _ := s.fs.DropIns(host.ConfigDirs("modprobe.d"), ".conf")
	files := lists.Each(names, func(name string) optionFile {
		data, _ := s.fs.ReadIfThere(name)
		return optionFile{name: name, options: parseOptions(string(data))}
	})
	if !s.fs.IsImage() {
		line, _ := s.fs.ReadFile(commandLine)
		files = append(files, optionFile{name: commandLine, options: fromCommandLine(string(line))})
	}
	return append(files, s.sysctlFiles()...)
}

// parseOptions parses the lines "options module parameter=value ..." of modprobe.d(5).
func parseOptions(data string) map[string]string {
	options := map[string]string{}
	for line := range strings.Lines(strings.ReplaceAll(data, "\\\n", " ")) {
		words := strings.Fields(line)
		if len(words) < 3 || words[0] != "options" {
			continue
		}
		for _, arg := range host.ParseArguments(strings.Join(words[2:], " ")) {
			options[parameter{host.CanonicalName(words[1]), host.CanonicalName(arg.Name)}.String()] = arg.Value
		}
	}
	return options
}

func fromCommandLine(line string) map[string]string {
	options := map[string]string{}
	for _, arg := range host.ParseArguments(line) {
		module, name, ok := strings.Cut(arg.Name, ".")
		if ok {
			options[parameter{host.CanonicalName(module), host.CanonicalName(name)}.String()] = arg.Value
		}
	}
	return options
}

// renderDropIn returns the text of the drop-in. Empty without options.
func renderDropIn(options map[string]string) string {
	lines := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(options)) {
		module, param, _ := strings.Cut(name, "/")
		lines[module] += " " + param + "=" + options[name]
	}
	var b strings.Builder
	for _, module := range slices.Sorted(maps.Keys(lines)) {
		fmt.Fprintf(&b, "options %s%s\n", module, lines[module])
	}
	return host.OwnText(b.String())
}

type modules struct {
	// unknown is true if the host does not list them.
	unknown  bool
	loadable map[string]bool
	builtIn  map[string]bool
}

// knownModules returns the modules of the running kernel. For an image, it returns the modules of every kernel in it.
func (s *Subject) knownModules() (modules, error) {
	if s.fs.IsImage() {
		return s.modulesOfImage()
	}
	release, err := s.fs.ReadValue("/proc/sys/kernel/osrelease")
	if err != nil {
		return modules{}, err
	}
	return s.modulesIn(path.Join(modulesDir, release))
}

func (s *Subject) modulesOfImage() (modules, error) {
	kernels, err := s.fs.Glob(modulesDir, "*")
	if err != nil {
		return modules{}, err
	}
	all := modules{unknown: true, loadable: map[string]bool{}, builtIn: map[string]bool{}}
	for _, dir := range kernels {
		of, err := s.modulesIn(dir)
		if err != nil {
			return modules{}, err
		}
		all.unknown = all.unknown && of.unknown
		maps.Copy(all.loadable, of.loadable)
		maps.Copy(all.builtIn, of.builtIn)
	}
	return all, nil
}

func (s *Subject) modulesIn(dir string) (modules, error) {
	loadable, err := s.fs.ReadFile(path.Join(dir, "modules.dep"))
	if errors.Is(err, fs.ErrNotExist) {
		return modules{unknown: true}, nil
	}
	if err != nil {
		return modules{}, err
	}
	builtIn, err := s.fs.ReadIfThere(path.Join(dir, "modules.builtin"))
	if err != nil {
		return modules{}, err
	}
	return modules{loadable: moduleNames(string(loadable)), builtIn: moduleNames(string(builtIn))}, nil
}

// moduleNames parses the names from lines such as "kernel/net/sunrpc/sunrpc.ko.xz: kernel/...".
func moduleNames(data string) map[string]bool {
	names := map[string]bool{}
	for line := range strings.Lines(data) {
		file, _, _ := strings.Cut(strings.TrimSpace(line), ":")
		name, _, _ := strings.Cut(path.Base(file), ".")
		names[host.CanonicalName(name)] = true
	}
	return names
}

// isFixed reports whether the running kernel has another value and does not let it be written.
func (s *Subject) isFixed(p parameter, wanted string) bool {
	file := s.liveFile(p)
	value, err := s.kernel.ReadValue(file)
	return err == nil && !sameValue(value, wanted) && !s.isWritable(file)
}

func (s *Subject) unsupportedReason(p parameter, wanted string, known modules) string {
	switch {
	case p.String() == uniqueID && wanted == fromNode:
		return "it derives from the UID of the Node, which only an agent in a cluster knows"
	case !s.fs.IsImage() && known.builtIn[p.module] && s.isFixed(p, wanted):
		return fmt.Sprintf("module %s is built into the kernel and reads it only from the kernel command line: "+
			"declare it under kernelArguments: %s.%s=%s",
			p.module, p.module, p.name, wanted)
	case s.fs.IsImage() && known.builtIn[p.module] && !known.loadable[p.module]:
		return fmt.Sprintf("module %s is built into the kernel: modprobe.d cannot set it, and an image has no running kernel", p.module)
	case !s.fs.IsImage() && (s.isLoaded(p.module) || known.builtIn[p.module]) && !s.fs.Exists(s.liveFile(p)):
		return fmt.Sprintf("module %s of this kernel has no parameter %s", p.module, p.name)
	case !s.fs.IsImage() && s.place.PersistenceProblem() != "" && s.isFixed(p, wanted):
		return fmt.Sprintf("module %s reads it only when the module is loaded, and %s: add %s.%s=%s to the kernel command line with the platform's tools",
			p.module, s.place.PersistenceProblem(), p.module, p.name, wanted)
	case !s.isLoaded(p.module) && !known.unknown && !known.loadable[p.module]:
		return "this kernel has no module " + p.module
	}
	return ""
}
