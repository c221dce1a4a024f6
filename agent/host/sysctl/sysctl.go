// Package sysctl sets kernel parameters below /proc/sys, live and in a drop-in that systemd-sysctl reads at boot.
package sysctl

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/mounts"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/text"
)

// Name is the subject's part of a setting's key.
const Name = "sysctl"

// Subject implements host.Subject for the settings "sysctl/...".
type Subject struct {
	host.Inert

	fs     host.FS
	kernel host.Kernel
	// failed contains, by name, the error of the last Apply.
	failed map[string]string
	// fileErr is the error of the last Apply if it could not keep the drop-in.
	fileErr error
	place   *mounts.Place
	// done are the completed actions, if the drop-in cannot contain them.
	done     map[string]string
	attended bool
	desired  map[string]bool
	// changedIn are the families in which Set has changed a value since the last Apply.
	changedIn map[string]bool
	// reapplies reports whether tuned sets a parameter of the host's files again when it starts. Nil without tuned.
	reapplies func(ctx context.Context, name string) bool
}

var _ host.Subject = &Subject{}

// New returns the subject for one host.
func New(files host.FS) *Subject {
	return &Subject{
		fs: files, kernel: files, failed: map[string]string{}, changedIn: map[string]bool{}, place: mounts.NewPlace(files, path.Dir(DropIn)),
	}
}

// SetReapplier sets the function that reports whether tuned sets a parameter of the host's files again when it starts.
func (s *Subject) SetReapplier(reapplies func(ctx context.Context, name string) bool) {
	s.reapplies = reapplies
}

// Attend implements host.Subject.
func (s *Subject) Attend(attended bool) { s.attended = attended }

// Name implements host.Subject.
func (s *Subject) Name() string { return Name }

// Original implements host.Subject. A parameter that the kernel does not have, or that cannot be read, has no original. In an image, the original is
// the value in the image's files. If they set none, the kernel's value is effective again at the first boot without the drop-in.
func (s *Subject) Original(_ context.Context, name string) (host.Original, error) {
	file, err := procFile(name)
	if err != nil || s.isAction(name) {
		return host.Original{}, err
	}
	if s.fs.IsImage() {
		set, err := s.readAssignments(isForeign)
		if err != nil {
			return host.Original{}, fmt.Errorf("read sysctl %s of the image: %w", name, err)
		}
		entry, ok := set[DottedName(name)]
		return host.Original{Present: ok && entry.value != "", Value: entry.value}, nil
	}
	value, err := s.kernel.ReadValue(file)
	if errors.Is(err, fs.ErrNotExist) {
		return host.Original{}, nil
	}
	if err != nil {
		return host.Original{}, fmt.Errorf("read sysctl %s: %w", name, err)
	}
	other, err := s.readCounterpart(name)
	if err != nil {
		return host.Original{}, fmt.Errorf("read sysctl %s with its counterpart: %w", name, err)
	}
	return host.Original{Present: true, Value: normaliseValue(value), Counterpart: other}, nil
}

// Apply implements host.Subject. The drop-in omits a value that the kernel does not accept, because systemd-sysctl would fail on it at every boot.
func (s *Subject) Apply(_ context.Context, desired []host.Setting) error {
	s.failed, s.desired = map[string]string{}, namesOf(desired)
	before, err := s.readDropIn()
	if err != nil {
		s.fileErr = err
		return err
	}
	after := content{settings: map[string]string{}, done: map[string]string{}}
	changedIn := s.applyValues(desired, after)
	for _, setting := range desired {
		if s.isAction(setting.Name) {
			s.runAction(setting, before, changedIn[actionFamily(setting.Name)], after)
		}
	}
	s.fileErr = s.writeDropIn(after)
	return s.fileErr
}

// applyValues applies all values, and reports the families in which it has written one.
func (s *Subject) applyValues(desired []host.Setting, after content) (changedIn map[string]bool) {
	changedIn, s.changedIn = s.changedIn, map[string]bool{}
	for name, err := range applyTwice(desired, func(setting host.Setting) error {
		if s.isAction(setting.Name) {
			return nil
		}
		persistent, changed, err := s.applyLive(setting)
		if persistent {
			after.settings[setting.Name] = setting.Value
		}
		changedIn[actionFamily(setting.Name)] = changedIn[actionFamily(setting.Name)] || changed
		return err
	}) {
		s.failed[name] = err.Error()
	}
	return changedIn
}

// applyTwice applies values, and returns the errors by name. After the others, it retries values that the kernel has rejected, because some values
// are bounds of others, like sunrpc.min_resvport and sunrpc.max_resvport.
func applyTwice(settings []host.Setting, apply func(setting host.Setting) error) map[string]error {
	failures := map[string]error{}
	for _, isRetry := range []bool{false, true} {
		for _, setting := range settings {
			if isRetry && failures[setting.Name] == nil {
				continue
			}
			delete(failures, setting.Name)
			if err := apply(setting); err != nil {
				failures[setting.Name] = err
			}
		}
	}
	return failures
}

// Set implements host.Subject.
func (s *Subject) Set(_ context.Context, settings []host.Setting) map[string]error {
	return applyTwice(settings, func(setting host.Setting) error {
		s.changedIn[actionFamily(setting.Name)] = true
		file, err := checkSetting(setting)
		if err != nil {
			return err
		}
		return s.setLive(file, setting)
	})
}

// OutlivesBoot implements host.Subject. A boot sets the values in files.
func (s *Subject) OutlivesBoot() bool { return false }

// applyLive applies one value. persistent reports whether the drop-in must contain it. changed reports whether it was written.
func (s *Subject) applyLive(setting host.Setting) (persistent, changed bool, err error) {
	file, err := checkSetting(setting)
	if err != nil || !s.fs.IsImage() && !s.fs.Exists(file) || s.desired[s.Counterpart(setting.Name)] {
		return false, false, nil //nolint:nilerr // Observe reports a setting that is not valid
	}
	if s.fs.IsImage() {
		return true, false, nil
	}
	value, err := s.kernel.ReadValue(file)
	if err == nil && isMet(setting, value) {
		return true, false, nil
	}
	err = s.setLive(file, setting)
	return err == nil, err == nil, err
}

// isMet reports whether a value satisfies a setting: it is equal, or no number in it is lower.
func isMet(setting host.Setting, actual string) bool {
	wanted, value := normaliseNumbers(setting.Value), normaliseNumbers(actual)
	if setting.AtLeast {
		return text.Covers(value, wanted)
	}
	return value == wanted
}

// setLive sets the live value. A setting that only raises keeps numbers that are already larger.
func (s *Subject) setLive(file string, setting host.Setting) error {
	if !setting.AtLeast {
		return s.writeValue(file, setting.Value)
	}
	value, err := s.kernel.ReadValue(file)
	if err != nil {
		return err
	}
	if value = normaliseNumbers(value); value != "" && !text.Covers(value, value) {
		return fmt.Errorf("the current value %q is not a list of whole numbers and cannot be raised: declare an exact value in spec.node.sysctls", value)
	}
	return s.writeValue(file, text.Larger(setting.Value, value))
}

func (s *Subject) writeValue(file, value string) error {
	return host.SetValue(s.kernel, file, value, func(actual, value string) bool { return normaliseValue(actual) == normaliseValue(value) })
}

// runAction runs an action that has not run yet, and again after a change in its family. A comment in the drop-in records the action, so that a
// restart of the agent does not repeat it.
func (s *Subject) runAction(setting host.Setting, before content, familyChanged bool, after content) {
	file, err := checkSetting(setting)
	if err != nil || !s.fs.Exists(file) {
		return
	}
	if before.done[setting.Name] != setting.Value || familyChanged {
		if err := s.kernel.WriteValue(file, setting.Value); err != nil {
			s.failed[setting.Name] = fmt.Sprintf("the kernel rejects %q: %v", setting.Value, err)
			return
		}
	}
	after.done[setting.Name] = setting.Value
}

// Observe implements host.Subject.
func (s *Subject) Observe(ctx context.Context, desired []host.Setting) []host.Observation {
	s.place.Refresh()
	dropIn, err := s.readDropIn()
	// The programs that set sysctls skip a file that cannot be read.
	later, _ := s.readAssignments(s.isLater)
	var reapplied map[string]assignment
	if s.reapplies != nil {
		reapplied = s.readReapplied()
	}
	findShadow := func(setting host.Setting) string {
		before := setting.Value
		if slices.ContainsFunc(systemdSysctl, s.fs.Exists) {
			before = discardNumbers(before)
		}
		if winner, ok := findOverride(later, setting, before); ok {
			return fmt.Sprintf("%s sets it to %q and is read after %s", winner.file, winner.value, DropIn)
		}
		if winner, ok := findOverride(reapplied, setting, setting.Value); ok && s.reapplies(ctx, setting.Name) {
			return fmt.Sprintf("line %d of %s sets it to %q, and tuned reads that file last at each start: "+
				"remove the line, or set reapply_sysctl=0 in /etc/tuned/tuned-main.conf", winner.line, winner.file, winner.value)
		}
		return ""
	}
	names := namesOf(desired)
	return host.ObserveEach(desired, host.Live, func(o *host.Observation, setting host.Setting) error {
		if s.isAction(setting.Name) {
			o.Effect = host.Action
		}
		if err != nil {
			return err
		}
		if other := s.Counterpart(setting.Name); names[other] {
			return errors.New("the kernel clears it when " + other + " is set: declare only one of them")
		}
		return s.observeSetting(o, setting, dropIn, findShadow)
	})
}

func (s *Subject) observeSetting(o *host.Observation, setting host.Setting, dropIn content, findShadow func(host.Setting) string) error {
	file, err := checkSetting(setting)
	switch {
	case err != nil:
		return err
	case s.fs.IsImage() && o.Effect == host.Action:
		o.State, o.Message = host.Unsupported, "an action needs a running kernel; an image has none"
	case s.fs.IsImage():
		s.observeFile(o, setting, dropIn, findShadow)
	case !s.fs.Exists(file):
		o.State, o.Message = host.Unsupported, s.missingReason(o.Name)
	case o.Effect == host.Action:
		s.observeAction(o, dropIn)
	default:
		return s.observeValue(o, setting, file, dropIn, findShadow)
	}
	return nil
}

func (s *Subject) observeAction(o *host.Observation, dropIn content) {
	switch {
	case s.failed[o.Name] != "":
		o.State, o.Message = host.Failed, s.failed[o.Name]
	case dropIn.done[o.Name] != o.Desired:
		o.State, o.Message = host.Pending, "not run yet"
	default:
		o.State, o.Message = host.InSync, "ran once; an action has no value to read back"
	}
}

func (s *Subject) observeValue(o *host.Observation, setting host.Setting, file string, dropIn content, findShadow func(host.Setting) string) error {
	value, err := s.kernel.ReadValue(file)
	if err != nil {
		return err
	}
	o.Observed = normaliseValue(value)
	met := isMet(setting, value)
	switch {
	case !met && s.failed[o.Name] != "":
		o.State, o.Message = host.Failed, s.failed[o.Name]
	case !met:
		o.State = host.Drifted
	default:
		s.observeFile(o, setting, dropIn, findShadow)
	}
	return nil
}

func (s *Subject) observeFile(o *host.Observation, setting host.Setting, dropIn content, findShadow func(host.Setting) string) {
	wanted := normaliseValue(o.Desired)
	isSaved := normaliseValue(dropIn.settings[o.Name]) == wanted
	unwritable := s.place.WriteProblem()
	shadow := ""
	if isSaved {
		shadow = findShadow(setting)
	}
	switch {
	case !isSaved && unwritable != "":
		s.evaluateUnsaved(o, unwritable)
	case !isSaved && s.fileErr != nil:
		o.State, o.Message = host.Failed, s.missingNote()+s.fileErr.Error()
	case !isSaved:
		o.State, o.Message = host.Drifted, s.missingNote()+"not in "+DropIn
	case shadow != "":
		o.State, o.Message = host.Shadowed, shadow
	case s.fs.IsImage():
		o.State, o.Message = host.Pending, "in the image; takes effect when the image boots"
	default:
		o.State = host.InSync
		if reason := s.place.PersistenceProblem(); reason != "" && unwritable == "" {
			s.evaluateUnsaved(o, reason)
		}
	}
}

// findOverride returns the assignment that replaces a setting, or clears it through its counterpart. before is the value before its line is written.
func findOverride(set map[string]assignment, setting host.Setting, before string) (assignment, bool) {
	winner, found := set[DottedName(setting.Name)]
	other := catalogue.Counterpart(setting.Name)
	if cleared, ok := set[other]; ok && cleared.value != "" && kernelValue(other, cleared.value, "1") != "0" {
		winner, found = assignment{file: cleared.file, line: cleared.line, value: "0"}, true
	}
	return winner, found && !isMet(setting, kernelValue(setting.Name, winner.value, before))
}

// evaluateUnsaved evaluates an effective value that no file keeps for the next boot.
func (s *Subject) evaluateUnsaved(o *host.Observation, reason string) {
	if s.attended {
		o.State, o.Message = host.InSync, "not persistent; the agent sets it again at each boot: "+reason
		return
	}
	o.State, o.Message = host.Failed, s.missingNote()+reason+", and no agent will set it again"
}

func (s *Subject) missingNote() string {
	if s.fs.IsImage() {
		return ""
	}
	return "effective, but lost at the next boot: "
}

// Restore implements host.Subject. After the others, it retries values that the kernel has rejected, as Apply does.
func (s *Subject) Restore(_ context.Context, originals map[string]host.Original) []host.Observation {
	observations := host.RestoreEach(originals, host.Live, s.restoreValue)
	for i, o := range observations {
		if o.State == host.Failed {
			observations[i] = host.RestoreEach(map[string]host.Original{o.Name: originals[o.Name]}, host.Live, s.restoreValue)[0]
		}
	}
	return observations
}

func (s *Subject) restoreValue(o *host.Observation, original host.Original) error {
	file, err := procFile(o.Name)
	switch {
	case err != nil:
		return err
	case s.isAction(o.Name):
		o.Effect, o.Message = host.Action, "an action has nothing to restore"
		return nil
	case !original.Present && s.fs.Exists(file):
		o.Message = "it was set in the image; the kernel's default value returns at the next boot"
		return nil
	case !s.fs.Exists(file):
		o.Message = "nothing to restore"
		return nil
	case s.hasCounterpart(o.Name):
		return s.restorePair(o, original)
	}
	value, err := s.kernel.ReadValue(file)
	o.Observed = normaliseValue(value)
	if err != nil || o.Observed != normaliseValue(original.Value) {
		if err := s.writeValue(file, original.Value); err != nil {
			return err
		}
	}
	o.Observed = normaliseValue(original.Value)
	return nil
}
