// Package permit decides on the reboot permit of a StorageClientNode, and reboots the host with it.
package permit

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"

	"github.com/storageclient/operator/agent/bounds"
	"github.com/storageclient/operator/agent/host/journal"
	"github.com/storageclient/operator/agent/reporter"
	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/standing"
	"github.com/storageclient/operator/tuning/text"
)

const (
	// holdersInterval is the interval between checks of a host that is too busy to reboot.
	holdersInterval = 15 * time.Second
	// maxAnnounce is the maximum number of attempts to write Started. An attempt fails if another writer updates the object in between.
	maxAnnounce = 5
)

// Rebooter reboots the host. reboot.Logind implements it.
type Rebooter interface {
	// FindHolders returns the names of work on the host that a reboot must not interrupt. An error means that they are unknown.
	FindHolders(ctx context.Context) ([]string, error)
	// Reboot returns after the host has accepted the shutdown.
	Reboot(ctx context.Context) error
}

// API reads the StorageClientNode live, not from a cache. It also returns the API server's time, zero if the response does not contain it.
type API interface {
	Get(ctx context.Context) (*v1alpha1.StorageClientNode, time.Time, error)
}

// Config contains the dependencies of a Permit. All fields are required.
type Config struct {
	API      API
	Clock    clock.Clock
	BootID   string
	Journal  *journal.Journal
	Rebooter Rebooter
	Reporter *reporter.Reporter
	// FindBusy describes the mounts that a reboot must not interrupt, except for mounts of the pods with the given UIDs. Empty if there are none.
	FindBusy func(ignoredPods []string) string
	// RearmTrial makes sure that a node that fails to boot falls back to its old boot entry, if a trial boot is staged. The trial may be used up. Without
	// a permit, a failure of the next boot does not count as a failed trial.
	RearmTrial func(permitted bool) error
	// Announce writes the status, including the permit, to exactly this version of the StorageClientNode.
	Announce func(ctx context.Context, resourceVersion string) error
}

// Permit is the state of the current reboot permit.
type Permit struct {
	Config
	// status is the reported status. Nil if there is no permit. holdersAt is the time of the next host check while the permit waits.
	status    *v1alpha1.RebootStatus
	holdersAt time.Time
}

// New returns a Permit without a current permit.
func New(config Config) *Permit { return &Permit{Config: config} }

// Settings is the state of the node settings.
type Settings struct {
	Statuses []v1alpha1.SettingStatus
	// RebootBy contains the keys that wait for a boot.
	RebootBy []string
	// CarriedOut is false if no setting could be tried. RestoresOnly is the reason why settings can only be restored.
	CarriedOut   bool
	RestoresOnly string
}

// Due returns the time of the next decision on a permit that waits for the host. Zero if no permit waits.
func (p *Permit) Due() time.Time {
	if p.status == nil || p.status.Phase != v1alpha1.RebootWaiting {
		return time.Time{}
	}
	return p.holdersAt
}

// Forget clears the permit, which belongs to another StorageClientNode.
func (p *Permit) Forget() { p.status = nil }

// IsOpen reports whether there is an undecided permit. After Run, the agent must not report a status while it is open: the manager may withdraw a
// permit whose generation is reported without Started.
func (p *Permit) IsOpen(permit *v1alpha1.RebootPermit) bool {
	return permit != nil && (p.status == nil || p.status.PermitID != permit.ID)
}

// Report sets the reboot status.
func (p *Permit) Report(status *v1alpha1.StorageClientNodeStatus) {
	if status.Reboot = p.status.DeepCopy(); status.Reboot != nil {
		status.Reboot.Message = text.Cut(status.Reboot.Message, bounds.Message)
	}
}

// Run decides on the permit of the StorageClientNode. Every decision is final, except for Waiting. A permit that waits for the host is
// decided again at each host check, starting with a live read. The announce step then verifies that the permit is still valid.
func (p *Permit) Run(ctx context.Context, clientNode *v1alpha1.StorageClientNode, settings Settings) {
	permit := clientNode.Spec.RebootPermit
	if permit == nil {
		p.status = nil
		return
	}
	if !p.IsOpen(permit) && (p.status.Phase != v1alpha1.RebootWaiting || p.Clock.Now().Before(p.holdersAt)) {
		return
	}
	if p.status = p.findResult(clientNode, permit.ID); p.status != nil {
		return
	}
	if !p.Reporter.MayTry() {
		return
	}
	live, _ := p.read(ctx, clientNode)
	if live == nil {
		return
	}
	if p.status = p.findResult(live, permit.ID); p.status != nil {
		return
	}
	p.status = p.decide(ctx, live, settings)
}

// read reads a permit again, live, and the API server's time. It returns nil if the permit must wait for another attempt.
func (p *Permit) read(ctx context.Context, checked *v1alpha1.StorageClientNode) (*v1alpha1.StorageClientNode, time.Time) {
	permit := checked.Spec.RebootPermit
	live, now, err := p.API.Get(ctx)
	switch {
	case err != nil:
		logr.FromContextOrDiscard(ctx).Error(err, "Cannot read the StorageClientNode; the permit waits", "permit", permit.ID)
	case !isSame(live, checked): // The watch delivers the newer object. It must be applied first.
	case permit.NotAfter != nil && now.IsZero():
		logr.FromContextOrDiscard(ctx).Info("The API server's response has no Date; the permit waits", "permit", permit.ID)
	default:
		return live, now
	}
	p.Reporter.NoteFailed()
	return nil, now
}

func (p *Permit) decide(ctx context.Context, live *v1alpha1.StorageClientNode, settings Settings) *v1alpha1.RebootStatus {
	id, log := live.Spec.RebootPermit.ID, logr.FromContextOrDiscard(ctx).WithValues("permit", live.Spec.RebootPermit.ID)
	reason := p.FindObjection(live, settings)
	if reason == "" {
		if busy := p.findHostWork(ctx); busy != "" {
			log.Info("The host is busy; the permit waits", "reason", busy)
			p.holdersAt = p.Clock.Now().Add(holdersInterval + rand.N(holdersInterval/4))
			return &v1alpha1.RebootStatus{PermitID: id, Phase: v1alpha1.RebootWaiting, Message: busy}
		}
		// Much time may have passed since the permit was read. It must not be used up for the error of a read.
		var now time.Time
		if live, now = p.read(ctx, live); live == nil {
			return nil
		}
		reason = expiry(live.Spec.RebootPermit, now)
	}
	if reason == "" {
		if err := p.RearmTrial(true); err != nil {
			reason = "cannot arm the trial boot: " + err.Error()
		}
	}
	if reason != "" {
		log.Info("Rejected the permit", "reason", reason)
		return &v1alpha1.RebootStatus{PermitID: id, Phase: v1alpha1.RebootRefused, Message: reason}
	}
	return p.use(ctx, live, settings.RebootBy)
}

// expiry returns the reason why a permit is over at the API server's time, empty if it is not. The local clock may be wrong, so it does not count.
func expiry(permit *v1alpha1.RebootPermit, now time.Time) string {
	switch {
	case permit.NotAfter == nil:
		return ""
	case now.IsZero():
		return "the API server's response has no Date, so the permit may be over"
	case now.After(permit.NotAfter.Time):
		return fmt.Sprintf("the permit expired at %s; the API server's time is %s", permit.NotAfter.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	}
	return ""
}

func isSame(a, b *v1alpha1.StorageClientNode) bool {
	return a.UID == b.UID && a.Generation == b.Generation
}

// findResult returns the result of a permit from before this agent started. Nil if there is none. A permit that was used in the current boot did
// not cause a reboot and must not cause one later.
func (p *Permit) findResult(clientNode *v1alpha1.StorageClientNode, id string) *v1alpha1.RebootStatus {
	usedIn, used := p.Journal.UsedPermit(id)
	if used && usedIn != p.BootID {
		return started(id)
	}
	if used {
		return p.fail(id, "permit used, not rebooted: the agent stopped too early, or the host did not shut down")
	}
	reported := clientNode.Status.Reboot
	if reported == nil || reported.PermitID != id || reported.Phase == v1alpha1.RebootWaiting {
		return nil
	}
	if reported.Phase == v1alpha1.RebootStarted && clientNode.Status.BootID == p.BootID {
		return p.fail(id, "permit used, not rebooted: the journal has no record of it")
	}
	return reported.DeepCopy()
}

// fail returns the status of a used permit that did not reboot the host. Another boot of the trial is not the permitted one.
func (p *Permit) fail(id, message string) *v1alpha1.RebootStatus {
	if err := p.RearmTrial(false); err != nil {
		message += "; cannot withdraw the permit of the trial boot: " + err.Error()
	}
	return &v1alpha1.RebootStatus{PermitID: id, Phase: v1alpha1.RebootFailed, Message: message}
}

func started(id string) *v1alpha1.RebootStatus {
	return &v1alpha1.RebootStatus{PermitID: id, Phase: v1alpha1.RebootStarted}
}

// FindObjection returns the reason why the permit must not reboot the host. Empty if there is none.
func (p *Permit) FindObjection(live *v1alpha1.StorageClientNode, settings Settings) string {
	permit := live.Spec.RebootPermit
	// The manager makes the same check before it claims the node.
	report := standing.Read(&live.Spec, &v1alpha1.StorageClientNodeStatus{Settings: settings.Statuses, RebootRequiredBy: settings.RebootBy}, "")
	switch obstacles := report.Obstacles(); {
	case permit.BootHash != live.Spec.BootHash:
		return fmt.Sprintf("the permit is for boot hash %q, the desired one is %q", permit.BootHash, live.Spec.BootHash)
	case permit.BootID != p.BootID:
		return fmt.Sprintf("the permit is for boot %s, the node is in boot %s", permit.BootID, p.BootID)
	case !settings.CarriedOut:
		return "the settings could not be applied"
	case settings.RestoresOnly != "":
		return "not rebooted: " + settings.RestoresOnly
	case len(obstacles) > 0:
		return "the node would fail after its boot with these settings: " + standing.Describe(obstacles)
	case len(settings.RebootBy) == 0:
		return "no setting is waiting for a reboot"
	}
	return p.FindBusy(permit.IgnorePodUIDs)
}

// findHostWork returns the work that a reboot must not interrupt, or the reason why it is unknown.
func (p *Permit) findHostWork(ctx context.Context) string {
	holders, err := p.Rebooter.FindHolders(ctx)
	if err != nil {
		return "cannot list the work that a reboot would interrupt: " + err.Error()
	}
	return text.Join(holders, "; ")
}

// use marks the permit as used and reboots the host. The permit stays used even if the reboot fails.
func (p *Permit) use(ctx context.Context, live *v1alpha1.StorageClientNode, rebootBy []string) *v1alpha1.RebootStatus {
	id, log := live.Spec.RebootPermit.ID, logr.FromContextOrDiscard(ctx).WithValues("permit", live.Spec.RebootPermit.ID)
	if err := p.Journal.UsePermit(id, p.BootID); err != nil {
		log.Error(err, "Cannot write the permit to the journal; not rebooting")
		return p.fail(id, "permit not recorded in the journal, not rebooted: "+err.Error())
	}
	if err := p.announce(ctx, live); err != nil {
		log.Error(err, "Cannot announce the reboot; not rebooting")
		return p.fail(id, "permit used, not rebooted: "+err.Error())
	}
	log.Info("Rebooting the host", "settings", text.List(rebootBy))
	if err := p.Rebooter.Reboot(ctx); err != nil {
		log.Error(err, "The host rejected the reboot")
		return p.fail(id, "the host rejected the reboot: "+err.Error())
	}
	return started(id)
}

// announce writes Started to the object that contains the permit. The resource version prevents a concurrent withdrawal of the permit by the manager.
func (p *Permit) announce(ctx context.Context, checked *v1alpha1.StorageClientNode) error {
	p.status = started(checked.Spec.RebootPermit.ID)
	err := p.Announce(ctx, checked.ResourceVersion)
	for attempt := 1; apierrors.IsConflict(err) && attempt < maxAnnounce; attempt++ {
		live, now, readErr := p.API.Get(ctx)
		if readErr != nil {
			return readErr
		}
		if !isSame(live, checked) {
			return errors.New("the StorageClientNode changed after the permit was read")
		}
		if reason := expiry(live.Spec.RebootPermit, now); reason != "" {
			return errors.New(reason)
		}
		err = p.Announce(ctx, live.ResourceVersion)
	}
	return err
}
