package advice

import (
	"strconv"
	"strings"
)

// isOlder reports whether a kernel is older than major.minor. An unknown release is not older.
func isOlder(release string, major, minor int) bool {
	x, y, ok := kernelVersion(release)
	return ok && (x < major || x == major && y < minor)
}

// kernelVersion parses the first two numbers of a release such as 6.1.0-51-cloud-amd64.
func kernelVersion(release string) (major, minor int, ok bool) {
	first, rest, _ := strings.Cut(release, ".")
	second := rest[:len(rest)-len(strings.TrimLeft(rest, "0123456789"))]
	major, errMajor := strconv.Atoi(first)
	minor, errMinor := strconv.Atoi(second)
	return major, minor, errMajor == nil && errMinor == nil
}

func (s *scope) nodesOlderThan(major, minor int) []string {
	var names []string
	for _, node := range s.Nodes {
		if isOlder(node.Kernel, major, minor) {
			names = append(names, node.Name+" ("+node.Kernel+")")
		}
	}
	return names
}
