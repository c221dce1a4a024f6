package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
)

// BackOff is how long a node is left alone after a drain that ended without a reboot. After each more in a row it is twice as long, up to
// MaxBackOff.
const (
	BackOff    = 5 * time.Minute
	MaxBackOff = 6 * time.Hour
)

// LookPause is how long a node is left alone at least that could not have been drained; one that has waited for longer is left alone for as
// long again, up to BackOff.
const LookPause = time.Minute

// PassOver returns the note of a node that was to be claimed and is passed over, since its drain would not end. Pods that run to their end
// are reason enough only once: they may have ended by the next time, and where every node runs some, one has to go first.
func (s *Session) PassOver(node string, outlook DrainProgress) (note v1alpha1.RolloutStatus, pass bool) {
	n := s.find(node)
	if outlook.Gone || outlook.Reason == "" || n == nil || n.ClientNode == nil {
		return v1alpha1.RolloutStatus{}, false
	}
	pause := LookPause
	if since := n.noteSince(); !since.IsZero() {
		pause = min(max(s.Now.Sub(since), LookPause), BackOff)
	}
	if outlook.Reason == v1alpha1.RolloutReasonWaitingForPods {
		if n.note.RetryAfter != nil {
			return v1alpha1.RolloutStatus{}, false
		}
		pause = BackOff
	}
	until := metav1.Time{Time: s.Now.Add(pause)}
	note = s.newNote(n, v1alpha1.RolloutWaiting, outlook.Reason, fmt.Sprintf("Passed over until %s: %s", formatTime(until.Time), outlook.Message))
	note.RetryAfter, note.DrainedFor = &until, s.drainKey(n)
	return note, true
}

// backOffFrom returns a node to service and leaves it alone for a while. The note is written ahead: the uncordoned node does not show why.
func (p *planner) backOffFrom(n *nodeState, reason, message string) {
	if n.note.Phase != v1alpha1.RolloutWaiting || !p.isBackingOff(n) {
		pause := BackOff
		for i := int32(0); i < n.note.DrainAttempts && pause < MaxBackOff; i++ {
			pause = min(2*pause, MaxBackOff)
		}
		n.note.DrainAttempts++
		n.note.RetryAfter = &metav1.Time{Time: p.Now.Add(pause)}
		n.note.DrainedFor = p.drainKey(n)
	}
	note := p.newNote(n, v1alpha1.RolloutWaiting, reason, fmt.Sprintf("%s; next attempt after %s", message, formatTime(n.note.RetryAfter.Time)))
	p.writeNoteAhead(n, note)
	p.returnToService(n, reason)
	p.storeNote(n, note)
	p.wakeAt(n.note.RetryAfter.Time)
}

func (p *planner) isBackingOff(n *nodeState) bool {
	return n.note.RetryAfter != nil && p.Now.Before(n.note.RetryAfter.Time)
}

// checkBackOff refuses a node that is left alone for a while, in the words in which that was said first.
func (p *planner) checkBackOff(n *nodeState) (reason, message string) {
	if !p.isBackingOff(n) {
		return "", ""
	}
	p.wakeAt(n.note.RetryAfter.Time)
	said := []string{v1alpha1.RolloutReasonDrainBlocked, v1alpha1.RolloutReasonWaitingForPods, v1alpha1.RolloutReasonSettingsFailed, v1alpha1.RolloutReasonStorageUnreachable}
	if isBackOff(n.note.Reason) || slices.Contains(said, n.note.Reason) {
		return n.note.Reason, n.note.Message
	}
	return v1alpha1.RolloutReasonBackingOff, fmt.Sprintf("Drains in a row that ended without a reboot: %d; next attempt after %s",
		n.note.DrainAttempts, formatTime(n.note.RetryAfter.Time))
}

func (n *nodeState) resetDrains() {
	n.note.DrainAttempts, n.note.RetryAfter, n.note.DrainedFor = 0, nil, ""
}

// drainKey identifies what a drain is for, and how it is done: the node's settings, and the drain options of each of its profiles. The
// agent's report decides which of those need the boot, so it must not decide on the key.
func (s *Session) drainKey(n *nodeState) string {
	names, hash := slices.Clone(n.Profiles), ""
	if n.ClientNode != nil {
		hash = n.ClientNode.Spec.Hash
		for _, setting := range n.ClientNode.Spec.Settings {
			names = append(names, setting.Profile)
		}
	}
	slices.Sort(names)
	key := fmt.Appendf(nil, "%s\n%s", n.target, hash)
	for _, name := range slices.Compact(names) {
		if profile := s.profiles[name]; profile != nil {
			// A Drain holds nothing that JSON cannot.
			options, _ := json.Marshal(profile.Rollout.Drain)
			key = fmt.Appendf(key, "\n%s", options)
		}
	}
	sum := sha256.Sum256(key)
	return hex.EncodeToString(sum[:8])
}
