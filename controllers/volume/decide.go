package volume

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/match"
	"github.com/storageclient/operator/tuning/mountoptions"
	"github.com/storageclient/operator/tuning/text"
)

// Action is what is to be written.
type Action string

const (
	// ActionNone writes nothing.
	ActionNone Action = "None"
	// ActionWrite writes Options and the three annotations.
	ActionWrite Action = "Write"
	// ActionRestore writes Options, which are the original ones, and removes the three annotations.
	ActionRestore Action = "Restore"
	// ActionRelease removes the three annotations and leaves the options.
	ActionRelease Action = "Release"
)

// State is how a volume stands towards the profiles that select it.
type State string

const (
	// StateUnselected concerns no profile.
	StateUnselected State = "Unselected"
	// StateHeld stays as it is until a profile acts again.
	StateHeld State = "Held"
	// StatePending is about to be written.
	StatePending State = "Pending"
	// StateUpToDate carries the declared options.
	StateUpToDate State = "UpToDate"
	// StateBlocked is left alone, although a profile declares other options.
	StateBlocked State = "Blocked"
)

// Input is all that a decision about one volume rests on.
type Input struct {
	Volume *corev1.PersistentVolume
	// Claim is the claim that the volume names, nil if there is none. One of another UID counts as none.
	Claim *metav1.PartialObjectMetadata
	// Class holds the mount options of the volume's StorageClass; nil if there is no such class.
	Class []string
	// Profiles are all profiles of the cluster.
	Profiles Profiles
}

// Decision is what becomes of one volume, and why.
type Decision struct {
	Action Action
	State  State
	// Reason is one of the constants; Message names values and what would help.
	Reason, Message string
	// Profiles are the names of the profiles that select the volume, sorted.
	Profiles []string
	// Options is the list after the write.
	Options []string
	// Original is the list to come back with Restore.
	Original []string
	// Carried are the declared options that stand in Options, by profile.
	Carried map[string][]string
	// rules are those that select the volume, by precedence.
	rules []rule
	// readAhead is the rule of the volume's read-ahead window, nil for none; disputed is true where profiles disagree.
	readAhead *rule
	disputed  bool
	// mark is the step that an ActionWrite belongs to, nil where the list does not change.
	mark *stepMark
	// refused is what an ActionRestore after a FailedMount leaves on the volume.
	refused *refusal
	// contested is true where other volumes of the server are in the way.
	contested bool
}

// scope is what the steps of a decision share.
type scope struct {
	Input
	target  target
	record  record
	current []string
	rules   []rule
	merged  merged
}

// Decide says what to do with one volume. It reads neither API nor clock.
func Decide(in Input) Decision {
	if !boundTo(in.Volume, in.Claim) {
		in.Claim = nil
	}
	s := &scope{Input: in, target: targetOf(in.Volume), record: readRecord(in.Volume), current: in.Volume.Spec.MountOptions}
	s.rules = in.Profiles.selecting(in.Volume, in.Claim)
	if len(s.rules) > 0 && !s.ignored() {
		s.merged = s.Profiles.memory.merge(s.target, s.base(), s.current, s.rules, s.replaceable())
	}
	var d Decision
	for _, step := range []func(*scope) (Decision, bool){
		(*scope).leaveIgnored, (*scope).hold, (*scope).leaveUnselected, (*scope).giveBack, (*scope).blockUnmounted,
		(*scope).blockProtocol, (*scope).declaredElsewhere, (*scope).blockLegacy, (*scope).blockChanged, (*scope).blockInvalid,
		(*scope).write, (*scope).settle,
	} {
		var done bool
		if d, done = step(s); done {
			break
		}
	}
	d.Profiles, d.rules = profileNames(s.rules), s.rules
	_, dispute := readAheadOf(s.rules)
	d.readAhead, d.disputed = s.merged.readAhead, dispute != ""
	return s.forgetRefusal(d)
}

// base is the list that declared options are laid over: the volume's own.
func (s *scope) base() []string {
	if s.adopted() && slices.Equal(s.current, s.record.applied) {
		return s.record.original
	}
	return s.current
}

func (s *scope) adopted() bool { return s.record.present && s.record.broken == "" }

// replaceable are the options that UseProfileOverClass may replace: the class's, and those that have already been
// replaced. Without the latter, to delete and recreate a class would change every volume of it twice.
func (s *scope) replaceable() []string {
	class := slices.Clone(s.Class)
	if s.adopted() {
		for _, o := range s.record.original {
			if !slices.Contains(s.record.applied, o) {
				class = append(class, o)
			}
		}
	}
	return class
}

func (s *scope) ignored() bool {
	return !s.Volume.DeletionTimestamp.IsZero() || match.Ignored(s.Volume) || (s.Claim != nil && match.Ignored(s.Claim))
}

func (s *scope) leaveIgnored() (Decision, bool) {
	if !s.ignored() {
		return Decision{}, false
	}
	s.rules = nil
	return Decision{Action: ActionNone, State: StateUnselected, Reason: v1alpha1.VolumeReasonIgnored,
		Message: "the volume is being deleted, or it or its claim carries the annotation " + v1alpha1.IgnoreAnnotation}, true
}

func (s *scope) hold() (Decision, bool) {
	message := s.Profiles.holding(s.record.profiles)
	if message == "" || (len(s.rules) == 0 && !s.record.present) {
		return Decision{}, false
	}
	return Decision{Action: ActionNone, State: StateHeld, Reason: v1alpha1.VolumeReasonHeld, Message: message}, true
}

func (s *scope) leaveUnselected() (Decision, bool) {
	if len(s.rules) > 0 || s.record.present {
		return Decision{}, false
	}
	return Decision{Action: ActionNone, State: StateUnselected, Reason: v1alpha1.VolumeReasonNotSelected, Message: "no rule selects the volume"}, true
}

// giveBack is for a volume that no rule selects any more.
func (s *scope) giveBack() (Decision, bool) {
	if len(s.rules) > 0 {
		return Decision{}, false
	}
	if why := s.keepOptions(); why != "" {
		return Decision{Action: ActionRelease, State: StatePending, Reason: v1alpha1.VolumeReasonReleased, Message: "mountOptions stay as they are: " + why}, true
	}
	return Decision{Action: ActionRestore, State: StatePending, Reason: v1alpha1.VolumeReasonRestored, Options: s.record.original,
		Message: "put the volume's own mountOptions back: " + list(s.record.original)}, true
}

// keepOptions says why the options of a volume that goes free are not put back, "" if they are.
func (s *scope) keepOptions() string {
	by, elsewhere := declaredElsewhere(s.Volume)
	switch {
	case s.record.broken != "":
		return s.record.broken
	case s.Profiles.retained(s.record.profiles):
		return "deletionPolicy is Retain"
	case !slices.Equal(s.current, s.record.applied):
		return "somebody else changed them"
	case elsewhere && !s.Profiles.patchesDeclared(s.record.profiles):
		return "they are declared elsewhere: " + by.String()
	}
	return ""
}

func (s *scope) declaredElsewhere() (Decision, bool) {
	by, elsewhere := declaredElsewhere(s.Volume)
	reportOnly := slices.ContainsFunc(s.rules, func(r rule) bool { return r.GitOpsOwned != v1alpha1.GitOpsPatch })
	if !elsewhere || !reportOnly {
		return Decision{}, false
	}
	if _, legacy := s.Volume.Annotations[corev1.MountOptionAnnotation]; !legacy && s.satisfied() {
		return s.settle()
	}
	return blocked(v1alpha1.VolumeReasonDeclaredElsewhere, declaredMessage(s.Volume.Name, by, s.merged.options)), true
}

// satisfied says whether the list needs no write to carry what is declared.
func (s *scope) satisfied() bool {
	return len(s.merged.conflicts) == 0 && slices.Equal(s.current, s.merged.options)
}

func declaredMessage(name string, by declaration, wanted []string) string {
	message := fmt.Sprintf("mountOptions are declared elsewhere, by %s: declare %s there, or set gitOpsOwned: Patch", by, list(wanted))
	if by.tool != argoCD {
		return message
	}
	return message + " with this in the Application's spec: " + argoBlock(name)
}

// argoBlock is YAML in flow style, so that it can be pasted from an event.
func argoBlock(name string) string {
	return fmt.Sprintf(`{ignoreDifferences: [{group: "", kind: PersistentVolume, name: %s, jsonPointers: [/spec/mountOptions]}], `+
		`syncPolicy: {syncOptions: [RespectIgnoreDifferences=true]}}`, name)
}

func (s *scope) blockLegacy() (Decision, bool) {
	if _, ok := s.Volume.Annotations[corev1.MountOptionAnnotation]; !ok {
		return Decision{}, false
	}
	return blocked(v1alpha1.VolumeReasonLegacyAnnotation, fmt.Sprintf("annotation %s overrides spec.mountOptions: move its options there and remove it",
		corev1.MountOptionAnnotation)), true
}

func (s *scope) blockChanged() (Decision, bool) {
	switch {
	case !s.record.present || (s.adopted() && slices.Equal(s.current, s.record.applied)):
		return Decision{}, false
	case s.record.broken != "":
		return blocked(v1alpha1.VolumeReasonConflict, fmt.Sprintf("%s: remove the annotations %s to have the volume taken up anew",
			s.record.broken, strings.Join(ourAnnotations, ", "))), true
	}
	return blocked(v1alpha1.VolumeReasonConflict, fmt.Sprintf("somebody else changed mountOptions to %s; last written: %s: set that again, or remove the annotations %s to have the volume taken up anew",
		list(s.current), list(s.record.applied), strings.Join(ourAnnotations, ", "))), true
}

// blockUnmounted is for volumes that nobody mounts with options.
func (s *scope) blockUnmounted() (Decision, bool) {
	if rawBlock(s.Volume) {
		return blocked(v1alpha1.VolumeReasonNoMount, "volumeMode is Block: pods get the device itself, and mount options have no effect: leave the volume out of the rule's selector"), true
	}
	if why := s.target.Refuses(); why != "" {
		return blocked(v1alpha1.VolumeReasonNoMount, why+": leave the volume out of the rule's selector"), true
	}
	return Decision{}, false
}

// blockProtocol keeps options away from mounts that would fail with them. A driver that is not in the table is taken at
// a rule's word, where the rule names it.
func (s *scope) blockProtocol() (Decision, bool) {
	source := s.target.Source()
	vouched := func(r rule) bool { return source.Driver != "" && slices.Contains(r.Selector.Drivers, source.Driver) }
	if source.Protocol == "" && slices.ContainsFunc(s.rules, func(r rule) bool { return !vouched(r) }) {
		return blocked(v1alpha1.VolumeReasonWrongProtocol, fmt.Sprintf("driver %q is not known: name it in the rule's selector.drivers if it mounts NFS, or XFS and the volume's fsType is xfs", source.Driver)), true
	}
	var foreign []string
	for _, r := range s.rules {
		for _, o := range r.options() {
			if !s.target.options.Knows(o) {
				foreign = append(foreign, o)
			}
		}
	}
	if len(foreign) == 0 {
		return Decision{}, false
	}
	slices.Sort(foreign)
	return blocked(v1alpha1.VolumeReasonWrongProtocol, fmt.Sprintf("not for this volume, which is %s: %s: name protocols or fsTypes in the rule's selector",
		kind(source, s.target.options), text.List(slices.Compact(foreign)))), true
}

// kind says what a volume is, in the words of a selector.
func kind(source Source, options mountoptions.Protocol) string {
	switch {
	case source.Protocol == v1alpha1.ProtocolBlock && source.FSType == "":
		return fmt.Sprintf("Block (driver %s) and names no fsType", source.Driver)
	case source.Protocol == v1alpha1.ProtocolBlock:
		return fmt.Sprintf("Block with fsType %s (driver %s)", source.FSType, source.Driver)
	case source.Protocol == "":
		return fmt.Sprintf("taken for %s (driver %s)", options, source.Driver)
	}
	return fmt.Sprintf("%s (driver %s)", source.Protocol, source.Driver)
}

func (s *scope) blockInvalid() (Decision, bool) {
	if len(s.merged.problems) == 0 {
		return Decision{}, false
	}
	return blocked(v1alpha1.VolumeReasonInvalidOptions, "mount would not get the merged list as it is, or refuse it: "+text.Join(s.merged.problems, "; ")), true
}

func (s *scope) write() (Decision, bool) {
	wanted := s.merged.options
	if slices.Equal(s.current, wanted) && (!s.record.present || slices.Equal(s.record.profiles, profileNames(s.rules))) {
		return Decision{}, false
	}
	message := fmt.Sprintf("mountOptions become %s (were %s) by %s", list(wanted), list(s.current), text.List(profileNames(s.rules)))
	if !s.target.MountsPerPod() {
		message += "; a node mounts them once all pods of the volume have left it"
	}
	return Decision{Action: ActionWrite, State: StatePending, Reason: v1alpha1.VolumeReasonOptionsMerged, Message: message + s.notes(),
		Options: wanted, Original: s.base(), Carried: s.merged.carried}, true
}

// settle is for a volume that needs no write.
func (s *scope) settle() (Decision, bool) {
	d := Decision{Action: ActionNone, State: StateUpToDate, Reason: v1alpha1.VolumeReasonUpToDate, Options: s.current, Carried: s.merged.carried,
		Message: "mountOptions are as declared" + s.notes()}
	if len(s.merged.conflicts) > 0 {
		d.State, d.Reason = StateBlocked, v1alpha1.VolumeReasonConflict
		d.Message = fmt.Sprintf("profiles of equal priority disagree: %s: what is in force stays; give one a higher priority", text.List(s.merged.conflicts))
	}
	return d, true
}

// notes tells where what was declared did not win.
func (s *scope) notes() string {
	var notes string
	if len(s.merged.conflicts) > 0 {
		notes += "; profiles of equal priority disagree: " + text.List(s.merged.conflicts)
	}
	if len(s.merged.given) > 0 {
		notes += "; the driver gives by itself: " + text.List(s.merged.given)
	}
	if len(s.merged.kept) > 0 {
		var kept []string
		for _, k := range s.merged.kept {
			kept = append(kept, fmt.Sprintf("%s is %s, declared %s", k.Option, k.Observed, k.Wanted))
		}
		notes += "; the volume's own value stays: " + text.Join(kept, "; ")
	}
	return notes
}

func blocked(reason, message string) Decision {
	return Decision{Action: ActionNone, State: StateBlocked, Reason: reason, Message: message}
}

func list(options []string) string {
	if len(options) == 0 {
		return "none"
	}
	text, err := json.Marshal(options)
	if err != nil { // a list of strings always marshals
		return strings.Join(options, ",")
	}
	return string(text)
}
