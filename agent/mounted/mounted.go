// Package mounted follows what is mounted on one node, and reports how it compares with what the volumes declare.
package mounted

import (
	"slices"
	"strings"
	"time"

	"k8s.io/utils/clock"

	"github.com/storageclient/operator/agent/bounds"
	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/mounts"
	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/text"
)

const (
	// Interval is how often the mount table is looked at: a drain waits for the last mount to go.
	Interval = 5 * time.Second
	// fullInterval is how often the mounts are read with all their numbers.
	fullInterval = time.Minute
)

// Bounds of status.mounts.
const (
	maxOption = 256
	maxPods   = 64
	maxMounts = 128
)

// Reader reads the host's mounts. mounts.Reader is it.
type Reader interface {
	// Read reads the mounts with all that is known of them.
	Read() (mounts.Table, error)
	// Busy reads the busy mounts alone, and how many lines of the mount table could not be read.
	Busy() (busy []mounts.Busy, malformed int, err error)
}

// Watch follows the mounts.
type Watch struct {
	reader  Reader
	modules Modules
	clock   clock.Clock
	// table is what was mounted when it could be read last, err why it cannot be read now.
	table mounts.Table
	err   error
	// tableAt is when the table is looked at next, fullAt when it is read even if the busy mounts are the same.
	tableAt, fullAt time.Time
	// sightings tell since when what is mounted is.
	sightings sightings
}

// New returns the watch of a node.
func New(reader Reader, modules Modules, clock clock.Clock) *Watch {
	return &Watch{reader: reader, modules: modules, clock: clock}
}

// Due returns when the mount table is looked at next.
func (w *Watch) Due() time.Time { return w.tableAt }

// Run looks at the mount table when that is due, and reads all of the mounts' numbers if it has changed or a minute has passed. It
// reports whether all was read.
func (w *Watch) Run() bool {
	now := w.clock.Now()
	if now.Before(w.tableAt) {
		return false
	}
	w.tableAt = now.Add(Interval)
	busy, malformed, err := w.reader.Busy()
	same := err == nil && malformed == w.table.Malformed && slices.Equal(busy, w.table.Busy)
	if same && w.err == nil && now.Before(w.fullAt) {
		w.sightings.noteUnchanged(now)
		return false
	}
	w.Read()
	return w.err == nil
}

// Read reads the mounts with all their numbers.
func (w *Watch) Read() {
	table, err := w.reader.Read()
	if w.err = err; err == nil {
		now := w.clock.Now()
		w.table, w.fullAt = table, now.Add(fullInterval)
		w.sightings.noteMounts(table.Mounts, now)
	}
}

// Mounts returns what was mounted when it was read last.
func (w *Watch) Mounts() []mounts.Mount { return w.table.Mounts }

// FindBusy reads the mount table at this very moment, and says what of it must not be interrupted by a reboot; empty if nothing is. It
// ignores the pods with these UIDs.
func (w *Watch) FindBusy(ignored []string) string {
	busy, malformed, err := w.reader.Busy()
	if err != nil {
		return "cannot read the mounts: " + err.Error()
	}
	if malformed > 0 {
		return "cannot read " + text.Count(malformed, "line") + " of the mount table"
	}
	var points []string
	for _, b := range busy {
		if b.PodUID == "" || !slices.Contains(ignored, b.PodUID) {
			points = append(points, b.MountPoint)
		}
	}
	if len(points) == 0 {
		return ""
	}
	return "still mounted: " + host.ListNames(points)
}

// Report sets what is reported of the mounts. ReadAhead holds by volume how its read-ahead stands.
func (w *Watch) Report(status *v1alpha1.StorageClientNodeStatus, spec *v1alpha1.StorageClientNodeSpec, readAhead map[string]ReadAhead) {
	status.Mounts, status.MountsOmitted = statusesOf(w.table.Mounts, newJudge(spec, readAhead, w.table.Mounts, w.modules), w.sightings)
	status.BusyMounts, status.BusyMountsOmitted = busyStatuses(w.table.Busy)
	status.BusyMountsOmitted += int32(w.table.Malformed)
	if w.err != nil {
		// What is mounted is not known, and that holds a reboot back as well.
		status.BusyMountsOmitted++
	}
}

// statusesOf keeps network mounts rather than others where there are too many.
func statusesOf(all []mounts.Mount, j *judge, since sightings) (list []v1alpha1.MountStatus, omitted int32) {
	ordered := slices.Clone(all)
	slices.SortStableFunc(ordered, func(a, b mounts.Mount) int {
		switch {
		case a.IsNetwork() == b.IsNetwork():
			return 0
		case a.IsNetwork():
			return -1
		}
		return 1
	})
	for _, m := range ordered {
		status := statusOf(m, j)
		if sighting := since.byDevice[m.Device]; !sighting.since.IsZero() {
			status.Since, status.Used = bounds.Time(sighting.since), sighting.used
		}
		list = append(list, status)
	}
	list, omitted = boundList(list, func(m v1alpha1.MountStatus) string { return m.MountPoint })
	slices.SortFunc(list, func(a, b v1alpha1.MountStatus) int { return strings.Compare(a.MountPoint, b.MountPoint) })
	return list, omitted
}

func statusOf(m mounts.Mount, j *judge) v1alpha1.MountStatus {
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
	for _, option := range bounds.First(m.Options, bounds.Options) {
		status.Options = append(status.Options, text.Cut(option, maxOption))
	}
	for _, uid := range bounds.First(m.PodUIDs, maxPods) {
		if len(uid) <= bounds.UID {
			status.PodUIDs = append(status.PodUIDs, uid)
		}
	}
	return status
}

func busyStatuses(all []mounts.Busy) (list []v1alpha1.BusyMount, omitted int32) {
	for _, b := range all {
		list = append(list, v1alpha1.BusyMount{
			MountPoint: text.Cut(b.MountPoint, bounds.MountPoint),
			PodUID:     text.Cut(b.PodUID, bounds.UID),
			Volume:     text.Cut(b.Volume, bounds.Name),
			FSType:     text.Cut(b.FSType, bounds.Word),
		})
	}
	return boundList(list, func(m v1alpha1.BusyMount) string { return m.MountPoint })
}

// boundList keeps the first entry of each mount point, as many as the status may have.
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
