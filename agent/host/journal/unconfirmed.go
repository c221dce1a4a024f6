package journal

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/tuning/lists"
)

// Unconfirmed contains settings that have been set, or are about to be. No file of the agent contains them until new connections have worked with
// them. They are set and restored together.
type Unconfirmed struct {
	// Hash is the hash of the settings to which they belong.
	Hash   string `json:"hash,omitempty"`
	BootID string `json:"bootID"`
	// Deadline is the end of the verification by the wall clock, which may jump. It is for messages and agents of earlier releases.
	Deadline time.Time `json:"deadline"`
	// DeadlineSinceBoot is the end of the verification by the boot clock. It is stored among the facts of the boot BootID, where agents of earlier
	// releases accept it. Zero if an earlier release wrote the journal, or if the boot is over.
	DeadlineSinceBoot time.Duration `json:"-"`
	// Reverted is true once the previous values are effective again.
	Reverted bool                          `json:"putBack,omitempty"`
	Settings map[string]UnconfirmedSetting `json:"settings"`
}

// UnconfirmedSetting is one unconfirmed setting.
type UnconfirmedSetting struct {
	// Entry is the journal's entry for the setting once it is confirmed. Until then, the journal keeps its previous entry.
	Entry Entry `json:"entry"`
	// Before is the effective value right before the setting was set.
	Before host.Original `json:"before"`
}

const connectionPrefix = "connection/"

const factDeadline = "unconfirmedDeadline"

// maxInterrupted is the number of attempts, interrupted by the end of the agent or of the boot, after which the settings count as the cause.
const maxInterrupted = 2

// attempts records settings that were reverted. It is valid as long as the settings of the node are the same.
type attempts struct {
	Hash string `json:"hash"`
	// Interrupted is the number of attempts that the end of the agent or of the boot interrupted.
	Interrupted int `json:"interrupted,omitempty"`
	// Rejected contains, by key, the values that must not be tried again. Reason explains it. The keys with connectionPrefix are the failed
	// connections: agents of earlier releases ignore them, but not another field.
	Rejected map[string]string `json:"refused,omitempty"`
	Reason   string            `json:"why,omitempty"`
}

// Unconfirmed returns the unconfirmed settings, if there are any.
func (j *Journal) Unconfirmed() (Unconfirmed, bool) {
	if j.doc.Unconfirmed == nil {
		return Unconfirmed{}, false
	}
	u := *j.doc.Unconfirmed
	u.Settings = maps.Clone(u.Settings)
	if text, ok := j.BootFact(u.BootID, factDeadline); ok {
		// A deadline that cannot be parsed counts as expired.
		u.DeadlineSinceBoot, _ = time.ParseDuration(text)
	}
	return u, true
}

// SetUnconfirmed records durably, before it returns, that settings are about to be set but not saved. Without settings, it clears the record. In a
// journal of a newer agent, settings can only be removed or marked as restored.
func (j *Journal) SetUnconfirmed(u Unconfirmed) error {
	for key := range u.Settings {
		if j.doc.Unconfirmed != nil && j.doc.Unconfirmed.Settings[key] == u.Settings[key] {
			continue
		}
		if err := j.MayChange(); err != nil {
			return err
		}
	}
	return j.updateDocument(func(doc *document) {
		doc.endUnconfirmed()
		if len(u.Settings) == 0 {
			return
		}
		doc.Unconfirmed = &u
		if u.DeadlineSinceBoot != 0 {
			doc.setBootFact(u.BootID, factDeadline, u.DeadlineSinceBoot.String())
		}
	})
}

// Confirm moves the unconfirmed settings to the entries. In a journal of a newer agent, they stay unconfirmed.
func (j *Journal) Confirm() error {
	if err := j.MayChange(); err != nil {
		return err
	}
	return j.updateDocument(func(doc *document) {
		if doc.Unconfirmed == nil {
			return
		}
		for key, setting := range doc.Unconfirmed.Settings {
			doc.setEntry(key, setting.Entry)
		}
		doc.endUnconfirmed()
		doc.Attempts = nil
	})
}

// Abandon ends the unconfirmed settings, which are restored. The attempt has no result.
func (j *Journal) Abandon() error { return j.updateDocument((*document).endUnconfirmed) }

// Reject ends the unconfirmed settings, which are restored. Their values must not be tried again. The connections are the failed ones.
func (j *Journal) Reject(reason string, connections ...string) error {
	return j.updateDocument(func(doc *document) {
		if doc.Unconfirmed != nil {
			doc.Attempts = doc.Unconfirmed.rejection(reason)
			for _, connection := range connections {
				doc.Attempts.Rejected[connectionPrefix+connection] = ""
			}
		}
		doc.endUnconfirmed()
	})
}

// Interrupt ends the unconfirmed settings, which are restored, and counts an interrupted attempt. After too many in a row, it rejects them.
func (j *Journal) Interrupt(reason string) error {
	return j.updateDocument(func(doc *document) {
		u := doc.Unconfirmed
		doc.endUnconfirmed()
		if u == nil {
			return
		}
		next := &attempts{Hash: u.Hash, Interrupted: 1}
		if doc.Attempts != nil && doc.Attempts.Hash == u.Hash {
			next.Interrupted += doc.Attempts.Interrupted
		}
		if next.Interrupted >= maxInterrupted {
			next = u.rejection(reason)
		}
		doc.Attempts = next
	})
}

func (doc *document) endUnconfirmed() {
	doc.Unconfirmed = nil
	doc.removeBootFact(factDeadline)
}

func (u Unconfirmed) rejection(reason string) *attempts {
	rejected := map[string]string{}
	for key, setting := range u.Settings {
		rejected[key] = setting.Entry.Applied
	}
	return &attempts{Hash: u.Hash, Rejected: rejected, Reason: reason}
}

// Rejected returns, by key, the values that must not be tried again with the settings of that hash, and the reason.
func (j *Journal) Rejected(hash string) (values map[string]string, reason string) {
	if j.doc.Attempts == nil || j.doc.Attempts.Hash != hash {
		return nil, ""
	}
	return maps.Clone(j.doc.Attempts.Rejected), j.doc.Attempts.Reason
}

// FailedConnections returns the failed connections among the rejected values, sorted.
func FailedConnections(rejected map[string]string) []string {
	return lists.Pick(slices.Sorted(maps.Keys(rejected)), func(key string) (string, bool) { return strings.CutPrefix(key, connectionPrefix) })
}

// Keys returns the keys of the settings, sorted.
func (u Unconfirmed) Keys() []string { return slices.Sorted(maps.Keys(u.Settings)) }
