package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strconv"

	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/connect"
	"github.com/storageclient/operator/agent/host/journal"
	"github.com/storageclient/operator/agent/report"
	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/nodesettings"
	"github.com/storageclient/operator/tuning/standing"
)

// Local carries settings out on one machine without a cluster: the same subjects, journal and fence as the loop, and
// a report in the place of the status. It never reboots. The machine may be the tree of an image, in which no kernel
// runs.
type Local struct {
	// Machine is what is changed. For Plan and Observe, its file system is to be read-only.
	Machine Machine
	// Allowed is what is admitted beyond the catalogue, as in Config.
	Allowed Allowed
	// NoConfirm keeps settings that touch the network without a proof over new connections.
	NoConfirm bool
	// Clock waits between the attempts of a proof. The proof's end is by the host's boot clock.
	Clock clock.Clock
}

// ImageRunner keeps commands that would talk to a running system away from an image: the kernel, the daemons and the
// mounts that such a command finds are those of the machine that the image is made on.
type ImageRunner struct {
	host.Runner
}

// imageCommands work on files of the tree alone.
var imageCommands = []string{"grub-mkconfig", "grub2-mkconfig", "grubby"}

// Run implements host.Runner.
func (r ImageRunner) Run(ctx context.Context, argv ...string) ([]byte, error) {
	if len(argv) > 0 && !slices.Contains(imageCommands, argv[0]) {
		return nil, fmt.Errorf("run %s: an image has no running system: %w", argv[0], exec.ErrNotFound)
	}
	return r.Runner.Run(ctx, argv...)
}

// Plan says how the host stands against the profiles and what Apply would do. It changes nothing.
func (l Local) Plan(ctx context.Context, profiles []v1alpha1.StorageClientProfile) (report.Report, error) {
	return l.compareHost(ctx, report.Plan, profiles)
}

// Observe says how the host stands against the profiles, or without any against what was applied last. It changes
// nothing.
func (l Local) Observe(ctx context.Context, profiles []v1alpha1.StorageClientProfile) (report.Report, error) {
	return l.compareHost(ctx, report.Observe, profiles)
}

func (l Local) compareHost(ctx context.Context, command string, profiles []v1alpha1.StorageClientProfile) (report.Report, error) {
	r, spec, err := l.beginReport(command, profiles)
	if err != nil {
		return r, err
	}
	p, err := l.Machine.beginPass(spec, l.Allowed)
	if err != nil {
		return r, err
	}
	p.observeAll(ctx)
	for _, it := range p.only((*item).isWanted) {
		s := settingOf(command, p, it)
		if s.Action == report.Set {
			s.Proof = l.proofOf(p, it)
		}
		r.Settings = append(r.Settings, s)
	}
	for _, it := range p.only((*item).isDropped) {
		r.Settings = append(r.Settings, l.restoreSettingOf(ctx, command, it))
	}
	sumUp(&r)
	return r, nil
}

// settingOf is how a wanted setting stands before anything is done.
func settingOf(command string, p *pass, it *item) report.Setting {
	s := report.Setting{SettingStatus: p.wantedStatus(it), Profile: it.wanted.Profile}
	if command != report.Plan {
		return s
	}
	switch {
	case it.refused != nil || slices.Contains(untouchedStates, host.State(s.State)):
		s.Action = report.Leave
	case s.TakesEffect == v1alpha1.EffectAction && s.State == v1alpha1.SettingPending:
		s.Action = report.Do
	case s.State == v1alpha1.SettingDrifted && s.TakesEffect == v1alpha1.EffectReboot:
		s.Action = report.Stage
	case s.State == v1alpha1.SettingDrifted:
		s.Action = report.Set
	}
	if s.State == v1alpha1.SettingDrifted && it.unrecorded {
		// Nobody has changed what was never set.
		s.State = v1alpha1.SettingPending
	}
	return s
}

// restoreSettingOf is how a setting stands that the journal holds and nobody declares any more.
func (l Local) restoreSettingOf(ctx context.Context, command string, it *item) report.Setting {
	status := v1alpha1.SettingStatus{
		Key: it.key, Desired: it.restore.Value, Original: it.restore.Value, TakesEffect: catalogue.Effect(it.key),
		State: v1alpha1.SettingDrifted, Message: "no longer declared: apply restores its original",
	}
	if subject := l.Machine.subjectOf(it.key); subject != nil {
		for _, o := range subject.Observe(ctx, []host.Setting{hostSetting(it.name, it.journalled)}) {
			status.Observed, status.TakesEffect = o.Observed, v1alpha1.SettingEffect(o.Effect)
		}
	}
	if it.failed != "" {
		status.State, status.Message = v1alpha1.SettingFailed, it.failed
	}
	s := report.Setting{SettingStatus: status, Profile: it.journalled.Profile}
	if command == report.Plan {
		s.Action = report.PutBack
	}
	return s
}

// Apply makes the host hold what the profiles declare, and puts back what they no longer do.
func (l Local) Apply(ctx context.Context, profiles []v1alpha1.StorageClientProfile) (report.Report, error) {
	r, spec, err := l.beginReport(report.Apply, profiles)
	if err != nil {
		return r, err
	}
	err = l.changeHost(ctx, &r, spec)
	return r, err
}

// Restore puts back what the journal holds, but for what is to be retained. Profiles, where they are given, have the
// last word on that.
func (l Local) Restore(ctx context.Context, profiles []v1alpha1.StorageClientProfile) (report.Report, error) {
	r, spec, err := l.beginReport(report.Restore, profiles)
	if err != nil {
		return r, err
	}
	spec.Release = true
	err = l.changeHost(ctx, &r, spec)
	if err != nil || !r.AsDeclared {
		return r, err
	}
	_, err = l.Machine.Journal.Remove(r.BootID)
	return r, err
}

func (l Local) changeHost(ctx context.Context, r *report.Report, spec v1alpha1.StorageClientNodeSpec) error {
	l.Machine.unchecked = l.NoConfirm
	if err := l.Machine.endInterrupted(ctx, r.BootID); err != nil {
		return err
	}
	p, err := l.carryOut(ctx, spec)
	if err != nil {
		return err
	}
	if p.hasUnconfirmed() {
		if p, err = l.confirm(ctx, p, r, spec); err != nil {
			return err
		}
	}
	p.forgetRestored(spec.Release)
	// A new boot menu may have shown that the present one cannot be replaced.
	r.Bootloader = bootloaderStatus(l.Machine.Bootloader())
	for _, it := range p.only((*item).isWanted) {
		r.Settings = append(r.Settings, report.Setting{SettingStatus: p.wantedStatus(it), Profile: it.wanted.Profile})
	}
	for _, it := range p.only((*item).isDropped) {
		r.Settings = append(r.Settings, report.Setting{SettingStatus: p.restoreStatus(it), Profile: it.journalled.Profile})
	}
	sumUp(r)
	return nil
}

func (l Local) carryOut(ctx context.Context, spec v1alpha1.StorageClientNodeSpec) (*pass, error) {
	p, err := l.Machine.beginPass(spec, l.Allowed)
	if err != nil {
		return nil, err
	}
	return p, p.carryOut(ctx)
}

// beginReport validates and merges the profiles. Nothing may be changed where it returns an error.
func (l Local) beginReport(command string, profiles []v1alpha1.StorageClientProfile) (report.Report, v1alpha1.StorageClientNodeSpec, error) {
	var spec v1alpha1.StorageClientNodeSpec
	r := report.Report{
		Command: command, HostRoot: l.Machine.FS.Dir(), Image: l.Machine.FS.IsImage(), Bootloader: bootloaderStatus(l.Machine.Bootloader()),
	}
	if !r.Image {
		boot, err := l.Machine.readBoot()
		if err != nil {
			return r, spec, err
		}
		r.BootID, r.KernelVersion = boot.id, boot.kernelVersion
	}
	if err := l.validateProfiles(&r, profiles); err != nil {
		return r, spec, err
	}
	l.Machine.adviseOn(&r, profiles)
	if err := l.Machine.Journal.Load(); err != nil {
		return r, spec, err
	}
	journalled := journalledSettings(l.Machine.Journal.Entries())
	spec.Volumes = journalledVolumes(l.Machine.Journal.Entries())
	if len(profiles) == 0 {
		spec.Settings = journalled
		return r, spec, nil
	}
	merged := nodesettings.Merge(profiles, journalled)
	spec.Settings, spec.Hash, spec.BootHash = merged.Settings, merged.Hash, merged.BootHash
	r.Hash, r.Omitted = merged.Hash, merged.Omitted
	for _, c := range merged.Conflicts {
		r.Conflicts = append(r.Conflicts, report.Conflict(c))
	}
	return r, spec, nil
}

// journalledSettings are what the journal says was applied last.
func journalledSettings(entries map[string]journal.Entry) []v1alpha1.NodeSetting {
	var journalled []v1alpha1.NodeSetting
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		if _, ok := volumeOf(key); ok {
			continue
		}
		entry := entries[key]
		onRemoval := v1alpha1.DeletionRestore
		if entry.Retain {
			onRemoval = v1alpha1.DeletionRetain
		}
		journalled = append(journalled, v1alpha1.NodeSetting{Key: key, Value: entry.Applied, Profile: entry.Profile, OnRemoval: onRemoval})
	}
	return journalled
}

// journalledVolumes are the volumes whose read-ahead an agent in a cluster has set. They are not for profiles on one machine to
// decide about, but go back with everything else.
func journalledVolumes(entries map[string]journal.Entry) []v1alpha1.NodeVolume {
	var journalled []v1alpha1.NodeVolume
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		volume, ok := volumeOf(key)
		if size, err := strconv.ParseInt(entries[key].Applied, 10, 32); ok && err == nil {
			journalled = append(journalled, v1alpha1.NodeVolume{Name: volume, ReadAheadKiB: ptr.To(int32(size))})
		}
	}
	return journalled
}

// validateProfiles refuses what the manager would make Stalled, in the same words.
func (l Local) validateProfiles(r *report.Report, profiles []v1alpha1.StorageClientProfile) error {
	allow, err := l.Allowed.list()
	if err != nil {
		return err
	}
	var wrong []error
	seen := map[string]bool{}
	for i := range profiles {
		profile := &profiles[i]
		about := "profile " + profile.Name + ": "
		r.Profiles = append(r.Profiles, profile.Name)
		if seen[profile.Name] {
			wrong = append(wrong, errors.New(about+"given twice"))
		}
		seen[profile.Name] = true
		for _, problem := range nodesettings.Validate(profile, allow) {
			if problem.Warning {
				r.Warnings = append(r.Warnings, about+problem.String())
			} else {
				wrong = append(wrong, errors.New(about+problem.String()))
			}
		}
		if r.Command == report.Apply && profile.Spec.Mode == v1alpha1.ModePlan {
			wrong = append(wrong, errors.New(about+"spec.mode: Plan changes nothing: use the command plan"))
		}
		if r.Command == report.Apply && profile.Spec.Paused {
			wrong = append(wrong, errors.New(about+"spec.paused: a paused profile is not applied"))
		}
		if len(profile.Spec.Volumes) > 0 {
			r.Warnings = append(r.Warnings, about+"spec.volumes: ignored without a cluster, except for FromNconnect")
		}
	}
	return errors.Join(wrong...)
}

func sumUp(r *report.Report) {
	for _, s := range r.Settings {
		waits := standing.Of(s.SettingStatus, false) == standing.PendingReboot
		if !r.Image && (waits || s.Action == report.Stage) {
			r.RebootRequiredBy = append(r.RebootRequiredBy, s.Key)
		}
	}
	r.RebootRequired = len(r.RebootRequiredBy) > 0
	r.Judge()
}

// noServerNote is why nothing can be proven on a machine without a cluster.
const noServerNote = "not set: this machine mounts from no server over TCP, so no new connection can prove it: mount one first, or use --no-confirm"

// proofOf says how a setting is proven before it is kept, "" where it needs no proof.
func (l Local) proofOf(p *pass, it *item) string {
	if !p.needsProof(it) {
		return ""
	}
	servers, err := l.Machine.Servers()
	switch {
	case err != nil:
		return "cannot be proven: " + err.Error()
	case len(servers) == 0:
		return "cannot be proven: this machine mounts from no server over TCP; apply refuses it without --no-confirm"
	}
	return fmt.Sprintf("kept once a new connection to %s has worked within %s, else put back", servers[0], confirmWithin)
}

// confirm sets what is to be proven, asks a server over new connections, and keeps it or puts it back. It returns the pass that
// has come of it.
func (l Local) confirm(ctx context.Context, p *pass, r *report.Report, spec v1alpha1.StorageClientNodeSpec) (*pass, error) {
	server, ok, err := l.Machine.chooseServer(ctx)
	if err != nil {
		p.failUnconfirmed("not set: " + err.Error())
		return p, nil //nolint:nilerr // the settings say it
	}
	if !ok {
		p.failUnconfirmed(noServerNote)
		return p, nil
	}
	if err := p.setUnconfirmed(ctx, spec.Hash, r.BootID, l.Clock.Now); err != nil {
		return p, err
	}
	u, open := l.Machine.unconfirmed()
	if !open {
		return p, nil
	}
	broken := l.askWhile(ctx, server, func() bool { return l.Machine.timeToProve(u, r.BootID) > 0 })
	if broken == nil {
		if err := l.Machine.Journal.Confirm(); err != nil {
			return p, err
		}
		return l.carryOut(ctx, spec)
	}
	return p, l.giveUp(ctx, p, u, r.BootID, failure{server.String(), broken}, server)
}

// giveUp puts back what was not confirmed, and finds out whether the settings were the cause.
func (l Local) giveUp(ctx context.Context, p *pass, u journal.Unconfirmed, bootID string, broken failure, server connect.Server) error {
	// Whoever stops the command wants the old values all the more.
	settled := context.WithoutCancel(ctx)
	if err := l.Machine.endUnconfirmed(settled, bootID, l.Machine.Journal.Abandon); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("stopped, and put back what was not confirmed: %w", err)
	}
	note := brokeNote(u.Keys(), []failure{broken})
	retestUntil := l.Machine.fromNow(retestWithin)
	if l.askWhile(ctx, server, func() bool { return l.Machine.until(retestUntil) > 0 }) != nil {
		note = outageNote([]failure{broken})
	}
	p.observeAll(settled)
	p.failUnconfirmed(note)
	return nil
}

// askWhile asks a server over new connections until one works, as long as there is time. It returns why the last did not work.
func (l Local) askWhile(ctx context.Context, server connect.Server, hasTime func() bool) error {
	for {
		err := l.Machine.AskServer(ctx, server)
		if err == nil || ctx.Err() != nil || !hasTime() {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-l.Clock.After(proofPause):
		}
	}
}
