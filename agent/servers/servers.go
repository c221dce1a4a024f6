// Package servers monitors the storage servers that one node mounts from and reports whether they respond. It reads counters in the
// background and never accesses a mount.
package servers

import (
	"context"
	_ "embed"
	"errors"
	"math/bits"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/agent/bounds"
	"github.com/storageclient/operator/agent/host/connect"
	"github.com/storageclient/operator/agent/host/kernellog"
	"github.com/storageclient/operator/agent/host/mounts"
	"github.com/storageclient/operator/agent/host/sockets"
	"github.com/storageclient/operator/agent/metrics"
	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/drivers"
	"github.com/storageclient/operator/tuning/knownbad"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/serverhealth"
	"github.com/storageclient/operator/tuning/text"
)

const (
	// interval is the interval between reads of the server counters. A pending request is detected up to one interval late and reported
	// after a minute.
	interval = 10 * time.Second
	// readingLimit is the expected maximum duration of one reading. Readings run in the background, and the loop never waits for them.
	readingLimit = 10 * time.Second
	// maxAsked is the maximum number of concurrent test connections.
	maxAsked = 8
)

// Limits of status.servers.
const (
	maxServers    = 64
	maxVolumes    = 16
	maxPods       = 32
	maxAddress    = 128
	maxClientName = 384
)

// Reader reads the data for the health of storage servers. Its functions must not access a mount. All fields are required.
type Reader struct {
	// Counters is mounts.Reader.Counters. Log is kernellog.Follower.Read.
	Counters func() ([]mounts.ServerCounters, error)
	Log      func() ([]kernellog.Line, error)
	// Sockets is sockets.Read. It is only called while a server has pending requests.
	Sockets func() ([]sockets.Socket, error)
	// ClientName is mounts.Reader.ClientName.
	ClientName func() string
}

// Ask opens a new connection to a server and waits for a response.
type Ask func(ctx context.Context, server connect.Server) error

// Watch monitors the servers. Readings and test connections run in the background and return their results to the loop.
type Watch struct {
	// Start runs work in the background and triggers a pass when it is done.
	Start func(func())

	reader   Reader
	askOne   Ask
	clock    clock.Clock
	bootID   string
	watch    serverhealth.Watch
	verdicts []serverhealth.Verdict
	// hasVerdicts is true after the first reading. Until then, the report of the previous agent is valid.
	hasVerdicts bool
	// readAt is the time of the next reading. pendingSince is the start of the reading in progress, zero if there is none.
	readAt       time.Time
	pendingSince time.Time
	// late is true once the agent has logged that a reading takes too long.
	late bool
	// results queues background results in order of arrival. Its capacity covers all concurrent work.
	results chan func(ctx context.Context, former v1alpha1.StorageClientNodeStatus)
	// inProgress contains the servers with a test connection in progress. responses contains the results since the last reading.
	inProgress map[serverhealth.Key]bool
	responses  []serverhealth.Probe
	// reported is the reported last response of each server. It is only updated with the state, because each update is a write.
	reported map[serverhealth.Key]answerReport
	// clientName is the NFSv4 client name of the node.
	clientName string
	// logged are the IDs of the known problems whose sign the kernel log contains.
	logged  []string
	metrics Metrics
}

// answerReport is the time of the last response at the start of a state.
type answerReport struct {
	state v1alpha1.ServerState
	at    time.Time
}

type reading struct {
	at       time.Time
	counters []mounts.ServerCounters
	lines    []kernellog.Line
	sockets  []sockets.Socket
	// clientName is the result of Reader.ClientName.
	clientName string
	err        error
}

// New returns the watch of a node for one boot.
func New(reader Reader, ask Ask, clock clock.Clock, bootID string, start func(func())) *Watch {
	return &Watch{
		Start: start, reader: reader, askOne: ask, clock: clock, bootID: bootID,
		results:    make(chan func(context.Context, v1alpha1.StorageClientNodeStatus), maxAsked+1),
		inProgress: map[serverhealth.Key]bool{}, reported: map[serverhealth.Key]answerReport{},
	}
}

// Due returns the time of the next reading.
func (w *Watch) Due() time.Time { return w.readAt }

// Metrics returns the metrics of the node's storage servers.
func (w *Watch) Metrics() *Metrics { return &w.metrics }

// Run processes finished readings and starts the next one when it is due. Before the first reading, the reported status is valid.
func (w *Watch) Run(ctx context.Context, former v1alpha1.StorageClientNodeStatus) {
	for len(w.results) > 0 {
		(<-w.results)(ctx, former)
	}
	now := w.clock.Now()
	if now.Before(w.readAt) {
		return
	}
	w.readAt = now.Add(interval)
	if !w.pendingSince.IsZero() {
		if !w.late && now.Sub(w.pendingSince) > readingLimit {
			w.late = true
			logr.FromContextOrDiscard(ctx).Info("Still reading the counters of storage servers; other work continues", "since", w.pendingSince)
		}
		return
	}
	w.pendingSince, w.late = now, false
	needsProbe := slices.ContainsFunc(w.verdicts, func(v serverhealth.Verdict) bool { return v.NeedsProbe })
	w.Start(func() {
		r := w.reader.read(needsProbe)
		r.at = w.clock.Now()
		w.results <- func(ctx context.Context, former v1alpha1.StorageClientNodeStatus) { w.handleReading(ctx, r, former) }
	})
}

// read reads all sources. Without the log and sockets, the counters still show failures, but later and with less detail about the cause.
func (r Reader) read(needsProbe bool) (result reading) {
	if result.counters, result.err = r.Counters(); result.err != nil {
		return result
	}
	result.lines, _ = r.Log()
	if needsProbe {
		result.sockets, _ = r.Sockets()
	}
	result.clientName = r.ClientName()
	return result
}

func (w *Watch) handleReading(ctx context.Context, r reading, former v1alpha1.StorageClientNodeStatus) {
	w.pendingSince = time.Time{}
	if r.err != nil {
		logr.FromContextOrDiscard(ctx).Info("Cannot read the counters of storage servers; trying again", "error", r.err.Error())
		return
	}
	if w.goesOn(former) {
		w.recall(former.Servers)
	}
	w.verdicts, w.hasVerdicts = w.watch.Note(r.at, batchOf(r, w.responses)), true
	w.responses, w.clientName = nil, text.Cut(r.clientName, maxClientName)
	for _, line := range r.lines {
		if line.Sign != "" {
			w.logged = lists.AddMissing(w.logged, line.Sign)
		}
	}
	w.ask(ctx, r.counters)
	w.metrics.note(w.verdicts)
}

// goesOn reports whether the status of the previous agent in the same boot is still valid.
func (w *Watch) goesOn(former v1alpha1.StorageClientNodeStatus) bool {
	return !w.hasVerdicts && former.BootID == w.bootID
}

// recall restores the state of the previous agent.
func (w *Watch) recall(servers []v1alpha1.ServerStatus) {
	for _, s := range servers {
		if s.Since != nil {
			key, last := serverhealth.Key{Server: s.Server, Protocol: s.Protocol}, ptr.Deref(s.LastAnswerTime, metav1.Time{}).Time
			w.watch.Recall(serverhealth.Verdict{Key: key, State: s.State, Reason: s.Reason, Message: s.Message, Since: s.Since.Time, LastResponse: last})
			w.reported[key] = answerReport{s.State, last}
		}
	}
}

func batchOf(r reading, answers []serverhealth.Probe) serverhealth.Batch {
	batch := serverhealth.Batch{Probes: answers}
	for _, c := range r.counters {
		one := serverhealth.Reading{Key: keyOf(c), Activity: c.Activity}
		for _, socket := range r.sockets {
			if socket.Remote.String() == c.Address {
				one.Sockets = append(one.Sockets, serverhealth.Socket{Port: socket.Local, Repeats: socket.Repeats})
			}
		}
		batch.Readings = append(batch.Readings, one)
	}
	aboutServers := lists.Filter(r.lines, func(line kernellog.Line) bool { return line.Server != "" })
	batch.Lines = lists.Each(aboutServers, func(line kernellog.Line) serverhealth.Line {
		return serverhealth.Line{Server: drivers.ServerIdentity(line.Server), At: r.at.Add(-line.Age), Responds: line.Responds}
	})
	return batch
}

func keyOf(c mounts.ServerCounters) serverhealth.Key {
	protocol := v1alpha1.ServerNFS
	if c.Protocol == connect.SMB {
		protocol = v1alpha1.ServerSMB
	}
	return serverhealth.Key{Server: c.Server, Protocol: protocol}
}

// ask opens a test connection to each server that has overdue requests.
func (w *Watch) ask(ctx context.Context, counters []mounts.ServerCounters) {
	for _, v := range w.verdicts {
		i := slices.IndexFunc(counters, func(c mounts.ServerCounters) bool { return keyOf(c) == v.Key })
		if !v.NeedsProbe || i < 0 || counters[i].Ask.Address == "" || w.inProgress[v.Key] || len(w.inProgress) >= maxAsked {
			continue
		}
		w.inProgress[v.Key] = true
		w.Start(func() {
			question := questionOf(v.Key, w.askOne(ctx, counters[i].Ask))
			question.At = w.clock.Now()
			w.results <- func(context.Context, v1alpha1.StorageClientNodeStatus) {
				delete(w.inProgress, question.Key)
				w.responses = append(w.responses, question)
			}
		})
	}
}

// questionOf returns the result of a test connection.
func questionOf(key serverhealth.Key, err error) serverhealth.Probe {
	var failed *net.OpError
	return serverhealth.Probe{
		Key: key, Responded: err == nil, ConnectionRefused: errors.Is(err, syscall.ECONNREFUSED),
		Connected: err == nil || !errors.As(err, &failed) || failed.Op != "dial",
	}
}

// Report sets the server fields of the status, and adds the signs in the kernel log. A failing server also gets the volumes and pods of its mounts. If there are too many
// servers, failing servers take precedence.
func (w *Watch) Report(status *v1alpha1.StorageClientNodeStatus, former v1alpha1.StorageClientNodeStatus, mounted []mounts.Mount) {
	if w.goesOn(former) {
		status.Servers, status.NFS4ClientName = slices.Clone(former.Servers), former.NFS4ClientName
		return
	}
	status.NFS4ClientName = w.clientName
	status.Signs = lists.Distinct(append(status.Signs, w.confirmed(mounted)...))
	isFailing := func(v serverhealth.Verdict) bool { return v.State.IsFailing() }
	verdicts := append(lists.Filter(w.verdicts, isFailing), slices.DeleteFunc(slices.Clone(w.verdicts), isFailing)...)
	for _, v := range bounds.First(verdicts, maxServers) {
		// With an invalid name, the API server would reject the whole status.
		if v.Server != "" && len(v.Server) <= bounds.Name {
			status.Servers = append(status.Servers, w.statusOf(v, mounted))
		}
	}
	slices.SortFunc(status.Servers, func(x, y v1alpha1.ServerStatus) int {
		return strings.Compare(x.Server+" "+string(x.Protocol), y.Server+" "+string(y.Protocol))
	})
}

// confirmed returns the logged signs of problems that one of the mounts can have, or that prevent the mount.
func (w *Watch) confirmed(mounted []mounts.Mount) (ids []string) {
	for _, e := range knownbad.Entries() {
		concerned := func(m mounts.Mount) bool { return e.Concerns(m.Protocol, m.Options) }
		if slices.Contains(w.logged, e.ID) && (e.Sign.Unmounted || slices.ContainsFunc(mounted, concerned)) {
			ids = append(ids, e.ID)
		}
	}
	return ids
}

func (w *Watch) statusOf(v serverhealth.Verdict, mounted []mounts.Mount) v1alpha1.ServerStatus {
	status := v1alpha1.ServerStatus{
		Server: v.Server, Protocol: v.Protocol, Address: text.Cut(v.Address, maxAddress), State: v.State, Reason: v.Reason,
		Message: text.Cut(v.Message, bounds.Message), Connections: int32(v.Connections), StuckConnections: int32(v.Stuck),
		WaitingRequests: roundDown(v.Waiting),
		Since:           bounds.Time(v.Since), LastAnswerTime: bounds.Time(w.answerToReport(v)), Forgetting: v.Flapping,
	}
	if !v.State.IsFailing() && len(v.Stale) == 0 {
		return status
	}
	var volumes, pods []string
	for _, m := range mounted {
		if m.Server != v.Server || m.IsNetwork() && (strings.HasPrefix(m.FSType, "nfs")) != (v.Protocol == v1alpha1.ServerNFS) {
			continue
		}
		if len(v.Stale) > 0 && !slices.Contains(v.Stale, m.MountPoint) {
			continue
		}
		if m.Volume != "" && len(m.Volume) <= bounds.Name {
			volumes = append(volumes, m.Volume)
		}
		pods = append(pods, slices.DeleteFunc(slices.Clone(m.PodUIDs), func(uid string) bool { return len(uid) > bounds.UID })...)
	}
	status.Volumes, status.PodUIDs = bounds.First(lists.Distinct(volumes), maxVolumes), bounds.First(lists.Distinct(pods), maxPods)
	return status
}

// answerToReport returns the time of the last response before the current state started.
func (w *Watch) answerToReport(v serverhealth.Verdict) time.Time {
	if reported, known := w.reported[v.Key]; known && reported.state == v.State {
		return reported.at
	}
	w.reported[v.Key] = answerReport{v.State, v.LastResponse}
	return v.LastResponse
}

// roundDown rounds down to a power of two. Otherwise, all clients of a failed server would write their status with every new request.
func roundDown(n int) int32 {
	if n < 1 {
		return 0
	}
	return 1 << min(bits.Len(uint(n))-1, 30)
}

//go:embed metrics.yaml
var metricsYAML []byte

var described = metrics.ReadDescribed(metricsYAML)

// Metrics exports the last evaluated state of the servers. A scrape may read it during a pass.
type Metrics struct {
	verdicts atomic.Pointer[[]serverhealth.Verdict]
}

func (m *Metrics) note(verdicts []serverhealth.Verdict) { m.verdicts.Store(&verdicts) }

// Describe implements prometheus.Collector.
func (*Metrics) Describe(descriptors chan<- *prometheus.Desc) { described.Describe(descriptors) }

// Collect implements prometheus.Collector. It returns no metrics before the first reading.
func (m *Metrics) Collect(out chan<- prometheus.Metric) {
	verdicts := m.verdicts.Load()
	if verdicts == nil {
		return
	}
	for _, v := range *verdicts {
		protocol := string(v.Protocol)
		described.Send(out, "storageclient_agent_server_state", 1, v.Server, protocol, string(v.State), v.Reason)
		described.Send(out, "storageclient_agent_server_connections", float64(v.Connections), v.Server, protocol)
		described.Send(out, "storageclient_agent_server_waiting_requests", float64(v.Waiting), v.Server, protocol)
		described.Send(out, "storageclient_agent_server_requests_in_flight", float64(v.InFlight), v.Server, protocol)
		if !v.LastResponse.IsZero() {
			described.Send(out, "storageclient_agent_server_last_answer_timestamp_seconds", float64(v.LastResponse.Unix()), v.Server, protocol)
		}
	}
}
