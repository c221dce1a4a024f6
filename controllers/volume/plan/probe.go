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

// mayProbe reports whether the volume's list could be probed before it is written: it changes, no volume of the server has had it, and it
// is of a file server.
func (p *planner) mayProbe(j judged) bool {
	return j.verdict.ChangesList(j.Volume) && !p.tried[keyOf(j)] && j.Source.Protocol != v1alpha1.ProtocolBlock
}

// wantsProbe reports whether all profiles of the volume want it to be.
func (p *planner) wantsProbe(j judged) bool {
	return !slices.ContainsFunc(j.verdict.Profiles, func(name string) bool {
		profile := p.Profiles.Get(name)
		return profile == nil || profile.Rollout.Probe == v1alpha1.ProbeNever
	})
}

// isProbed reports whether a probe comes before the volume gets its list.
func (p *planner) isProbed(j judged) bool {
	_, worked := p.sets.declared(j).Worked[j.Source.Server]
	return !worked && p.mayProbe(j) && p.wantsProbe(j)
}

// observeProbes notes what probes have shown.
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

// waitsForProbe says what a probe has to do with it that the volume does not get its list now; empty: nothing.
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

// describeProbe describes the probe that keeps the set of a volume from all volumes of its server: one that runs, or one that was refused.
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

// addProbes tells of a profile's sets of options which are being probed, and which no volume gets since a probe has failed.
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
