// Package mountwatch monitors the mounts of one node and compares them with the declarations for their volumes.
package mountwatch

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/clock"

	"github.com/storageclient/operator/agent/bounds"
	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/mounts"
	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/knownbad"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/text"
)

const (
	// Interval is the interval between reads of the mount table. It is short because a drain waits for the last unmount.
	Interval     = 5 * time.Second
	fullInterval = time.Minute
)

// Limits of status.mounts.
const (
	maxOption = 256
	maxPods   = 64
	maxMounts = 128
	// maxUsers is the limit of the pods of a busy mount. Beyond it, the pods are not reported, because all of them must be known.
	maxUsers = 16
)

// Reader reads the mounts of the host. mounts.Reader implements it.
type Reader interface {
	// Read returns the mounts with all available data.
	Read() (mounts.Table, error)
	// Busy returns only the busy mounts, and the number of malformed lines in the mount table.
	Busy() (busy []mounts.Busy, malformed int, err error)
	// Orphans returns the network mounts that no process of a pod can use.
	Orphans() []mounts.Orphan
}

// Watch monitors the mounts.
type Watch struct {
	reader  Reader
	modules Modules
	clock   clock.Clock
	// table is the result of the last successful read. err is the current read error.
	table mounts.Table
	err   error
	// tableAt is the time of the next read of the mount table. fullAt is the time of the next full read, even without changes.
	tableAt, fullAt time.Time
	sightings       sightings
	orphans         orphans
}

// New returns the watch of a node.
func New(reader Reader, modules Modules, clock clock.Clock) *Watch {
	return &Watch{reader: reader, modules: modules, clock: clock}
}

// Due returns the time of the next read of the mount table.
func (w *Watch) Due() time.Time { return w.tableAt }

// Run reads the mount table when it is due. If the table has changed or a minute has passed, it reads all mount data. It reports whether
// this full read succeeded.
func (w *Watch) Run() bool {
	now := w.clock.Now()
	if now.Before(w.tableAt) {
		return false
	}
	w.tableAt = now.Add(Interval)
	busy, malformed, err := w.reader.Busy()
	same := err == nil && malformed == w.table.Malformed && reflect.DeepEqual(busy, w.table.Busy)
	if same && w.err == nil && now.Before(w.fullAt) {
		w.sightings.noteUnchanged(now)
		return false
	}
	w.Read()
	return w.err == nil
}

// Read reads the mounts with all data.
func (w *Watch) Read() {
	table, err := w.reader.Read()
	if w.err = err; err == nil {
		now := w.clock.Now()
		w.table, w.fullAt = table, now.Add(fullInterval)
		w.sightings.noteMounts(table.Mounts, now)
		w.orphans.note(w.reader.Orphans, now)
	}
}

// Mounts returns the mounts of the last successful read.
func (w *Watch) Mounts() []mounts.Mount { return w.table.Mounts }

// FindBusy reads the mount table now and describes the mounts that a reboot must not interrupt. Empty if there are none. It ignores
// mounts of the pods with the given UIDs, and global mounts that only these pods use.
func (w *Watch) FindBusy(ignored []string) string {
	busy, malformed, err := w.reader.Busy()
	if err != nil {
		return "cannot read the mounts: " + err.Error()
	}
	if malformed > 0 {
		return "cannot read " + text.Count(malformed, "line") + " of the mount table"
	}
	points := lists.Pick(lists.Each(busy, busyStatus), func(m v1alpha1.BusyMount) (string, bool) { return m.MountPoint, !m.IsIgnored(ignored) })
	if len(points) == 0 {
		return ""
	}
	return "still mounted: " + host.ListNames(points)
}

// Report sets the mount fields of the status. readAhead is the read-ahead state by volume.
func (w *Watch) Report(status *v1alpha1.StorageClientNodeStatus, spec *v1alpha1.StorageClientNodeSpec, readAhead map[string]ReadAhead) {
	status.Mounts, status.MountsOmitted = statusesOf(w.table.Mounts, newJudge(spec, readAhead, w.table.Mounts, w.modules), w.sightings)
	status.Signs = w.table.Signs
	w.orphans.report(status.Mounts, w.clock.Now())
	busy := lists.Each(w.table.Busy, busyStatus)
	status.BusyMounts, status.BusyMountsOmitted = boundList(busy, func(m v1alpha1.BusyMount) string { return m.MountPoint })
	status.BusyMountsOmitted += int32(w.table.Malformed)
	if w.err != nil {
		// The mounts are unknown, which also blocks a reboot.
		status.BusyMountsOmitted++
	}
}

// statusesOf prefers network mounts if there are too many mounts.
func statusesOf(all []mounts.Mount, j *comparison, history sightings) (list []v1alpha1.MountStatus, omitted int32) {
	local := slices.DeleteFunc(slices.Clone(all), mounts.Mount.IsNetwork)
	for _, m := range append(lists.Filter(all, mounts.Mount.IsNetwork), local...) {
		status := statusOf(m, j)
		if sighting := history.byDevice[m.Device]; !sighting.mountedAt.IsZero() {
			status.Since, status.Used = bounds.Time(sighting.mountedAt), sighting.used
		}
		list = append(list, status)
	}
	list, omitted = boundList(list, func(m v1alpha1.MountStatus) string { return m.MountPoint })
	slices.SortFunc(list, func(a, b v1alpha1.MountStatus) int { return strings.Compare(a.MountPoint, b.MountPoint) })
	return list, omitted
}

func statusOf(m mounts.Mount, j *comparison) v1alpha1.MountStatus {
	status := v1alpha1.MountStatus{
		MountPoint:   text.Cut(m.MountPoint, bounds.MountPoint),
		Volume:       text.Cut(m.Volume, bounds.Name),
		Server:       text.Cut(m.Server, bounds.Name),
		Protocol:     text.Cut(m.Protocol, bounds.Word),
		Connections:  int32(m.Connections),
		SlotLimit:    int32(m.SlotLimit),
		ReadAheadKiB: int32(m.ReadAheadKiB),
	}
	status.State, status.Message = j.judgeMount(m)
	if j.volumes[m.Volume].ReadAheadKiB != nil {
		status.ReadAheadState = j.readAhead[m.Volume].State
	}
	status.Options = lists.Each(bounds.First(m.Options, bounds.Options), func(option string) string { return text.Cut(option, maxOption) })
	status.PodUIDs = lists.Filter(bounds.First(m.PodUIDs, maxPods), func(uid string) bool { return len(uid) <= bounds.UID })
	return status
}

func busyStatus(b mounts.Busy) v1alpha1.BusyMount {
	status := v1alpha1.BusyMount{
		MountPoint: text.Cut(b.MountPoint, bounds.MountPoint),
		PodUID:     text.Cut(b.PodUID, bounds.UID),
		Volume:     text.Cut(b.Volume, bounds.Name),
		FSType:     text.Cut(b.FSType, bounds.Word),
	}
	if len(b.PodUIDs) <= maxUsers {
		status.PodUIDs = lists.Each(b.PodUIDs, func(uid string) string { return text.Cut(uid, bounds.UID) })
	}
	return status
}

func boundList[T any](all []T, point func(T) string) (list []T, omitted int32) {
	seen := map[string]bool{}
	for _, m := range all {
		if len(list) == maxMounts || seen[point(m)] {
			omitted++
			continue
		}
		seen[point(m)] = true
		list = append(list, m)
	}
	return list, omitted
}

// orphanAfter is the time for which a mount must be without a pod. Between a mount and the first process of its pod, the kubelet mounts the pod's other
// volumes.
const orphanAfter = 5 * time.Minute

// orphans are the mounts that no pod uses, by mount point. readAt is the time of the next read.
type orphans struct {
	found  map[string]mounts.Orphan
	readAt time.Time
}

// note reads the orphans at most once a minute, because that reads a file of every process.
func (o *orphans) note(read func() []mounts.Orphan, now time.Time) {
	if now.Before(o.readAt) {
		return
	}
	former := o.found
	o.found, o.readAt = map[string]mounts.Orphan{}, now.Add(fullInterval)
	for _, orphan := range read() {
		orphan.Since = now
		if known, ok := former[orphan.MountPoint]; ok {
			orphan.Since = known.Since
		}
		o.found[orphan.MountPoint] = orphan
	}
}

// report adds the finding to the messages of mounts that are orphans for long enough.
func (o *orphans) report(list []v1alpha1.MountStatus, now time.Time) {
	for i := range list {
		m := &list[i]
		if orphan, ok := o.found[m.MountPoint]; ok && now.Sub(orphan.Since) >= orphanAfter {
			message := fmt.Sprintf("orphan: no process of its pod runs on this node (pod %s, server %s, directory last changed %s); do not access it, "+
				"because that can hang. %s", cmp.Or(orphan.PodUID, "unknown: staging mount"), m.Server, orphan.Changed.UTC().Format(time.RFC3339), m.Message)
			m.Message = text.Cut(strings.TrimSpace(message), bounds.Message)
		}
	}
}

// Signs returns the function for mounts.Reader.Signs that evaluates the registry of known problems.
func Signs(fs host.FS) func(m mounts.Mount, operations map[string]mounts.Operation) []string {
	value := func(file string) string {
		text, _ := fs.ReadValue(file)
		return text
	}
	return func(m mounts.Mount, operations map[string]mounts.Operation) (ids []string) {
		counts := func(operation string) knownbad.Counts {
			return knownbad.Counts{Requests: operations[operation].Count, Errors: operations[operation].Errors}
		}
		for _, e := range knownbad.Entries() {
			if e.Concerns(m.Protocol, m.Options) && e.Sign.IsShown(value, counts) {
				ids = append(ids, e.ID)
			}
		}
		return ids
	}
}
