package advice

import (
	"slices"
	"strings"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/knownbad"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/text"
)

func (s *scope) nodesOlderThan(version string) []string {
	return lists.Pick(s.Nodes, func(node Node) (string, bool) {
		return node.Name + " (" + node.Kernel + ")", knownbad.IsOlder(node.Kernel, version)
	})
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
