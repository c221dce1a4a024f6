package agent

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/bootloader/loader"
	"github.com/storageclient/operator/agent/host/journal"
	"github.com/storageclient/operator/agent/localreport"
	"github.com/storageclient/operator/agent/mountwatch"
	"github.com/storageclient/operator/agent/permit"
	"github.com/storageclient/operator/agent/reporter"
	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/answers"
	"github.com/storageclient/operator/tuning/catalogue"
)

// The tested keys: new connections must confirm net, live takes effect at once, and boot requires a boot. Each node also has base.
const (
	ratio = "sysctl/vm.dirty_ratio"
	dhash = "kernelArgument/dhash_entries"
)

var (
	testedKeys   = []string{rmem, ratio, ihash}
	keyNames     = map[string]string{rmem: "net", ratio: "live", ihash: "boot"}
	testedStates = []v1alpha1.SettingState{
		v1alpha1.SettingInSync, v1alpha1.SettingPending, v1alpha1.SettingDrifted, v1alpha1.SettingShadowed,
		v1alpha1.SettingClamped, v1alpha1.SettingUnsupported, v1alpha1.SettingFailed, "Unknown",
	}
	testedEffects = []v1alpha1.SettingEffect{
		v1alpha1.EffectLive, v1alpha1.EffectNextMount, v1alpha1.EffectNewTransport, v1alpha1.EffectReboot, v1alpha1.EffectAction, "",
	}
)

// tested is a setting with a state and an effect.
type tested struct {
	state  v1alpha1.SettingState
	effect v1alpha1.SettingEffect
	key    string
}

func allTested() []tested {
	var out []tested
	for _, state := range testedStates {
		for _, effect := range testedEffects {
			for _, key := range testedKeys {
				out = append(out, tested{state, effect, key})
			}
		}
	}
	return out
}

func (c tested) labels() []string {
	effect := string(c.effect)
	if effect == "" {
		effect = "none"
	}
	return []string{string(c.state), effect, keyNames[c.key]}
}

func (c tested) status() v1alpha1.SettingStatus {
	status := v1alpha1.SettingStatus{Key: c.key, Desired: "1", State: c.state, TakesEffect: c.effect}
	if c.state == v1alpha1.SettingPending && c.effect == v1alpha1.EffectLive {
		// Only a setting that new connections must confirm waits for them.
		status.WaitsFor = v1alpha1.WaitsForModule
		if c.key == rmem {
			status.WaitsFor = v1alpha1.WaitsForConnections
		}
	}
	return status
}

func (c tested) answer() observation {
	_, name := catalogue.Key(c.key).Cut()
	return observation{host.Observation{Name: name, Desired: "1", Observed: "1", State: host.State(c.state), Effect: host.Effect(c.effect)}, true}
}

// TestAnswers pins the reports and decisions of the agent about one setting, for every combination of state and effect.
func TestAnswers(t *testing.T) {
	var out answers.File
	out.Printf("The results of the agent, written by go test ./agent -run TestAnswers -update.\n")
	for _, group := range []struct {
		name string
		outcome
		release bool
	}{
		{"applied", outcome{carriedOut: true}, false}, {"not applied", outcome{}, false},
		{"released", outcome{carriedOut: true}, true}, {"released, and restored", outcome{carriedOut: true, restored: true}, true},
	} {
		out.Printf("\n## Conditions, %s\nColumns: Ready | Stalled.\n", group.name)
		out.Add(conditionRows(group.outcome, group.release))
	}
	out.Printf("\n## A pass\nColumns: report | alone, with a permit | next to a setting that waits for a boot, with a permit | released.\n")
	out.Add(passRows(t))
	out.Printf("\n## Reports of the commands for one machine\n")
	out.Add(reportRows())
	out.Printf("\n## A status that differs from one in which all settings are effective\n")
	out.Add(urgencyRows())
	out.Check(t, "testdata/answers.golden", *updateDocs)
}

func conditionRows(result outcome, release bool) (rows []answers.Row) {
	for _, dropped := range []bool{false, true} {
		for _, c := range allTested() {
			for _, due := range []bool{false, true} {
				base := tested{v1alpha1.SettingInSync, v1alpha1.EffectReboot, dhash}
				spec := v1alpha1.StorageClientNodeSpec{Settings: []v1alpha1.NodeSetting{{Key: dhash}, {Key: c.key}}, Release: release}
				status := v1alpha1.StorageClientNodeStatus{ObservedGeneration: 1, Restored: result.restored, Settings: []v1alpha1.SettingStatus{base.status(), c.status()}}
				labels := slices.Concat([]string{"desired"}, c.labels(), []string{"-"})
				if dropped {
					labels[0], spec.Settings = "dropped", spec.Settings[:1]
				}
				if due {
					labels[4], status.RebootRequired, status.RebootRequiredBy = "due", true, []string{c.key}
				}
				conditions := reporter.Conditions(&spec, &status, result.carriedOut, nil, time.Unix(1000, 0))
				rows = append(rows, answers.Row{Labels: labels, Answer: string(conditions[0].Status) + " " + conditions[0].Reason + " | " + string(conditions[1].Status)})
			}
		}
	}
	return rows
}

// origins are the ways in which a setting comes to its state in a pass. Without an observation, the effect comes from the catalogue.
var origins = []struct {
	name   string
	states []v1alpha1.SettingState
	add    func(p *pass, c tested)
	unseen bool
}{
	{"observed", testedStates, func(p *pass, c tested) {
		p.want(c)
		p.item(c.key).observed = c.answer()
	}, false},
	{"not applied", testedStates, func(p *pass, c tested) {
		p.want(c)
		it := p.item(c.key)
		it.observed, it.failed = c.answer(), "why"
	}, false},
	{"being proven", testedStates, func(p *pass, c tested) {
		p.want(c)
		it := p.item(c.key)
		it.observed, it.unconfirmed = c.answer(), &journal.Entry{Applied: "1"}
	}, false},
	{"rejected by the fence", []v1alpha1.SettingState{v1alpha1.SettingPending, v1alpha1.SettingUnsupported, v1alpha1.SettingFailed}, func(p *pass, c tested) {
		p.want(c)
		it := p.item(c.key)
		it.entry, it.rejection = nil, &rejection{state: c.state, message: "why"}
	}, true},
	{"rejected, former value kept", []v1alpha1.SettingState{v1alpha1.SettingUnsupported, v1alpha1.SettingFailed}, func(p *pass, c tested) {
		p.want(c)
		it := p.item(c.key)
		it.observed, it.rejection = c.answer(), &rejection{state: c.state, message: "why"}
		it.observed.State = host.InSync
	}, false},
	{"not read back", testedStates[:1], func(p *pass, c tested) { p.want(c) }, true},
	{"dropped", testedStates, func(p *pass, c tested) {
		p.drop(c).restored = c.answer()
	}, false},
	{"dropped, not restored", testedStates[:1], func(p *pass, c tested) {
		it := p.drop(c)
		it.restored, it.failed = c.answer(), "why"
	}, false},
	{"dropped, not read back", testedStates[:1], func(p *pass, c tested) { p.drop(c) }, true},
}

func (p *pass) want(c tested) {
	it := p.item(c.key)
	it.desired = &v1alpha1.NodeSetting{Key: c.key, Value: "1", Profile: "p"}
	it.entry = &journal.Entry{Applied: "1"}
}

func (p *pass) drop(c tested) *item {
	it := p.item(c.key)
	it.restore = &host.Original{Present: true, Value: "0"}
	return it
}

func passRows(t *testing.T) (rows []answers.Row) {
	w := newWorld(t)
	for _, origin := range origins {
		for _, c := range allTested() {
			if !slices.Contains(origin.states, c.state) || origin.unseen && c.effect != catalogue.Effect(c.key) {
				continue
			}
			p := w.newPass()
			origin.add(p, c)
			spec := v1alpha1.StorageClientNodeSpec{}
			alone := p.sumUp(spec)
			permitted := w.answerPermit(alone, p)
			reported := "nothing"
			if len(alone.settings) > 0 {
				reported = string(alone.settings[0].State)
				if effect := alone.settings[0].TakesEffect; effect != c.effect {
					reported += " " + string(effect)
				}
			}
			if len(alone.rebootBy) > 0 {
				reported += ", boot required"
			}
			if len(alone.drifted) > 0 {
				reported += ", heals"
			}
			spec.Release = true
			released := "not restored"
			if p.sumUp(spec).restored {
				released = "restored"
			}
			base := tested{v1alpha1.SettingPending, v1alpha1.EffectReboot, dhash}
			p.want(base)
			p.item(dhash).observed = base.answer()
			adjacent := p.sumUp(v1alpha1.StorageClientNodeSpec{})
			answer := strings.Join([]string{reported, permitted, w.answerPermit(adjacent, p), released}, " | ")
			rows = append(rows, answers.Row{Labels: slices.Concat([]string{origin.name}, c.labels()), Answer: answer})
		}
	}
	return rows
}

// newPass returns a pass without observations.
func (w *world) newPass() *pass {
	return &pass{plan: plan{}, machine: Machine{Bootloader: func() loader.Detection { return w.bootloader }}}
}

// answerPermit returns the decision of the agent about a permit after a pass.
func (w *world) answerPermit(out outcome, p *pass) string {
	s := settings{machine: w.host().Machine, outcome: out}
	if err := s.machine.Journal.Load(); err != nil {
		w.t.Fatal(err)
	}
	decision := permit.New(permit.Config{BootID: "boot-1", FindBusy: mountwatch.New(w, nil, w.clock).FindBusy})
	live := &v1alpha1.StorageClientNode{}
	for _, it := range p.filter((*item).isDesired) {
		live.Spec.Settings = append(live.Spec.Settings, *it.desired)
	}
	live.Spec.RebootPermit = &v1alpha1.RebootPermit{ID: "1", BootID: "boot-1"}
	objection, _, _ := strings.Cut(decision.FindObjection(live, s.forPermit()), ":")
	if objection == "" {
		return "reboots"
	}
	return objection
}

func reportRows() (rows []answers.Row) {
	for _, command := range []string{localreport.Plan, localreport.Apply, localreport.Observe, localreport.Restore} {
		for _, image := range []bool{false, true} {
			for _, c := range allTested() {
				r := localreport.Report{Command: command, Image: image, Settings: []localreport.Setting{{SettingStatus: c.status()}}}
				sumUp(&r)
				where := map[bool]string{true: "image", false: "host"}[image]
				answer := map[bool]string{true: "as declared", false: "not as declared"}[r.AsDeclared]
				if r.RebootRequired {
					answer += ", boot required"
				}
				rows = append(rows, answers.Row{Labels: slices.Concat([]string{command, where}, c.labels()), Answer: answer})
			}
		}
	}
	return rows
}

func urgencyRows() (rows []answers.Row) {
	for _, c := range allTested() {
		effective := c
		effective.state = v1alpha1.SettingInSync
		before := v1alpha1.StorageClientNodeStatus{Settings: []v1alpha1.SettingStatus{effective.status()}}
		after := v1alpha1.StorageClientNodeStatus{Settings: []v1alpha1.SettingStatus{c.status()}}
		rows = append(rows, answers.Row{Labels: c.labels(), Answer: map[bool]string{true: "written at once", false: "written in turn"}[reporter.IsUrgent(before, after)]})
	}
	return rows
}
