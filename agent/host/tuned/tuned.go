// Package tuned selects the profile of tuned, where that is installed: it is enabled and started for it, and put back
// as it was. What a profile does is tuned's own; what of it has come about, tuned-adm verify tells.
package tuned

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/storageclient/operator/agent/host"
)

const (
	// Name is the subject's part of a setting's key.
	Name    = "tuned"
	setting = "profile"

	unit        = "tuned.service"
	profileFile = "/etc/tuned/active_profile"
	modeFile    = "/etc/tuned/profile_mode"
	modeAuto    = "auto"

	// verifyInterval is how often tuned is asked to verify what it has done: it writes a log, and takes a second.
	verifyInterval = 10 * time.Minute
)

var (
	profileBytes = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]*$`)
	commands     = []string{"/usr/sbin/tuned-adm", "/sbin/tuned-adm", "/usr/bin/tuned-adm"}
)

// Subject serves the setting "tuned/profile". It implements host.Subject.
type Subject struct {
	fs     host.FS
	runner host.Runner
	now    func() time.Time
	// failed is why the last Apply could not bring the profile about.
	failed string
	// verified is what was found good last, and until when that counts.
	verified      string
	verifiedUntil time.Time
}

var _ host.Setter = &Subject{}

// New returns the subject for one host.
func New(files host.FS, runner host.Runner) *Subject {
	return &Subject{fs: files, runner: runner, now: time.Now}
}

// Name implements host.Subject.
func (s *Subject) Name() string { return Name }

type status struct {
	// load, active and enabled are systemd's LoadState, ActiveState and UnitFileState.
	load, active, enabled string
	// since is when the daemon was started, in microseconds since boot.
	since string
	// conflicts are the units that are stopped when tuned is started.
	conflicts []string
	// profile and mode are what tuned's files hold.
	profile, mode fileText
}

// fileText is the text of a file, without its line end.
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
		since: values["ActiveEnterTimestampMonotonic"], conflicts: strings.Fields(values["Conflicts"]),
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

// hasProfile tells whether the profile was chosen, by somebody and not by tuned's own recommendation, and is at work.
func (st status) hasProfile(profile string) bool {
	return st.isRunning() && st.profile.text == profile && st.mode.text != modeAuto
}

// Original implements host.Subject. It is profile and mode, and whether tuned runs and is enabled. Where tuned is not
// installed, there is none.
func (s *Subject) Original(ctx context.Context, _ string) (host.Original, error) {
	if !s.isInstalled() {
		return host.Original{}, nil
	}
	st, err := s.readStatus(ctx)
	if err != nil {
		return host.Original{}, err
	}
	return host.Original{Present: true, Value: before{running: st.isRunning(), enabled: st.enabledAtBoot(), mode: st.mode, profile: st.profile}.String()}, nil
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
		if checkSetting(d) != nil || s.whyUnsupported(ctx, d.Value, st) != "" {
			continue
		}
		if err := s.chooseProfile(ctx, d.Value, st); err != nil {
			s.failed = err.Error()
		}
	}
	return nil
}

// Set implements host.Setter. A profile is chosen in tuned's own files, and in none of ours.
func (s *Subject) Set(ctx context.Context, settings []host.Setting) map[string]error {
	if err := s.Apply(ctx, settings); err != nil || s.failed == "" {
		return nil
	}
	return map[string]error{setting: errors.New(s.failed)}
}

// OutlivesBoot implements host.Setter: tuned chooses its profile again.
func (s *Subject) OutlivesBoot() bool { return true }

// chooseProfile enables tuned, and has it take the profile: a daemon that does not run is started for that by tuned-adm.
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

// whyUnsupported says why a profile cannot work here, "" where it can.
func (s *Subject) whyUnsupported(ctx context.Context, profile string, st status) string {
	switch {
	case !s.isInstalled() || st.load == "not-found":
		return "tuned is not installed: install the package tuned"
	case st.load == "masked":
		return "tuned.service is masked: to allow it, run systemctl unmask tuned.service"
	case !s.profileExists(profile):
		return "tuned has no profile " + profile + " here: tuned-adm list shows those it has"
	case !st.isRunning():
		if others := s.runningOf(ctx, st.conflicts); len(others) > 0 {
			return "starting tuned would stop " + host.ListNames(others) + ": disable what you do not want, and the agent starts tuned"
		}
	}
	return ""
}

// runningOf returns the units that are active. One whose state cannot be read counts as stopped: systemd itself
// would tell of it when it is stopped.
func (s *Subject) runningOf(ctx context.Context, units []string) []string {
	var running []string
	for _, name := range units {
		if !strings.HasSuffix(name, ".service") {
			continue
		}
		out, err := s.runner.Run(ctx, "systemctl", "show", name, "--property=ActiveState")
		if err == nil && strings.TrimSpace(string(out)) == "ActiveState=active" {
			running = append(running, name)
		}
	}
	return running
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
		o.State, o.Message = host.Unsupported, s.whyUnsupported(ctx, o.Desired, status{})
		return nil
	}
	st, err := s.readStatus(ctx)
	if err != nil {
		return err
	}
	if st.isRunning() {
		o.Observed = st.profile.text
	}
	why := s.whyUnsupported(ctx, o.Desired, st)
	switch {
	case why != "":
		o.State, o.Message = host.Unsupported, why
	case s.failed != "" && (!st.hasProfile(o.Desired) || !st.enabledAtBoot()):
		o.State, o.Message = host.Failed, s.failed
	case !st.isRunning():
		o.State, o.Message = host.Drifted, "tuned is not running"
	case !st.hasProfile(o.Desired):
		o.State, o.Message = host.Drifted, "tuned has another profile, or chooses one by itself"
	case !st.enabledAtBoot():
		o.State, o.Message = host.Drifted, "lost at the next boot: tuned.service is not enabled"
	default:
		return s.observeEffect(ctx, o, st)
	}
	return nil
}

// observeEffect asks tuned whether what the profile sets is in force. What is declared as a sysctl is in force in its
// stead, and no failure.
func (s *Subject) observeEffect(ctx context.Context, o *host.Observation, st status) error {
	conflicts, err := s.findConflicts(o.Desired)
	if err != nil {
		return err
	}
	o.State, o.Message = host.InSync, conflicts.String()
	mark := o.Desired + " " + st.since
	if s.verified == mark && s.now().Before(s.verifiedUntil) {
		return nil
	}
	if err := s.runCommand(ctx, "tuned-adm", "verify", "--ignore-missing"); err != nil {
		failures := s.verifyFailures()
		others := slices.DeleteFunc(slices.Clone(failures), conflicts.isDeclared)
		if len(others) > 0 || len(failures) == 0 {
			return errors.New("tuned-adm verify: not all of the profile is in force: " + verifyMessage(others, err))
		}
	}
	s.verified, s.verifiedUntil = mark, s.now().Add(verifyInterval)
	return nil
}

func verifyMessage(failures []string, err error) string {
	if len(failures) > 0 {
		return host.ListNames(failures)
	}
	return err.Error()
}

// Restore implements host.Subject.
func (s *Subject) Restore(ctx context.Context, originals map[string]host.Original) []host.Observation {
	return host.RestoreEach(originals, host.Live, func(o *host.Observation, original host.Original) error {
		was, ok := parseBefore(original.Value)
		switch {
		case !original.Present || !s.isInstalled():
			o.Message = "nothing to restore"
			return nil
		case !ok:
			return errors.New("the journal does not have tuned's original state")
		}
		return s.putBack(ctx, was)
	})
}

// putBack leaves tuned as it was. A daemon that is stopped takes back what it has set.
func (s *Subject) putBack(ctx context.Context, was before) error {
	s.verified = ""
	st, err := s.readStatus(ctx)
	if err != nil {
		return err
	}
	switch {
	case !was.running && st.isRunning():
		err = s.runCommand(ctx, "systemctl", "stop", unit)
	case was.running && !(st.isRunning() && st.profile == was.profile && st.mode == was.mode):
		err = s.runCommand(ctx, was.backCommand()...)
	}
	if err != nil {
		return err
	}
	if !was.enabled && st.enabledAtBoot() {
		if err := s.runCommand(ctx, "systemctl", "disable", unit); err != nil {
			return err
		}
	}
	return errors.Join(s.restoreText(profileFile, was.profile), s.restoreText(modeFile, was.mode))
}

// restoreText puts back what tuned-adm has changed in tuned's own file, which a running daemon does not read.
func (s *Subject) restoreText(name string, was fileText) error {
	is, err := s.readText(name)
	switch {
	case err != nil || is == was:
		return err
	case !was.present:
		return s.fs.Remove(name)
	case was.text == "":
		return s.fs.WriteFileAtomic(name, nil, 0o644)
	default:
		return s.fs.WriteFileAtomic(name, []byte(was.text+"\n"), 0o644)
	}
}
