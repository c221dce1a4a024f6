package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/mounts"
	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/standing"
	"github.com/storageclient/operator/tuning/text"
)

// maxAnnounce is how often the write of Started is tried again when somebody else has written in between, as the
// manager does with its part of the status.
const maxAnnounce = 5

// decidePermit answers the permit that the client node has. From the moment that its generation is reported without Started,
// the manager may take a permit back. So it is false, and nothing must be reported, while a permit is undecided, and every
// answer is final but one: a permit that waits for the host is decided anew each time that the host is asked, from a live
// read on, and announceReboot has the last word on whether it still stands.
func (a *Agent) decidePermit(ctx context.Context) bool {
	permit := a.clientNode.Spec.RebootPermit
	if permit == nil {
		a.reboot = nil
		return true
	}
	if a.reboot != nil && a.reboot.PermitID == permit.ID && !a.isHostDue() {
		return true
	}
	if a.reboot = a.earlierAnswer(a.clientNode, permit.ID); a.reboot != nil {
		return true
	}
	if !a.reporter.mayTry() {
		return false
	}
	log := logr.FromContextOrDiscard(ctx).WithValues("permit", permit.ID)
	live, err := a.api.Get(ctx)
	if err != nil {
		log.Error(err, "Cannot read the StorageClientNode, the permit waits")
		a.reporter.noteFailed()
		return false
	}
	if versionOf(live) != versionOf(a.clientNode) {
		// The watch brings what is newer, to be carried out first.
		a.reporter.noteFailed()
		return false
	}
	if a.reboot = a.earlierAnswer(live, permit.ID); a.reboot != nil {
		return true
	}
	why := a.findObjection(live)
	if why == "" && a.awaitHost(ctx, permit.ID) {
		return true
	}
	if why == "" {
		why = a.rearmTrial()
	}
	if why != "" {
		log.Info("Refused the permit", "reason", why)
		a.reboot = &v1alpha1.RebootStatus{PermitID: permit.ID, Phase: v1alpha1.RebootRefused, Message: why}
		return true
	}
	a.reboot = a.usePermit(ctx, live)
	return true
}

// earlierAnswer returns what became of a permit before this agent started, or nil. One that is used up in this very boot
// has not brought a reboot, and must not bring one any more.
func (a *Agent) earlierAnswer(clientNode *v1alpha1.StorageClientNode, id string) *v1alpha1.RebootStatus {
	usedIn, used := a.host.Journal.UsedPermit(id)
	if used && usedIn != a.boot.id {
		return &v1alpha1.RebootStatus{PermitID: id, Phase: v1alpha1.RebootStarted}
	}
	if used {
		return failedReboot(id, "permit used, not rebooted: the agent stopped in between, or the host did not go down")
	}
	reported := clientNode.Status.Reboot
	if reported == nil || reported.PermitID != id || reported.Phase == v1alpha1.RebootWaiting {
		return nil
	}
	if reported.Phase == v1alpha1.RebootStarted && clientNode.Status.BootID == a.boot.id {
		return failedReboot(id, "permit used, not rebooted: the journal has no record of it")
	}
	return reported.DeepCopy()
}

func failedReboot(id, message string) *v1alpha1.RebootStatus {
	return &v1alpha1.RebootStatus{PermitID: id, Phase: v1alpha1.RebootFailed, Message: message}
}

// findObjection says why the host must not be rebooted with the permit, or nothing.
func (a *Agent) findObjection(live *v1alpha1.StorageClientNode) string {
	permit, restoresOnly := live.Spec.RebootPermit, a.host.restoresOnly()
	// The manager asks the same before it claims the node.
	settings := standing.Read(&live.Spec, &v1alpha1.StorageClientNodeStatus{Settings: a.outcome.settings, RebootRequiredBy: a.outcome.rebootBy}, "")
	switch obstacles := settings.Obstacles(); {
	case permit.BootHash != live.Spec.BootHash:
		return fmt.Sprintf("the permit is for boot hash %q, the wanted one is %q", permit.BootHash, live.Spec.BootHash)
	case permit.BootID != a.boot.id:
		return fmt.Sprintf("the permit is for boot %s, the node is in boot %s", permit.BootID, a.boot.id)
	case !a.outcome.carriedOut:
		return "the settings could not be applied"
	case restoresOnly != "":
		return "not rebooted: " + restoresOnly
	case len(obstacles) > 0:
		return "settings would fail the node after its boot: " + standing.Describe(obstacles)
	case len(a.outcome.rebootBy) == 0:
		return "no setting is waiting for a reboot"
	}
	return a.findBusyMounts(permit.IgnorePodUIDs)
}

// findBusyMounts reads the mount table at this very moment.
func (a *Agent) findBusyMounts(ignorePodUIDs []string) string {
	busy, malformed, err := a.host.Mounts.Busy()
	if err != nil {
		return "cannot read the mounts: " + err.Error()
	}
	if malformed > 0 {
		return "cannot read " + text.Count(malformed, "line") + " of the mount table"
	}
	busy = slices.DeleteFunc(busy, func(b mounts.Busy) bool {
		return b.PodUID != "" && slices.Contains(ignorePodUIDs, b.PodUID)
	})
	if len(busy) == 0 {
		return ""
	}
	var points []string
	for _, b := range busy {
		points = append(points, b.MountPoint)
	}
	return "still mounted: " + host.ListNames(points)
}

// isHostDue reports whether the permit waits for the host, and it is time to ask again.
func (a *Agent) isHostDue() bool {
	return a.reboot.Phase == v1alpha1.RebootWaiting && !a.clock.Now().Before(a.holdersAt)
}

// awaitHost asks the host whether something on it must not be interrupted. The permit waits then, and where that cannot be told.
func (a *Agent) awaitHost(ctx context.Context, id string) bool {
	holders, err := a.host.Rebooter.FindHolders(ctx)
	message := text.Join(holders, "; ")
	if err != nil {
		message = "cannot tell what a reboot would interrupt: " + err.Error()
	}
	if message == "" {
		return false
	}
	logr.FromContextOrDiscard(ctx).Info("The host is busy, the permit waits", "permit", id, "reason", message)
	a.reboot = &v1alpha1.RebootStatus{PermitID: id, Phase: v1alpha1.RebootWaiting, Message: message}
	a.holdersAt = a.clock.Now().Add(addJitter(holdersInterval))
	return true
}

// rearmTrial makes sure that a node which does not come up from this reboot comes back with its old boot entry, where that has
// been staged so: an earlier boot, or somebody else, may have used the trial up.
func (a *Agent) rearmTrial() string {
	if err := a.host.rearmTrial(); err != nil {
		return "cannot arm the trial boot: " + err.Error()
	}
	return ""
}

// usePermit uses the permit up and reboots. Every way out but a reboot leaves the permit used up.
func (a *Agent) usePermit(ctx context.Context, live *v1alpha1.StorageClientNode) *v1alpha1.RebootStatus {
	id := live.Spec.RebootPermit.ID
	log := logr.FromContextOrDiscard(ctx).WithValues("permit", id)
	if err := a.host.Journal.UsePermit(id, a.boot.id); err != nil {
		log.Error(err, "Cannot write the permit to the journal, not rebooting")
		return failedReboot(id, "permit not journalled, not rebooted: "+err.Error())
	}
	if err := a.announceReboot(ctx, live); err != nil {
		log.Error(err, "Cannot announce the reboot, not rebooting")
		return failedReboot(id, "permit used, not rebooted: "+err.Error())
	}
	log.Info("Rebooting the host", "settings", text.List(a.outcome.rebootBy))
	if err := a.host.Rebooter.Reboot(ctx); err != nil {
		log.Error(err, "The host refused to reboot")
		return failedReboot(id, "the host refused to reboot: "+err.Error())
	}
	return startedReboot(id)
}

func startedReboot(id string) *v1alpha1.RebootStatus {
	return &v1alpha1.RebootStatus{PermitID: id, Phase: v1alpha1.RebootStarted}
}

// announceReboot writes Started on the very client node that has the permit: the resource version makes it impossible that
// the manager takes the permit back at the same time. Where somebody else's write comes in between, the permit is
// looked at again.
func (a *Agent) announceReboot(ctx context.Context, live *v1alpha1.StorageClientNode) error {
	wanted, id := versionOf(live), live.Spec.RebootPermit.ID
	for attempt := 1; ; attempt++ {
		a.reboot = startedReboot(id)
		status := a.currentStatus()
		_, err := a.api.ApplyStatus(ctx, status, live.ResourceVersion)
		if err == nil {
			a.noteWritten(status)
			return nil
		}
		if !apierrors.IsConflict(err) || attempt == maxAnnounce {
			return err
		}
		if live, err = a.api.Get(ctx); err != nil {
			return err
		}
		if versionOf(live) != wanted {
			return errors.New("the StorageClientNode changed after the permit was read")
		}
	}
}
