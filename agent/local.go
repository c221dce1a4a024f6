package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"regexp"
	"slices"
	"strconv"

	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/connect"
	"github.com/storageclient/operator/agent/host/journal"
	"github.com/storageclient/operator/agent/localreport"
	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/advice"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/nodesettings"
	"github.com/storageclient/operator/tuning/standing"
)

// Local applies settings on one machine without a cluster. It uses the same subjects, journal, and fence as the loop, and returns a
// report instead of a status. It never reboots. The machine may be an image tree without a running kernel.
type Local struct {
	// Machine is the machine to change. For plan and observe, its file system must be read-only.
	Machine Machine
	// Allowed extends the catalogue, as in Config.
	Allowed Allowed
	// NoConfirm keeps settings that affect the network without a proof over new connections.
	NoConfirm bool
	// Clock times the pause between attempts of a proof. The deadline of the proof uses the boot clock of the host.
	Clock clock.Clock
}

// ImageRunner rejects commands that need a running system. In an image, such a command would reach the kernel, daemons, and mounts of the
// build machine.
type ImageRunner struct {
	host.Runner
}

// imageCommands only change files in the tree.
var imageCommands = []string{"grub-mkconfig", "grub2-mkconfig", "grubby"}

// Run implements host.Runner.
func (r ImageRunner) Run(ctx context.Context, argv ...string) ([]byte, error) {
	if len(argv) > 0 && !slices.Contains(imageCommands, argv[0]) {
		return nil, fmt.Errorf("run %s: an image has no running system: %w", argv[0], exec.ErrNotFound)
	}
	return r.Runner.Run(ctx, argv...)
}

// Run runs one command of package report. Plan and Observe do not change the host. Observe without profiles compares the host with the settings
// that were applied last. Apply also restores settings that the profiles no longer declare. Restore restores all settings in the journal except for
// retained ones. If profiles are given, their removal policy takes precedence.
func (l Local) Run(ctx context.Context, command string, profiles []v1alpha1.StorageClientProfile) (localreport.Report, error) {
	r, spec, err := l.beginReport(command, profiles)
	if err != nil {
		return r, err
	}
	switch command {
	case localreport.Plan, localreport.Observe:
		err = l.compareHost(ctx, &r, spec)
	case localreport.Apply:
		err = l.changeHost(ctx, &r, spec)
	case localreport.Restore:
		spec.Release = true
		if err = l.changeHost(ctx, &r, spec); err == nil && r.AsDeclared {
			_, err = l.Machine.Journal.Remove(r.BootID)
		}
	}
	return r, err
}

func (l Local) compareHost(ctx context.Context, r *localreport.Report, spec v1alpha1.StorageClientNodeSpec) error {
	p, err := l.Machine.beginPass(spec, l.Allowed)
	if err != nil {
		return err
	}
	p.observeAll(ctx)
	for _, it := range p.filter((*item).isDesired) {
		s := settingOf(r.Command, p, it)
		if s.Action == localreport.Set {
			s.Proof = l.proofOf(p, it)
		}
		r.Settings = append(r.Settings, s)
	}
	restored := func(it *item) localreport.Setting { return l.restoreSettingOf(ctx, r.Command, it) }
	r.Settings = append(r.Settings, lists.Each(p.filter((*item).isDropped), restored)...)
	sumUp(r)
	return nil
}

func settingOf(command string, p *pass, it *item) localreport.Setting {
	s := localreport.Setting{SettingStatus: p.desiredStatus(it), Profile: it.desired.Profile}
	if command != localreport.Plan {
		return s
	}
	switch {
	case it.rejection != nil || slices.Contains(untouchedStates, host.State(s.State)):
		s.Action = localreport.Leave
	case s.TakesEffect == v1alpha1.EffectAction && s.State == v1alpha1.SettingPending:
		s.Action = localreport.Do
	case s.State == v1alpha1.SettingDrifted && s.TakesEffect == v1alpha1.EffectReboot:
		s.Action = localreport.Stage
	case s.State == v1alpha1.SettingDrifted:
		s.Action = localreport.Set
	}
	if s.State == v1alpha1.SettingDrifted && it.unrecorded {
		// A setting that was never applied cannot drift.
		s.State = v1alpha1.SettingPending
	}
	return s
}

// restoreSettingOf returns the state of a setting that is in the journal but in no profile.
func (l Local) restoreSettingOf(ctx context.Context, command string, it *item) localreport.Setting {
	status := v1alpha1.SettingStatus{
		Key: it.key, Desired: it.restore.Value, Original: it.restore.Value, TakesEffect: catalogue.Effect(it.key),
		State: v1alpha1.SettingDrifted, Message: "no longer declared; apply restores its original value",
	}
	if subject := l.Machine.subjectOf(it.key); subject != nil {
		for _, o := range subject.Observe(ctx, []host.Setting{hostSetting(it.name, it.journalled)}) {
			status.Observed, status.TakesEffect = o.Observed, v1alpha1.SettingEffect(o.Effect)
		}
	}
	if it.failed != "" {
		status.State, status.Message = v1alpha1.SettingFailed, it.failed
	}
	s := localreport.Setting{SettingStatus: status, Profile: it.journalled.Profile}
	if command == localreport.Plan {
		s.Action = localreport.RestoreOriginal
	}
	return s
}

func (l Local) changeHost(ctx context.Context, r *localreport.Report, spec v1alpha1.StorageClientNodeSpec) error {
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
	// Writing a new boot menu may have revealed that it cannot be replaced.
	r.Bootloader = bootloaderStatus(l.Machine.Bootloader())
	r.Settings = append(lists.Each(p.filter((*item).isDesired), func(it *item) localreport.Setting {
		return localreport.Setting{SettingStatus: p.desiredStatus(it), Profile: it.desired.Profile}
	}), lists.Each(p.filter((*item).isDropped), func(it *item) localreport.Setting {
		return localreport.Setting{SettingStatus: p.restoreStatus(it), Profile: it.journalled.Profile}
	})...)
	sumUp(r)
	r.AsDeclared = r.AsDeclared && !(spec.Release && len(p.filter(func(it *item) bool { return it.restored.Kept })) > 0)
	return nil
}

func (l Local) carryOut(ctx context.Context, spec v1alpha1.StorageClientNodeSpec) (*pass, error) {
	p, err := l.Machine.beginPass(spec, l.Allowed)
	if err != nil {
		return nil, err
	}
	return p, p.carryOut(ctx)
}

// beginReport validates and merges the profiles. After an error, the host must not be changed.
func (l Local) beginReport(command string, profiles []v1alpha1.StorageClientProfile) (localreport.Report, v1alpha1.StorageClientNodeSpec, error) {
	var spec v1alpha1.StorageClientNodeSpec
	r := localreport.Report{
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
	spec.Settings, spec.Volumes = journalledIn(l.Machine.Journal.Entries())
	if len(profiles) == 0 {
		return r, spec, nil
	}
	merged := nodesettings.Merge(profiles, spec.Settings)
	spec.Settings, spec.Hash, spec.BootHash = merged.Settings, merged.Hash, merged.BootHash
	r.Hash, r.Omitted = merged.Hash, merged.Omitted
	r.Conflicts = merged.Conflicts
	return r, spec, nil
}

// journalledIn returns the settings in the journal, and the volumes whose read-ahead an agent in a cluster has set. Profiles cannot change the
// read-ahead of volumes here, but Restore restores it with all other settings.
func journalledIn(entries map[string]journal.Entry) (settings []v1alpha1.NodeSetting, volumes []v1alpha1.NodeVolume) {
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		entry := entries[key]
		if volume, ok := volumeOf(key); ok {
			if size, err := strconv.ParseInt(entry.Applied, 10, 32); err == nil {
				volumes = append(volumes, v1alpha1.NodeVolume{Name: volume, ReadAheadKiB: ptr.To(int32(size))})
			}
			continue
		}
		onRemoval := v1alpha1.DeletionRestore
		if entry.Retain {
			onRemoval = v1alpha1.DeletionRetain
		}
		settings = append(settings, v1alpha1.NodeSetting{Key: key, Value: entry.Applied, Profile: entry.Profile, OnRemoval: onRemoval})
	}
	return settings, volumes
}

// validateProfiles rejects the profiles that the manager would mark as Stalled, with the same messages.
func (l Local) validateProfiles(r *localreport.Report, profiles []v1alpha1.StorageClientProfile) error {
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
		if r.Command == localreport.Apply && profile.Spec.Mode == v1alpha1.ModePlan {
			wrong = append(wrong, errors.New(about+"spec.mode: Plan makes no changes; use the plan command"))
		}
		if r.Command == localreport.Apply && profile.Spec.Paused {
			wrong = append(wrong, errors.New(about+"spec.paused: a paused profile is not applied"))
		}
		if len(profile.Spec.Volumes) > 0 {
			r.Warnings = append(r.Warnings, about+"spec.volumes: ignored without a cluster, except for FromNconnect")
		}
	}
	return errors.Join(wrong...)
}

func sumUp(r *localreport.Report) {
	for _, s := range r.Settings {
		isPending := standing.Of(s.SettingStatus, false) == standing.PendingReboot
		if !r.Image && (isPending || s.Action == localreport.Stage) {
			r.RebootRequiredBy = append(r.RebootRequiredBy, s.Key)
		}
	}
	r.RebootRequired = len(r.RebootRequiredBy) > 0
	r.Evaluate()
}

// noServerNote is the message if the machine has no mount over TCP, and therefore no server for a proof.
const noServerNote = "not set: cannot be proven, because this machine has no mounts over TCP; mount a server first, or use --no-confirm"

// proofOf returns a description of the proof of a setting. Empty if the setting needs no proof.
func (l Local) proofOf(p *pass, it *item) string {
	if !p.needsProof(it) {
		return ""
	}
	servers, err := l.Machine.Servers()
	switch {
	case err != nil:
		return "cannot be proven: " + err.Error()
	case len(servers) == 0:
		return "cannot be proven: this machine has no mounts over TCP; apply sets it only with --no-confirm"
	}
	return fmt.Sprintf("kept if a new connection to %s works within %s, otherwise reverted", servers[0], confirmWithin)
}

// confirm sets the unconfirmed settings and tests a server over new connections. Then it keeps or reverts the settings. It returns the
// resulting pass.
func (l Local) confirm(ctx context.Context, p *pass, r *localreport.Report, spec v1alpha1.StorageClientNodeSpec) (*pass, error) {
	servers, err := l.Machine.chooseServers(ctx)
	if err != nil {
		p.failUnconfirmed("not set: " + err.Error())
		return p, nil //nolint:nilerr // the settings say it
	}
	if len(servers) == 0 {
		p.failUnconfirmed(noServerNote)
		return p, nil
	}
	server := servers[0]
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
	return p, l.giveUp(ctx, p, u, r.BootID, failure{to: server.String(), err: broken}, server)
}

// giveUp reverts the unconfirmed settings and determines whether they were the cause of the failure.
func (l Local) giveUp(ctx context.Context, p *pass, u journal.Unconfirmed, bootID string, broken failure, server connect.Server) error {
	// The old values must be restored even if the user stops the command.
	settled := context.WithoutCancel(ctx)
	if err := l.Machine.endUnconfirmed(settled, bootID, l.Machine.Journal.Abandon); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("stopped, and reverted unconfirmed settings: %w", err)
	}
	note := brokeNote(u.Keys(), []failure{broken})
	retestUntil := l.Machine.fromNow(retestWithin)
	if l.askWhile(ctx, server, func() bool { return l.Machine.timeUntil(retestUntil) > 0 }) != nil {
		note = outageNote([]failure{broken})
	}
	p.observeAll(settled)
	p.failUnconfirmed(note)
	return nil
}

// askWhile opens new connections to a server until one works or hasTime returns false. It returns the last error.
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

// Files with the memory size and with the TCP sockets of the host network namespace.
const (
	meminfoFile  = "/proc/meminfo"
	sockstatFile = "/proc/1/net/sockstat"
)

var (
	memTotal = regexp.MustCompile(`(?m)^MemTotal:\s+(\d+) kB$`)
	tcpInUse = regexp.MustCompile(`(?m)^TCP: inuse (\d+) `)
)

// adviseOn adds advice about the values of the profiles on this machine. For an image, the machines that boot it are unknown.
func (m Machine) adviseOn(r *localreport.Report, profiles []v1alpha1.StorageClientProfile) {
	node := advice.Node{Name: "this machine", Kernel: r.KernelVersion}
	if !r.Image {
		node = ThisMachine(m.FS)
	}
	for i := range profiles {
		r.Advice = append(r.Advice, lists.Each(advice.ForNode(&profiles[i], node), func(a v1alpha1.Advice) localreport.Advice {
			return localreport.Advice{Advice: a, Profile: profiles[i].Name}
		})...)
	}
}

// ThisMachine describes a running machine for advice. A value that cannot be read is missing, because missing advice must not be an error.
func ThisMachine(fs host.FS) advice.Node {
	kernel, _ := fs.ReadValue(kernelVersionFile)
	return advice.Node{
		Name: "this machine", Kernel: kernel, Build: readBuild(fs),
		Memory: numberIn(fs, meminfoFile, memTotal) * 1024, Sockets: numberIn(fs, sockstatFile, tcpInUse),
	}
}

// numberIn returns the number that a pattern matches in a file. Zero if there is none.
func numberIn(fs host.FS, file string, pattern *regexp.Regexp) int64 {
	text, err := fs.ReadValue(file)
	found := pattern.FindStringSubmatch(text)
	if err != nil || found == nil {
		return 0
	}
	n, err := strconv.ParseInt(found[1], 10, 64)
	if err != nil {
		return 0
	}
	return n
}
