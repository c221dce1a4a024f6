package agent

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/agent/host/mounts"
	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/standing"
	"github.com/storageclient/operator/tuning/text"
)

// Bounds of the API, in characters and items.
const (
	maxMessage    = 1024
	maxValue      = 256
	maxObserved   = 1024
	maxMountPoint = 1024
	maxName       = 253
	maxUID        = 64
	maxWord       = 32
	maxVersion    = 128
	maxOption     = 256
	maxOptions    = 64
	maxPods       = 64
	maxMounts     = 128
	maxSettings   = 512
	maxRebootBy   = 64
)

// currentStatus is what is to be reported now. The hash is reported whenever the settings were gone through, failed ones
// included: it says which settings the states speak of, and the states say how they stand.
func (a *Agent) currentStatus() v1alpha1.StorageClientNodeStatus {
	status := v1alpha1.StorageClientNodeStatus{
		ObservedGeneration: a.applied.generation,
		BootID:             a.boot.id,
		KernelVersion:      text.Cut(a.boot.kernelVersion, maxVersion),
		Bootloader:         a.bootloader.DeepCopy(),
		Settings:           settingStatuses(a.outcome.settings, a.healed),
		RebootRequired:     len(a.outcome.rebootBy) > 0,
		RebootRequiredBy:   firstOf(slices.Sorted(slices.Values(a.outcome.rebootBy)), maxRebootBy),
		Reboot:             a.reboot.DeepCopy(),
		Restored:           a.outcome.restored,
		Trial:              a.trial.status.DeepCopy(),
		Sample:             a.sample.status.DeepCopy(),
	}
	if a.outcome.carriedOut {
		status.Hash = a.clientNode.Spec.Hash
	}
	if status.Reboot != nil {
		status.Reboot.Message = text.Cut(status.Reboot.Message, maxMessage)
	}
	status.Mounts, status.MountsOmitted = mountStatuses(a.table.Mounts, a.gatherMountJudge(), a.sightings)
	status.Servers, status.NFS4ClientName = a.serverStatuses(), a.clientNameToReport()
	status.BusyMounts, status.BusyMountsOmitted = busyMounts(a.table.Busy)
	status.BusyMountsOmitted += int32(a.table.Malformed)
	if a.tableErr != nil {
		// What is mounted is not known, and that holds a reboot back as well.
		status.BusyMountsOmitted++
	}
	status.Conditions = conditionsOf(&a.clientNode.Spec, &status, request{carriedOut: a.outcome.carriedOut, release: a.clientNode.Spec.Release}, a.reporter.conditions(a.clientNode), a.clock.Now())
	return status
}

func settingStatuses(settings []v1alpha1.SettingStatus, undone healed) []v1alpha1.SettingStatus {
	var list []v1alpha1.SettingStatus
	for _, s := range firstOf(settings, maxSettings) {
		s.Desired = text.Cut(s.Desired, maxValue)
		s.Observed = text.Cut(s.Observed, maxObserved)
		s.Original = text.Cut(s.Original, maxObserved)
		s.Message = text.Cut(s.Message, maxMessage)
		if drift, ok := undone[s.Key]; ok {
			s.Drift = &drift
		}
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b v1alpha1.SettingStatus) int { return strings.Compare(a.Key, b.Key) })
	return list
}

// mountStatuses keeps network mounts rather than others where there are too many.
func mountStatuses(all []mounts.Mount, judge *mountJudge, since sightings) (list []v1alpha1.MountStatus, omitted int32) {
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
	seen := map[string]bool{}
	for _, m := range ordered {
		status := mountStatus(m, judge)
		if sighting := since.byDevice[m.Device]; !sighting.since.IsZero() {
			status.Since, status.Used = ptr.To(metav1.NewTime(sighting.since.UTC().Truncate(time.Second))), sighting.used
		}
		if len(list) == maxMounts || seen[status.MountPoint] {
			omitted++
			continue
		}
		seen[status.MountPoint] = true
		list = append(list, status)
	}
	slices.SortFunc(list, func(a, b v1alpha1.MountStatus) int { return strings.Compare(a.MountPoint, b.MountPoint) })
	return list, omitted
}

func mountStatus(m mounts.Mount, judge *mountJudge) v1alpha1.MountStatus {
	status := v1alpha1.MountStatus{
		MountPoint:   text.Cut(m.MountPoint, maxMountPoint),
		Volume:       text.Cut(m.Volume, maxName),
		Server:       text.Cut(m.Server, maxName),
		Protocol:     text.Cut(m.Protocol, maxWord),
		Connections:  int32(m.Connections),
		SlotLimit:    int32(m.SlotLimit),
		ReadAheadKiB: int32(m.ReadAheadKiB),
	}
	status.State, status.Message = judge.judgeMount(m)
	for _, option := range firstOf(m.Options, maxOptions) {
		status.Options = append(status.Options, text.Cut(option, maxOption))
	}
	for _, uid := range firstOf(m.PodUIDs, maxPods) {
		if len(uid) <= maxUID {
			status.PodUIDs = append(status.PodUIDs, uid)
		}
	}
	return status
}

func busyMounts(all []mounts.Busy) (list []v1alpha1.BusyMount, omitted int32) {
	seen := map[string]bool{}
	for _, b := range all {
		busy := v1alpha1.BusyMount{
			MountPoint: text.Cut(b.MountPoint, maxMountPoint),
			PodUID:     text.Cut(b.PodUID, maxUID),
			Volume:     text.Cut(b.Volume, maxName),
			FSType:     text.Cut(b.FSType, maxWord),
		}
		if len(list) == maxMounts || seen[busy.MountPoint] {
			omitted++
			continue
		}
		seen[busy.MountPoint] = true
		list = append(list, busy)
	}
	return list, omitted
}

func firstOf[T any](list []T, n int) []T { return list[:min(len(list), n)] }

const (
	// reportInterval is the least time between two status writes that no one waits for.
	reportInterval = 10 * time.Second
	// A write that failed is tried again from minBackoff on, doubled each time, to maxBackoff.
	minBackoff = time.Second
	maxBackoff = 32 * time.Second
)

// reporter decides when a status is written.
type reporter struct {
	clock clock.Clock
	// last is what was written last; nil before the first time.
	last *v1alpha1.StorageClientNodeStatus
	// nextAt is when the next write may be that no one waits for; waiting is true while one is held back.
	nextAt  time.Time
	waiting bool
	// tryAt is when the API server is tried again after failures in a row.
	tryAt    time.Time
	failures int
}

// forgetReports forgets what was written: there is another client node, or none.
func (r *reporter) forgetReports() { *r = reporter{clock: r.clock} }

// conditions are those reported last, by an agent before this one too.
func (r *reporter) conditions(clientNode *v1alpha1.StorageClientNode) []metav1.Condition {
	if r.last != nil {
		return r.last.Conditions
	}
	return clientNode.Status.Conditions
}

// isDue tells whether a status is to be written now.
func (r *reporter) isDue(status v1alpha1.StorageClientNodeStatus) bool {
	r.waiting = false
	if r.last != nil && equality.Semantic.DeepEqual(*r.last, status) {
		r.failures, r.tryAt = 0, time.Time{}
		return false
	}
	r.waiting = r.last != nil && !isUrgent(*r.last, status) && r.clock.Now().Before(r.nextAt)
	return !r.waiting && r.mayTry()
}

// isUrgent tells whether the rollout, or somebody who has asked for it, waits for a change.
func isUrgent(was, is v1alpha1.StorageClientNodeStatus) bool {
	idle := func(s v1alpha1.StorageClientNodeStatus) bool {
		return len(s.BusyMounts) == 0 && s.BusyMountsOmitted == 0
	}
	return was.ObservedGeneration != is.ObservedGeneration || was.Hash != is.Hash ||
		was.RebootRequired != is.RebootRequired || was.Restored != is.Restored ||
		!equality.Semantic.DeepEqual(was.Reboot, is.Reboot) || !equality.Semantic.DeepEqual(was.Trial, is.Trial) || !equality.Semantic.DeepEqual(was.Sample, is.Sample) ||
		idle(is) && !idle(was) || countUnconfirmed(was) != countUnconfirmed(is) || failingServers(was) != failingServers(is)
}

// failingServers names the servers that do not answer, with their states.
func failingServers(status v1alpha1.StorageClientNodeStatus) string {
	var names []string
	for _, s := range status.Servers {
		if isFailing(s.State) {
			names = append(names, string(s.Protocol)+" "+s.Server+" "+string(s.State))
		}
	}
	return strings.Join(names, ",")
}

// countUnconfirmed counts the settings that new connections have yet to confirm.
func countUnconfirmed(status v1alpha1.StorageClientNodeStatus) (n int) {
	for _, s := range status.Settings {
		switch standing.Of(s, false) {
		case standing.Proving, standing.Unproven:
			n++
		default:
		}
	}
	return n
}

func (r *reporter) noteWritten(status v1alpha1.StorageClientNodeStatus) {
	r.last, r.waiting, r.failures, r.tryAt = &status, false, 0, time.Time{}
	r.nextAt = r.clock.Now().Add(addJitter(reportInterval))
}

func (r *reporter) noteFailed() {
	r.tryAt = r.clock.Now().Add(addJitter(min(minBackoff<<min(r.failures, 8), maxBackoff)))
	r.failures++
}

func (r *reporter) mayTry() bool { return !r.clock.Now().Before(r.tryAt) }

// dueAt is when a write that is held back, or has failed, is due; zero where none is.
func (r *reporter) dueAt() time.Time {
	switch {
	case !r.tryAt.IsZero():
		return r.tryAt
	case r.waiting:
		return r.nextAt
	}
	return time.Time{}
}

// reportStatus writes the status where that is due.
func (a *Agent) reportStatus(ctx context.Context) {
	status := a.currentStatus()
	a.settings.note(status.Settings)
	if a.awaitsFirstProof() || !a.reporter.isDue(status) {
		return
	}
	if _, err := a.api.ApplyStatus(ctx, status, ""); err != nil {
		if ctx.Err() == nil {
			logr.FromContextOrDiscard(ctx).Info("Cannot write the status, trying again", "error", err.Error())
		}
		a.reporter.noteFailed()
		return
	}
	a.noteWritten(status)
}

func (a *Agent) noteWritten(status v1alpha1.StorageClientNodeStatus) {
	a.reporter.noteWritten(status)
	a.ready.Store(true)
}
