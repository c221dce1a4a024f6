package judge

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/match"
	"github.com/storageclient/operator/controllers/volume/ledger"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/mountoptions"
	"github.com/storageclient/operator/tuning/text"
)

// Action is the write that a verdict requires.
type Action string

const (
	// ActionNone requires no write.
	ActionNone Action = "None"
	// ActionWrite writes Options and the annotations of the record.
	ActionWrite Action = "Write"
	// ActionRestore writes Options, which are the original ones, and removes the operator's annotations.
	ActionRestore Action = "Restore"
	// ActionRelease removes the operator's annotations and leaves the options.
	ActionRelease Action = "Release"
)

// State is the state of a volume with respect to the profiles that select it.
type State string

const (
	// StateUnselected means that no profile concerns the volume.
	StateUnselected State = "Unselected"
	// StateHeld means that the volume stays unchanged until a profile acts again.
	StateHeld State = "Held"
	// StatePending means that the volume must be written.
	StatePending State = "Pending"
	// StateUpToDate means that the volume carries the declared options.
	StateUpToDate State = "UpToDate"
	// StateBlocked means that the volume stays unchanged although a profile declares other options.
	StateBlocked State = "Blocked"
)

// Input is the complete input of a verdict about one volume.
type Input struct {
	Volume *corev1.PersistentVolume
	// VolumeClaim is the PersistentVolumeClaim that the volume names. Nil if there is none, or if its UID differs.
	VolumeClaim *metav1.PartialObjectMetadata
	// Class are the mount options of the volume's StorageClass. HasClass is true if the class exists.
	Class    []string
	HasClass bool
	// Entry is the volume's entry in the ledger. Nil if there is none.
	Entry *ledger.Entry
	// Profiles are all profiles of the cluster. Cluster is its UID. Empty if it is unknown.
	Profiles *Profiles
	Cluster  types.UID
	// keepsNconnect excludes nconnect from the verdict, because other volumes of the server conflict with it.
	keepsNconnect bool
}

// Verdict is the decision about one volume, with its reason.
type Verdict struct {
	Action Action
	State  State
	// Reason is one of the VolumeReason constants of the API. Message contains values and a remedy.
	Reason, Message string
	// Profiles are the names of the profiles that select the volume, sorted.
	Profiles []string
	// Options are the volume's mount options after the write.
	Options []string
	// Desired are the mount options that the rules declare, even if they are not written. Nil if no rule selects the volume.
	Desired []string
	// Original are the mount options that Restore writes.
	Original         []string
	recordedOriginal []string
	// Carried are the declared options among Options, by profile.
	Carried map[string][]string
	// Exceptions describe differences from a profile that its rules allow, by profile, with both values.
	Exceptions map[string][]string
	// Set is the hash of the option set that is declared for the volume. Empty if no rule selects it. See hashOfSet. Rules are the rules of the
	// set, as profile/rule, by precedence. RuleSet is the hash of the rules. See hashOfRules.
	Set, RuleSet string
	Rules        []string
	// replaced are the replaced options of the class, by profile, for the mark. mark is the current mark of the volume with them. Nil if it has
	// none, or has them.
	replaced map[string][]string
	mark     *Mark
	// affected are the options whose resulting values belong to the set.
	affected []string
	// readAhead is the rule that sets the volume's read-ahead window. Nil if there is none. disputed is true if profiles disagree.
	readAhead *rule
	disputed  bool
	// Contested is true if other volumes of the server conflict with the verdict. IsCanary is true if a new volume is the first with its set.
	Contested, IsCanary bool
}

// scope is the shared state of the steps that lead to a verdict.
type scope struct {
	Input
	target  target
	record  Record
	current []string
	// base are the original mount options, over which declared options are merged.
	base   []string
	rules  []rule
	merged merged
	// mark is the mark of the volume if it matters for the merge. See replaceableOptions.
	mark *Mark
}

// Volume evaluates one volume, alone. Servers evaluates it among others.
func Volume(in Input) Verdict {
	in.VolumeClaim = onlyBound(in.Volume, in.VolumeClaim)
	s := &scope{Input: in, target: targetOf(in.Volume), record: recallRecord(in.Volume, in.Entry), current: in.Volume.Spec.MountOptions}
	s.target.keepsNconnect = in.keepsNconnect
	s.base, s.rules = s.originalOptions(), in.Profiles.rulesSelecting(in.Volume, in.VolumeClaim)
	s.rules = s.followRules()
	if len(s.rules) > 0 && !s.isIgnored() {
		s.mergeRules()
		s.adoptRetained()
		s.keepOrder()
	}
	var v Verdict
	for _, answer := range []func(*scope) (Verdict, bool){
		(*scope).leaveIgnored, (*scope).holdBack, (*scope).leaveUnselected, (*scope).restoreUnselected, (*scope).blockUnmounted,
		(*scope).blockClass, (*scope).blockProtocol, (*scope).blockManagedElsewhere, (*scope).blockLegacyAnnotation, (*scope).blockChanged,
		(*scope).blockBackendOptions, (*scope).blockInvalid, (*scope).writeMerged, (*scope).keepCurrent,
	} {
		var final bool
		if v, final = answer(s); final {
			break
		}
	}
	v.Profiles, v.recordedOriginal = profileNames(s.rules), s.record.Original
	if len(s.rules) > 0 {
		v.Desired = s.merged.options
		v.Rules, v.RuleSet, v.affected = ruleNames(s.rules), hashOfRules(s.target.Source(), s.rules, in.keepsNconnect), s.merged.affected
		v.Set = hashOfSet(s.target.Source(), v.Rules, s.merged.values)
		if v.replaced = s.merged.replaced; !s.isReplacedRecorded() {
			v.mark = s.mark.withReplaced(v.replaced)
		}
	}
	_, dispute := readAheadOf(s.rules)
	v.readAhead, v.disputed = s.merged.readAhead, dispute != ""
	return s.releaseFailedMount(v)
}

func (s *scope) originalOptions() []string {
	switch {
	case s.record.HasAppliedOptions(s.Volume):
		return s.record.Original
	case s.hasAddedOptions():
		added := slices.DeleteFunc(slices.Clone(s.current), func(o string) bool { return slices.Contains(s.record.Applied, o) })
		return s.target.options.MergeProtected(s.target.ProtectedOptions(), s.record.Original, added, v1alpha1.ConflictUseProfile, nil).Options
	}
	return s.current
}

// hasAddedOptions reports whether the volume was created with declared options and now has more, as after another mutating webhook. The added options
// count as original. On other volumes, the author and purpose of an addition are unknown.
func (s *scope) hasAddedOptions() bool {
	if mark := MarkOf(s.Volume); mark == nil || !mark.Created || !s.record.IsWhole() || len(s.current) <= len(s.record.Applied) {
		return false
	}
	remaining := s.record.Applied
	for _, o := range s.current {
		if len(remaining) > 0 && remaining[0] == o {
			remaining = remaining[1:]
		}
	}
	return len(remaining) == 0
}

func (s *scope) mergeRules() {
	base := s.withoutFormerClass()
	s.merged = s.Profiles.mergeOnce(s.target, base, s.current, s.rules, s.replaceableOptions())
	if s.merged.replaced == nil && !slices.Equal(base, s.base) {
		s.merged.replaced = map[string][]string{}
	}
}

// adoptRetained adds current options of retired profiles with the policy Retain to the original mount options. It does so if other profiles still
// select the volume, and skips options that these profiles declare.
func (s *scope) adoptRetained() {
	staying := profileNames(s.rules)
	retired := slices.DeleteFunc(slices.Clone(s.record.Profiles), func(name string) bool { return slices.Contains(staying, name) })
	if !s.record.HasAppliedOptions(s.Volume) || !s.Profiles.isRetained(retired) {
		return
	}
	retained := slices.DeleteFunc(mountoptions.SplitOptions(s.current), func(o string) bool {
		return s.target.contains(s.merged.allCarried(), o) && !slices.Contains(mountoptions.SplitOptions(s.base), o)
	})
	s.base = s.target.options.MergeProtected(s.target.ProtectedOptions(), s.base, retained, v1alpha1.ConflictUseProfile, nil).Options
	s.mergeRules()
}

// keepOrder keeps the current mount options if only their order would change, or only their spelling for the same profiles. Neither has an effect.
// Options may have become original ones since the last write.
func (s *scope) keepOrder() {
	if !s.record.HasAppliedOptions(s.Volume) && !s.hasAddedOptions() {
		return
	}
	isSame := slices.Equal(s.record.Profiles, profileNames(s.rules)) && s.target.options.MeansSame(s.merged.options, s.current)
	if isSame || slices.Equal(slices.Sorted(slices.Values(s.merged.options)), slices.Sorted(slices.Values(s.current))) {
		s.merged.options = s.current
	}
}

func (s *scope) isIgnored() bool {
	return !s.Volume.DeletionTimestamp.IsZero() || match.IsIgnored(s.Volume) ||
		(s.VolumeClaim != nil && match.IsIgnored(s.VolumeClaim))
}

func (s *scope) leaveIgnored() (Verdict, bool) {
	if !s.isIgnored() {
		return Verdict{}, false
	}
	s.rules = nil
	return Verdict{Action: ActionNone, State: StateUnselected, Reason: v1alpha1.VolumeReasonIgnored,
		Message: "Ignored: the volume is being deleted, or it or its PersistentVolumeClaim has the annotation " + v1alpha1.IgnoreAnnotation}, true
}

func (s *scope) holdBack() (Verdict, bool) {
	message := s.Profiles.holdOn(s.record.Profiles)
	return Verdict{Action: ActionNone, State: StateHeld, Reason: v1alpha1.VolumeReasonHeld, Message: message},
		message != "" && (len(s.rules) > 0 || s.record.Present)
}

func (s *scope) leaveUnselected() (Verdict, bool) {
	return Verdict{Action: ActionNone, State: StateUnselected, Reason: v1alpha1.VolumeReasonNotSelected, Message: "No rule selects the volume"},
		len(s.rules) == 0 && !s.record.Present
}

func (s *scope) restoreUnselected() (Verdict, bool) {
	if len(s.rules) > 0 {
		return Verdict{}, false
	}
	if reason := s.keepOptions(); reason != "" {
		return Verdict{Action: ActionRelease, State: StatePending, Reason: v1alpha1.VolumeReasonReleased,
			Message: "mountOptions stay unchanged: " + reason}, true
	}
	return Verdict{Action: ActionRestore, State: StatePending, Reason: v1alpha1.VolumeReasonRestored, Options: s.record.Original,
		Message: "Restored the original mountOptions: " + listText(s.record.Original)}, true
}

// keepOptions explains why the options of a volume that no rule selects stay. Empty if they are restored.
func (s *scope) keepOptions() string {
	declarer, declared := declarerOf(s.Volume)
	if replacer, replaced := replacerOf(s.Volume); replaced && s.record.Recalled {
		declarer, declared = replacer, true
	}
	switch {
	case s.record.Broken != "":
		return s.record.Broken
	case s.Profiles.isRetained(s.record.Profiles):
		return "deletionPolicy is Retain"
	case !slices.Equal(s.current, s.record.Applied):
		return "another user or controller changed them"
	case declared && !s.Profiles.isPatching(s.record.Profiles):
		return declarer.String() + " now manages them"
	}
	return ""
}

func (s *scope) blockManagedElsewhere() (Verdict, bool) {
	owner, elsewhere := ownerOf(s.Volume)
	reportOnly := slices.ContainsFunc(s.rules, func(r rule) bool { return r.GitOpsOwned != v1alpha1.GitOpsPatch })
	if !elsewhere || !reportOnly {
		return Verdict{}, false
	}
	if _, legacy := s.Volume.Annotations[corev1.MountOptionAnnotation]; !legacy && s.isSatisfied() {
		return s.keepCurrent()
	}
	v := blockedFor(v1alpha1.VolumeReasonDeclaredElsewhere, s.managedElsewhereText(owner))
	v.Exceptions = map[string][]string{}
	for _, name := range profileNames(s.rules) {
		if !s.hasAllOf(name) {
			v.Exceptions[name] = []string{v.Message}
		}
	}
	return v, true
}

// isSatisfied reports whether the current mount options already match the declared ones.
func (s *scope) isSatisfied() bool {
	return len(s.merged.conflicts) == 0 && slices.Equal(s.current, s.merged.options)
}

// hasAllOf reports whether the current mount options contain all options that one profile declares.
func (s *scope) hasAllOf(profile string) bool {
	lacks := slices.ContainsFunc(s.merged.carried[profile], func(o string) bool { return !s.target.contains(s.current, o) })
	return !lacks && len(s.merged.conflicts) == 0 && len(s.keptValues()[profile]) == 0
}

// keptValues returns the values that the volume keeps in conflict with a profile, by profile.
func (s *scope) keptValues() map[string][]string {
	out := map[string][]string{}
	for _, k := range s.merged.keptValues {
		out[k.profile] = append(out[k.profile], k.String())
	}
	return out
}

// managedElsewhereText names the manager of the mount options, and a remedy there.
func (s *scope) managedElsewhereText(manager owner) string {
	current := mountoptions.SplitOptions(s.current)
	missing := slices.DeleteFunc(slices.Clone(s.merged.options), func(o string) bool { return slices.Contains(current, o) })
	remedy := fmt.Sprintf("add %s there", listText(missing))
	if len(missing) == 0 || len(missing)+len(current) != len(s.merged.options) {
		remedy = fmt.Sprintf("set mountOptions to %s there", listText(s.merged.options))
	}
	declare, cede := manager.blocks(s.Volume.Name, s.merged.options)
	remedy += text.Labelled(", ", declare)
	return fmt.Sprintf("Not changed: managed by %s; mountOptions are %s; %s, or set gitOpsOwned: Patch", manager, listText(s.current), remedy) +
		text.Labelled(" with this ", cede)
}

func (s *scope) blockLegacyAnnotation() (Verdict, bool) {
	if _, ok := s.Volume.Annotations[corev1.MountOptionAnnotation]; !ok {
		return Verdict{}, false
	}
	return blockedFor(v1alpha1.VolumeReasonLegacyAnnotation, fmt.Sprintf(
		"Not changed: annotation %s overrides spec.mountOptions; move its options there and remove the annotation", corev1.MountOptionAnnotation)), true
}

func (s *scope) blockChanged() (Verdict, bool) {
	switch replacer, replaced := replacerOf(s.Volume); {
	case !s.record.Present || s.hasAddedOptions():
		return Verdict{}, false
	case s.record.Broken != "":
		return blockedFor(v1alpha1.VolumeReasonConflict, "Not changed: "+s.record.Broken+"; "+s.adoptText()), true
	case !s.record.HasAppliedOptions(s.Volume):
		return blockedFor(v1alpha1.VolumeReasonConflict, s.changedText()), true
	case s.record.Recalled && replaced:
		return s.keepReplaced(replacer), true
	case s.record.Recalled && s.record.AnnotationsRestored:
		return blockedFor(v1alpha1.VolumeReasonConflict, s.removedText()), true
	}
	return Verdict{}, false
}

// blockUnmounted blocks volumes that are not mounted with options.
func (s *scope) blockUnmounted() (Verdict, bool) {
	if isRawBlock(s.Volume) {
		return blockedFor(v1alpha1.VolumeReasonNoMount,
			"Not changed: volumeMode is Block, and mount options have no effect on devices; exclude the volume from the rule's selector"), true
	}
	reason := s.target.UnsupportedReason()
	return blockedFor(v1alpha1.VolumeReasonNoMount, "Not changed: "+reason+"; exclude the volume from the rule's selector"), reason != ""
}

// blockProtocol blocks options that would make a mount fail. A rule that names an unknown driver vouches for it.
func (s *scope) blockProtocol() (Verdict, bool) {
	source := s.target.Source()
	vouched := func(r rule) bool { return source.Driver != "" && slices.Contains(r.Selector.Drivers, source.Driver) }
	if source.Protocol == "" && slices.ContainsFunc(s.rules, func(r rule) bool { return !vouched(r) }) {
		return blockedFor(v1alpha1.VolumeReasonWrongProtocol, fmt.Sprintf(
			"Not changed: unknown driver %q; name it in the rule's selector.drivers if it mounts NFS, or XFS with fsType xfs", source.Driver)), true
	}
	foreign := lists.Distinct(lists.Each(s.rules, func(r rule) []string {
		return lists.Filter(r.options(), func(o string) bool { return !s.target.options.Knows(o) })
	})...)
	if len(foreign) == 0 {
		return Verdict{}, false
	}
	return blockedFor(v1alpha1.VolumeReasonWrongProtocol, fmt.Sprintf(
		"Not supported by the volume, which is %s: %s; name protocols or fsTypes in the rule's selector",
		describeKind(source, s.target.options), text.List(foreign))), true
}

// describeKind returns the kind of a volume, in the words of a selector.
func describeKind(source Source, options mountoptions.Protocol) string {
	switch {
	case source.Protocol == v1alpha1.ProtocolBlock && source.FSType == "":
		return fmt.Sprintf("Block without fsType (driver %s)", source.Driver)
	case source.Protocol == v1alpha1.ProtocolBlock:
		return fmt.Sprintf("Block with fsType %s (driver %s)", source.FSType, source.Driver)
	case source.Protocol == "":
		return fmt.Sprintf("treated as %s (driver %s)", options, source.Driver)
	}
	return fmt.Sprintf("%s (driver %s)", source.Protocol, source.Driver)
}

// blockBackendOptions blocks volumes without options if declared options would replace the defaults of the driver.
func (s *scope) blockBackendOptions() (Verdict, bool) {
	missing := s.target.MissingForBackend(s.target.options, s.base, s.merged.options)
	if missing == "" {
		return Verdict{}, false
	}
	return blockedFor(v1alpha1.VolumeReasonInvalidOptions, fmt.Sprintf(
		"Not changed: driver %s uses the options of its backend only if the volume has none; "+
			"also declare %s and all other options of the backend", s.target.Driver, missing)), true
}

func (s *scope) blockInvalid() (Verdict, bool) {
	if len(s.merged.problems) == 0 && len(s.merged.ownProblems) > 0 && !s.isSatisfied() {
		return blockedFor(v1alpha1.VolumeReasonInvalidOptions, "Not changed: mount rejects the volume's original options: "+
			strings.Join(s.merged.ownProblems, "; ")+"; correct them in the volume, and in its StorageClass for new volumes"), true
	}
	return blockedFor(v1alpha1.VolumeReasonInvalidOptions, "Not changed: mount would reject the merged options, or the driver would change them: "+
		text.Join(s.merged.problems, "; ")), len(s.merged.problems) > 0
}

func (s *scope) writeMerged() (Verdict, bool) {
	wanted := s.merged.options
	if slices.Equal(s.current, wanted) && !s.record.Recalled && s.isReplacedRecorded() &&
		(!s.record.Present || s.record.HasAppliedOptions(s.Volume) && slices.Equal(s.record.Profiles, profileNames(s.rules))) {
		return Verdict{}, false
	}
	message := fmt.Sprintf("mountOptions become %s (were %s) by %s%s",
		listText(wanted), listText(s.current), text.List(profileNames(s.rules)), s.classText())
	if s.record.Recalled && slices.Equal(s.current, wanted) {
		return s.writeVerdict("Restored the operator's annotations; mountOptions stay " + listText(wanted)), true
	}
	if !s.target.MountsPerPod() {
		message += "; effective on a node once no pod there uses the volume"
	}
	return s.writeVerdict(message), true
}

func (s *scope) writeVerdict(message string) Verdict {
	return Verdict{Action: ActionWrite, State: StatePending, Reason: v1alpha1.VolumeReasonOptionsMerged, Message: message + s.exceptionsText(),
		Options: s.merged.options, Original: s.base, Carried: s.merged.carried}
}

// keepCurrent returns the verdict for a volume that needs no write.
func (s *scope) keepCurrent() (Verdict, bool) {
	v := Verdict{Action: ActionNone, State: StateUpToDate, Reason: v1alpha1.VolumeReasonUpToDate, Options: s.current, Carried: s.merged.carried,
		Message: "mountOptions are as declared" + s.exceptionsText()}
	if len(s.merged.keptValues) > 0 {
		v.Reason, v.Exceptions = v1alpha1.VolumeReasonKeepsOwnValue, s.keptValues()
		v.Message = strings.TrimPrefix(s.exceptionsText(), "; ")
	}
	if len(s.merged.conflicts) > 0 {
		v.State, v.Reason, v.Exceptions = StateBlocked, v1alpha1.VolumeReasonConflict, nil
		effect := "not changed"
		if s.record.Present {
			effect = "these options keep their values, all others are as declared"
		}
		v.Message = fmt.Sprintf("Profiles of equal priority disagree: %s; %s; give one of them a higher priority", text.List(s.merged.conflicts), effect)
	}
	return v, true
}

// exceptionsText lists the declared values that did not win, after a semicolon. Empty if there are none.
func (s *scope) exceptionsText() string {
	var out string
	if len(s.merged.conflicts) > 0 {
		out += "; profiles of equal priority disagree: " + text.List(s.merged.conflicts)
	}
	if len(s.merged.setByDriver) > 0 {
		out += "; the driver already sets: " + text.List(s.merged.setByDriver)
	}
	if len(s.merged.keptValues) > 0 {
		out += "; " + text.Join(lists.Each(s.merged.keptValues, keptValue.String), "; ")
	}
	return out
}

func blockedFor(reason, message string) Verdict {
	return Verdict{Action: ActionNone, State: StateBlocked, Reason: reason, Message: message}
}

// ChangesOptions reports whether a verdict changes the mount options of an existing volume for a profile. Such a change waits for its batch. A
// restore is the safe direction and does not wait.
func (v Verdict) ChangesOptions(pv *corev1.PersistentVolume) bool {
	return v.Action == ActionWrite && !slices.Equal(pv.Spec.MountOptions, v.Options)
}

// Apply returns the volume after the write of a verdict. It has no identity, so that earlier records do not count. Nil if the verdict requires no
// write.
func (v Verdict) Apply(pv *corev1.PersistentVolume) *corev1.PersistentVolume {
	if v.Action == ActionNone {
		return nil
	}
	out := pv.DeepCopy()
	out.UID, out.ResourceVersion = "", ""
	for _, key := range slices.Concat(markAnnotations, recordAnnotations) {
		delete(out.Annotations, key)
	}
	if v.Action != ActionRelease {
		out.Spec.MountOptions = v.Options
	}
	if v.Action == ActionWrite {
		record := annotationsOf(v)
		maps.Copy(record, out.Annotations)
		out.Annotations = record
	}
	return out
}

// DeclaredOptions returns all declared options among the mount options.
func (v Verdict) DeclaredOptions() []string { return merged{carried: v.Carried}.allCarried() }

// ReadAhead returns the desired read-ahead window of the volume's mounts. Nil if there is none. disputed is true if profiles of equal priority
// disagree.
func (v Verdict) ReadAhead() (window *ReadAhead, disputed bool) {
	if r := v.readAhead; r != nil {
		window = &ReadAhead{KiB: *r.ReadAheadKiB, Profile: r.profile.Name, Rule: r.Name}
	}
	return window, v.disputed
}

// ReadAhead is a read-ahead window with the rule that declares it.
type ReadAhead struct {
	KiB           int32
	Profile, Rule string
}

// pageKiB is the largest page size to which a kernel rounds a window down.
const pageKiB = 64

// StateOn returns the state of the window on a mount: InSync, Pending until the mount has it, or Failed or Unsupported if its agent reports this. Agents
// of earlier releases report no state. A mount without a reported window is then InSync.
func (a ReadAhead) StateOn(m v1alpha1.MountStatus) v1alpha1.SettingState {
	isOn := m.ReadAheadKiB > max(a.KiB-pageKiB, 0) && m.ReadAheadKiB <= a.KiB
	switch {
	case !isOn && (m.ReadAheadState == v1alpha1.SettingFailed || m.ReadAheadState == v1alpha1.SettingUnsupported):
		return m.ReadAheadState
	case isOn, m.ReadAheadKiB == 0:
		return v1alpha1.SettingInSync
	}
	return v1alpha1.SettingPending
}

// listText formats mount options as JSON, as in manifests.
func listText(options []string) string {
	if len(options) == 0 {
		return "none"
	}
	return text.JSON(options)
}
