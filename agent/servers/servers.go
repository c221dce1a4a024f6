// Package servers follows the storage servers that one node mounts from, and reports whether they respond. It reads counters beside the
// agent's loop and never touches a mount.
package servers

import (
	"context"
	"errors"
	"math/bits"
	"net"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/agent/bounds"
	"github.com/storageclient/operator/agent/host/connect"
	"github.com/storageclient/operator/agent/host/kernellog"
	"github.com/storageclient/operator/agent/host/mounts"
	"github.com/storageclient/operator/agent/host/sockets"
	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/serverhealth"
	"github.com/storageclient/operator/tuning/text"
)

const (
	// interval is how often the counters of servers are read: a request without an answer is seen that late, and told after a minute.
	interval = 10 * time.Second
	// readingLimit is how long a reading of the counters may take. It runs beside the loop, which never waits for it.
	readingLimit = 10 * time.Second
	// maxAsked bounds how many servers are asked at a time.
	maxAsked = 8
)

// Bounds of status.servers.
const (
	maxServers    = 64
	maxVolumes    = 16
	maxPods       = 32
	maxAddress    = 128
	maxClientName = 384
)

// Reader reads what tells whether storage servers answer. None of it may touch a mount, and all of it has to be set.
type Reader struct {
	// Counters are mounts.Reader.Counters, Log is kernellog.Follower.Read.
	Counters func() ([]mounts.ServerCounters, error)
	Log      func() ([]kernellog.Line, error)
	// Sockets is sockets.Read; it is asked only while a server owes an answer.
	Sockets func() ([]sockets.Socket, error)
	// ClientName is mounts.Reader.ClientName.
	ClientName func() string
}

// Ask makes a new connection to a server and waits for an answer.
type Ask func(ctx context.Context, server connect.Server) error

// Watch follows the servers. Readings and questions run beside the loop and hand in what they find.
type Watch struct {
	// Start runs something beside the loop, which makes a pass once it has ended.
	Start func(func())

	reader   Reader
	askOne   Ask
	clock    clock.Clock
	bootID   string
	watch    serverhealth.Watch
	verdicts []serverhealth.Verdict
	// judged is true once something was read: before that, what the former agent reported stands.
	judged bool
	// readAt is when to read next; pendingSince is since when a reading has been under way, zero where none is.
	readAt       time.Time
	pendingSince time.Time
	// late is true once it has been logged that a reading does not end.
	late bool
	// results take in what was found beside the loop, in the order in which it came. There is room for all that can be under way.
	results chan func(ctx context.Context, former v1alpha1.StorageClientNodeStatus)
	// asked are the servers that are being asked, answers what others have said since the last reading.
	asked   map[serverhealth.Key]bool
	answers []serverhealth.Question
	// reported is what was reported of each server's last answer. It is brought up to date with the state alone: each report is a write.
	reported map[serverhealth.Key]answerReport
	// clientName is what the node's NFSv4 client introduces itself by.
	clientName string
	metrics    Metrics
}

// answerReport is the last answer as it stood when a state began.
type answerReport struct {
	state v1alpha1.ServerState
	at    time.Time
}

type reading struct {
	at       time.Time
	counters []mounts.ServerCounters
	lines    []kernellog.Line
	sockets  []sockets.Socket
	// clientName is as in Reader.
	clientName string
	err        error
}

// New returns the watch of a node in one boot.
func New(reader Reader, ask Ask, clock clock.Clock, bootID string, start func(func())) *Watch {
	return &Watch{
		Start: start, reader: reader, askOne: ask, clock: clock, bootID: bootID,
		results: make(chan func(context.Context, v1alpha1.StorageClientNodeStatus), maxAsked+1),
		asked:   map[serverhealth.Key]bool{}, reported: map[serverhealth.Key]answerReport{},
	}
}

// Due returns when the counters are read next.
func (w *Watch) Due() time.Time { return w.readAt }

// Metrics report whether the node's storage servers answer it.
func (w *Watch) Metrics() *Metrics { return &w.metrics }

// Run takes in what was read and begins the next reading when it is due. Until the first, it goes on from the status that was reported.
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
			logr.FromContextOrDiscard(ctx).Info("Reading the counters of storage servers takes long; the rest goes on", "since", w.pendingSince)
		}
		return
	}
	w.pendingSince, w.late = now, false
	owes := slices.ContainsFunc(w.verdicts, func(v serverhealth.Verdict) bool { return v.Ask })
	w.Start(func() {
		r := w.reader.read(owes)
		r.at = w.clock.Now()
		w.results <- func(ctx context.Context, former v1alpha1.StorageClientNodeStatus) { w.takeReading(ctx, r, former) }
	})
}

// read reads all that there is. Without log and sockets, the counters tell it, if later and less of the cause.
func (r Reader) read(owes bool) (got reading) {
	if got.counters, got.err = r.Counters(); got.err != nil {
		return got
	}
	got.lines, _ = r.Log()
	if owes {
		got.sockets, _ = r.Sockets()
	}
	got.clientName = r.ClientName()
	return got
}

func (w *Watch) takeReading(ctx context.Context, r reading, former v1alpha1.StorageClientNodeStatus) {
	w.pendingSince = time.Time{}
	if r.err != nil {
		logr.FromContextOrDiscard(ctx).Info("Cannot read the counters of storage servers, trying again", "error", r.err.Error())
		return
	}
	if w.goesOn(former) {
		w.recall(former.Servers)
	}
	w.verdicts, w.judged = w.watch.Note(r.at, batchOf(r, w.answers)), true
	w.answers, w.clientName = nil, text.Cut(r.clientName, maxClientName)
	w.ask(ctx, r.counters)
	w.metrics.note(w.verdicts)
}

// goesOn reports whether the status of the agent before this one, in the same boot, still stands.
func (w *Watch) goesOn(former v1alpha1.StorageClientNodeStatus) bool {
	return !w.judged && former.BootID == w.bootID
}

// recall goes on where the agent before this one left off.
func (w *Watch) recall(servers []v1alpha1.ServerStatus) {
	for _, s := range servers {
		if s.Since != nil {
			key, last := serverhealth.Key{Server: s.Server, Protocol: s.Protocol}, ptr.Deref(s.LastAnswerTime, metav1.Time{}).Time
			w.watch.Recall(serverhealth.Verdict{Key: key, State: s.State, Reason: s.Reason, Message: s.Message, Since: s.Since.Time, LastAnswer: last})
			w.reported[key] = answerReport{s.State, last}
		}
	}
}

func batchOf(r reading, answers []serverhealth.Question) serverhealth.Batch {
	batch := serverhealth.Batch{Questions: answers}
	for _, c := range r.counters {
		one := serverhealth.Reading{
			Key: keyOf(c), Address: c.Address, Tunnel: c.Tunnel, Connections: c.Connections, Queues: c.Queues, Requests: c.Requests,
			RequestsKnown: c.RequestsKnown, Operations: c.Operations, Handles: c.Handles, Identified: c.Identified, Refused: c.Refused,
		}
		for _, socket := range r.sockets {
			if socket.Remote.String() == c.Address {
				one.Sockets = append(one.Sockets, serverhealth.Socket{Port: socket.Local, Repeats: socket.Repeats})
			}
		}
		batch.Readings = append(batch.Readings, one)
	}
	for _, line := range r.lines {
		batch.Lines = append(batch.Lines, serverhealth.Line{Server: line.Server, At: r.at.Add(-line.Age), Responds: line.Responds})
	}
	return batch
}

func keyOf(c mounts.ServerCounters) serverhealth.Key {
	protocol := v1alpha1.ServerNFS
	if c.Protocol == connect.SMB {
		protocol = v1alpha1.ServerSMB
	}
	return serverhealth.Key{Server: c.Server, Protocol: protocol}
}

// ask asks those servers, over a connection of the agent's own, that owe an answer.
func (w *Watch) ask(ctx context.Context, counters []mounts.ServerCounters) {
	for _, v := range w.verdicts {
		i := slices.IndexFunc(counters, func(c mounts.ServerCounters) bool { return keyOf(c) == v.Key })
		if !v.Ask || i < 0 || counters[i].Ask.Address == "" || w.asked[v.Key] || len(w.asked) >= maxAsked {
			continue
		}
		w.asked[v.Key] = true
		w.Start(func() {
			question := questionOf(v.Key, w.askOne(ctx, counters[i].Ask))
			question.At = w.clock.Now()
			w.results <- func(context.Context, v1alpha1.StorageClientNodeStatus) {
				delete(w.asked, question.Key)
				w.answers = append(w.answers, question)
			}
		})
	}
}

// questionOf reads how a connection of our own has ended.
func questionOf(key serverhealth.Key, err error) serverhealth.Question {
	var failed *net.OpError
	return serverhealth.Question{
		Key: key, Answered: err == nil, Refused: errors.Is(err, syscall.ECONNREFUSED),
		Connected: err == nil || !errors.As(err, &failed) || failed.Op != "dial",
	}
}

// Report sets what is reported of the servers, with the volumes and pods of these mounts that a failing server has. Where there are too
// many servers, those that fail come first.
func (w *Watch) Report(status *v1alpha1.StorageClientNodeStatus, former v1alpha1.StorageClientNodeStatus, mounted []mounts.Mount) {
	if w.goesOn(former) {
		status.Servers, status.NFS4ClientName = slices.Clone(former.Servers), former.NFS4ClientName
		return
	}
	status.NFS4ClientName = w.clientName
	verdicts := slices.Clone(w.verdicts)
	slices.SortStableFunc(verdicts, func(x, y serverhealth.Verdict) int { return rankOf(x.State) - rankOf(y.State) })
	for _, v := range bounds.First(verdicts, maxServers) {
		// The API server would refuse the whole status for a name that is none.
		if v.Server != "" && len(v.Server) <= bounds.Name {
			status.Servers = append(status.Servers, w.statusOf(v, mounted))
		}
	}
	slices.SortFunc(status.Servers, func(x, y v1alpha1.ServerStatus) int {
		return strings.Compare(x.Server+" "+string(x.Protocol), y.Server+" "+string(y.Protocol))
	})
}

func rankOf(state v1alpha1.ServerState) int {
	if state.IsFailing() {
		return 0
	}
	return 1
}

func (w *Watch) statusOf(v serverhealth.Verdict, mounted []mounts.Mount) v1alpha1.ServerStatus {
	status := v1alpha1.ServerStatus{
		Server: v.Server, Protocol: v.Protocol, Address: text.Cut(v.Address, maxAddress), State: v.State, Reason: v.Reason,
		Message: text.Cut(v.Message, bounds.Message), Connections: int32(v.Connections), StuckConnections: int32(v.Stuck), WaitingRequests: roundDown(v.Waiting),
		Since: bounds.Time(v.Since), LastAnswerTime: bounds.Time(w.answerToReport(v)), Forgetting: v.Flapping,
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
	status.Volumes, status.PodUIDs = bounds.First(distinct(volumes), maxVolumes), bounds.First(distinct(pods), maxPods)
	return status
}

// answerToReport is when a server had answered last when its state began.
func (w *Watch) answerToReport(v serverhealth.Verdict) time.Time {
	if reported, known := w.reported[v.Key]; known && reported.state == v.State {
		return reported.at
	}
	w.reported[v.Key] = answerReport{v.State, v.LastAnswer}
	return v.LastAnswer
}

// roundDown rounds a number down to a power of two: when a server dies, all of its clients would write each time it grows.
func roundDown(n int) int32 {
	if n < 1 {
		return 0
	}
	return 1 << min(bits.Len(uint(n))-1, 30)
}

func distinct(values []string) []string {
	slices.Sort(values)
	return slices.Compact(values)
}
