package volume

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/storageclient/operator/api/v1alpha1"
)

// maxFailureText is how many bytes of a FailedMount event's message are kept.
const maxFailureText = 256

var stepAnnotations = []string{v1alpha1.MountOptionsStepAnnotation, v1alpha1.FailedMountOptionsAnnotation}

// stepMark is what a volume remembers of the step in which its list was written.
type stepMark struct {
	// Since is when the step began, in full seconds. Volumes of one step share it.
	Since time.Time `json:"since"`
	// Rules are the hashes of the volume rules that the list was written for, by profile.
	Rules map[string]string `json:"rules"`
	// Unprovable is true where mounts from before the write look like ones from after it: only the soak ends the step.
	Unprovable bool `json:"unprovable,omitempty"`
}

// refusal is what a volume remembers of a list that a pod could not mount.
type refusal struct {
	Rules   map[string]string `json:"rules"`
	Driver  string            `json:"driver"`
	Options []string          `json:"options"`
	Message string            `json:"message"`
}

func (r refusal) String() string {
	return fmt.Sprintf("%s (driver %s): %s", list(r.Options), r.Driver, r.Message)
}

// markOf returns nil for a volume that no step has written, and for a mark that cannot be read.
func markOf(pv *corev1.PersistentVolume) *stepMark {
	return readJSON[stepMark](pv, v1alpha1.MountOptionsStepAnnotation)
}

func refusalOf(pv *corev1.PersistentVolume) *refusal {
	return readJSON[refusal](pv, v1alpha1.FailedMountOptionsAnnotation)
}

func readJSON[T any](pv *corev1.PersistentVolume, key string) *T {
	text, ok := pv.Annotations[key]
	if !ok {
		return nil
	}
	out := new(T)
	if err := json.Unmarshal([]byte(text), out); err != nil {
		return nil
	}
	return out
}

func jsonText(value any) (string, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return "", fmt.Errorf("encode %+v: %w", value, err)
	}
	return string(data), nil
}

// hashOfRules tells versions of a profile's volume rules apart: to change any of them begins anew, canary first.
func hashOfRules(rules []v1alpha1.VolumeRule) string {
	data, err := json.Marshal(rules)
	if err != nil { // the rules came out of JSON
		return ""
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:6])
}

// hashes are those of the rules that select a volume, by profile.
func (d Decision) hashes() map[string]string {
	out := map[string]string{}
	for _, r := range d.rules {
		out[r.profile.name] = r.profile.rulesHash
	}
	return out
}

// optionSet names what is declared for a volume and who mounts it: what works for one volume of a set says something of
// the others.
func (d Decision) optionSet(pv *corev1.PersistentVolume) string {
	source := SourceOf(pv)
	parts := []string{source.Driver, string(source.Protocol), source.FSType}
	for _, r := range d.rules {
		parts = append(parts, r.profile.name, strings.Join(r.options(), ","))
	}
	return strings.Join(parts, "\x00")
}

// wanted are all declared options that stand in the list.
func (d Decision) wanted() []string {
	var out []string
	for _, options := range d.Carried {
		out = append(out, options...)
	}
	return out
}

// needsStep says whether a decision changes the list of an existing volume for a profile. To take our options back is
// the safe direction, and waits for nobody.
func (d Decision) needsStep(pv *corev1.PersistentVolume) bool {
	return d.Action == ActionWrite && !slices.Equal(pv.Spec.MountOptions, d.Options)
}

// carriesOurs says whether the volume's list is the one that we wrote last.
func carriesOurs(pv *corev1.PersistentVolume) bool {
	r := readRecord(pv)
	return r.present && r.broken == "" && slices.Equal(pv.Spec.MountOptions, r.applied)
}

// takenBack is what becomes of a volume that a pod could not mount with the list that we wrote.
func takenBack(pv *corev1.PersistentVolume, d Decision, mark *stepMark, message string) Decision {
	source := SourceOf(pv)
	out := Decision{
		Action: ActionRestore, State: StatePending, Reason: v1alpha1.VolumeReasonFailedMount, Profiles: d.Profiles, rules: d.rules,
		Options: readRecord(pv).original,
		refused: &refusal{Rules: mark.Rules, Driver: source.Driver, Options: slices.Clone(pv.Spec.MountOptions), Message: message},
	}
	out.Message = fmt.Sprintf("a pod could not mount it with %s, and no other volume gets these options until the profile's volume rules change; put back: %s",
		*out.refused, list(out.Options))
	return out
}

// refuses says whether the volume keeps others from getting what a profile declares today.
func (r *refusal) refuses(p *profile) bool {
	return r != nil && !p.leaving && r.Rules[p.name] == p.rulesHash
}

// of says whether the list was written for the profile, whatever it declares today.
func (r *refusal) of(profile string) bool {
	return r != nil && r.Rules[profile] != ""
}

// forgetRefusal takes the mark of a list that was taken back off a volume, once no profile declares it any more.
func (s *scope) forgetRefusal(d Decision) Decision {
	_, marked := s.Volume.Annotations[v1alpha1.FailedMountOptionsAnnotation]
	if !marked || s.record.present || d.Action != ActionNone || d.State == StateHeld || s.ignored() || s.Profiles.pausedAll {
		return d
	}
	refused := refusalOf(s.Volume)
	for _, p := range s.Profiles.byPrecedence {
		if refused.of(p.name) && (p.hold != nil || refused.refuses(p)) {
			return d
		}
	}
	d.Action, d.Reason, d.Message = ActionRelease, v1alpha1.VolumeReasonReleased, "nobody declares the options any more that could not be mounted"
	return d
}
