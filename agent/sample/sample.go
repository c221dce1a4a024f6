// Package sample measures the mounts of one machine over a time window. It reads only counters and never accesses a mount.
package sample

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/clock"

	"github.com/storageclient/operator/agent/host/mounts"
	"github.com/storageclient/operator/agent/host/sockets"
	"github.com/storageclient/operator/tuning/counters"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/recommend"
)

// Mounts reads the kernel counters.
type Mounts interface {
	Read() (mounts.Table, error)
	Superblocks() ([]mounts.Superblock, error)
	Log(mounts.Mount) (counters.Log, bool)
}

// Sampler takes samples.
type Sampler struct {
	Mounts Mounts
	// Sockets is sockets.Read.
	Sockets func() ([]sockets.Socket, error)
	Clock   clock.Clock
}

// Take samples all network and XFS mounts, one superblock each, sorted by server, export, and mount point. It skips mounts that appear or
// disappear during the window.
func (s Sampler) Take(ctx context.Context, window time.Duration) ([]recommend.Sample, error) {
	before, err := s.read()
	if err != nil {
		return nil, err
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-s.Clock.After(window):
	}
	after, err := s.read()
	if err != nil {
		return nil, err
	}
	samples := compare(before, after)
	addSockets(samples, before, after)
	return samples, nil
}

// addSockets sets the minimum round-trip time and the segments of each NFS mount from the sockets to its server. If the kernel does not
// provide them, rules that need them do not apply.
func addSockets(samples []recommend.Sample, before, after reading) {
	previous := lists.Map(before.sockets, func(socket sockets.Socket) (int, sockets.Socket) { return socket.Local, socket })
	for _, b := range after.nfs {
		i := slices.IndexFunc(samples, func(s recommend.Sample) bool { return s.MountPoint == b.MountPoint })
		address, known := b.Address()
		if i < 0 || !known {
			continue
		}
		for _, socket := range after.sockets {
			if socket.Remote != address {
				continue
			}
			trip := uint64(socket.MinRoundTrip / time.Microsecond)
			if minimum := &samples[i].MinRoundTripMicros; trip > 0 && (*minimum == 0 || trip < *minimum) {
				*minimum = trip
			}
			var start counters.Network
			if p := previous[socket.Local]; p.Remote == address {
				start = p.Segments
			}
			all, grown := &samples[i].Network, socket.Segments.Since(start)
			all.InSegments, all.OutSegments = all.InSegments+grown.InSegments, all.OutSegments+grown.OutSegments
			all.Retransmitted, all.OutOfOrder = all.Retransmitted+grown.Retransmitted, all.OutOfOrder+grown.OutOfOrder
		}
	}
}

type reading struct {
	at          time.Time
	nfs         map[string]mounts.Superblock
	otherMounts map[string]other
	sockets     []sockets.Socket
}

type other struct {
	mounts.Mount
	log counters.Log
}

func (s Sampler) read() (reading, error) {
	r := reading{at: s.Clock.Now(), nfs: map[string]mounts.Superblock{}, otherMounts: map[string]other{}}
	blocks, err := s.Mounts.Superblocks()
	if err != nil {
		return r, err
	}
	for _, b := range blocks {
		r.nfs[b.Device] = b
	}
	table, err := s.Mounts.Read()
	if err != nil {
		return r, err
	}
	for _, m := range table.Mounts {
		if _, known := r.nfs[m.Device]; known {
			continue
		}
		if _, met := r.otherMounts[m.Device]; met {
			continue
		}
		log, _ := s.Mounts.Log(m)
		r.otherMounts[m.Device] = other{m, log}
	}
	// Without the sockets, the mount data is still useful.
	r.sockets, _ = s.Sockets()
	return r, nil
}

func compare(before, after reading) (samples []recommend.Sample) {
	seconds := after.at.Sub(before.at).Seconds()
	for device, now := range after.nfs {
		previous, known := before.nfs[device]
		if !known || !sameMount(previous.Mount, now.Mount) {
			continue
		}
		sample := describe(now.Mount, seconds)
		sample.SessionSlots = now.SessionSlots
		sample.Operations = operations(previous.Operations, now.Operations)
		sample.Bytes, sample.Events = now.Bytes.Since(previous.Bytes), now.Events.Since(previous.Events)
		sample.Connections = connections(previous.Transports, now.Transports)
		samples = append(samples, sample)
	}
	for device, now := range after.otherMounts {
		previous, known := before.otherMounts[device]
		if !known || !sameMount(previous.Mount, now.Mount) {
			continue
		}
		sample := describe(now.Mount, seconds)
		if now.IsNetwork() {
			sample.Requests = counters.Since(previous.Operations, now.Operations)
		} else {
			sample.Log = now.log.Since(previous.log)
		}
		samples = append(samples, sample)
	}
	slices.SortFunc(samples, func(a, b recommend.Sample) int {
		return strings.Compare(a.Server+a.Export+" "+a.MountPoint, b.Server+b.Export+" "+b.MountPoint)
	})
	return samples
}

// sameMount reports whether a device number still belongs to the same superblock.
func sameMount(previous, now mounts.Mount) bool {
	return previous.Server == now.Server && previous.Export == now.Export && previous.FSType == now.FSType && (now.Age < 0 || now.Age >= previous.Age)
}

func describe(m mounts.Mount, seconds float64) recommend.Sample {
	return recommend.Sample{
		Server: m.Server, Export: m.Export, MountPoint: m.MountPoint, Volume: m.Volume, Protocol: m.Protocol, Options: m.Options,
		ReadAheadKiB: m.ReadAheadKiB, SlotLimit: m.SlotLimit, Seconds: seconds,
	}
}

func operations(before, after []mounts.Operation) (found []recommend.Operation) {
	previousByName := lists.Map(before, func(o mounts.Operation) (string, mounts.Operation) { return o.Name, o })
	for _, now := range after {
		previous := previousByName[now.Name]
		if counters.Since(previous.Count, now.Count) == 0 {
			continue
		}
		found = append(found, recommend.Operation{
			Name: now.Name, Count: counters.Since(previous.Count, now.Count), Transmissions: counters.Since(previous.Transmissions, now.Transmissions),
			Errors: counters.Since(previous.Errors, now.Errors), BytesSent: counters.Since(previous.BytesSent, now.BytesSent),
			BytesReceived: counters.Since(previous.BytesReceived, now.BytesReceived),
			QueueMillis:   millis(previous.Queue, now.Queue), RoundTripMillis: millis(previous.RoundTrip, now.RoundTrip),
			ExecutionMillis: millis(previous.Execution, now.Execution),
		})
	}
	return found
}

// connections pairs transports by position, because they have no name.
func connections(before, after []mounts.TransportCounters) []recommend.Connection {
	if len(before) != len(after) {
		return nil
	}
	found := make([]recommend.Connection, 0, len(after))
	for i, now := range after {
		previous := before[i]
		c := recommend.Connection{
			Connects: counters.Since(previous.Connects, now.Connects), Sends: counters.Since(previous.Sends, now.Sends),
			Answers: counters.Since(previous.Responses, now.Responses), Backlog: counters.Since(previous.Backlog, now.Backlog),
			Sending: counters.Since(previous.Sending, now.Sending), IdleSeconds: uint64(now.Idle / time.Second),
		}
		// After a request was sent twice, the totals since the mount differ.
		c.InFlight = counters.Since(c.Answers, c.Sends)
		found = append(found, c)
	}
	return found
}

func millis(previous, now time.Duration) uint64 {
	return uint64(max(0, now-previous) / time.Millisecond)
}

// Report is the result of sampling a machine.
type Report struct {
	// Seconds is the length of the window.
	Seconds float64 `json:"seconds"`
	Mounts  []Mount `json:"mounts"`
}

// Mount is the sample of one mount with its verdict.
type Mount struct {
	recommend.Sample
	Verdict recommend.Verdict `json:"verdict"`
}

// Evaluate returns a report with a verdict for each sample.
func Evaluate(window time.Duration, samples []recommend.Sample) Report {
	r := Report{Seconds: window.Seconds(), Mounts: make([]Mount, 0, len(samples))}
	r.Mounts = append(r.Mounts, lists.Each(samples, func(s recommend.Sample) Mount { return Mount{s, recommend.For(s)} })...)
	return r
}

func (m Mount) name() string {
	if m.Server == "" {
		return m.MountPoint
	}
	return fmt.Sprintf("%s:%s on %s", m.Server, m.Export, m.MountPoint)
}
