package modprobe

import (
	"slices"
	"strings"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/sysctl"
	"github.com/storageclient/operator/tuning/lists"
)

var (
	// loadLists are further lists of modules that are loaded at boot: by Debian's init scripts, and in its initramfs.
	loadLists = []string{"/etc/modules", "/etc/initramfs-tools/modules"}
	// needsSunrpc are the modules that sunrpc is loaded with.
	needsSunrpc = map[string]bool{
		"sunrpc": true, "auth_rpcgss": true, "rpcsec_gss_krb5": true, "rpcrdma": true, "xprtrdma": true, "svcrdma": true, "lockd": true, "nfs": true,
		"nfs_acl": true, "nfs_localio": true, "nfsd": true, "nfsv2": true, "nfsv3": true, "nfsv4": true,
	}
)

// sysctlFiles returns the files that set parameters of sunrpc again after modprobe has passed them. When the module is loaded, nfs-utils runs "sysctl
// --pattern ^sunrpc --system", by a udev rule (60-nfs.rules) or a line of modprobe.d (50-nfs.conf, 2.6.2). At boot, the files apply to a module that
// is loaded before them. The programs that read these files skip unreadable files.
func (s *Subject) sysctlFiles() []optionFile {
	atLoad, dashes := s.runsSysctlAtLoad()
	early := s.loadsEarly()
	if !atLoad && !early {
		return nil
	}
	names, _ := sysctl.FilesAtBoot(s.fs)
	if atLoad && !slices.Contains(names, sysctl.SystemConf) {
		names = append(names, sysctl.SystemConf)
	}
	return lists.Pick(names, func(name string) (optionFile, bool) {
		data, _ := s.fs.ReadIfThere(name)
		options := sunrpcSysctls(string(data), dashes || early)
		return optionFile{name: name, options: options, afterLoad: true}, len(options) > 0
	})
}

// loadsEarly reports whether the boot loads sunrpc before systemd-sysctl runs, which waits for systemd-modules-load: by a list of modules, the
// kernel command line or a root file system on NFS, or because it is built in.
func (s *Subject) loadsEarly() bool {
	lists, _ := s.fs.DropIns(host.ConfigDirs("modules-load.d"), ".conf")
	for _, name := range append(lists, loadLists...) {
		data, _ := s.fs.ReadIfThere(name)
		for line := range strings.Lines(string(data)) {
			// Debian's lists may contain parameters after the name.
			if words := strings.Fields(line); len(words) > 0 && needsSunrpc[host.CanonicalName(words[0])] {
				return true
			}
		}
	}
	if s.fs.IsImage() {
		return false
	}
	known, _ := s.knownModules()
	line, _ := s.fs.ReadFile(commandLine)
	return known.builtIn["sunrpc"] || slices.ContainsFunc(host.ParseArguments(string(line)), loadsSunrpc)
}

func loadsSunrpc(arg host.Argument) bool {
	switch arg.Name {
	case "modules_load", "modules-load", "rd.modules_load", "rd.modules-load", "rd.driver.pre":
		return slices.ContainsFunc(strings.Split(arg.Value, ","), func(name string) bool { return needsSunrpc[host.CanonicalName(name)] })
	case "nfsroot":
		return true
	case "root", "netroot", "boot":
		return strings.HasPrefix(arg.Value, "nfs") || arg.Value == "/dev/nfs"
	}
	return false
}

// runsSysctlAtLoad reports whether the host sets sysctls when sunrpc is loaded, and whether it also sets names with a dash: procps compares the
// pattern with the dash and the name.
func (s *Subject) runsSysctlAtLoad() (runs, dashes bool) {
	rules, _ := s.fs.DropIns(host.ConfigDirs("udev/rules.d"), ".rules")
	lines, _ := s.fs.DropIns(host.ConfigDirs("modprobe.d"), ".conf")
	for _, name := range append(rules, lines...) {
		data, _ := s.fs.ReadIfThere(name)
		for line := range strings.Lines(strings.ReplaceAll(string(data), "\\\n", " ")) {
			words := strings.TrimSpace(line)
			of := strings.HasPrefix(words, "install sunrpc ") || strings.Contains(words, `KERNEL=="sunrpc"`)
			if of && !strings.HasPrefix(words, "#") && strings.Contains(words, "sysctl ") && strings.Contains(words, "--system") {
				runs, dashes = true, dashes || !strings.Contains(words, "^sunrpc")
			}
		}
	}
	return runs, dashes
}

// sunrpcSysctls returns the parameters of sunrpc that a file of sysctl.d(5) sets, by "module/parameter". A name may have a dash before it.
func sunrpcSysctls(data string, dashes bool) map[string]string {
	options := map[string]string{}
	for line := range strings.Lines(data) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		name, hasDash := strings.CutPrefix(strings.TrimSpace(name), "-")
		param, of := strings.CutPrefix(strings.ReplaceAll(name, "/", "."), "sunrpc.")
		if ok && of && (dashes || !hasDash) {
			// The kernel reads the first field as a number, and ignores the rest.
			options[parameter{"sunrpc", host.CanonicalName(param)}.String()] = strings.Join(strings.Fields(value)[:min(1, len(strings.Fields(value)))], "")
		}
	}
	return options
}
