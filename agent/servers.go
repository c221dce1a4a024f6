package agent

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
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/agent/host/connect"
	"github.com/storageclient/operator/agent/host/kernellog"
	"github.com/storageclient/operator/agent/host/mounts"
	"github.com/storageclient/operator/agent/host/sockets"
	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/serverhealth"
	"github.com/storageclient/operator/tuning/text"
)

const (
	// serversInterval is how often the counters of servers are read: a request without an answer is seen that late, and told after a
	// minute.
	serversInterval = 10 * time.Second
	// readingLimit is how long a reading of the counters may take. It runs beside the loop, which never waits for it.
	readingLimit = 10 * time.Second
	// maxAskedServers bounds how many servers are asked at a time.
	maxAskedServers = 8
)

// Bounds of status.servers.
const (
	maxServers       = 64
	maxServerVolumes = 16
	maxServerPods    = 32
	maxAddress       = 128
	maxClientName    = 384
)

// HealthReader reads what tells whether storage servers answer. None of it may touch a mount.
type HealthReader struct {
	// Counters are mounts.Reader.Counters, Log is kernellog.Follower.Read.
	Counters func() ([]mounts.ServerCounters, error)
	Log      func() ([]kernellog.Line, error)
	// Sockets is sockets.Read; it is asked only while a server owes an answer. It may be nil.
	Sockets func() ([]sockets.Socket, error)
	// ClientName is mounts.Reader.ClientName. It may be nil.
	ClientName func() string
}

// serverWatch follows the servers. Readings and questions run beside the loop and hand in what they find.
type serverWatch struct {
	watch    serverhealth.Watch
	verdicts []serverhealth.Verdict
	// judged is true once something was read: before that, what the former agent reported stands.
	judged bool
	// readAt is when to read next; pendingSince is since when a reading has been under way, zero where none is.
	readAt       time.Time
	pendingSince time.Time
	// late is true once it has been logged that a reading does not end.
	late    bool
	results chan serverResult
	// asked are the servers that are being asked, answers what others have said since the last reading.
	asked   map[serverhealth.Key]bool
	answers []serverhealth.Question
	// reported is what was reported of each server's last answer. It is brought up to date with the state alone: each report is a write.
	reported map[serverhealth.Key]answerReport
	// clientName is what the node's NFSv4 client introduces itself by.
	clientName string
	// start runs something beside the loop.
	start func(func())
}

// answerReport is the last answer as it stood when a state began.
type answerReport struct {
	state v1alpha1.ServerState
	at    time.Time
}

// serverResult is a reading, or the answer to a question.
type serverResult struct {
	reading  *serverReading
	question *serverhealth.Question
}

type serverReading struct {
	at       time.Time
	counters []mounts.ServerCounters
	lines    []kernellog.Line
	sockets  []sockets.Socket
	// clientName is as in HealthReader.
	clientName string
	err        error
}

func newServerWatch() serverWatch {
	return serverWatch{
		// As many as can be under way, so that none waits for the loop.
		results: make(chan serverResult, maxAskedServers+1), asked: map[serverhealth.Key]bool{},
		reported: map[serverhealth.Key]answerReport{}, start: func(f func()) { go f() },
	}
}

// followServers takes in what was read and begins the next reading where it is due.
func (a *Agent) followServers(ctx context.Context) {
	s := &a.servers
	for len(s.results) > 0 {
		a.takeServerResult(ctx, <-s.results)
	}
	now := a.clock.Now()
	if a.host.Health.Counters == nil || now.Before(s.readAt) {
		return
	}
	s.readAt = now.Add(serversInterval)
	if !s.pendingSince.IsZero() {
		if !s.late && now.Sub(s.pendingSince) > readingLimit {
			s.late = true
			logr.FromContextOrDiscard(ctx).Info("Reading the counters of storage servers takes long; the rest goes on", "since", s.pendingSince)
		}
		return
	}
	s.pendingSince, s.late = now, false
	owes := slices.ContainsFunc(s.verdicts, func(v serverhealth.Verdict) bool { return v.Ask })
	health, results, clock := a.host.Health, s.results, a.clock
	s.start(func() {
		r := health.read(owes)
		r.at = clock.Now()
		results <- serverResult{reading: &r}
	})
}

// read reads all that there is. Without log and sockets, the counters tell it, if later and less of the cause.
func (h HealthReader) read(owes bool) serverReading {
	r := serverReading{}
	if r.counters, r.err = h.Counters(); r.err != nil {
		return r
	}
	if h.Log != nil {
		r.lines, _ = h.Log()
	}
	if h.Sockets != nil && owes {
		r.sockets, _ = h.Sockets()
	}
	if h.ClientName != nil {
		r.clientName = h.ClientName()
	}
	return r
}

func (a *Agent) takeServerResult(ctx context.Context, result serverResult) {
	s := &a.servers
	switch {
	case result.question != nil:
		delete(s.asked, result.question.Key)
		s.answers = append(s.answers, *result.question)
	case result.reading != nil:
		s.pendingSince = time.Time{}
		if err := result.reading.err; err != nil {
			logr.FromContextOrDiscard(ctx).Info("Cannot read the counters of storage servers, trying again", "error", err.Error())
			return
		}
		a.recallServers()
		s.verdicts, s.judged = s.watch.Note(result.reading.at, batchOf(*result.reading, s.answers)), true
		s.answers, s.clientName = nil, text.Cut(result.reading.clientName, maxClientName)
		a.askServers(ctx, result.reading.counters)
		a.serverMetrics.note(s.verdicts)
	}
}

// recallServers goes on where the agent before this one left off in the same boot.
func (a *Agent) recallServers() {
	if a.servers.judged || a.clientNode == nil || a.clientNode.Status.BootID != a.boot.id {
		return
	}
	for _, s := range a.clientNode.Status.Servers {
		if s.Since != nil {
			a.servers.watch.Recall(serverhealth.Verdict{
				Key: serverhealth.Key{Server: s.Server, Protocol: s.Protocol}, State: s.State, Reason: s.Reason, Message: s.Message,
				Since: s.Since.Time, LastAnswer: ptr.Deref(s.LastAnswerTime, metav1.Time{}).Time,
			})
			a.servers.reported[serverhealth.Key{Server: s.Server, Protocol: s.Protocol}] = answerReport{s.State, ptr.Deref(s.LastAnswerTime, metav1.Time{}).Time}
		}
	}
}

func batchOf(reading serverReading, answers []serverhealth.Question) serverhealth.Batch {
	batch := serverhealth.Batch{Questions: answers}
	for _, c := range reading.counters {
		r := serverhealth.Reading{
			Key: keyOf(c), Address: c.Address, Tunnel: c.Tunnel, Connections: c.Connections, Queues: c.Queues, Requests: c.Requests,
			RequestsKnown: c.RequestsKnown, Operations: c.Operations, Handles: c.Handles, Identified: c.Identified, Refused: c.Refused,
		}
		for _, socket := range reading.sockets {
			if socket.Remote.String() == c.Address {
				r.Sockets = append(r.Sockets, serverhealth.Socket{Port: socket.Local, Repeats: socket.Repeats})
			}
		}
		batch.Readings = append(batch.Readings, r)
	}
	for _, line := range reading.lines {
		batch.Lines = append(batch.Lines, serverhealth.Line{Server: line.Server, At: reading.at.Add(-line.Age), Responds: line.Responds})
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

// askServers asks those servers, over a connection of the agent's own, that owe an answer.
func (a *Agent) askServers(ctx context.Context, counters []mounts.ServerCounters) {
	s := &a.servers
	for _, v := range s.verdicts {
		i := slices.IndexFunc(counters, func(c mounts.ServerCounters) bool { return keyOf(c) == v.Key })
		if !v.Ask || i < 0 || counters[i].Ask.Address == "" || s.asked[v.Key] || len(s.asked) >= maxAskedServers || a.host.AskServer == nil {
			continue
		}
		s.asked[v.Key] = true
		key, server, ask, results, clock := v.Key, counters[i].Ask, a.host.AskServer, s.results, a.clock
		s.start(func() {
			question := questionOf(key, ask(ctx, server))
			question.At = clock.Now()
			results <- serverResult{question: &question}
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

// serverStatuses are what is reported of the servers. Where there are too many, those that fail come first.
func (a *Agent) serverStatuses() []v1alpha1.ServerStatus {
	if !a.servers.judged && a.host.Health.Counters != nil && a.clientNode.Status.BootID == a.boot.id {
		return slices.Clone(a.clientNode.Status.Servers)
	}
	verdicts := slices.Clone(a.servers.verdicts)
	slices.SortStableFunc(verdicts, func(x, y serverhealth.Verdict) int { return rankOf(x.State) - rankOf(y.State) })
	var list []v1alpha1.ServerStatus
	for _, v := range firstOf(verdicts, maxServers) {
		// The API server would refuse the whole status for a name that is none.
		if v.Server != "" && len(v.Server) <= maxName {
			list = append(list, a.serverStatus(v))
		}
	}
	slices.SortFunc(list, func(x, y v1alpha1.ServerStatus) int {
		return strings.Compare(x.Server+" "+string(x.Protocol), y.Server+" "+string(y.Protocol))
	})
	return list
}

// clientNameToReport is what the former agent reported until something was read.
func (a *Agent) clientNameToReport() string {
	if !a.servers.judged && a.host.Health.ClientName != nil && a.clientNode.Status.BootID == a.boot.id {
		return a.clientNode.Status.NFS4ClientName
	}
	return a.servers.clientName
}

func isFailing(state v1alpha1.ServerState) bool {
	return state == v1alpha1.ServerSilent || state == v1alpha1.ServerStuck
}

func rankOf(state v1alpha1.ServerState) int {
	if isFailing(state) {
		return 0
	}
	return 1
}

func (a *Agent) serverStatus(v serverhealth.Verdict) v1alpha1.ServerStatus {
	status := v1alpha1.ServerStatus{
		Server: v.Server, Protocol: v.Protocol, Address: text.Cut(v.Address, maxAddress), State: v.State, Reason: v.Reason,
		Message: text.Cut(v.Message, maxMessage), Connections: int32(v.Connections), StuckConnections: int32(v.Stuck), WaitingRequests: roundDown(v.Waiting),
		Since: timeOf(v.Since), LastAnswerTime: timeOf(a.answerToReport(v)), Forgetting: v.Flapping,
	}
	if !isFailing(v.State) && len(v.Stale) == 0 {
		return status
	}
	var volumes, pods []string
	for _, m := range a.table.Mounts {
		if m.Server != v.Server || m.IsNetwork() && (strings.HasPrefix(m.FSType, "nfs")) != (v.Protocol == v1alpha1.ServerNFS) {
			continue
		}
		if len(v.Stale) > 0 && !slices.Contains(v.Stale, m.MountPoint) {
			continue
		}
		if m.Volume != "" && len(m.Volume) <= maxName {
			volumes = append(volumes, m.Volume)
		}
		pods = append(pods, slices.DeleteFunc(slices.Clone(m.PodUIDs), func(uid string) bool { return len(uid) > maxUID })...)
	}
	status.Volumes, status.PodUIDs = firstOf(distinct(volumes), maxServerVolumes), firstOf(distinct(pods), maxServerPods)
	return status
}

// answerToReport is when a server had answered last when its state began.
func (a *Agent) answerToReport(v serverhealth.Verdict) time.Time {
	if reported, known := a.servers.reported[v.Key]; known && reported.state == v.State {
		return reported.at
	}
	a.servers.reported[v.Key] = answerReport{v.State, v.LastAnswer}
	return v.LastAnswer
}

// roundDown rounds a number down to a power of two: when a server dies, all of its clients would write each time it grows.
func roundDown(n int) int32 {
	if n < 1 {
		return 0
	}
	return 1 << min(bits.Len(uint(n))-1, 30)
}

func timeOf(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	at := metav1.NewTime(t.UTC().Truncate(time.Second))
	return &at
}

func distinct(values []string) []string {
	slices.Sort(values)
	return slices.Compact(values)
}
