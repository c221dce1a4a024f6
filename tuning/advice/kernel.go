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
		// Few releases run on many nodes.
		releases := map[release]verdict{}
		var nodes []string
		for _, node := range s.Nodes {
			r := release{node.Kernel, node.Build}
			v, isKnown := releases[r]
			if !isKnown {
				v.kernel = knownbad.ParseKernel(r.name, r.build)
				v.Verdict = e.On(v.kernel)
				releases[r] = v
			}
			if reason := v.reason(e, node); reason != "" {
				nodes = append(nodes, node.Name+" ("+reason+")")
			}
		}
		if len(nodes) > 0 {
			s.add("", e.Advice()+": "+text.List(nodes))
		}
	}
}

// release names a kernel as a node reports it.
type release struct{ name, build string }

// verdict is the verdict of one entry for one kernel.
type verdict struct {
	kernel knownbad.Kernel
	knownbad.Verdict
}

// reason returns why a node with this kernel has a problem, or may have it. Empty if it does not.
func (v verdict) reason(e knownbad.Entry, node Node) string {
	showsSign := slices.Contains(node.Signs, e.ID)
	switch {
	case v.Verdict == knownbad.Clear:
		return ""
	case showsSign && v.Verdict == knownbad.CannotTell:
		return "shows a sign, " + node.Kernel
	case showsSign:
		return "shows a sign, " + v.kernel.String()
	case e.Signed || v.Verdict == knownbad.CannotTell:
		return ""
	case slices.ContainsFunc(node.Mounts, func(m v1alpha1.MountStatus) bool { return e.Concerns(m.Protocol, m.Options) }):
		return strings.ToLower(string(v.Verdict)) + ", " + v.kernel.String()
	}
	return ""
}
