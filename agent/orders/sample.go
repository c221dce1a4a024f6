package orders

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
	"k8s.io/utils/clock"

	"github.com/storageclient/operator/agent/bounds"
	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/recommend"
	"github.com/storageclient/operator/tuning/text"
)

// Limits of status.sample. With the limits of one mount, the first mount always fits into maxSampleBytes.
const (
	maxSampleBytes       = 64 << 10
	maxSampleMounts      = 32
	maxSampleOptions     = 48
	maxSampleOption      = 64
	maxSampleOperations  = 80
	maxSampleConnections = 16
	maxSampleVolumes     = 8
	maxSampleFrame       = 512
)

// sampleReadingLimit is the time for both reads of the counters, in addition to the window.
const sampleReadingLimit = 30 * time.Second

// Sampler measures the mounts over a window. It reads only counters.
type Sampler func(ctx context.Context, window time.Duration) ([]recommend.Sample, error)

// Sample runs at most one sample on a node.
type Sample struct {
	// Start runs work in the background and triggers a pass when it is done.
	Start func(func())

	sampler Sampler
	clock   clock.Clock
	status  *v1alpha1.NodeSampleStatus
	// volumes are the volumes of the order. endsBy is the deadline of the sample.
	volumes []string
	endsBy  time.Time
	// cancel stops the current window, whose result arrives on readings. Nil if there is none. It is kept until the reading returns, so
	// there is never more than one.
	cancel   context.CancelFunc
	readings chan sampleReading
}

type sampleReading struct {
	id       string
	duration time.Duration
	samples  []recommend.Sample
	err      error
}

// NewSample returns a Sample without an order.
func NewSample(sampler Sampler, clock clock.Clock, start func(func())) *Sample {
	return &Sample{Start: start, sampler: sampler, clock: clock, readings: make(chan sampleReading, 1)}
}

// Report sets the sample field of the status.
func (s *Sample) Report(status *v1alpha1.StorageClientNodeStatus) {
	status.Sample = s.status.DeepCopy()
}

// Run processes results and does the due work. An order is handled only once, by this agent or by the previous one.
func (s *Sample) Run(ctx context.Context, clientNode *v1alpha1.StorageClientNode) {
	for len(s.readings) > 0 {
		s.handleReading(<-s.readings)
	}
	order, reported, now := clientNode.Spec.Sample, clientNode.Status.Sample, s.clock.Now()
	if order == nil || s.status != nil && s.status.ID != order.ID {
		s.End()
	}
	switch {
	case order == nil:
	case s.status != nil:
		if s.status.Phase == v1alpha1.SampleRunning && now.After(s.endsBy) {
			s.fail(order.ID, "timed out reading the counters")
		}
	case reported != nil && reported.ID == order.ID && reported.Phase != v1alpha1.SampleRunning:
		s.status = reported.DeepCopy()
	case reported != nil && reported.ID == order.ID:
		s.fail(order.ID, "the agent restarted during the measurement; request a new sample")
	default:
		s.beginIfPossible(ctx, *order, now)
	}
}

func (s *Sample) beginIfPossible(ctx context.Context, order v1alpha1.NodeSample, now time.Time) {
	reason := validateSample(order)
	switch {
	case reason != "":
		s.fail(order.ID, "rejected by this node's agent: "+reason)
	case order.StartBefore != nil && now.After(order.StartBefore.Time):
		s.fail(order.ID, fmt.Sprintf("the measurement had to start before %s, but the node's clock shows %s; request a new sample, or correct the clocks",
			order.StartBefore.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339)))
	case s.cancel == nil:
		s.begin(ctx, order, now)
	}
	// Otherwise, the canceled reading of a previous order has not finished yet.
}

// sampleVolume matches the name of a volume in an order, as in the API.
var sampleVolume = regexp.MustCompile(`\A[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?\z`)

// validateSample returns the reason for rejecting an order, regardless of its author. Empty if it is valid.
func validateSample(order v1alpha1.NodeSample) string {
	switch {
	case !orderID.MatchString(order.ID):
		return "invalid id"
	case order.Seconds < v1alpha1.MinWindowSeconds || order.Seconds > v1alpha1.MaxWindowSeconds:
		return "invalid seconds"
	case len(order.Volumes) == 0 || len(order.Volumes) > maxSampleVolumes ||
		slices.ContainsFunc(order.Volumes, func(name string) bool { return !sampleVolume.MatchString(name) }):
		return "invalid volumes"
	}
	return ""
}

// End stops the current window and clears the order.
func (s *Sample) End() {
	s.cancelReading()
	s.status, s.volumes = nil, nil
}

// cancelReading does not wait: the reading counts as in progress until it returns.
func (s *Sample) cancelReading() {
	if s.cancel != nil {
		s.cancel()
	}
}

func (s *Sample) fail(id, reason string) {
	s.cancelReading()
	s.status = &v1alpha1.NodeSampleStatus{ID: id, Phase: v1alpha1.SampleFailed, Message: text.Cut(reason, bounds.Message)}
}

func (s *Sample) begin(ctx context.Context, order v1alpha1.NodeSample, now time.Time) {
	logr.FromContextOrDiscard(ctx).Info("Sampling mounts", "sample", order.ID, "volumes", order.Volumes, "seconds", order.Seconds)
	window := time.Duration(order.Seconds) * time.Second
	s.status = &v1alpha1.NodeSampleStatus{ID: order.ID, Phase: v1alpha1.SampleRunning, StartTime: bounds.Time(now)}
	s.volumes, s.endsBy = order.Volumes, now.Add(window+sampleReadingLimit)
	ctx, s.cancel = context.WithCancel(ctx)
	s.Start(func() {
		samples, err := s.sampler(ctx, window)
		s.readings <- sampleReading{id: order.ID, duration: s.clock.Since(now), samples: samples, err: err}
	})
}

// handleReading sets the status from the result, unless the order has been replaced or removed.
func (s *Sample) handleReading(r sampleReading) {
	s.cancel()
	s.cancel = nil
	status := s.status
	if status == nil || status.ID != r.id || status.Phase != v1alpha1.SampleRunning {
		return
	}
	mounts, omitted, err := boundSamples(r.samples, s.volumes)
	switch {
	case r.err != nil:
		s.fail(r.id, "cannot read the counters: "+r.err.Error())
	case err != nil:
		s.fail(r.id, "cannot evaluate the counters: "+err.Error())
	case len(mounts) == 0:
		s.fail(r.id, "no mount of "+text.Join(s.volumes, ", ")+" existed during the whole measurement")
	default:
		status.Phase, status.Mounts, status.MountsOmitted, status.Milliseconds = v1alpha1.SampleFinished, mounts, omitted, r.duration.Milliseconds()
	}
}

// boundSamples returns the samples of the mounts of the given volumes, up to the limits of the status. Each mount point is listed once.
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

// boundSample applies the limits of the API. If there are too many kinds of operations, it drops the rarest.
func boundSample(m *v1alpha1.MountSample) {
	m.MountPoint, m.Export = text.Cut(m.MountPoint, bounds.MountPoint), text.Cut(m.Export, bounds.MountPoint)
	m.Server, m.Protocol = text.Cut(m.Server, bounds.Name), text.Cut(m.Protocol, bounds.Word)
	m.Options = slices.DeleteFunc(m.Options, func(o string) bool { return len(o) > maxSampleOption })
	m.Options = bounds.First(m.Options, maxSampleOptions)
	m.Connections = bounds.First(m.Connections, maxSampleConnections)
	m.Operations = slices.DeleteFunc(m.Operations, func(o v1alpha1.OperationSample) bool { return o.Name == "" || len(o.Name) > bounds.Word })
	slices.SortStableFunc(m.Operations, func(a, b v1alpha1.OperationSample) int { return cmp.Compare(b.Count, a.Count) })
	m.Operations = bounds.First(m.Operations, maxSampleOperations)
	slices.SortFunc(m.Operations, func(a, b v1alpha1.OperationSample) int { return strings.Compare(a.Name, b.Name) })
}
