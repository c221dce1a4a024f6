package plan

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/clocktime"
	"github.com/storageclient/operator/controllers/overview"
	"github.com/storageclient/operator/controllers/volume/optionset"
	volumeplan "github.com/storageclient/operator/controllers/volume/plan"
	"github.com/storageclient/operator/tuning/advice"
	"github.com/storageclient/operator/tuning/drivers"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/mountfailures"
	"github.com/storageclient/operator/tuning/recommend"
	"github.com/storageclient/operator/tuning/text"
)

const (
	// maxSamples is the maximum number of nodes with a sample at a time, for all trials.
	maxSamples = 32
	// sampleGrace is the maximum time from a request to the start of a sample, and the time that a trial with a result waits for other nodes.
	sampleGrace = 3 * time.Minute
	// clockTolerance is the tolerance for an agent's deadlines.
	clockTolerance = time.Minute
	// maxNamespaceSamples is the maximum number of nodes with a sample at a time for a namespace, if trials of other namespaces observe too.
	maxNamespaceSamples = maxSamples / 2
	// maxSampleBytes is the maximum size of counters in a trial's status, as JSON.
	maxSampleBytes   = 256 << 10
	maxSampleMessage = 1024
)

// observes reports whether the trial makes no mounts, and nodes count the operations of existing mounts.
func (t Trial) observes() bool { return t.Spec.Workload.Name == v1alpha1.WorkloadObserve }

// sampleID returns the ID of the trial in spec.sample. A node gets one request per trial.
func (t Trial) sampleID() string { return string(t.UID) }

func (t Trial) window() time.Duration { return time.Duration(t.Spec.Window()) * time.Second }

// countSample counts a request in progress. The request of a node that died counts only until its own end, or it would stop all trials.
func (p *planner) countSample(n Node) {
	if n.ClientNode == nil || n.ClientNode.Spec.Sample == nil {
		return
	}
	request, answer := n.ClientNode.Spec.Sample, n.ClientNode.Status.Sample
	end := n.startDeadline(p.Now)
	isAnswered := answer != nil && answer.ID == request.ID
	if isAnswered {
		end = end.Add(time.Duration(request.Seconds) * time.Second)
	}
	if !p.Now.After(end) && (!isAnswered || answer.Phase == v1alpha1.SampleRunning) {
		p.sampling++
		if t, isKnown := p.byTrial[text.Hash(request.ID, 8)]; isKnown {
			p.samples[t.queueName()]++
		}
	}
}

// startDeadline returns the time at which the node's request is lost if it has not started. The tolerance is for differences between clocks. A clock
// that was ahead when the request was made left a time that no node reaches: such a request is lost once the node is not writable.
func (n Node) startDeadline(now time.Time) time.Time {
	startBefore := ptr.Deref(n.ClientNode.Spec.Sample.StartBefore, metav1.Time{})
	if clocktime.IsAhead(startBefore.Time, now.Add(sampleGrace)) && !n.Writable {
		return time.Time{}
	}
	return startBefore.Add(clockTolerance)
}

// clearSamples removes requests that no trial needs any longer.
func (p *planner) clearSamples() {
	for _, n := range p.Nodes {
		if n.ClientNode != nil && n.ClientNode.Spec.Sample != nil && n.Writable && !p.awaitedSamples[n.Node.Name] {
			p.steps = append(p.steps, SetSample{Node: n})
		}
	}
}

func (p *planner) observe(t Trial) {
	switch {
	case t.isOver():
	case t.Excess:
		p.reportExcess(t)
	case t.Impossible != "":
		p.fail(t, v1alpha1.TrialReasonNotPossible, t.Impossible)
	case t.Missing != "" && t.isTimedOut(p.Now):
		p.fail(t, v1alpha1.TrialReasonTimedOut, fmt.Sprintf("After %d s, %s", t.Spec.Timeout(), t.Missing))
	case t.Missing != "":
		p.report(t, v1alpha1.TrialReasonWaiting, "Waiting: "+t.Missing)
	case len(t.Status.Samples) == 0:
		p.chooseNodes(t)
	default:
		p.gather(t)
	}
}

// chooseNodes selects nodes that have the volume mounted. Writable nodes come first.
func (p *planner) chooseNodes(t Trial) {
	candidates := slices.DeleteFunc(slices.Clone(p.Nodes), func(n Node) bool {
		return n.ClientNode == nil || !hasMounted(n, t.Volume) || !t.selects(n)
	})
	if len(candidates) == 0 {
		p.fail(t, v1alpha1.TrialReasonNotPossible, t.describeNoNode())
		return
	}
	writable := func(n Node) bool { return n.Writable }
	candidates = slices.Concat(lists.Filter(candidates, writable), slices.DeleteFunc(slices.Clone(candidates), writable))
	sampledNodes := candidates[:min(len(candidates), v1alpha1.MaxTrialSamples)]
	status := t.Status.DeepCopy()
	status.Volume, status.NodesOmitted = t.Volume, int32(len(candidates)-len(sampledNodes))
	for _, n := range sampledNodes {
		status.Samples = append(status.Samples, v1alpha1.TrialSample{Node: n.Node.Name})
	}
	slices.SortFunc(status.Samples, func(a, b v1alpha1.TrialSample) int { return strings.Compare(a.Node, b.Node) })
	p.reportStatus(t, status, v1alpha1.TrialReasonWaiting, "Requesting samples from "+text.List(nodesOf(status.Samples)))
}

func (t Trial) describeNoNode() string {
	selected := ""
	if len(t.Spec.NodeSelector) > 0 {
		selected = " and that nodeSelector selects"
	}
	return fmt.Sprintf("No node that has an agent%s has volume %s mounted; start a pod that uses the volume and keep it busy "+
		"(agents report NFS, SMB and XFS)", selected, t.Volume)
}

// hasMounted reports whether the node has reported a mount of the volume. Other nodes get no request.
func hasMounted(n Node, volume string) bool {
	return slices.ContainsFunc(n.ClientNode.Status.Mounts, func(m v1alpha1.MountStatus) bool { return m.Volume == volume })
}

func nodesOf(samples []v1alpha1.TrialSample) []string {
	return lists.Each(samples, func(s v1alpha1.TrialSample) string { return s.Node })
}

func failSample(s *v1alpha1.TrialSample, message string) {
	s.Phase, s.Message = v1alpha1.SampleFailed, message
}

func isCounted(s v1alpha1.TrialSample) bool { return len(s.Mounts) > 0 }

// progress is the progress of the unsettled nodes of a trial.
type progress struct {
	// counting are the nodes with a sample in progress, which ends at end. silent are requested nodes that have not started.
	counting, silent []string
	end              time.Time
	// waiting are the nodes without a request, reasons are the reasons by node.
	waiting []string
	reasons map[string]string
	// isQueued is true if the trial waits for another one.
	isQueued bool
}

// gather records the results of nodes, sends requests to free nodes, and ends the trial when all nodes are settled.
func (p *planner) gather(t Trial) {
	status := t.Status.DeepCopy()
	pending := progress{reasons: map[string]string{}}
	for i := range status.Samples {
		if status.Samples[i].Phase == "" {
			p.followSample(t, &status.Samples[i], &pending)
		}
	}
	counted := slices.ContainsFunc(status.Samples, isCounted)
	started := len(pending.counting)+len(pending.silent) > 0
	timedOut := t.isTimedOut(p.Now)
	if !timedOut && (started || len(pending.waiting) > 0 && !(counted && p.Now.After(t.Status.StartTime.Add(sampleGrace)))) {
		if !started && pending.isQueued && !counted {
			p.await(t, status, pending.text(status.Samples))
			return
		}
		reason := v1alpha1.TrialReasonWaiting
		if started {
			reason = v1alpha1.TrialReasonRunning
		}
		p.reportStatus(t, status, reason, pending.text(status.Samples))
		return
	}
	for i := range status.Samples {
		if s := &status.Samples[i]; s.Phase == "" {
			failSample(s, cmp.Or(pending.reasons[s.Node], "it did not respond in time"))
		}
	}
	if counted {
		p.recommend(t, status)
		return
	}
	reasons := lists.Each(status.Samples, func(s v1alpha1.TrialSample) string { return s.Node + ": " + s.Message })
	p.end(t, status, v1alpha1.TrialReasonTimedOut, "No node returned a sample: "+text.List(reasons), true)
}

// followSample records the result of a node, or its progress.
func (p *planner) followSample(t Trial, s *v1alpha1.TrialSample, pending *progress) {
	n := p.nodeNamed(s.Node)
	if n.ClientNode == nil {
		failSample(s, "it is gone or no longer has an agent")
		return
	}
	request, answer := n.ClientNode.Spec.Sample, n.ClientNode.Status.Sample
	if request == nil || request.ID != t.sampleID() {
		p.requestSample(t, n, s, pending)
		return
	}
	// The request stays until its result is recorded: agents drop the result together with the request.
	p.awaitedSamples[s.Node] = true
	startDeadline := n.startDeadline(p.Now)
	switch {
	case answer == nil || answer.ID != request.ID:
		if p.Now.After(startDeadline) {
			failSample(s, "its agent did not start in time: it is silent")
			return
		}
		pending.silent = append(pending.silent, s.Node)
	case answer.Phase == v1alpha1.SampleRunning:
		if p.Now.After(startDeadline.Add(t.window())) {
			failSample(s, "its agent did not finish in time")
			return
		}
		pending.counting = append(pending.counting, s.Node)
		if start := answer.StartTime; start != nil && start.Add(t.window()).After(pending.end) {
			pending.end = start.Add(t.window())
		}
	default:
		t.recordSample(s, answer)
	}
}

// recordSample records the counters of the trial's volume from an agent, up to the size limit, or the reason for a failure.
func (t Trial) recordSample(s *v1alpha1.TrialSample, answer *v1alpha1.NodeSampleStatus) {
	if answer.Phase == v1alpha1.SampleFailed {
		failSample(s, text.CutBytes(cmp.Or(text.Line(answer.Message), "its agent gives no reason"), maxSampleMessage))
		return
	}
	s.Phase, s.Milliseconds, s.MountsOmitted = v1alpha1.SampleFinished, answer.Milliseconds, answer.MountsOmitted
	remaining := maxSampleBytes / len(t.Status.Samples)
	for _, m := range answer.Mounts {
		if m.Volume != t.Volume {
			continue
		}
		data, err := json.Marshal(m)
		if remaining -= len(data); err != nil || remaining < 0 {
			s.MountsOmitted++
			continue
		}
		s.Mounts = append(s.Mounts, m)
	}
	if len(s.Mounts) == 0 {
		failSample(s, "its mount appeared or disappeared within the window")
	}
}

// requestSample sends a request to a node if it is free and enough time is left.
func (p *planner) requestSample(t Trial, n Node, s *v1alpha1.TrialSample, pending *progress) {
	startBefore := p.Now.Add(sampleGrace)
	if last := t.deadline(p.Now).Add(-t.window()); last.Before(startBefore) {
		startBefore = last
	}
	var reason string
	switch {
	case !hasMounted(n, t.Volume):
		failSample(s, "it no longer has the volume mounted")
		return
	case !p.Now.Before(startBefore):
		reason = "too little time is left for a window"
	case !n.Writable:
		reason = "its agent is not Ready, it is ignored, or the rollout disrupts it"
	case p.awaitedSamples[n.Node.Name] || n.ClientNode.Spec.Sample != nil:
		reason, pending.isQueued = "it is counting for another trial", true
	case p.sampling >= maxSamples:
		reason, pending.isQueued = fmt.Sprintf("%d nodes are already counting", maxSamples), true
	case p.samples[t.queueName()] >= maxNamespaceSamples && len(p.observers) > 1:
		reason, pending.isQueued = fmt.Sprintf("%d nodes are already counting for namespace %s", maxNamespaceSamples, t.Namespace), true
	case slices.ContainsFunc(p.steps, func(step Step) bool { return step.Subject() == s.Node }):
		reason = "its StorageClientNode is being written"
	default:
		p.sampling++
		p.samples[t.queueName()]++
		p.memory.Turns[t.queueName()] = p.Now
		p.awaitedSamples[s.Node] = true
		p.steps = append(p.steps, SetSample{Node: n, Sample: &v1alpha1.NodeSample{
			ID: t.sampleID(), Seconds: t.Spec.Window(), Volumes: []string{t.Volume}, StartBefore: ptr.To(metav1.NewTime(startBefore.Truncate(time.Second))),
		}})
		pending.silent = append(pending.silent, s.Node)
		return
	}
	pending.waiting, pending.reasons[s.Node] = append(pending.waiting, s.Node), reason
}

// text describes the progress. It stays the same until the progress changes.
func (pending progress) text(samples []v1alpha1.TrialSample) string {
	var parts []string
	if counted := len(lists.Filter(samples, isCounted)); counted > 0 {
		parts = append(parts, fmt.Sprintf("%d of %s responded", counted, text.Count(len(samples), "node")))
	}
	if len(pending.counting) > 0 {
		end := ""
		if !pending.end.IsZero() {
			end = ", until about " + pending.end.UTC().Format(time.TimeOnly) + " UTC"
		}
		parts = append(parts, "Counting on "+text.List(pending.counting)+end)
	}
	parts = append(parts, text.Labelled("Waiting for the agent of ", text.List(pending.silent)))
	if len(pending.waiting) > 0 {
		parts = append(parts, fmt.Sprintf("Waiting for %s: %s", text.List(pending.waiting), pending.reasons[pending.waiting[0]]))
	}
	return text.Combine(". ", parts...)
}

const (
	maxRecommendations = 32
	maxSeen            = 1024
	maxOptions         = 16
	maxOption          = 128
)

// recommend sets the recommendations, based on the counters of nodes.
func (p *planner) recommend(t Trial, status *v1alpha1.StorageClientTrialStatus) {
	clientNodes := lists.Map(p.Nodes, func(n Node) (string, *v1alpha1.StorageClientNode) { return n.Node.Name, n.ClientNode })
	nodes := overview.AdviceAbout(nil, lists.Each(p.Nodes, func(n Node) *corev1.Node { return n.Node }), clientNodes, nil, nil).Nodes
	mounts, err := MountsOf(status.Samples, nodes, t.Source)
	if err != nil {
		p.end(t, status, v1alpha1.TrialReasonVoid, "The counters of the nodes cannot be read: "+err.Error(), true)
		return
	}
	status.Recommendations = recommendationsOf(mounts)
	p.end(t, status, v1alpha1.TrialReasonDecided, conclusionOf(mounts, status.Recommendations), false)
}

// MountsOf evaluates the counters of nodes. nodes and volume are the known facts about the nodes and the storage.
func MountsOf(samples []v1alpha1.TrialSample, nodes []advice.Node, volume drivers.Source) ([]recommend.Mount, error) {
	var mounts []recommend.Mount
	byName := lists.Map(nodes, func(n advice.Node) (string, advice.Node) { return n.Name, n })
	for _, s := range samples {
		counted, err := recommend.FromAPI(s.Mounts, s.Milliseconds)
		if err != nil {
			return nil, fmt.Errorf("node %s: %w", s.Node, err)
		}
		node := byName[s.Node]
		node.Name = s.Node
		mounts = append(mounts, recommend.EvaluateNode(node, volume, counted)...)
	}
	return mounts, nil
}

// recommendationsOf converts findings to the API, one per rule. Without findings, it returns the reason as the only recommendation.
func recommendationsOf(mounts []recommend.Mount) []v1alpha1.TrialRecommendation {
	groups := recommend.ByRule(mounts)
	if len(groups) == 0 {
		nodes := sets.New(lists.Each(mounts, func(m recommend.Mount) string { return m.Node })...)
		return []v1alpha1.TrialRecommendation{{Text: recommend.Conclude(mounts).Text(), Nodes: int32(nodes.Len())}}
	}
	var recommendations []v1alpha1.TrialRecommendation
	for _, g := range groups[:min(len(groups), maxRecommendations)] {
		i := max(0, slices.IndexFunc(g.Findings, func(f recommend.Finding) bool { return f.ByHand }))
		first := g.Findings[i]
		r := v1alpha1.TrialRecommendation{
			Rule: g.Rule.ID, Cause: v1alpha1.TrialCause(g.Rule.Cause), Text: text.CutBytes(g.Nodes[i]+": "+first.Seen, maxSeen), ByHand: first.ByHand,
			Effect: text.CutBytes(first.Effect, maxNote), Against: text.CutBytes(first.Against, maxNote),
			Source: text.CutBytes(g.Rule.Source, maxNote), Nodes: int32(sets.New(g.Nodes...).Len()),
		}
		options := recommend.ListTexts(g.Findings)
		r.Options = lists.Each(options[:min(len(options), maxOptions)], func(option string) string { return text.CutBytes(option, maxOption) })
		recommendations = append(recommendations, r)
	}
	return recommendations
}

func conclusionOf(mounts []recommend.Mount, recommendations []v1alpha1.TrialRecommendation) string {
	outcome := recommend.Conclude(mounts)
	switch outcome {
	case recommend.Helps:
	case recommend.HelpsNot:
		return fmt.Sprintf("No client setting will help (%s): %s", recommendations[0].Rule, recommendations[0].Effect)
	default:
		return outcome.Text()
	}
	helps := lists.Pick(recommendations, func(r v1alpha1.TrialRecommendation) (string, bool) {
		return fmt.Sprintf("%s (%s)", strings.Join(r.Options, ", "), r.Rule), r.Cause == v1alpha1.TrialCause(recommend.CauseClient) && !r.ByHand
	})
	return strings.TrimSuffix(outcome.Text(), ".") + ": " + text.List(helps)
}

// EvaluateProbe returns the result of a mount on a node; subject describes the mount. A failure counts against the options in two cases. The
// kernel or the server rejects the options, and does not reject the original ones in the same way. Or the cause is unknown, and the same mount
// with the original options works. All other failures have no result: the server may be unavailable, or reject the pod network.
func EvaluateProbe(node, subject string, status v1alpha1.NodeTrialStatus) volumeplan.Probe {
	switch {
	case status.Phase != v1alpha1.TrialFinished:
		return unknown(text.Line(status.Message))
	case status.Succeeded:
		mounted := fmt.Sprintf("a probe on %s has mounted %s", node, subject)
		if status.Transports > 0 {
			mounted += ", over " + text.Count(int(status.Transports), "connection")
		}
		return volumeplan.Probe{Verdict: optionset.ProbeWorked, Text: mounted, Node: node}
	}
	failed := fmt.Sprintf("a probe on %s could not mount %s: %s", node, subject, text.Line(mountfailures.Brief(status.Message)))
	originalMount := status.Own
	switch {
	case status.Cause == v1alpha1.MountFailureOptions && (originalMount == nil || originalMount.Succeeded || !originalMount.SameFailure):
		return volumeplan.Probe{Verdict: optionset.ProbeRefused, Text: failed}
	case status.Cause == v1alpha1.MountFailureUnknown && originalMount != nil && originalMount.Succeeded:
		return volumeplan.Probe{Verdict: optionset.ProbeRefused, Text: failed + "; the original mount options work"}
	case originalMount != nil && !originalMount.Succeeded:
		return unknown(failed + "; the original mount options do not work either")
	}
	return unknown(failed)
}

func describeOrder(order *v1alpha1.NodeTrial) string {
	return fmt.Sprintf("%s:%s with %s", order.Server, order.Path, optionsText(order.MountOptions))
}

func optionsText(options []string) string { return cmp.Or(strings.Join(options, ","), "no options") }
