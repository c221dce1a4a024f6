// Package tuned selects the profile of tuned, if that is installed. It enables and starts tuned, and restores its previous state later. tuned itself
// applies the profile, and tuned-adm verify reports the result.
package tuned

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/tuning/lists"
)

const (
	// Name is the subject's part of a setting's key.
	Name    = "tuned"
	setting = "profile"

	unit        = "tuned.service"
	profileFile = "/etc/tuned/active_profile"
	modeFile    = "/etc/tuned/profile_mode"
	modeAuto    = "auto"

	// verifyInterval is the interval between verifications by tuned. A verification writes a log, and takes a second.
	verifyInterval = 10 * time.Minute
)

var (
	profileBytes = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]*$`)
	commands     = []string{"/usr/sbin/tuned-adm", "/sbin/tuned-adm", "/usr/bin/tuned-adm"}
)

// Subject implements host.Subject for the setting "tuned/profile".
type Subject struct {
	host.Inert

	fs     host.FS
	runner host.Runner
	now    func() time.Time
	// failed is the error of the last Apply.
	failed string
	// verified identifies the last successful verification. It is valid until verifiedUntil. verifiedNote describes the read-ahead that differs.
	verified, verifiedNote string
	verifiedUntil          time.Time
	unconfirmed            func() map[string]string
	windowSetting          func(disk string) string
}

var _ host.Subject = &Subject{}

// New returns the subject for one host. Two functions return values that override a profile and are not in the drop-in for sysctls: unconfirmed the
// sysctls that are being proven, by name, and windowSetting the setting for the read-ahead of a disk such as sda. Empty if there is none.
func New(files host.FS, runner host.Runner, unconfirmed func() map[string]string, windowSetting func(disk string) string) *Subject {
	return &Subject{fs: files, runner: runner, now: time.Now, unconfirmed: unconfirmed, windowSetting: windowSetting}
}

// Name implements host.Subject.
func (s *Subject) Name() string { return Name }

type status struct {
	// load, active and enabled are systemd's LoadState, ActiveState and UnitFileState.
	load, active, enabled string
	// startedAt is the time when the daemon was started, in microseconds since boot.
	startedAt string
	// conflicts are the units that stop when tuned is started.
	conflicts []string
	// profile and mode are the contents of tuned's files.
	profile, mode fileText
}

type fileText struct {
	present bool
	text    string
}

func (st status) isRunning() bool { return st.active == "active" }

func (st status) enabledAtBoot() bool { return st.enabled != "disabled" }

func (s *Subject) isInstalled() bool { return slices.ContainsFunc(commands, s.fs.Exists) }

func (s *Subject) readStatus(ctx context.Context) (status, error) {
	out, err := s.runner.Run(ctx, "systemctl", "show", unit,
		"--property=LoadState,ActiveState,UnitFileState,ActiveEnterTimestampMonotonic,Conflicts")
	if err != nil {
		return status{}, err
	}
	values := map[string]string{}
	for line := range strings.Lines(string(out)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		values[name] = value
	}
	st := status{
		load: values["LoadState"], active: values["ActiveState"], enabled: values["UnitFileState"],
		startedAt: values["ActiveEnterTimestampMonotonic"], conflicts: strings.Fields(values["Conflicts"]),
	}
	if st.profile, err = s.readText(profileFile); err == nil {
		st.mode, err = s.readText(modeFile)
	}
	return st, err
}

func (s *Subject) readText(name string) (fileText, error) {
	value, err := s.fs.ReadValue(name)
	if errors.Is(err, fs.ErrNotExist) {
		return fileText{}, nil
	}
	return fileText{present: true, text: value}, err
}

// hasProfile reports whether the profile is active, and was chosen explicitly instead of by tuned's recommendation.
func (st status) hasProfile(profile string) bool {
	return st.isRunning() && st.profile.text == profile && st.mode.text != modeAuto
}

// Original implements host.Subject. The original is the profile, the mode, and the states running and enabled. None if tuned is not installed.
func (s *Subject) Original(ctx context.Context, _ string) (host.Original, error) {
	if !s.isInstalled() {
		return host.Original{}, nil
	}
	st, err := s.readStatus(ctx)
	if err != nil {
		return host.Original{}, err
	}
	previous := before{running: st.isRunning(), enabled: st.enabledAtBoot(), mode: st.mode, profile: st.profile}
	return host.Original{Present: true, Value: previous.String()}, nil
}

// Apply implements host.Subject.
func (s *Subject) Apply(ctx context.Context, desired []host.Setting) error {
	s.failed = ""
	for _, d := range desired {
		st, err := s.readStatus(ctx)
		if err != nil {
			s.failed = err.Error()
			continue
		}
		if checkSetting(d) != nil || s.unsupportedReason(ctx, d.Value, st) != "" {
			continue
		}
		if err := s.chooseProfile(ctx, d.Value, st); err != nil {
			s.failed = err.Error()
		}
	}
	return nil
}

// Set implements host.Subject. tuned stores the chosen profile in its files. The agent's files do not contain it.
func (s *Subject) Set(ctx context.Context, settings []host.Setting) map[string]error {
	if err := s.Apply(ctx, settings); err != nil || s.failed == "" {
		return nil
	}
	return map[string]error{setting: errors.New(s.failed)}
}

// OutlivesBoot implements host.Subject. tuned selects its profile again.
func (s *Subject) OutlivesBoot() bool { return true }

// chooseProfile enables tuned and selects the profile. If the daemon does not run, tuned-adm starts it.
func (s *Subject) chooseProfile(ctx context.Context, profile string, st status) error {
	if !st.enabledAtBoot() {
		if err := s.runCommand(ctx, "systemctl", "enable", unit); err != nil {
			return err
		}
	}
	if st.hasProfile(profile) {
		return nil
	}
	s.verified = ""
	if err := s.runCommand(ctx, "tuned-adm", "profile", profile); err != nil {
		return err
	}
	st, err := s.readStatus(ctx)
	if err != nil || st.isRunning() {
		return err
	}
	return s.runCommand(ctx, "systemctl", "start", unit)
}

func (s *Subject) runCommand(ctx context.Context, argv ...string) error {
	_, err := s.runner.Run(ctx, argv...)
	return err
}

func checkSetting(d host.Setting) error {
	if d.Name != setting || !profileBytes.MatchString(d.Value) {
		return fmt.Errorf("tuned %s=%q: not a tuned profile", d.Name, d.Value)
	}
	return nil
}

func (s *Subject) unsupportedReason(ctx context.Context, profile string, st status) string {
	switch {
	case !s.isInstalled() || st.load == "not-found":
		return "tuned is not installed: install the package tuned"
	case st.load == "masked":
		return "tuned.service is masked: to allow it, run systemctl unmask tuned.service"
	case s.profileFile(profile) == "":
		return "tuned has no profile " + profile + " on this node; run tuned-adm list to see the profiles"
	case !st.isRunning():
		if conflicting := s.runningOf(ctx, st.conflicts); len(conflicting) > 0 {
			return "starting tuned would stop " + host.ListNames(conflicting) + ": stop and disable the units that you do not need, and the agent starts tuned"
		}
	}
	return ""
}

// runningOf returns the active units. A unit whose state cannot be read counts as stopped: systemd itself would report that it stops the unit.
func (s *Subject) runningOf(ctx context.Context, units []string) []string {
	return lists.Filter(units, func(name string) bool {
		if !strings.HasSuffix(name, ".service") {
			return false
		}
		out, err := s.runner.Run(ctx, "systemctl", "show", name, "--property=ActiveState")
		return err == nil && strings.TrimSpace(string(out)) == "ActiveState=active"
	})
}

// Observe implements host.Subject.
func (s *Subject) Observe(ctx context.Context, desired []host.Setting) []host.Observation {
	return host.ObserveEach(desired, host.Live, func(o *host.Observation, d host.Setting) error {
		if err := checkSetting(d); err != nil {
			return err
		}
		return s.observeProfile(ctx, o)
	})
}

func (s *Subject) observeProfile(ctx context.Context, o *host.Observation) error {
	if !s.isInstalled() {
		o.State, o.Message = host.Unsupported, s.unsupportedReason(ctx, o.Desired, status{})
		return nil
	}
	st, err := s.readStatus(ctx)
	if err != nil {
		return err
	}
	if st.isRunning() {
		o.Observed = st.profile.text
	}
	reason := s.unsupportedReason(ctx, o.Desired, st)
	switch {
	case reason != "":
		o.State, o.Message = host.Unsupported, reason
	case s.failed != "" && (!st.hasProfile(o.Desired) || !st.enabledAtBoot()):
		o.State, o.Message = host.Failed, s.failed
	case !st.isRunning():
		o.State, o.Message = host.Drifted, "tuned is not running"
	case !st.hasProfile(o.Desired):
		o.State, o.Message = host.Drifted, "tuned has another profile, or selects one automatically"
	case !st.enabledAtBoot():
		o.State, o.Message = host.Drifted, "lost at the next boot: tuned.service is not enabled"
	default:
		return s.observeEffect(ctx, o, st)
	}
	return nil
}

// observeEffect verifies with tuned that the profile is effective. A declared value that overrides the profile is not a failure.
func (s *Subject) observeEffect(ctx context.Context, o *host.Observation, st status) error {
	conflicts, err := s.findConflicts(o.Desired, false, true)
	if err != nil {
		return err
	}
	mark := o.Desired + " " + st.startedAt
	if s.verified != mark || !s.now().Before(s.verifiedUntil) {
		if err := s.verifyProfile(ctx, conflicts); err != nil {
			return err
		}
		s.verified, s.verifiedUntil = mark, s.now().Add(verifyInterval)
	}
	o.State, o.Message = host.InSync, strings.Trim(conflicts.String()+"; "+s.verifiedNote, "; ")
	return nil
}

// verifyProfile runs the verification of tuned. It returns an error if a value differs that is not declared.
func (s *Subject) verifyProfile(ctx context.Context, found conflicts) error {
	s.verifiedNote = ""
	err := s.runCommand(ctx, "tuned-adm", "verify", "--ignore-missing")
	if err == nil {
		return nil
	}
	failures, windows := s.verifyFailures(), []string(nil)
	undeclared := lists.Filter(failures, func(failure string) bool {
		window := s.describeWindow(failure)
		if window != "" {
			windows = append(windows, window)
		}
		return window == "" && !found.isDeclared(failure)
	})
	if len(undeclared) > 0 || len(failures) == 0 {
		return errors.New("tuned-adm verify: the profile is only partly effective: " + cmp.Or(host.ListNames(undeclared), err.Error()))
	}
	if len(windows) > 0 {
		s.verifiedNote = "the profile sets " + host.ListNames(windows) + "; the declared read-ahead overrides it, and within a minute after tuned restarts"
	}
	return nil
}

// Restore implements host.Subject.
func (s *Subject) Restore(ctx context.Context, originals map[string]host.Original) []host.Observation {
	return host.RestoreEach(originals, host.Live, func(o *host.Observation, original host.Original) error {
		previous, ok := parseBefore(original.Value)
		switch {
		case !original.Present || !s.isInstalled():
			o.Message = "nothing to restore"
			return nil
		case !ok:
			return errors.New("the journal does not contain the original state of tuned")
		}
		return s.restoreState(ctx, previous)
	})
}

// restoreState restores the previous state of tuned. A daemon that is stopped reverts its changes.
func (s *Subject) restoreState(ctx context.Context, previous before) error {
	s.verified = ""
	st, err := s.readStatus(ctx)
	if err != nil {
		return err
	}
	switch {
	case !previous.running && st.isRunning():
		err = s.runCommand(ctx, "systemctl", "stop", unit)
	case previous.running && !(st.isRunning() && st.profile == previous.profile && st.mode == previous.mode):
		err = s.runCommand(ctx, previous.restoreCommand()...)
	}
	if err != nil {
		return err
	}
	if !previous.enabled && st.enabledAtBoot() {
		if err := s.runCommand(ctx, "systemctl", "disable", unit); err != nil {
			return err
		}
	}
	return errors.Join(s.restoreText(profileFile, previous.profile), s.restoreText(modeFile, previous.mode))
}

// restoreText restores tuned's file, which tuned-adm has changed. A running daemon does not read it.
func (s *Subject) restoreText(name string, previous fileText) error {
	current, err := s.readText(name)
	switch {
	case err != nil || current == previous:
		return err
	case !previous.present:
		return s.fs.Remove(name)
	case previous.text == "":
		return s.fs.WriteFileAtomic(name, nil, 0o644)
	default:
		return s.fs.WriteFileAtomic(name, []byte(previous.text+"\n"), 0o644)
	}
}
