package sysctl

import (
	"fmt"
	"maps"
	"math"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/storageclient/operator/agent/host"
)

// nameBytes and valueBytes match the bytes that may reach a generated file, regardless of the author of the object.
var (
	nameBytes  = regexp.MustCompile(`^[A-Za-z0-9_.,:/@+-]+$`)
	valueBytes = regexp.MustCompile(`^[A-Za-z0-9_.,:=/@+-]+( [A-Za-z0-9_.,:=/@+-]+)*$`)
)

func checkSetting(setting host.Setting) (string, error) {
	if !valueBytes.MatchString(setting.Value) {
		return "", fmt.Errorf("sysctl %s: the value %q has characters that are not allowed", setting.Name, setting.Value)
	}
	return procFile(setting.Name)
}

// procFile returns the file of a dotted name. A slash represents a dot inside an interface name: net.ipv4.conf.eth0/100.forwarding is
// /proc/sys/net/ipv4/conf/eth0.100/forwarding.
func procFile(name string) (string, error) {
	if !nameBytes.MatchString(name) {
		return "", fmt.Errorf("sysctl %q: the name has characters that are not allowed", name)
	}
	rel := swapSeparators(name)
	if path.Clean("/"+rel) != "/"+rel || !strings.Contains(rel, "/") {
		return "", fmt.Errorf("sysctl %q: not a dotted name", name)
	}
	return path.Join("/proc/sys", rel), nil
}

// DottedName returns the form in which names are compared. If a slash is the first separator, the rest is literal (sysctl.d(5)).
// Empty parts do not count.
func DottedName(name string) string {
	separator := '.'
	if i := strings.IndexAny(name, "./"); i >= 0 {
		separator = rune(name[i])
	}
	name = strings.Join(strings.FieldsFunc(name, func(r rune) bool { return r == separator }), string(separator))
	if separator == '/' {
		return swapSeparators(name)
	}
	return name
}

func swapSeparators(name string) string {
	return strings.Map(func(r rune) rune {
		switch r {
		case '.':
			return '/'
		case '/':
			return '.'
		}
		return r
	}, name)
}

// normaliseValue makes values comparable: the kernel separates fields by tabs.
func normaliseValue(value string) string { return strings.Join(strings.Fields(value), " ") }

// number matches a field that the kernel reads as a number (proc_get_long in kernel/sysctl.c): decimal, octal or hexadecimal.
var number = regexp.MustCompile(`\A-?(?:0[xX][0-9a-fA-F]+|0[0-7]*|[1-9]\d*)\z`)

// reservedPorts is the only list of ports and ranges. A write replaces the whole list, also with an empty one.
const reservedPorts = "net.ipv4.ip_local_reserved_ports"

// kernelValue returns the value that a parameter has after a line of a file is written. before is its value before. If before consists of
// numbers, the kernel reads at most as many numbers, ignores the rest, and stops at the first field that is not a number.
func kernelValue(name, line, before string) string {
	fields, out := strings.Fields(line), strings.Fields(before)
	hasText := slices.ContainsFunc(out, func(field string) bool { return !number.MatchString(field) })
	if DottedName(name) == reservedPorts || len(out) == 0 || hasText {
		return normaliseValue(line)
	}
	for i := 0; i < min(len(fields), len(out)) && number.MatchString(fields[i]); i++ {
		out[i] = normaliseNumbers(fields[i])
	}
	return strings.Join(out, " ")
}

// Changes reports whether a line with a value changes the current value of a parameter.
func Changes(name, line, current string) bool {
	return !isMet(host.Setting{Value: current}, kernelValue(name, line, current))
}

// discardNumbers replaces the numbers of a value that systemd-sysctl does not write, because a later line has the same name.
func discardNumbers(value string) string {
	fields := strings.Fields(value)
	for i, field := range fields {
		if number.MatchString(field) {
			fields[i] = strconv.Itoa(math.MinInt64)
		}
	}
	return strings.Join(fields, " ")
}

// normaliseNumbers makes values comparable that consist of numbers. A value with another field, or with a number over int64, is text.
func normaliseNumbers(value string) string {
	fields := strings.Fields(value)
	for i, field := range fields {
		n, err := strconv.ParseInt(field, 0, 64)
		if err != nil || !number.MatchString(field) {
			return normaliseValue(value)
		}
		fields[i] = strconv.FormatInt(n, 10)
	}
	return strings.Join(fields, " ")
}

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
