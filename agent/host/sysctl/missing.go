package sysctl

import (
	"maps"
	"path"
	"slices"
	"strings"
)

// actions are parameters that act when they are written and cannot be read. They are known as actions even if the kernel cannot be checked.
var actions = map[string]bool{
	"net.ipv4.route.flush": true,
	"net.ipv6.route.flush": true,
}

// isAction reports whether a parameter is an action. A parameter that the running kernel lets no user read (mode 0200) is one too.
func (s *Subject) isAction(name string) bool {
	if actions[name] {
		return true
	}
	file, err := procFile(name)
	if err != nil {
		return false
	}
	info, err := s.fs.Stat(file)
	return err == nil && info.Mode().Perm()&0o444 == 0
}

// actionFamily returns the family of an action, e.g. net.ipv4 for net.ipv4.route.flush. The action runs again after a change in its family.
func actionFamily(name string) string {
	parts := strings.SplitN(name, ".", 3)
	return strings.Join(parts[:min(len(parts), 2)], ".")
}

// dropped are parameters that no longer exist, by the release that removed them: torvalds/linux 4396e46187ca, and the parameters that Linux 5.13
// moved from /proc/sys/kernel to /sys/kernel/debug/sched.
var dropped = map[string]string{
	"net.ipv4.tcp_tw_recycle":            "4.12",
	"kernel.sched_latency_ns":            "5.13, which has it in debugfs",
	"kernel.sched_migration_cost_ns":     "5.13, which has it in debugfs",
	"kernel.sched_min_granularity_ns":    "5.13, which has it in debugfs",
	"kernel.sched_nr_migrate":            "5.13, which has it in debugfs",
	"kernel.sched_tunable_scaling":       "5.13, which has it in debugfs",
	"kernel.sched_wakeup_granularity_ns": "5.13, which has it in debugfs",
}

// bringers are the modules that provide parameters, by the prefix of the parameter's name. The longest prefix wins.
var bringers = map[string]string{
	"fs.nfs.":                     "nfs",
	"fs.nfs.nlm_":                 "lockd",
	"net.bridge.":                 "br_netfilter",
	"net.ipv4.vs.":                "ip_vs",
	"net.netfilter.nf_conntrack_": "nf_conntrack",
	"sunrpc.":                     "sunrpc",
}

var perInterface = []string{"net.ipv4.conf.", "net.ipv4.neigh.", "net.ipv6.conf.", "net.ipv6.neigh."}

func (s *Subject) missingReason(name string) string {
	const later = "; the agent sets it when it appears"
	if release, ok := dropped[name]; ok {
		return "this kernel does not have it: removed in Linux " + release
	}
	for _, tree := range perInterface {
		rest, ok := strings.CutPrefix(name, tree)
		link, _, _ := strings.Cut(rest, ".")
		if file, err := procFile(tree + link + ".x"); ok && err == nil && !s.fs.Exists(path.Dir(file)) {
			return "this host has no interface " + strings.ReplaceAll(link, "/", ".") + later
		}
	}
	// A longer prefix sorts after its own start.
	for _, prefix := range slices.Backward(slices.Sorted(maps.Keys(bringers))) {
		if strings.HasPrefix(name, prefix) {
			return "module " + bringers[prefix] + ", which provides it, is not loaded, or this kernel does not have it" + later
		}
	}
	return "this kernel does not have it, or the module that provides it is not loaded" + later
}
