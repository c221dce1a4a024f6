package advice

import (
	"slices"
	"strconv"
	"strings"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/knownbad"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/text"
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
	older := lists.Filter(s.Nodes, func(node Node) bool { return isOlder(node.Kernel, major, minor) })
	return lists.Each(older, func(node Node) string { return node.Name + " (" + node.Kernel + ")" })
}

// addKnownBad adds the known problems of the nodes' kernels and mounts that lose data, or all others. A problem that needs a sign beyond kernel and
// mount appears only on nodes that show it, even if their release does not show which fixes they have.
func (s *scope) addKnownBad(loses bool) {
	for _, e := range knownbad.Entries() {
		if e.Loses != loses {
			continue
		}
		var nodes []string
		for _, node := range s.Nodes {
			if reason := hasKnownBad(e, node); reason != "" {
				nodes = append(nodes, node.Name+" ("+reason+")")
			}
		}
		if len(nodes) > 0 {
			s.add("", e.Advice()+": "+text.List(nodes))
		}
	}
}

// hasKnownBad returns why a node has a problem, or may have it. Empty if it does not.
func hasKnownBad(e knownbad.Entry, node Node) string {
	kernel := knownbad.ParseKernel(node.Kernel, node.Build)
	showsSign := slices.Contains(node.Signs, e.ID)
	switch verdict := e.On(kernel); {
	case verdict == knownbad.Clear:
		return ""
	case showsSign && verdict == knownbad.CannotTell:
		return "shows a sign, " + node.Kernel
	case showsSign:
		return "shows a sign, " + kernel.String()
	case e.Signed || verdict == knownbad.CannotTell:
		return ""
	case slices.ContainsFunc(node.Mounts, func(m v1alpha1.MountStatus) bool { return e.Concerns(m.Protocol, m.Options) }):
		return strings.ToLower(string(verdict)) + ", " + kernel.String()
	}
	return ""
}
