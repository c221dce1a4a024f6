package modprobe

import (
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/sysctl"
	"github.com/storageclient/operator/tuning/lists"
)

var (
	// loadLists are further lists of modules that are loaded at boot: by Debian's init scripts, and in its initramfs. Only they may contain parameters.
	loadLists = []string{"/etc/modules", "/etc/initramfs-tools/modules"}
	// providers are the modules whose sysctls are parameters of modules (net/sunrpc/xprtsock.c, fs/lockd/svc.c, fs/nfs/nfs4sysctl.c). Each one loads
	// the modules before it. Each of params has the sysctl prefix+param and the key target+param.
	providers = []struct{ module, prefix, target, params string }{
		{"sunrpc", "sunrpc/", "sunrpc/", "tcp_max_slot_table_entries tcp_slot_table_entries udp_slot_table_entries min_resvport max_resvport"},
		{"lockd", "fs/nfs/", "lockd/", "nlm_grace_period nlm_timeout nlm_udpport nlm_tcpport nsm_use_hostnames"},
		{"nfsv4", "fs/nfs/nfs_", "nfs/", "callback_tcpport"},
	}
	// providersWith is the number of providers that are loaded with a module or an alias.
	providersWith = map[string]int{
		"sunrpc": 1, "auth_rpcgss": 1, "rpcsec_gss_krb5": 1, "rpcrdma": 1, "xprtrdma": 1, "svcrdma": 1, "nfs_acl": 1, "nfs_localio": 1,
		"lockd": 2, "nfs": 2, "nfsd": 2, "nfsv2": 2, "nfsv3": 2, "fs_nfs": 2, "fs_nfsd": 2,
		"nfsv4": 3, "nfs4": 3, "fs_nfs4": 3, "nfs_layout_nfsv41_files": 3, "nfs_layout_flexfiles": 3, "blocklayoutdriver": 3,
	}
)

// sysctlFiles returns the files that set parameters again after modprobe has passed them. When the module is loaded, nfs-utils runs "sysctl
// --pattern ^sunrpc --system", by a udev rule (60-nfs.rules) or a line of modprobe.d (50-nfs.conf, 2.6.2). At boot, the files apply to a module that
// is loaded before them. Explicit names override wildcards. The programs that read these files skip unreadable files.
func (s *Subject) sysctlFiles() []optionFile {
	atLoad, early := s.runsSysctlAtLoad(), s.loadsEarly()
	names, _ := sysctl.FilesAtBoot(s.fs)
	wildcards, explicit := map[string]optionFile{}, map[string]optionFile{}
	for n, name := range lists.AddMissing(names, sysctl.SystemConf) {
		data, _ := s.fs.ReadIfThere(name)
		for line := range strings.Lines(string(data)) {
			key, value, ok := sysctl.ParseLine(line)
			hasDash, excludes := strings.HasPrefix(strings.TrimSpace(line), "-"), !strings.Contains(line, "=")
			isWildcard := strings.ContainsAny(key, "*?[")
			for i, p := range providers {
				dashes, runs := atLoad[p.module]
				if !ok || !(i < early && n < len(names)) && (!runs || hasDash && !dashes) || excludes && (runs || isWildcard) {
					continue
				}
				for param := range strings.FieldsSeq(p.params) {
					file := optionFile{name: name, afterLoad: key}
					if !excludes {
						// The kernel reads the first field as a number, and ignores the rest.
						first, _, _ := strings.Cut(strings.Join(strings.Fields(value), " "), " ")
						file.options = map[string]string{p.target + param: first}
					}
					if matched, _ := path.Match(strings.ReplaceAll(sysctl.DottedName(key), ".", "/"), p.prefix+param); matched && isWildcard {
						wildcards[p.target+param] = file
					} else if matched {
						explicit[p.target+param] = file
					}
				}
			}
		}
	}
	maps.Copy(wildcards, explicit)
	return slices.Collect(maps.Values(wildcards))
}

// loadsEarly returns the number of providers that the boot loads before systemd-sysctl runs, which waits for systemd-modules-load: by a list of
// modules, the initramfs, the kernel command line or a root file system on NFS, or because they are built in.
func (s *Subject) loadsEarly() (early int) {
	var modules []string
	atBoot, _ := s.fs.DropIns(host.ConfigDirs("modules-load.d"), ".conf")
	dracut, _ := s.fs.DropIns([]string{"/etc/dracut.conf.d", "/usr/lib/dracut/dracut.conf.d"}, ".conf")
	for _, name := range slices.Concat(atBoot, loadLists, dracut) {
		data, _ := s.fs.ReadIfThere(name)
		for line := range strings.Lines(string(data)) {
			words := strings.Fields(line)
			if forced, ok := strings.CutPrefix(strings.TrimSpace(line), "force_drivers+="); ok && slices.Contains(dracut, name) {
				modules = append(modules, strings.Fields(strings.Trim(forced, "\"'"))...)
			} else if len(words) == 1 || len(words) > 1 && slices.Contains(loadLists, name) {
				modules = append(modules, words[0])
			}
		}
	}
	if !s.fs.IsImage() {
		known, _ := s.knownModules()
		for _, p := range providers {
			if known.builtIn[p.module] {
				modules = append(modules, p.module)
			}
		}
		line, _ := s.fs.ReadIfThere(commandLine)
		for _, arg := range host.ParseArguments(string(line)) {
			modules = append(modules, loadedBy(arg)...)
		}
	}
	for _, module := range modules {
		early = max(early, providersWith[host.CanonicalName(module)])
	}
	return early
}

func loadedBy(arg host.Argument) []string {
	switch name := host.CanonicalName(arg.Name); {
	case slices.Contains([]string{"modules_load", "rd.modules_load", "rd.driver.pre", "rd.driver.post"}, name):
		return strings.Split(arg.Value, ",")
	case name == "nfsroot", slices.Contains([]string{"root", "netroot", "boot"}, name) && (strings.HasPrefix(arg.Value, "nfs") || arg.Value == "/dev/nfs"):
		return []string{"nfsv4"}
	}
	return nil
}

// runsSysctlAtLoad returns the providers for which the host sets sysctls when they are loaded, and whether it also sets names with a dash: procps
// compares the pattern with the dash and the name.
func (s *Subject) runsSysctlAtLoad() (dashes map[string]bool) {
	dashes = map[string]bool{}
	rules, _ := s.fs.DropIns(host.ConfigDirs("udev/rules.d"), ".rules")
	lines, _ := s.fs.DropIns(host.ConfigDirs("modprobe.d"), ".conf")
	for _, name := range append(rules, lines...) {
		data, _ := s.fs.ReadIfThere(name)
		for line := range strings.Lines(strings.ReplaceAll(string(data), "\\\n", " ")) {
			words := strings.TrimSpace(line)
			for _, p := range providers {
				of := strings.HasPrefix(words, "install "+p.module+" ") || strings.Contains(words, `KERNEL=="`+p.module+`"`)
				if of && !strings.HasPrefix(words, "#") && strings.Contains(words, "sysctl ") && strings.Contains(words, "--system") {
					dashes[p.module] = dashes[p.module] || !strings.Contains(words, "--pattern ^")
				}
			}
		}
	}
	return dashes
}
