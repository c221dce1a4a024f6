// Package sample measures the mounts of one machine over a time window. It reads only counters and never accesses a mount.
package sample

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/yaml"

	"github.com/storageclient/operator/agent/host/mounts"
	"github.com/storageclient/operator/agent/host/sockets"
	"github.com/storageclient/operator/agent/localreport"
	"github.com/storageclient/operator/tuning/advice"
	"github.com/storageclient/operator/tuning/counters"
	"github.com/storageclient/operator/tuning/drivers"
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
	for _, b := range after.mounts {
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
			all, grown := &samples[i].Network, counters.Growth(start, socket.Segments)
			all.InSegments, all.OutSegments = all.InSegments+grown.InSegments, all.OutSegments+grown.OutSegments
			all.Retransmitted, all.OutOfOrder = all.Retransmitted+grown.Retransmitted, all.OutOfOrder+grown.OutOfOrder
		}
	}
}

type reading struct {
	at time.Time
	// mounts are the superblocks by device.
	mounts  map[string]measured
	sockets []sockets.Socket
}

// measured is one superblock. Only NFS has operations, and only XFS has a log.
type measured struct {
	mounts.Superblock
	log counters.Log
}

func (s Sampler) read() (reading, error) {
	r := reading{at: s.Clock.Now()}
	blocks, err := s.Mounts.Superblocks()
	if err != nil {
		return r, err
	}
	r.mounts = lists.Map(blocks, func(b mounts.Superblock) (string, measured) { return b.Device, measured{Superblock: b} })
	table, err := s.Mounts.Read()
	if err != nil {
		return r, err
	}
	for _, m := range table.Mounts {
		// An NFS mount that is not known was made after its statistics were read.
		if _, isKnown := r.mounts[m.Device]; isKnown || strings.HasPrefix(m.FSType, "nfs") {
			continue
		}
		other := measured{Superblock: mounts.Superblock{Mount: m}}
		if !m.IsNetwork() {
			other.log, _ = s.Mounts.Log(m)
		}
		r.mounts[m.Device] = other
	}
	// Without the sockets, the mount data is still useful.
	r.sockets, _ = s.Sockets()
	return r, nil
}

func compare(before, after reading) (samples []recommend.Sample) {
	seconds := after.at.Sub(before.at).Seconds()
	for device, now := range after.mounts {
		previous, known := before.mounts[device]
		if !known || !sameMount(previous.Mount, now.Mount) {
			continue
		}
		sample := recommend.Sample{
			Server: now.Server, Export: now.Export, MountPoint: now.MountPoint, Volume: now.Volume, Protocol: now.Protocol, Options: now.Options,
			ReadAheadKiB: now.ReadAheadKiB, SlotLimit: now.SlotLimit, SessionSlots: now.SessionSlots, Seconds: seconds,
			Operations: operations(previous.Operations, now.Operations), Connections: connections(previous.Transports, now.Transports),
			Bytes: counters.Growth(previous.Bytes, now.Bytes), Events: counters.Growth(previous.Events, now.Events),
			Log: counters.Growth(previous.log, now.log),
		}
		if now.IsNetwork() && !strings.HasPrefix(now.FSType, "nfs") {
			sample.Requests = counters.Since(previous.Mount.Operations, now.Mount.Operations)
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

func operations(before, after []mounts.Operation) (found []recommend.Operation) {
	previousByName := lists.Map(before, func(o mounts.Operation) (string, mounts.Operation) { return o.Name, o })
	for _, now := range after {
		o := counters.Growth(previousByName[now.Name], now)
		if o.Count == 0 {
			continue
		}
		found = append(found, recommend.Operation{
			Name: o.Name, Count: o.Count, Transmissions: o.Transmissions, Errors: o.Errors, BytesSent: o.BytesSent, BytesReceived: o.BytesReceived,
			QueueMillis: uint64(o.Queue.Milliseconds()), RoundTripMillis: uint64(o.RoundTrip.Milliseconds()),
			ExecutionMillis: uint64(o.Execution.Milliseconds()),
		})
	}
	return found
}

// connections pairs transports by position, because they have no name.
func connections(before, after []mounts.TransportCounters) (found []recommend.Connection) {
	if len(before) != len(after) {
		return nil
	}
	for i, now := range after {
		grown := counters.Growth(before[i], now)
		found = append(found, recommend.Connection{
			Connects: grown.Connects, Sends: grown.Sends, Answers: grown.Responses, Backlog: grown.Backlog, Sending: grown.Sending,
			IdleSeconds: uint64(now.Idle / time.Second),
			// After a request was sent twice, the totals since the mount differ.
			InFlight: counters.Since(grown.Responses, grown.Sends),
		})
	}
	return found
}

// Report is the result of sampling a machine.
type Report struct {
	// Seconds is the length of the window.
	Seconds float64           `json:"seconds"`
	Mounts  []recommend.Mount `json:"mounts"`
}

// Evaluate returns a report with a verdict for each sample of a machine.
func Evaluate(window time.Duration, machine advice.Node, samples []recommend.Sample) Report {
	report := Report{Seconds: window.Seconds(), Mounts: []recommend.Mount{}}
	for _, s := range samples {
		report.Mounts = append(report.Mounts, recommend.Mount{Sample: s, Verdict: recommend.Evaluate(s, machine, drivers.Source{})})
	}
	return report
}

func nameOf(m recommend.Mount) string {
	if m.Server == "" {
		return m.MountPoint
	}
	return fmt.Sprintf("%s:%s on %s", m.Server, m.Export, m.MountPoint)
}

// shownOperations is the maximum number of operation kinds in the text output. Kinds with the longest execution time come first.
const shownOperations = 8

// Write writes the report as text, JSON, or YAML.
func (r Report) Write(w io.Writer, format string) error {
	return localreport.Encode(w, format, r, r.renderText)
}

func (r Report) renderText() ([]byte, error) {
	var b bytes.Buffer
	if len(r.Mounts) == 0 {
		return []byte("No NFS, SMB, or XFS file system was mounted during the whole measurement.\n"), nil
	}
	for i, m := range r.Mounts {
		if i > 0 {
			b.WriteString("\n")
		}
		if err := writeText(&b, m); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), nil
}

func writeText(b *bytes.Buffer, m recommend.Mount) error {
	about := m.Protocol
	if m.Volume != "" {
		about += ", volume " + m.Volume
	}
	localreport.Printf(b, "%s (%s)\n  %s\n", nameOf(m), about, m.Verdict.Summary)
	writeOperations(b, m)
	for _, f := range m.Verdict.Findings {
		localreport.Printf(b, "\n  %s: %s.\n    expected: %s\n", f.Rule, f.Seen, f.Effect)
		if f.Against != "" {
			localreport.Printf(b, "    against:  %s\n", f.Against)
		}
		if err := writeChange(b, f.Change); err != nil {
			return err
		}
	}
	return nil
}

func writeOperations(b *bytes.Buffer, m recommend.Mount) {
	if len(m.Operations) == 0 {
		return
	}
	longest := slices.SortedStableFunc(slices.Values(m.Operations), func(a, b recommend.Operation) int {
		return cmp.Or(cmp.Compare(b.ExecutionMillis, a.ExecutionMillis), cmp.Compare(b.Count, a.Count))
	})
	table := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "  operation\tcount\tper second\tqueue ms\tround trip ms\tKiB each\terrors\t")
	for _, o := range longest[:min(len(longest), shownOperations)] {
		n := float64(o.Count)
		localreport.Printf(table, "  %s\t%d\t%.1f\t%.1f\t%.1f\t%.1f\t%d\t\n", o.Name, o.Count, n/m.Seconds, float64(o.QueueMillis)/n,
			float64(o.RoundTripMillis)/n, float64(o.BytesSent+o.BytesReceived)/n/1024, o.Errors)
	}
	_ = table.Flush()
	if hidden := len(longest) - shownOperations; hidden > 0 {
		localreport.Printf(b, "  and %d more, with -o json\n", hidden)
	}
}

// writeChange prints the recommended change in the form of a profile.
func writeChange(b *bytes.Buffer, c recommend.Change) error {
	if c.MountOptions == nil && c.ReadAheadKiB == 0 && c.Node == nil {
		return nil
	}
	data, err := yaml.Marshal(c)
	if err != nil {
		return err
	}
	b.WriteString("    declare:\n")
	for line := range strings.Lines(string(data)) {
		b.WriteString("      " + line)
	}
	return nil
}
