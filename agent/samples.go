package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/recommend"
	"github.com/storageclient/operator/tuning/text"
)

// Bounds of status.sample. With those of one sample, the first always fits into maxSampleBytes.
const (
	maxSampleBytes       = 64 << 10
	maxSampleMounts      = 32
	maxSampleOptions     = 48
	maxSampleOption      = 64
	maxSampleOperations  = 80
	maxSampleConnections = 16
	maxSampleVolumes     = 8
	// maxSampleFrame is more than all that stands in status.sample beside its mounts.
	maxSampleFrame = 512
)

// sampleReadingLimit is how long the two readings may take beside the window. They run beside the loop, which never waits for them.
const sampleReadingLimit = 30 * time.Second

// sampleState is the one sample that the agent knows of.
type sampleState struct {
	// status is what is reported; nil where nothing is asked.
	status *v1alpha1.NodeSampleStatus
	// volumes are those that are asked for, endsBy is when the sample is given up.
	volumes []string
	endsBy  time.Time
	// cancel ends the window that is under way, and its reading comes over readings; nil where none is. A reading that does not end keeps
	// it: there is never more than one.
	cancel   context.CancelFunc
	readings chan sampleReading
	// start runs something beside the loop.
	start func(func())
}

// sampleReading is what a window has shown.
type sampleReading struct {
	id      string
	took    time.Duration
	samples []recommend.Sample
	err     error
}

func newSampleState() sampleState {
	return sampleState{readings: make(chan sampleReading, 1), start: func(f func()) { go f() }}
}

// sampleSnapshot is all that the next step rests on.
type sampleSnapshot struct {
	// order is what is asked, known what this agent says of it, reported what the API has.
	order           *v1alpha1.NodeSample
	known, reported *v1alpha1.NodeSampleStatus
	// able is whether the machine's counters can be read, reading whether that is under way, endsBy until when it may be.
	able, reading bool
	endsBy        time.Time
	now           time.Time
}

// sampleStep is what to do with the sample.
type sampleStep struct {
	kind sampleStepKind
	// why says it of a sample that fails.
	why string
}

type sampleStepKind int

const (
	// sampleKeep changes nothing.
	sampleKeep sampleStepKind = iota
	// sampleForget ends what is under way, and reports nothing any more.
	sampleForget
	// sampleAdopt reports what an agent before this one has.
	sampleAdopt
	// sampleBegin begins the window.
	sampleBegin
	// sampleFail ends it without a sample.
	sampleFail
)

// planSample decides. A request is answered once: by this agent, or by the one before.
func planSample(s sampleSnapshot) sampleStep {
	switch {
	case s.order == nil:
		return sampleStep{kind: sampleForget}
	case s.known != nil && s.known.ID == s.order.ID:
		if s.known.Phase == v1alpha1.SampleRunning && s.now.After(s.endsBy) {
			return sampleStep{sampleFail, "reading the counters takes too long"}
		}
		return sampleStep{}
	case s.known != nil:
		return sampleStep{kind: sampleForget}
	case s.reported != nil && s.reported.ID == s.order.ID && s.reported.Phase != v1alpha1.SampleRunning:
		return sampleStep{kind: sampleAdopt}
	case s.reported != nil && s.reported.ID == s.order.ID:
		return sampleStep{sampleFail, "the agent was started anew within the window: ask again"}
	}
	return planNewSample(s)
}

// planNewSample decides of a request that nobody has begun to answer.
func planNewSample(s sampleSnapshot) sampleStep {
	if why := refuseSample(*s.order); why != "" {
		return sampleStep{sampleFail, "refused by this node's agent: " + why}
	}
	switch {
	case s.order.StartBefore != nil && s.now.After(s.order.StartBefore.Time):
		return sampleStep{sampleFail, fmt.Sprintf("it was to begin before %s, and the node's clock says %s: ask again, and check the clocks if that is not so",
			s.order.StartBefore.UTC().Format(time.RFC3339), s.now.UTC().Format(time.RFC3339))}
	case !s.able:
		return sampleStep{sampleFail, "this node's agent cannot read the counters"}
	case s.reading:
		// The one before has been told to end.
		return sampleStep{}
	}
	return sampleStep{kind: sampleBegin}
}

// What a request may name, as the API has it.
var (
	sampleID     = regexp.MustCompile(`\A[A-Za-z0-9-]{1,64}\z`)
	sampleVolume = regexp.MustCompile(`\A[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?\z`)
)

// refuseSample says why a request is not answered, whoever wrote it; empty where it is.
func refuseSample(order v1alpha1.NodeSample) string {
	switch {
	case !sampleID.MatchString(order.ID):
		return "invalid id"
	case order.Seconds < v1alpha1.MinWindowSeconds || order.Seconds > v1alpha1.MaxWindowSeconds:
		return "invalid seconds"
	case len(order.Volumes) == 0 || len(order.Volumes) > maxSampleVolumes ||
		slices.ContainsFunc(order.Volumes, func(name string) bool { return !sampleVolume.MatchString(name) }):
		return "invalid volumes"
	}
	return ""
}

// followSample takes in what was read, and does the steps that are due: what is asked now may come in the place of something else.
func (a *Agent) followSample(ctx context.Context) {
	for len(a.sample.readings) > 0 {
		a.takeReading(<-a.sample.readings)
	}
	for {
		step := planSample(a.sampleSnapshot())
		a.applySampleStep(ctx, step)
		if step.kind != sampleForget || a.clientNode.Spec.Sample == nil {
			return
		}
	}
}

func (a *Agent) sampleSnapshot() sampleSnapshot {
	return sampleSnapshot{
		order: a.clientNode.Spec.Sample, known: a.sample.status, reported: a.clientNode.Status.Sample,
		able: a.host.Sample != nil, reading: a.sample.cancel != nil, endsBy: a.sample.endsBy, now: a.clock.Now(),
	}
}

func (a *Agent) applySampleStep(ctx context.Context, step sampleStep) {
	switch step.kind {
	case sampleKeep:
	case sampleForget:
		a.forgetSample()
	case sampleAdopt:
		a.sample.status = a.clientNode.Status.Sample.DeepCopy()
	case sampleBegin:
		a.beginSample(ctx, *a.clientNode.Spec.Sample)
	case sampleFail:
		a.cancelReading()
		a.sample.status = failedSample(a.clientNode.Spec.Sample.ID, step.why)
	}
}

// failedSample tells why there is no sample.
func failedSample(id, why string) *v1alpha1.NodeSampleStatus {
	return &v1alpha1.NodeSampleStatus{ID: id, Phase: v1alpha1.SampleFailed, Message: text.Cut(why, maxMessage)}
}

func (a *Agent) forgetSample() {
	a.cancelReading()
	a.sample.status, a.sample.volumes = nil, nil
}

// cancelReading tells the reading to end. It still counts as under way until it has.
func (a *Agent) cancelReading() {
	if a.sample.cancel != nil {
		a.sample.cancel()
	}
}

func (a *Agent) beginSample(ctx context.Context, order v1alpha1.NodeSample) {
	logr.FromContextOrDiscard(ctx).Info("Sampling mounts", "sample", order.ID, "volumes", order.Volumes, "seconds", order.Seconds)
	window, now := time.Duration(order.Seconds)*time.Second, a.clock.Now()
	a.sample.status = &v1alpha1.NodeSampleStatus{
		ID: order.ID, Phase: v1alpha1.SampleRunning, StartTime: ptr.To(metav1.NewTime(now.UTC().Truncate(time.Second))),
	}
	a.sample.volumes, a.sample.endsBy = order.Volumes, now.Add(window+sampleReadingLimit)
	ctx, a.sample.cancel = context.WithCancel(ctx)
	read, clock, readings := a.host.Sample, a.clock, a.sample.readings
	a.sample.start(func() {
		samples, err := read(ctx, window)
		readings <- sampleReading{id: order.ID, took: clock.Since(now), samples: samples, err: err}
	})
}

// takeReading answers with what the window has shown, unless nobody waits for it any more.
func (a *Agent) takeReading(r sampleReading) {
	a.sample.cancel()
	a.sample.cancel = nil
	status := a.sample.status
	if status == nil || status.ID != r.id || status.Phase != v1alpha1.SampleRunning {
		return
	}
	mounts, omitted, err := boundSamples(r.samples, a.sample.volumes)
	switch {
	case r.err != nil:
		a.sample.status = failedSample(r.id, "cannot read the counters: "+r.err.Error())
	case err != nil:
		a.sample.status = failedSample(r.id, "cannot tell what was counted: "+err.Error())
	case len(mounts) == 0:
		a.sample.status = failedSample(r.id, "no mount of "+text.Join(a.sample.volumes, ", ")+" was there all through the window")
	default:
		status.Phase, status.Mounts, status.MountsOmitted, status.Milliseconds = v1alpha1.SampleFinished, mounts, omitted, r.took.Milliseconds()
	}
}

// boundSamples are the samples of the volumes' mounts, as many as fit into the status.
func boundSamples(samples []recommend.Sample, volumes []string) (list []v1alpha1.MountSample, omitted int32, err error) {
	size, seen := 0, map[string]bool{}
	for _, s := range samples {
		if !slices.Contains(volumes, s.Volume) {
			continue
		}
		m, err := recommend.ForAPI(s)
		if err != nil {
			return nil, 0, err
		}
		boundSample(&m)
		data, err := json.Marshal(m)
		if err != nil {
			return nil, 0, err
		}
		if len(list) == maxSampleMounts || size+len(data) > maxSampleBytes-maxSampleFrame || seen[m.MountPoint] {
			omitted++
			continue
		}
		size += len(data) + 1
		seen[m.MountPoint] = true
		list = append(list, m)
	}
	return list, omitted, nil
}

// boundSample keeps the API's bounds. Of more kinds of operations than there are room for, the rarest go.
func boundSample(m *v1alpha1.MountSample) {
	m.MountPoint, m.Export = text.Cut(m.MountPoint, maxMountPoint), text.Cut(m.Export, maxMountPoint)
	m.Server, m.Protocol = text.Cut(m.Server, maxName), text.Cut(m.Protocol, maxWord)
	m.Options = slices.DeleteFunc(m.Options, func(o string) bool { return len(o) > maxSampleOption })
	m.Options = firstOf(m.Options, maxSampleOptions)
	m.Connections = firstOf(m.Connections, maxSampleConnections)
	m.Operations = slices.DeleteFunc(m.Operations, func(o v1alpha1.OperationSample) bool { return o.Name == "" || len(o.Name) > maxWord })
	slices.SortStableFunc(m.Operations, func(a, b v1alpha1.OperationSample) int { return cmp.Compare(b.Count, a.Count) })
	m.Operations = firstOf(m.Operations, maxSampleOperations)
	slices.SortFunc(m.Operations, func(a, b v1alpha1.OperationSample) int { return strings.Compare(a.Name, b.Name) })
}
