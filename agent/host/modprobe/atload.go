package modprobe

import (
	"strings"

	"github.com/storageclient/operator/agent/host"
)

var (
	ruleDirectories = []string{
		"/etc/udev/rules.d", "/run/udev/rules.d", "/usr/local/lib/udev/rules.d", "/usr/lib/udev/rules.d", "/lib/udev/rules.d",
	}
	sysctlDirectories = []string{
		"/etc/sysctl.d", "/run/sysctl.d", "/usr/local/lib/sysctl.d", "/usr/lib/sysctl.d", "/lib/sysctl.d",
	}
)

// sysctlConf is the file that "sysctl --system" reads after all others.
const sysctlConf = "/etc/sysctl.conf"

// sysctlFiles returns the files that set parameters of sunrpc again after modprobe has passed them. When the module is loaded, nfs-utils runs "sysctl
// --pattern ^sunrpc --system", by a udev rule (60-nfs.rules) or a line of modprobe.d (50-nfs.conf, 2.6.2).
func (s *Subject) sysctlFiles() ([]optionFile, error) {
	if runs, err := s.runsSysctlAtLoad(); err != nil || !runs {
		return nil, err
	}
	names, err := s.fs.DropIns(sysctlDirectories, ".conf")
	if err != nil {
		return nil, err
	}
	var files []optionFile
	for _, name := range append(names, sysctlConf) {
		data, err := s.fs.ReadIfThere(name)
		if err != nil {
			return nil, err
		}
		if options := sunrpcSysctls(string(data)); len(options) > 0 {
			files = append(files, optionFile{name: name, options: options})
		}
	}
	return files, nil
}

// runsSysctlAtLoad reports whether the host sets sysctls when sunrpc is loaded.
func (s *Subject) runsSysctlAtLoad() (bool, error) {
	rules, err := s.fs.DropIns(ruleDirectories, ".rules")
	if err != nil {
		return false, err
	}
	lines, err := s.fs.DropIns(directories, ".conf")
	if err != nil {
		return false, err
	}
	for _, name := range append(rules, lines...) {
		data, err := s.fs.ReadIfThere(name)
		if err != nil {
			return false, err
		}
		for line := range strings.Lines(strings.ReplaceAll(string(data), "\\\n", " ")) {
			words := strings.TrimSpace(line)
			of := strings.HasPrefix(words, "install sunrpc ") || strings.Contains(words, `KERNEL=="sunrpc"`)
			if of && strings.Contains(words, "sysctl ") && strings.Contains(words, "--system") {
				return true, nil
			}
		}
	}
	return false, nil
}

// sunrpcSysctls returns the parameters of sunrpc that a file of sysctl.d(5) sets, by "module/parameter".
func sunrpcSysctls(data string) map[string]string {
	options := map[string]string{}
	for line := range strings.Lines(data) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		name = strings.ReplaceAll(strings.TrimPrefix(strings.TrimSpace(name), "-"), "/", ".")
		if param, of := strings.CutPrefix(name, "sunrpc."); ok && of {
			options[parameter{"sunrpc", host.CanonicalName(param)}.String()] = strings.TrimSpace(value)
		}
	}
	return options
}
