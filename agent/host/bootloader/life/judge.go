package life

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/bootloader/argument"
	"github.com/storageclient/operator/agent/host/bootloader/loader"
	"github.com/storageclient/operator/tuning/text"
)

// nameBytes and valueBytes match the bytes that may reach a file that a shell sources, regardless of the author of the object.
var (
	nameBytes  = regexp.MustCompile(`^[A-Za-z0-9_.,:/@+-]+$`)
	valueBytes = regexp.MustCompile(`^[A-Za-z0-9_.,:=/@+-]*$`)
)

// state contains everything known about a host at one moment. The evaluation reads no other source.
type state struct {
	loader.Facts
	loader   loader.Loader
	hashSize HashSize
	// bound names the encrypted volume that would not open with other arguments. boundErr is the error if that is unknown.
	bound    string
	boundErr error
	// delay is the temporary reason why the arguments are not staged yet. Empty if there is none.
	delay string
	// sizes are the hash table sizes of the running kernel, by argument. memory is in bytes.
	sizes  map[string]uint64
	memory uint64
}

// ArgumentOf returns an error if the argument must never be passed. A flag has no value: "nosmt".
func ArgumentOf(setting host.Setting) (host.Argument, error) {
	if !nameBytes.MatchString(setting.Name) || strings.HasPrefix(setting.Name, "-") || !valueBytes.MatchString(setting.Value) {
		return host.Argument{}, fmt.Errorf("%q has characters that are not allowed", setting.Name+"="+setting.Value)
	}
	return host.Argument{Name: setting.Name, Value: setting.Value, HasValue: setting.Value != ""}, nil
}

// evaluateSetting returns the state of a setting, and whether the drop-in must contain it. failure is the error of the last attempt to stage, if any.
func (f state) evaluateSetting(setting host.Setting, failure error) (o host.Observation, stage bool) {
	o = host.Observation{Name: setting.Name, Desired: setting.Value, Effect: host.Reboot}
	arg, err := ArgumentOf(setting)
	if err == nil && isHashTable(arg.Name) {
		_, err = hashEntries(arg.Value)
	}
	if err != nil {
		o.State, o.Message = host.Failed, err.Error()
		return o, false
	}
	o.Observed = f.observedValue(arg.Name)
	if !f.loader.CanStage() {
		f.evaluateUnsupported(&o, arg)
		return o, false
	}
	if reason := f.clampedReason(arg); reason != "" {
		o.State, o.Message = host.Clamped, reason
		return o, false
	}
	otherFiles, conflict := f.findOtherSources(arg)
	if conflict != "" {
		o.State, o.Message = host.Failed, conflict
		return o, false
	}
	switch {
	case argument.Has(f.Failed, arg):
		o.State, o.Message = host.Failed, failedMessage
	case f.isStaged(arg, otherFiles):
		f.evaluateEffect(&o, arg)
		if f.LackedLater != nil && f.Trial.Section == "" {
			o.Message = text.Combine("; ", o.Message, f.LackedLater(arg))
		}
		f.evaluateTrial(&o, failure)
	case f.bound != "":
		o.State, o.Message = host.Unsupported, f.bound
		return o, false
	case f.Unprinted != "":
		// The setting stays desired, so a value that was staged before is not removed.
		o.State, o.Message = host.Unsupported, "not staged: "+f.Unprinted.Error()
	case f.delay != "":
		o.State, o.Message = host.Pending, "not staged yet: "+f.delay
	case failure != nil:
		o.State, o.Message = host.Failed, loader.OneLine(failure.Error())
	default:
		o.State, o.Message = host.Drifted, "not in the boot menu"
		if argument.Has(f.Record.Args, arg) && argument.Has(f.Cmdline, arg) {
			o.Message += "; the running kernel has it, but the next boot will not pass it"
		}
	}
	if len(otherFiles) > 0 {
		o.Message = text.Combine("; ", o.Message, "already set in "+host.ListNames(otherFiles)+", unchanged")
	}
	return o, len(otherFiles) == 0
}

// isStaged reports whether the next boot will pass the argument from a persistent source.
func (f state) isStaged(arg host.Argument, otherFiles []string) bool {
	if len(otherFiles) > 0 {
		return f.Menu.PassesArgument(arg)
	}
	return f.Menu.HoldsArgument(arg) && argument.Has(f.Record.Args, arg) && !f.Record.Unfinished
}

// evaluateTrial reports an effective argument as failed if its trial is incomplete: the next boot may use the previous entry, or remnants are left.
func (f state) evaluateTrial(o *host.Observation, failure error) {
	if o.State != host.InSync || failure == nil || !f.Trial.IsPresent() || f.Trial.IsDue() {
		return
	}
	problem := "remnants of its trial boot cannot be removed"
	if f.Trial.IsOver() {
		problem = "the next boot uses the previous entry"
	}
	o.State, o.Message = host.Failed, "effective, but "+problem+": "+loader.OneLine(failure.Error())
}

// observedValue returns the effective value: the size of a hash table, or the passed value of another argument.
func (f state) observedValue(name string) string {
	if isHashTable(name) {
		if size, ok := f.sizes[host.CanonicalName(name)]; ok {
			return strconv.FormatUint(size, 10)
		}
		return ""
	}
	passed, _ := argument.Last(f.Cmdline, name)
	return passed.Value
}

// evaluateUnsupported still accepts values that the platform's tools have set.
func (f state) evaluateUnsupported(o *host.Observation, arg host.Argument) {
	if !f.Image {
		f.evaluateEffect(o, arg)
	}
	if o.State == host.InSync && argument.Has(f.Cmdline, arg) {
		o.Message = "set by the platform's tools"
		return
	}
	o.State, o.Message = host.Unsupported, f.loader.Detection().Message
}

// clampedReason returns a message if the kernel would grant less than requested, before a reboot is spent on it.
func (f state) clampedReason(arg host.Argument) string {
	if !isHashTable(arg.Name) || f.hashSize == nil || f.Image {
		return ""
	}
	entries, err := hashEntries(arg.Value)
	if err != nil || f.sizes[host.CanonicalName(arg.Name)] == PowerAbove(entries) {
		return ""
	}
	largest, clamped := f.hashSize(host.CanonicalName(arg.Name), entries, f.memory)
	if !clamped {
		return ""
	}
	return fmt.Sprintf("not staged: with %d MiB of memory the kernel may grant less; the largest value that fits is %d",
		f.memory>>20, largest)
}

// findOtherSources returns the foreign files that already pass the argument, or the conflict if they pass another value, which the agent keeps.
func (f state) findOtherSources(arg host.Argument) (files []string, conflict string) {
	for _, other := range f.Foreign {
		if !other.Arg.Is(arg.Name) {
			continue
		}
		if !other.Arg.Equal(arg) {
			return nil, fmt.Sprintf("conflict: %s sets %s; not managed by the agent, left unchanged", other.File, other.Arg)
		}
		files = append(files, other.File)
	}
	if len(files) > 0 || argument.HasName(f.ManagedArguments(), arg.Name) {
		return files, ""
	}
	// An argument that is only in the menu, or was passed by hand, is lost at the next update-grub or boot: the agent stages it even if it is equal.
	for _, present := range f.Menu.ValuesOf(arg.Name) {
		if !present.Equal(arg) {
			return nil, fmt.Sprintf("conflict: %s sets %s; not managed by the agent, left unchanged", f.loader.MenuFile(), present)
		}
	}
	if passed, ok := argument.Last(f.Cmdline, arg.Name); ok && !passed.Equal(arg) {
		return nil, fmt.Sprintf("conflict: %s has %s; not managed by the agent, left unchanged", loader.CommandLine, passed)
	}
	return nil, ""
}

// retainedArguments returns the booted arguments that the default entries keep while the desired ones have a trial. After a failure, only the previous
// values of the failed arguments stay.
func (f state) retainedArguments(wanted []host.Argument, state string) []host.Argument {
	untried := f.NotBooted(wanted)
	return slices.DeleteFunc(f.StaleArguments(wanted), func(arg host.Argument) bool {
		values := f.Entries.ValuesOf(arg.Name)
		return len(untried) == 0 || !f.loader.CanRetain() || len(values) != 1 || !values[0].Equal(arg) || !argument.Has(f.Cmdline, arg) && !f.IsRetained(arg) ||
			state == loader.TrialFailed && !argument.HasName(untried, arg.Name)
	})
}

// failedArguments returns the arguments that have failed a trial, if the settings name others that have had none.
func (f state) failedArguments(settings []host.Setting) []host.Argument {
	failed := f.NotBooted(f.Record.Failed)
	tried := f.NotBooted(f.Record.LastArguments())
	known := slices.Concat(f.Cmdline, failed, tried)
	isNew := func(setting host.Setting) bool {
		arg, err := ArgumentOf(setting)
		return err == nil && !argument.Has(known, arg)
	}
	if f.Trial.IsOver() && f.Trial.State == loader.TrialFailed && slices.ContainsFunc(settings, isNew) {
		failed = append(failed, argument.Without(tried, failed)...)
	}
	return failed
}

func (f state) evaluateEffect(o *host.Observation, arg host.Argument) {
	if f.Image {
		o.State, o.Message = host.Pending, "in the image's boot menu; takes effect when the image boots"
		if isHashTable(arg.Name) {
			o.Message += ", limited by the memory of the machine"
		}
		return
	}
	passed, _ := argument.Last(f.Cmdline, arg.Name)
	isPassed := passed.Equal(arg)
	if isHashTable(arg.Name) {
		f.evaluateHash(o, arg, isPassed)
		return
	}
	if isPassed {
		o.State = host.InSync
		return
	}
	f.evaluateNotPassed(o, arg, "")
}

func (f state) evaluateHash(o *host.Observation, arg host.Argument, isPassed bool) {
	entries, err := hashEntries(arg.Value)
	if err != nil {
		o.State, o.Message = host.Failed, err.Error()
		return
	}
	size, known := f.sizes[host.CanonicalName(arg.Name)]
	wanted := PowerAbove(entries)
	switch {
	case known && size == wanted && isPassed:
		o.State, o.Message = host.InSync, roundedNote(entries, wanted)
	case known && size == wanted:
		o.State, o.Message = host.InSync, "the table already has this size; no reboot needed"
	case isPassed && known:
		o.State, o.Message = host.Failed, fmt.Sprintf("passed, but has no effect: the kernel log reports size %d", size)
	case isPassed:
		o.State, o.Message = host.Failed, "passed, but the kernel log of this boot does not show the size"
	case size > wanted && !argument.HasName(f.Cmdline, arg.Name):
		f.evaluateNotPassed(o, arg, fmt.Sprintf("; it makes the table smaller than the kernel's default size of %d", size))
	default:
		f.evaluateNotPassed(o, arg, "")
	}
}

func roundedNote(entries, wanted uint64) string {
	if entries == wanted {
		return ""
	}
	return fmt.Sprintf("the kernel rounds it up to %d", wanted)
}

// evaluateNotPassed distinguishes a wait for a boot from a boot that did not pass the argument: another boot would not pass it either.
func (f state) evaluateNotPassed(o *host.Observation, arg host.Argument, note string) {
	switch {
	case f.Trial.IsOver() && f.Trial.State == loader.TrialFailed:
		o.State, o.Message = host.Failed, failedMessage
		return
	case argument.Has(f.AtBoot, arg) && !f.Trial.IsOver() && !(f.Trial.IsDue() && f.Trial.ArmedNow):
		o.State = host.Failed
		o.Message = "in the boot menu at the last boot, but not passed: the node did not boot an entry of " + f.loader.MenuFile()
		return
	}
	o.State, o.Message = host.Pending, "staged; takes effect at the next boot"+note+f.Trial.TrialNote()
}

// evaluateRestored reports whether an argument that was removed from the drop-in is also gone from the running kernel.
func (f state) evaluateRestored(o *host.Observation, original host.Original, failure error) {
	passed, ok := argument.Last(f.Cmdline, o.Name)
	o.Observed = f.observedValue(o.Name)
	present := f.Menu.ValuesOf(o.Name)
	isPresent := func(arg host.Argument) bool { return argument.Has(present, arg) }
	switch {
	case !f.Record.Unfinished && argument.HasName(f.Record.Replaces, o.Name):
		o.State, o.Kept, o.Message = host.Pending, true, "stays in the default entries until the trial boot of "+argument.Join(f.Record.Args)+" is completed"
	case argument.HasName(f.Record.ManagedArguments(), o.Name), slices.ContainsFunc(f.StaleArguments(nil), isPresent):
		o.State, o.Message = host.Failed, "still in the boot menu"
		switch {
		case f.delay != "":
			o.State, o.Kept, o.Message = host.Pending, true, "not removed yet: "+f.delay
		case failure != nil:
			o.Message = loader.OneLine(failure.Error())
		case f.Unprinted != "":
			o.Message += ": " + f.Unprinted.Error()
		}
	case f.Image:
		o.State = host.InSync
	case !ok, original.Present && passed.Value == original.Value:
		o.State = host.InSync
	case !f.loader.CanStage() && !argument.Has(f.ManagedArguments(), passed) || argument.Has(present, passed):
		o.State, o.Message = host.InSync, passed.String()+" is set by another program or user, left unchanged"
	default:
		o.State, o.Message = host.Pending, "removed from the boot configuration; still effective until the next reboot"
	}
}

const failedMessage = "trial boot failed: the machine did not start with it and booted the previous entry; check its console, " +
	"then remove it from the profile and add it again to retry"
