package sysctl

import (
	"fmt"
	"path"
	"regexp"
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
