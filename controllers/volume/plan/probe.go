package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume/judge"
	"github.com/storageclient/operator/tuning/text"
)

// ProbeKey names what one probe says something of: a set of options on a server.
type ProbeKey struct {
	Set, Server string
}

// ProbeVerdict is what a probe has shown.
type ProbeVerdict string

const (
	// ProbeWorks is said of a set of which a list was mounted beside all mounts of the cluster, and answered.
	ProbeWorks ProbeVerdict = "Works"
	// ProbeRefused is said of one that kernel or server have refused for its options.
	ProbeRefused ProbeVerdict = "Refused"
	// ProbeUnknown is said where nothing could be tried, or where what failed may not be put down to the options: a mount by a pod has to
	// show it.
	ProbeUnknown ProbeVerdict = "Unknown"
)

// Probe is what is known of a set of options on a server.
type Probe struct {
	Verdict ProbeVerdict
	// Text says what was seen, or why nothing was.
	Text string
}

// ProbeCandidate is a set of options that is about to be written to volumes of a server, none of which has had it yet.
type ProbeCandidate struct {
	ProbeKey
	// Volume is one of those that are to get it, and Target what is to be mounted of it.
	Volume *corev1.PersistentVolume
	Target judge.ProbeTarget
	// Profiles are the names of the profiles that declare it.
	Profiles []string
}

// ProbeCandidates are what is to be probed, sorted by set and server. Of several volumes, the first by name that can be probed stands
// for all.
func ProbeCandidates(s Snapshot) []ProbeCandidate {
	all := s.judgeAll()
	tried, found := triedKeys(all), map[ProbeKey]ProbeCandidate{}
	for _, j := range all {
		key := keyOf(j)
		if !isProbed(j, s.Profiles, tried) {
			continue
		}
		c := ProbeCandidate{ProbeKey: key, Volume: j.Volume, Target: judge.ProbeTargetOf(j.Volume, j.verdict), Profiles: j.verdict.Profiles}
		was, known := found[key]
		if !known || compareCandidates(c, was) < 0 {
			found[key] = c
		}
	}
	out := make([]ProbeCandidate, 0, len(found))
	for _, c := range found {
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b ProbeCandidate) int {
		return cmp.Or(strings.Compare(a.Set, b.Set), strings.Compare(a.Server, b.Server))
	})
	return out
}

func compareCandidates(a, b ProbeCandidate) int {
	obstacles := func(c ProbeCandidate) int {
		return 2*min(len(c.Target.Obstacle), 1) + min(len(c.Target.Clone.Obstacle), 1)
	}
	return cmp.Or(cmp.Compare(obstacles(a), obstacles(b)), strings.Compare(a.Volume.Name, b.Volume.Name))
}

func keyOf(j judged) ProbeKey {
	return ProbeKey{Set: j.verdict.Set, Server: j.Source.Server}
}

// triedKeys are the sets of options of which a volume of the server carries a list that we wrote: the time to probe is over. Volumes
// that were created with their lists do not count: nobody has asked for evidence then.
func triedKeys(all []judged) map[ProbeKey]bool {
	tried := map[ProbeKey]bool{}
	for _, j := range all {
		if j.CarriesOurs && j.isMarkCurrent() && !j.Mark.Created {
			tried[keyOf(j)] = true
		}
	}
	return tried
}

// isProbed says whether a probe is to come before the volume gets its list.
func isProbed(j judged, profiles *judge.Profiles, tried map[ProbeKey]bool) bool {
	if !j.verdict.ChangesList(j.Volume) || tried[keyOf(j)] || j.Source.Protocol == v1alpha1.ProtocolBlock {
		return false
	}
	return !slices.ContainsFunc(j.verdict.Profiles, func(name string) bool {
		p := profiles.Get(name)
		return p == nil || p.Rollout.Probe == v1alpha1.ProbeNever
	})
}

// waitsForProbe says what a probe has to do with it that the volume does not get its list now; empty: nothing.
func (p *planner) waitsForProbe(j judged) string {
	if p.Probes == nil || !isProbed(j, p.Profiles, p.tried) {
		return ""
	}
	p.planAgain(p.Now.Add(observeEvery))
	probe, known := p.Probes[keyOf(j)]
	switch {
	case !known:
		return probingText(keyOf(j))
	case probe.Verdict == ProbeRefused:
		return "these options are stopped: " + probe.Text
	case probe.Verdict == ProbeUnknown:
		note := p.plan.Notes[j.Volume.Name]
		note.Message += "; not probed: " + probe.Text
		p.plan.Notes[j.Volume.Name] = note
	}
	return ""
}

func probingText(key ProbeKey) string {
	return "these options are probed on a node first, by a mount from " + key.Server + " that no pod uses"
}

// addProbes tells of a profile's sets of options which are being probed, and which no volume gets since a probe has failed.
func (s *Summary) addProbes(p *planner, own []*judged, name string) {
	if p.Probes == nil {
		return
	}
	seen := map[ProbeKey]bool{}
	var stopped, waiting []string
	for _, j := range own {
		key := keyOf(*j)
		if seen[key] || !slices.Contains(j.verdict.Profiles, name) || !isProbed(*j, p.Profiles, p.tried) {
			continue
		}
		seen[key] = true
		probe, known := p.Probes[key]
		switch {
		case known && probe.Verdict == ProbeRefused:
			stopped = append(stopped, probe.Text)
		case !known:
			waiting = append(waiting, probingText(key))
		}
	}
	s.Stopped = joinTexts(s.Stopped, stopped)
	s.Batch = joinTexts(s.Batch, waiting)
}

func joinTexts(before string, more []string) string {
	if len(more) == 0 {
		return before
	}
	slices.Sort(more)
	after := text.Join(more, "; ")
	if before == "" {
		return after
	}
	return fmt.Sprintf("%s; %s", before, after)
}
