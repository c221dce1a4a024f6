package plan

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/text"
)

const (
	// maxSamples is how many nodes count at a time, for all trials.
	maxSamples = 32
	// sampleGrace is how long a node that is asked may take to begin, and how long a trial that has an answer waits for a node to ask.
	sampleGrace = 3 * time.Minute
	// late is how much longer than told an agent may take, by clocks that differ.
	late = time.Minute
	// maxSampleBytes bounds what a trial's status holds of counters, as JSON.
	maxSampleBytes   = 256 << 10
	maxSampleMessage = 1024
)

// observes says whether the trial mounts nothing, and has nodes count what the mounts do that there are.
func (t Trial) observes() bool { return t.Spec.Workload.Name == v1alpha1.WorkloadObserve }

// sampleID names the trial in spec.sample: it asks a node once.
func (t Trial) sampleID() string { return string(t.UID) }

func (t Trial) window() time.Duration { return time.Duration(t.Spec.Window()) * time.Second }

// countSample counts the nodes that have yet to answer.
func (p *planner) countSample(n Node) {
	if n.ClientNode == nil || n.ClientNode.Spec.Sample == nil {
		return
	}
	asked, answer := n.ClientNode.Spec.Sample, n.ClientNode.Status.Sample
	if answer == nil || answer.ID != asked.ID || answer.Phase == v1alpha1.SampleRunning {
		p.sampling++
	}
}

// takeBackSamples makes room on nodes that are asked what nobody waits for any more.
func (p *planner) takeBackSamples() {
	for _, n := range p.Nodes {
		if n.ClientNode != nil && n.ClientNode.Spec.Sample != nil && n.Writable && !p.wanted[n.Node.Name] {
			p.steps = append(p.steps, SetSample{Node: n})
		}
	}
}

// observe brings a trial that mounts nothing to its end.
func (p *planner) observe(t Trial) {
	switch {
	case t.isOver():
	case t.Impossible != "":
		p.fail(t, v1alpha1.TrialReasonNotPossible, t.Impossible)
	case t.Lacks != "" && t.isTimedOut(p.Now):
		p.fail(t, v1alpha1.TrialReasonTimedOut, fmt.Sprintf("after %d s, %s", t.Spec.Timeout(), t.Lacks))
	case t.Lacks != "":
		p.tell(t, v1alpha1.TrialReasonWaiting, "Waits: "+t.Lacks)
	case len(t.Status.Samples) == 0:
		p.chooseNodes(t)
	default:
		p.gather(t)
	}
}

// chooseNodes takes nodes that have the volume mounted, those that can be asked at once before others.
func (p *planner) chooseNodes(t Trial) {
	having := slices.DeleteFunc(slices.Clone(p.Nodes), func(n Node) bool {
		return n.ClientNode == nil || !hasMounted(n, t.Volume) || !t.selects(n)
	})
	if len(having) == 0 {
		p.fail(t, v1alpha1.TrialReasonNotPossible, t.nowhere())
		return
	}
	slices.SortStableFunc(having, func(a, b Node) int { return cmp.Compare(rank(a), rank(b)) })
	asked := having[:min(len(having), v1alpha1.MaxTrialSamples)]
	status := t.Status.DeepCopy()
	status.Volume, status.NodesOmitted = t.Volume, int32(len(having)-len(asked))
	for _, n := range asked {
		status.Samples = append(status.Samples, v1alpha1.TrialSample{Node: n.Node.Name})
	}
	slices.SortFunc(status.Samples, func(a, b v1alpha1.TrialSample) int { return strings.Compare(a.Node, b.Node) })
	p.goOn(t, status, v1alpha1.TrialReasonWaiting, "Asks "+text.List(nodesOf(status.Samples)))
}

// rank puts nodes that may be written before others.
func rank(n Node) int {
	if n.Writable {
		return 0
	}
	return 1
}

func (t Trial) nowhere() string {
	selected := ""
	if len(t.Spec.NodeSelector) > 0 {
		selected = " and that nodeSelector selects"
	}
	return fmt.Sprintf("no node that has an agent%s has volume %s mounted: start a pod that uses it, and let it work. Agents tell of NFS, SMB and XFS", selected, t.Volume)
}

// hasMounted says whether the node reports a mount of the volume: nobody asks other nodes of it.
func hasMounted(n Node, volume string) bool {
	return slices.ContainsFunc(n.ClientNode.Status.Mounts, func(m v1alpha1.MountStatus) bool { return m.Volume == volume })
}

func nodesOf(samples []v1alpha1.TrialSample) []string {
	names := make([]string, 0, len(samples))
	for _, s := range samples {
		names = append(names, s.Node)
	}
	return names
}

// isSettled reports whether nothing more is to come from a node. A manager of a release before the phase left it out.
func isSettled(s v1alpha1.TrialSample) bool {
	return s.Phase != "" || s.Message != "" || len(s.Mounts) > 0
}

// failSample records why there will be no sample of a node.
func failSample(s *v1alpha1.TrialSample, message string) {
	s.Phase, s.Message = v1alpha1.SampleFailed, message
}

// isCounted says whether there is something to judge.
func isCounted(s v1alpha1.TrialSample) bool { return len(s.Mounts) > 0 }

// progress is how far the nodes of a trial are that are not settled.
type progress struct {
	// counting have begun, and end at until; silent are asked and have not.
	counting, silent []string
	until            time.Time
	// waiting are those that are not asked yet, why says of each what for.
	waiting []string
	why     map[string]string
}

// gather keeps what nodes have answered, asks those that can be asked, and ends the trial once nothing more is to come.
func (p *planner) gather(t Trial) {
	status := t.Status.DeepCopy()
	now := progress{why: map[string]string{}}
	for i := range status.Samples {
		if !isSettled(status.Samples[i]) {
			p.followSample(t, &status.Samples[i], &now)
		}
	}
	counted := slices.ContainsFunc(status.Samples, isCounted)
	started := len(now.counting)+len(now.silent) > 0
	timedOut := t.isTimedOut(p.Now)
	switch {
	case !timedOut && (started || len(now.waiting) > 0 && !(counted && p.Now.After(t.Status.StartTime.Add(sampleGrace)))):
		reason := v1alpha1.TrialReasonWaiting
		if started {
			reason = v1alpha1.TrialReasonRunning
		}
		p.goOn(t, status, reason, now.text(status.Samples))
		return
	case counted:
		giveUp(status.Samples, now)
		p.recommend(t, status)
	default:
		giveUp(status.Samples, now)
		p.end(t, status, v1alpha1.TrialReasonTimedOut, "no node has told what its mounts do: "+reasonsOf(status.Samples), true)
	}
}

// followSample takes a node's answer, or says how far it is.
func (p *planner) followSample(t Trial, s *v1alpha1.TrialSample, now *progress) {
	i := slices.IndexFunc(p.Nodes, func(n Node) bool { return n.Node.Name == s.Node })
	if i < 0 || p.Nodes[i].ClientNode == nil {
		failSample(s, "it is gone, or has no agent any more")
		return
	}
	n := p.Nodes[i]
	asked, answer := n.ClientNode.Spec.Sample, n.ClientNode.Status.Sample
	if asked == nil || asked.ID != t.sampleID() {
		p.ask(t, n, s, now)
		return
	}
	// What it is asked stays until its answer is kept: agents drop it with the request.
	p.wanted[s.Node] = true
	begins := asked.StartBefore.Add(late)
	switch {
	case answer == nil || answer.ID != asked.ID:
		if p.Now.After(begins) {
			failSample(s, "its agent has not begun in time: it is silent, or older than the manager")
			return
		}
		now.silent = append(now.silent, s.Node)
	case answer.Phase == v1alpha1.SampleRunning:
		if p.Now.After(begins.Add(t.window())) {
			failSample(s, "its agent has not ended in time")
			return
		}
		now.counting = append(now.counting, s.Node)
		if start := answer.StartTime; start != nil && start.Add(t.window()).After(now.until) {
			now.until = start.Add(t.window())
		}
	default:
		t.takeAnswer(s, answer)
	}
}

// takeAnswer keeps what an agent has counted of the trial's volume, as far as there is room, or why it has not.
func (t Trial) takeAnswer(s *v1alpha1.TrialSample, answer *v1alpha1.NodeSampleStatus) {
	if answer.Phase == v1alpha1.SampleFailed {
		failSample(s, text.CutBytes(cmp.Or(text.Line(answer.Message), "its agent gives no reason"), maxSampleMessage))
		return
	}
	s.Phase, s.Milliseconds, s.MountsOmitted = v1alpha1.SampleFinished, answer.Milliseconds, answer.MountsOmitted
	room := maxSampleBytes / len(t.Status.Samples)
	for _, m := range answer.Mounts {
		if m.Volume != t.Volume {
			continue
		}
		data, err := json.Marshal(m)
		if room -= len(data); err != nil || room < 0 {
			s.MountsOmitted++
			continue
		}
		s.Mounts = append(s.Mounts, m)
	}
	if len(s.Mounts) == 0 {
		failSample(s, "its mount came or went within the window")
	}
}

// ask asks a node, where it is free and there is time.
func (p *planner) ask(t Trial, n Node, s *v1alpha1.TrialSample, now *progress) {
	startBefore := p.Now.Add(sampleGrace)
	if last := t.Status.StartTime.Add(time.Duration(t.Spec.Timeout())*time.Second - t.window()); last.Before(startBefore) {
		startBefore = last
	}
	var why string
	switch {
	case !hasMounted(n, t.Volume):
		failSample(s, "it does not have the volume mounted any more")
		return
	case !p.Now.Before(startBefore):
		why = "there is no time left for a window"
	case !n.Writable:
		why = "its agent is not Ready, it is ignored, or the rollout has it"
	case p.wanted[n.Node.Name] || n.ClientNode.Spec.Sample != nil:
		why = "it counts for another trial"
	case p.sampling >= maxSamples:
		why = fmt.Sprintf("%d nodes count already", maxSamples)
	case slices.ContainsFunc(p.steps, func(step Step) bool { return step.NodeName() == s.Node }):
		why = "it is being written"
	default:
		p.sampling++
		p.wanted[s.Node] = true
		p.steps = append(p.steps, SetSample{Node: n, Sample: &v1alpha1.NodeSample{
			ID: t.sampleID(), Seconds: t.Spec.Window(), Volumes: []string{t.Volume}, StartBefore: ptr.To(metav1.NewTime(startBefore.Truncate(time.Second))),
		}})
		now.silent = append(now.silent, s.Node)
		return
	}
	now.waiting, now.why[s.Node] = append(now.waiting, s.Node), why
}

// giveUp says of each node that is not settled why it is not waited for.
func giveUp(samples []v1alpha1.TrialSample, now progress) {
	for i := range samples {
		if !isSettled(samples[i]) {
			failSample(&samples[i], cmp.Or(now.why[samples[i].Node], "it has not answered in time"))
		}
	}
}

// text says how far it is, the same until something happens.
func (now progress) text(samples []v1alpha1.TrialSample) string {
	var parts []string
	counted := 0
	for _, s := range samples {
		if isCounted(s) {
			counted++
		}
	}
	if counted > 0 {
		parts = append(parts, fmt.Sprintf("%d of %s answered", counted, text.Count(len(samples), "node")))
	}
	if len(now.counting) > 0 {
		parts = append(parts, "Counting on "+text.List(now.counting)+now.untilText())
	}
	if len(now.silent) > 0 {
		parts = append(parts, "Waiting for the agent of "+text.List(now.silent))
	}
	if len(now.waiting) > 0 {
		parts = append(parts, fmt.Sprintf("Waiting for %s: %s", text.List(now.waiting), now.why[now.waiting[0]]))
	}
	return strings.Join(parts, ". ")
}

func (now progress) untilText() string {
	if now.until.IsZero() {
		return ""
	}
	return ", until about " + now.until.UTC().Format(time.TimeOnly) + " UTC"
}

func reasonsOf(samples []v1alpha1.TrialSample) string {
	var reasons []string
	for _, s := range samples {
		reasons = append(reasons, s.Node+": "+s.Message)
	}
	return text.List(reasons)
}
