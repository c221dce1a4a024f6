package sysctl

import (
	"fmt"
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

// dottedName returns the form in which names are compared. If a slash is the first separator, the rest is literal (sysctl.d(5)).
func dottedName(name string) string {
	if i := strings.IndexAny(name, "./"); i >= 0 && name[i] == '/' {
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

// kernelValue returns the value that a parameter has after value is written. wanted is its value before. If wanted consists of numbers, the
// kernel reads at most as many numbers, ignores the rest, and stops at the first field that is not a number.
func kernelValue(value, wanted string) string {
	fields, out := strings.Fields(value), strings.Fields(wanted)
	// A list of ports has commas.
	isList := len(fields) > 0 && strings.Contains(fields[0], ",")
	if isList || len(out) == 0 || slices.ContainsFunc(out, func(field string) bool { return !number.MatchString(field) }) {
		return normaliseValue(value)
	}
	for i, field := range fields[:min(len(fields), len(out))] {
		if !number.MatchString(field) {
			break
		}
		n, err := strconv.ParseInt(field, 0, 64)
		if err != nil {
			break
		}
		out[i] = strconv.FormatInt(n, 10)
	}
	return strings.Join(out, " ")
}
