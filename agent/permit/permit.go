// Package permit answers the reboot permit of one node's StorageClientNode, and reboots the host with it.
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
	// holdersInterval is how often the host is asked whether it is free for a reboot that it holds back.
	holdersInterval = 15 * time.Second
	// maxAnnounce is how often the write of Started is tried again when another writer has written in between, as the manager does with
	// its part of the status.
	maxAnnounce = 5
)

// Rebooter reboots the host. reboot.Logind is it.
type Rebooter interface {
	// FindHolders names what on the host a reboot must not interrupt. An error means that it is not known.
	FindHolders(ctx context.Context) ([]string, error)
	// Reboot returns once the host has agreed to go down.
	Reboot(ctx context.Context) error
}

// API reads the client node live, not from a cache.
type API interface {
	Get(ctx context.Context) (*v1alpha1.StorageClientNode, error)
}

// Config is what a permit is answered with. All of it has to be set.
type Config struct {
	API      API
	Clock    clock.Clock
	BootID   string
	Journal  *journal.Journal
	Rebooter Rebooter
	Reporter *reporter.Reporter
	// FindBusy says what of the host's mounts a reboot must not interrupt, without the pods with these UIDs; empty if nothing.
	FindBusy func(ignoredPods []string) string
	// RearmTrial makes sure that a node which does not come up from this reboot comes back with its old boot entry, where that has been
	// staged so: an earlier boot, or another user, may have used the trial up.
	RearmTrial func() error
	// Announce writes the status, with what is reported of the permit, on this very version of the client node.
	Announce func(ctx context.Context, resourceVersion string) error
}

// Permit is what became of the permit that the client node has.
type Permit struct {
	Config
	// status is what is reported; nil if there is no permit. While it waits, holdersAt is when the host is asked again.
	status    *v1alpha1.RebootStatus
	holdersAt time.Time
}

// New returns the permit of a node that has none yet.
func New(config Config) *Permit { return &Permit{Config: config} }

// Settings are how the node's settings stand.
type Settings struct {
	Statuses []v1alpha1.SettingStatus
	// RebootBy are the keys that wait for a boot.
	RebootBy []string
	// CarriedOut is false if nothing could be tried, RestoresOnly the reason why nothing may be changed except to restore it.
	CarriedOut   bool
	RestoresOnly string
}

// Answer is how far the answer to a permit has come.
type Answer int

const (
	// None means that there is no permit.
	None Answer = iota
	// Answered means that a report says what became of the permit.
	Answered
	// Undecided means that nothing must be reported: once the permit's generation is reported without Started, the manager may take the
	// permit back.
	Undecided
)

// Due returns when a permit that waits for the host is decided again; zero if none does.
func (p *Permit) Due() time.Time {
	if p.status == nil || p.status.Phase != v1alpha1.RebootWaiting {
		return time.Time{}
	}
	return p.holdersAt
}

// Forget forgets the permit: it is of another client node.
func (p *Permit) Forget() { p.status = nil }

// IsOpen reports whether there is a permit that has no answer yet.
func (p *Permit) IsOpen(permit *v1alpha1.RebootPermit) bool {
	return permit != nil && (p.status == nil || p.status.PermitID != permit.ID)
}

// Report sets what is reported of the permit.
func (p *Permit) Report(status *v1alpha1.StorageClientNodeStatus) {
	if status.Reboot = p.status.DeepCopy(); status.Reboot != nil {
		status.Reboot.Message = text.Cut(status.Reboot.Message, bounds.Message)
	}
}

// Run answers the permit that the client node has. Every answer is final but one: a permit that waits for the host is decided anew each
// time that the host is asked, from a live read on, and announce has the last word on whether it still stands.
func (p *Permit) Run(ctx context.Context, clientNode *v1alpha1.StorageClientNode, settings Settings) Answer {
	permit := clientNode.Spec.RebootPermit
	if permit == nil {
		p.status = nil
		return None
	}
	if !p.IsOpen(permit) && (p.status.Phase != v1alpha1.RebootWaiting || p.Clock.Now().Before(p.holdersAt)) {
		return Answered
	}
	if p.status = p.findAnswer(clientNode, permit.ID); p.status != nil {
		return Answered
	}
	if !p.Reporter.MayTry() {
		return Undecided
	}
	live, err := p.API.Get(ctx)
	if err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "Cannot read the StorageClientNode, the permit waits", "permit", permit.ID)
	}
	if err != nil || !isSame(live, clientNode) {
		// The watch brings what is newer, to be carried out first.
		p.Reporter.NoteFailed()
		return Undecided
	}
	if p.status = p.findAnswer(live, permit.ID); p.status == nil {
		p.status = p.decide(ctx, live, settings)
	}
	return Answered
}

func (p *Permit) decide(ctx context.Context, live *v1alpha1.StorageClientNode, settings Settings) *v1alpha1.RebootStatus {
	id, log := live.Spec.RebootPermit.ID, logr.FromContextOrDiscard(ctx).WithValues("permit", live.Spec.RebootPermit.ID)
	reason := p.FindObjection(live, settings)
	if reason == "" {
		if busy := p.askHost(ctx); busy != "" {
			log.Info("The host is busy, the permit waits", "reason", busy)
			p.holdersAt = p.Clock.Now().Add(holdersInterval + rand.N(holdersInterval/4))
			return &v1alpha1.RebootStatus{PermitID: id, Phase: v1alpha1.RebootWaiting, Message: busy}
		}
		if err := p.RearmTrial(); err != nil {
			reason = "cannot arm the trial boot: " + err.Error()
		}
	}
	if reason != "" {
		log.Info("Refused the permit", "reason", reason)
		return &v1alpha1.RebootStatus{PermitID: id, Phase: v1alpha1.RebootRefused, Message: reason}
	}
	return p.use(ctx, live, settings.RebootBy)
}

func isSame(a, b *v1alpha1.StorageClientNode) bool {
	return a.UID == b.UID && a.Generation == b.Generation
}

// findAnswer returns what became of a permit before this agent started, or nil. One that is used up in this very boot has not brought a
// reboot, and must not bring one any more.
func (p *Permit) findAnswer(clientNode *v1alpha1.StorageClientNode, id string) *v1alpha1.RebootStatus {
	usedIn, used := p.Journal.UsedPermit(id)
	if used && usedIn != p.BootID {
		return started(id)
	}
	if used {
		return failed(id, "permit used, not rebooted: the agent stopped in between, or the host did not go down")
	}
	reported := clientNode.Status.Reboot
	if reported == nil || reported.PermitID != id || reported.Phase == v1alpha1.RebootWaiting {
		return nil
	}
	if reported.Phase == v1alpha1.RebootStarted && clientNode.Status.BootID == p.BootID {
		return failed(id, "permit used, not rebooted: the journal has no record of it")
	}
	return reported.DeepCopy()
}

func failed(id, message string) *v1alpha1.RebootStatus {
	return &v1alpha1.RebootStatus{PermitID: id, Phase: v1alpha1.RebootFailed, Message: message}
}

func started(id string) *v1alpha1.RebootStatus {
	return &v1alpha1.RebootStatus{PermitID: id, Phase: v1alpha1.RebootStarted}
}

// FindObjection returns the reason why the host must not be rebooted with the permit, empty if there is none.
func (p *Permit) FindObjection(live *v1alpha1.StorageClientNode, settings Settings) string {
	permit := live.Spec.RebootPermit
	// The manager asks the same before it claims the node.
	report := standing.Read(&live.Spec, &v1alpha1.StorageClientNodeStatus{Settings: settings.Statuses, RebootRequiredBy: settings.RebootBy}, "")
	switch obstacles := report.Obstacles(); {
	case permit.BootHash != live.Spec.BootHash:
		return fmt.Sprintf("the permit is for boot hash %q, the wanted one is %q", permit.BootHash, live.Spec.BootHash)
	case permit.BootID != p.BootID:
		return fmt.Sprintf("the permit is for boot %s, the node is in boot %s", permit.BootID, p.BootID)
	case !settings.CarriedOut:
		return "the settings could not be applied"
	case settings.RestoresOnly != "":
		return "not rebooted: " + settings.RestoresOnly
	case len(obstacles) > 0:
		return "settings would fail the node after its boot: " + standing.Describe(obstacles)
	case len(settings.RebootBy) == 0:
		return "no setting is waiting for a reboot"
	}
	return p.FindBusy(permit.IgnorePodUIDs)
}

// askHost returns what on the host must not be interrupted, or why that is not known.
func (p *Permit) askHost(ctx context.Context) string {
	holders, err := p.Rebooter.FindHolders(ctx)
	if err != nil {
		return "cannot tell what a reboot would interrupt: " + err.Error()
	}
	return text.Join(holders, "; ")
}

// use uses the permit up and reboots. Every way out but a reboot leaves the permit used up.
func (p *Permit) use(ctx context.Context, live *v1alpha1.StorageClientNode, rebootBy []string) *v1alpha1.RebootStatus {
	id := live.Spec.RebootPermit.ID
	log := logr.FromContextOrDiscard(ctx).WithValues("permit", id)
	if err := p.Journal.UsePermit(id, p.BootID); err != nil {
		log.Error(err, "Cannot write the permit to the journal, not rebooting")
		return failed(id, "permit not journalled, not rebooted: "+err.Error())
	}
	if err := p.announce(ctx, live); err != nil {
		log.Error(err, "Cannot announce the reboot, not rebooting")
		return failed(id, "permit used, not rebooted: "+err.Error())
	}
	log.Info("Rebooting the host", "settings", text.List(rebootBy))
	if err := p.Rebooter.Reboot(ctx); err != nil {
		log.Error(err, "The host refused to reboot")
		return failed(id, "the host refused to reboot: "+err.Error())
	}
	return started(id)
}

// announce writes Started on the very client node that has the permit: the resource version makes it impossible that the manager takes the
// permit back at the same time. If another write comes in between, the permit is looked at again.
func (p *Permit) announce(ctx context.Context, live *v1alpha1.StorageClientNode) error {
	wanted := live
	for attempt := 1; ; attempt++ {
		p.status = started(wanted.Spec.RebootPermit.ID)
		err := p.Announce(ctx, live.ResourceVersion)
		if err == nil || !apierrors.IsConflict(err) || attempt == maxAnnounce {
			return err
		}
		if live, err = p.API.Get(ctx); err != nil {
			return err
		}
		if !isSame(live, wanted) {
			return errors.New("the StorageClientNode changed after the permit was read")
		}
	}
}
