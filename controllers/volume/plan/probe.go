package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume/judge"
	"github.com/storageclient/operator/controllers/volume/optionset"
	"github.com/storageclient/operator/tuning/text"
)

// ProbeKey identifies the subject of one probe: an option set on a server.
type ProbeKey struct {
	Set, Server string
}

// ProbeVerdict is the result of a probe.
type ProbeVerdict string

const (
	// ProbeWorks means that an isolated mount with options of the set succeeded and responded.
	ProbeWorks ProbeVerdict = "Works"
	// ProbeRefused means that the kernel or the server rejected the options.
	ProbeRefused ProbeVerdict = "Refused"
	// ProbeUnknown means that no probe was possible, or that its failure may have other causes than the options. Only a mount by a pod can then be
	// evidence.
	ProbeUnknown ProbeVerdict = "Unknown"
)

// Probe is the result for an option set on a server.
type Probe struct {
	Verdict ProbeVerdict
	// Text describes the observation, or the reason why there is none.
	Text string
}

// ProbeCandidate is a pending option set for volumes of a server that no volume of the server has yet.
type ProbeCandidate struct {
	ProbeKey
	// Volume is one of the volumes that must get the set. Target is the mount of a probe.
	Volume *corev1.PersistentVolume
	Target judge.ProbeTarget
	// Profiles are the names of the profiles that declare the set.
	Profiles []string
}

// ProbeCandidates returns the sets to probe, sorted by set and server. If several volumes can be probed, it uses the first by name.
func ProbeCandidates(s Snapshot) []ProbeCandidate {
	s.Probes = nil
	p, found := newPlanner(s), map[ProbeKey]ProbeCandidate{}
	for _, j := range p.volumes {
		key := keyOf(j)
		if !p.isProbed(j) {
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

// triedKeys returns the option sets that a volume of the server has from a batch: it is too late to probe them. Volumes that were created with
// their options do not count, since their creation required no evidence.
func triedKeys(all []judged) map[ProbeKey]bool {
	tried := map[ProbeKey]bool{}
	for _, j := range all {
		if j.CarriesOurs && j.isMarkCurrent() && !j.Mark.Created {
			tried[keyOf(j)] = true
		}
	}
	return tried
}

// mayProbe reports whether the volume's options could be probed before they are written: they change, no volume of the server has them yet,
// and a file server provides the volume.
func (p *planner) mayProbe(j judged) bool {
	return j.verdict.ChangesList(j.Volume) && !p.tried[keyOf(j)] && j.Source.Protocol != v1alpha1.ProtocolBlock
}

// wantsProbe reports whether all profiles of the volume allow a probe.
func (p *planner) wantsProbe(j judged) bool {
	return !slices.ContainsFunc(j.verdict.Profiles, func(name string) bool {
		profile := p.Profiles.Get(name)
		return profile == nil || profile.Rollout.Probe == v1alpha1.ProbeNever
	})
}

// isProbed reports whether the volume must wait for a probe.
func (p *planner) isProbed(j judged) bool {
	_, worked := p.sets.declared(j).Worked[j.Source.Server]
	return !worked && p.mayProbe(j) && p.wantsProbe(j)
}

// observeProbes records the results of probes.
func (p *planner) observeProbes() {
	seen := map[ProbeKey]bool{}
	for _, j := range p.volumes {
		key := keyOf(j)
		if seen[key] || !p.mayProbe(j) {
			continue
		}
		seen[key] = true
		probe, known := p.Probes[key]
		e := optionset.Event{
			Kind: optionset.ProbeInconclusive, Server: key.Server, At: p.second(),
			Blame: optionset.Blame{Volume: j.Volume.Name, Options: j.verdict.Options, Text: probe.Text},
		}
		switch {
		case !p.wantsProbe(j):
			e.Kind = optionset.ProbeUnwanted
		case p.Probes == nil:
			continue
		case !known:
			e.Kind = optionset.ProbeOrdered
		case probe.Verdict == ProbeWorks:
			e.Kind = optionset.ProbeWorked
		case probe.Verdict == ProbeRefused:
			e.Kind = optionset.ProbeRefused
		}
		p.sets.declared(j).Next(e)
	}
}

// waitsForProbe returns the reason why a probe delays the volume's options. Empty if there is none.
func (p *planner) waitsForProbe(j judged) string {
	key, isProbed := keyOf(j), p.Probes != nil && p.isProbed(j)
	if isProbed {
		p.planAgain(p.Now.Add(observeEvery))
	}
	switch runs, refused := p.describeProbe(j); {
	case refused != "":
		return "these options are stopped: " + refused
	case runs != "":
		return runs
	}
	if probe := p.Probes[key]; isProbed && probe.Verdict == ProbeUnknown {
		note := p.plan.Notes[j.Volume.Name]
		note.Message += "; not probed: " + probe.Text
		p.plan.Notes[j.Volume.Name] = note
	}
	return ""
}

// describeProbe describes the probe that withholds the set from all volumes of the volume's server. It still runs, or it was rejected.
func (p *planner) describeProbe(j judged) (runs, refused string) {
	r, server := p.sets[j.verdict.Set], j.Source.Server
	if r.State(server) == optionset.Probing {
		return "these options are probed on a node first, by a mount from " + server + " that no pod uses", ""
	}
	if r != nil {
		if b, is := r.Refused[server]; is {
			refused = cmp.Or(b.Text, "a probe could not mount them from "+server)
		}
	}
	return "", refused
}

// addProbes adds a profile's option sets that wait for a probe, and the sets that no volume gets because a probe failed.
func (s *Summary) addProbes(p *planner, own []*judged, name string) {
	seen := map[ProbeKey]bool{}
	var stopped, waiting []string
	for _, j := range own {
		if seen[keyOf(*j)] || !slices.Contains(j.verdict.Profiles, name) || !j.verdict.ChangesList(j.Volume) {
			continue
		}
		seen[keyOf(*j)] = true
		switch runs, refused := p.describeProbe(*j); {
		case refused != "":
			stopped = append(stopped, refused)
		case runs != "":
			waiting = append(waiting, runs)
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
