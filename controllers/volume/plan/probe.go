package plan

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume/judge"
	"github.com/storageclient/operator/controllers/volume/optionset"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/text"
)

// ProbeKey identifies the subject of one probe: an option set on a server.
type ProbeKey struct {
	Set, Server string
}

// AnySet is the key of the result of all sets without another one.
var AnySet = ProbeKey{}

// Probe is the result for an option set on a server.
type Probe struct {
	// Verdict is ProbeWorked, ProbeRefused or ProbeInconclusive.
	Verdict optionset.Kind
	// Text describes the observation, or the reason why there is none. Node is the node of a mount that worked.
	Text, Node string
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
	if !slices.ContainsFunc(s.Profiles.All(), (*judge.Profile).Probes) {
		return nil
	}
	s.Probes = nil
	p, found := newPlanner(s), map[ProbeKey]ProbeCandidate{}
	for _, j := range p.volumes {
		key := keyOf(j)
		if !p.isProbed(j) {
			continue
		}
		c := ProbeCandidate{ProbeKey: key, Volume: j.Volume, Target: judge.ProbeTargetOf(j.Volume, j.verdict.Options), Profiles: j.verdict.Profiles}
		previous, known := found[key]
		if !known || compareCandidates(c, previous) < 0 {
			found[key] = c
		}
	}
	return slices.SortedFunc(maps.Values(found), func(a, b ProbeCandidate) int {
		return cmp.Or(strings.Compare(a.Set, b.Set), strings.Compare(a.Server, b.Server))
	})
}

func compareCandidates(a, b ProbeCandidate) int {
	obstacles := func(c ProbeCandidate) int { return min(len(c.Target.Obstacle), 1) }
	return cmp.Or(cmp.Compare(obstacles(a), obstacles(b)), strings.Compare(a.Volume.Name, b.Volume.Name))
}

func keyOf(j evaluation) ProbeKey { return ProbeKey{Set: j.verdict.Set, Server: j.Source.Server} }

// triedKeys returns the option sets that a volume of the server has: it is too late to probe them.
func triedKeys(all []evaluation) map[ProbeKey]bool {
	tried := lists.Filter(all, func(j evaluation) bool { return j.Mark != nil && j.carriesSet() })
	return lists.Map(tried, func(j evaluation) (ProbeKey, bool) { return keyOf(j), true })
}

// mayProbe reports whether the volume's options could be probed before they are written: they change, no volume of the server has them yet,
// and a file server provides the volume.
func (p *planner) mayProbe(j evaluation) bool {
	return j.verdict.ChangesOptions(j.Volume) && !p.tried[keyOf(j)] && j.Source.Protocol != v1alpha1.ProtocolBlock
}

func allowProbe(profiles *judge.Profiles, v *judge.Verdict) bool {
	return !slices.ContainsFunc(v.Profiles, func(name string) bool {
		profile := profiles.Get(name)
		return profile == nil || !profile.Probes()
	})
}

// MayProbeNew reports whether a probe of a new volume's options is possible. The volume is then no canary.
func MayProbeNew(profiles *judge.Profiles, pv *corev1.PersistentVolume, v judge.Verdict) bool {
	return allowProbe(profiles, &v) && judge.ProbeTargetOf(pv, v.Options).Obstacle == ""
}

// isProbed reports whether the volume must wait for a probe.
func (p *planner) isProbed(j evaluation) bool {
	_, worked := p.sets.declared(j).Worked[j.Source.Server]
	return !worked && p.mayProbe(j) && allowProbe(p.Profiles, j.verdict)
}

func (p *planner) observeProbes() {
	seen := map[ProbeKey]bool{}
	for _, j := range p.volumes {
		key, isWanted := keyOf(j), allowProbe(p.Profiles, j.verdict)
		if seen[key] || isWanted && !p.mayProbe(j) {
			continue
		}
		seen[key] = true
		probe, known := p.probeOf(key)
		e := optionset.Event{
			Kind: optionset.ProbeInconclusive, Server: key.Server, At: p.second(),
			Blame: optionset.Blame{Volume: j.Volume.Name, Options: j.verdict.Options, Text: probe.Text},
		}
		switch {
		case !isWanted:
			// A record of the previous release concerns all sets of the same rules, and is imported in every pass.
			e.Kind = optionset.ProbeUnwanted
			for _, r := range []*optionset.Record{p.sets[key.Set], p.sets[j.verdict.RuleSet]} {
				if r != nil {
					r.Next(e)
				}
			}
			continue
		case p.Probes == nil:
			continue
		case !known:
			e.Kind = optionset.ProbeOrdered
		default:
			e.Kind = probe.Verdict
		}
		p.sets.declared(j).Next(e)
	}
}

func (p *planner) probeOf(key ProbeKey) (probe Probe, known bool) {
	if probe, known = p.Probes[key]; !known {
		probe, known = p.Probes[AnySet]
	}
	return probe, known
}

// waitsForProbe returns the reason why a probe delays the volume's options. Empty if there is none.
func (p *planner) waitsForProbe(j evaluation) string {
	key, isProbed := keyOf(j), p.Probes != nil && p.isProbed(j)
	if isProbed {
		p.planAgain(p.Now.Add(observeInterval))
	}
	switch probing, rejection := p.describeProbe(j); {
	case rejection != "":
		return "These options are stopped: " + rejection
	case probing != "":
		return probing
	}
	if probe, _ := p.probeOf(key); isProbed && probe.Verdict == optionset.ProbeInconclusive {
		note := p.plan.Notes[j.Volume.Name]
		note.Message += "; not probed: " + probe.Text
		p.plan.Notes[j.Volume.Name] = note
	}
	return ""
}

// describeProbe describes the probe that withholds the set from all volumes of the volume's server. It still runs, or it was rejected.
func (p *planner) describeProbe(j evaluation) (probing, rejection string) {
	r, server := p.sets[j.verdict.Set], j.Source.Server
	if r.State(server) == optionset.Probing {
		return "Waiting for a probe of these options: an isolated mount from server " + server, ""
	}
	if r != nil {
		if b, found := r.Rejected[server]; found {
			rejection = cmp.Or(b.Text, "a probe could not mount them from "+server)
		}
	}
	return "", rejection
}

// addProbes adds a profile's option sets that wait for a probe, and the sets that no volume gets because a probe failed.
func (s *Summary) addProbes(p *planner, volumes []*evaluation, name string) {
	seen := map[ProbeKey]bool{}
	var stopped, waiting, unprobed []string
	for _, j := range volumes {
		if seen[keyOf(*j)] || !slices.Contains(j.verdict.Profiles, name) || !j.verdict.ChangesOptions(j.Volume) {
			continue
		}
		seen[keyOf(*j)] = true
		switch probing, rejection := p.describeProbe(*j); {
		case rejection != "":
			stopped = append(stopped, rejection)
		case probing != "":
			waiting = append(waiting, probing)
		default:
			if probe, _ := p.probeOf(keyOf(*j)); probe.Verdict == optionset.ProbeInconclusive && allowProbe(p.Profiles, j.verdict) && !p.sets.isProven(*j) {
				unprobed = append(unprobed, "not probed from server "+j.Source.Server+": "+probe.Text)
			}
		}
	}
	s.Stopped = text.Combine("; ", s.Stopped, text.Join(stopped, "; "))
	s.Batch = text.Combine("; ", s.Batch, text.Join(waiting, "; "))
	s.Unprobed = text.Join(unprobed, "; ")
}
