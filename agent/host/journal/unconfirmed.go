package journal

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/text"
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
	// connections, each with the keys that failed with it, separated by spaces, or "" for all of them. Agents of earlier releases ignore these keys,
	// but not another field.
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
	if deadline, ok := j.BootFact(u.BootID, factDeadline); ok {
		// A deadline that cannot be parsed counts as expired.
		u.DeadlineSinceBoot, _ = time.ParseDuration(deadline)
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

// Confirm moves the unconfirmed settings to the entries. Other values stay rejected. In a journal of a newer agent, the settings stay unconfirmed.
func (j *Journal) Confirm() error {
	if err := j.MayChange(); err != nil {
		return err
	}
	return j.updateDocument(func(doc *document) {
		if doc.Unconfirmed == nil {
			return
		}
		next := doc.attemptsWith(doc.Unconfirmed.Hash)
		for key, setting := range doc.Unconfirmed.Settings {
			doc.setEntry(key, setting.Entry)
			delete(next.Rejected, key)
		}
		doc.endUnconfirmed()
		next.Interrupted, doc.Attempts = 0, nil
		if slices.ContainsFunc(slices.Collect(maps.Keys(next.Rejected)), isSetting) {
			doc.Attempts = next
		}
	})
}

// Abandon ends the unconfirmed settings, which are restored. The attempt has no result.
func (j *Journal) Abandon() error { return j.updateDocument((*document).endUnconfirmed) }

// Reject ends the unconfirmed settings, which are restored. Their values must not be tried again. The connections are the failed ones.
func (j *Journal) Reject(reason string, connections ...string) error {
	return j.updateDocument(func(doc *document) {
		if doc.Unconfirmed != nil {
			next := doc.attemptsWith(doc.Unconfirmed.Hash)
			next.reject(*doc.Unconfirmed, reason, connections...)
			doc.Attempts = next
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
		next := doc.attemptsWith(u.Hash)
		if next.Interrupted++; next.Interrupted >= maxInterrupted {
			next.reject(*u, reason)
		}
		doc.Attempts = next
	})
}

func (doc *document) endUnconfirmed() {
	doc.Unconfirmed = nil
	doc.removeBootFact(factDeadline)
}

// attemptsWith returns a copy of the earlier attempts with the settings of that hash.
func (doc *document) attemptsWith(hash string) *attempts {
	next := attempts{Hash: hash}
	if doc.Attempts != nil && doc.Attempts.Hash == hash {
		next = *doc.Attempts
	}
	next.Rejected = maps.Clone(next.Rejected)
	return &next
}

// reject adds the values of unconfirmed settings to the rejected values.
func (a *attempts) reject(u Unconfirmed, reason string, connections ...string) {
	keys := u.Keys()
	if a.Reason != "" {
		reason = a.Reason + "; " + text.List(keys) + ": " + reason
	}
	a.Interrupted, a.Reason = 0, reason
	if a.Rejected == nil {
		a.Rejected = map[string]string{}
	}
	for _, connection := range connections {
		name := connectionPrefix + connection
		if failed, isKnown := a.Rejected[name]; !isKnown || failed != "" {
			a.Rejected[name] = strings.TrimSpace(failed + " " + strings.Join(keys, " "))
		}
	}
	for _, key := range keys {
		a.Rejected[key] = u.Settings[key].Entry.Applied
	}
}

// Rejected returns, by key, the values that must not be tried again with the settings of that hash, and the reason.
func (j *Journal) Rejected(hash string) (values map[string]string, reason string) {
	if j.doc.Attempts == nil || j.doc.Attempts.Hash != hash {
		return nil, ""
	}
	return maps.Clone(j.doc.Attempts.Rejected), j.doc.Attempts.Reason
}

// isSetting reports whether a name among the rejected values is the key of a setting.
func isSetting(name string) bool { return !strings.HasPrefix(name, connectionPrefix) }

// FailedConnections returns the connections that failed with the value of a key, sorted. They are among the rejected values.
func FailedConnections(rejected map[string]string, key string) []string {
	return lists.Pick(slices.Sorted(maps.Keys(rejected)), func(name string) (string, bool) {
		connection, ok := strings.CutPrefix(name, connectionPrefix)
		return connection, ok && (rejected[name] == "" || slices.Contains(strings.Fields(rejected[name]), key))
	})
}

// Keys returns the keys of the settings, sorted.
func (u Unconfirmed) Keys() []string { return slices.Sorted(maps.Keys(u.Settings)) }
