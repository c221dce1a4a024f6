package journal

import (
	"maps"
	"slices"
	"time"

	"github.com/storageclient/operator/agent/host"
)

// Unconfirmed are settings that have been set, or are about to be, and that no file of ours holds until new connections
// have been seen to work with them. They are set and put back together.
type Unconfirmed struct {
	// Hash is that of the settings that they belong to.
	Hash string `json:"hash,omitempty"`
	// BootID is the boot in which they were set.
	BootID string `json:"bootID"`
	// Deadline is the end of the proof by the wall clock, which may jump. It is for messages, and for agents of earlier releases,
	// which know no other.
	Deadline time.Time `json:"deadline"`
	// DeadlineSinceBoot is the end of the proof by the boot clock. It is kept among the facts of the boot BootID, where agents of
	// earlier releases accept it. Zero if an earlier release wrote the journal, or if the boot is over.
	DeadlineSinceBoot time.Duration `json:"-"`
	// PutBack is true once what was in force before is in force again.
	PutBack bool `json:"putBack,omitempty"`
	// Settings are by key.
	Settings map[string]UnconfirmedSetting `json:"settings"`
}

// UnconfirmedSetting is one of them.
type UnconfirmedSetting struct {
	// Entry is what the journal holds of the setting once it is confirmed. Until then it holds what it held before.
	Entry Entry `json:"entry"`
	// Before is what was in force right before it was set.
	Before host.Original `json:"before"`
}

// factDeadline is the name of the fact that holds DeadlineSinceBoot.
const factDeadline = "unconfirmedDeadline"

// maxInterrupted is how many attempts may be cut short, by the end of the agent or of the boot, before the settings count as what
// cut them short.
const maxInterrupted = 2

// attempts is what is remembered of settings that were put back. It holds as long as the settings of the node are the same.
type attempts struct {
	Hash string `json:"hash"`
	// Interrupted is how many attempts ended with the agent or the boot.
	Interrupted int `json:"interrupted,omitempty"`
	// Refused are the values by key that are not tried again, and Why they are not.
	Refused map[string]string `json:"refused,omitempty"`
	Why     string            `json:"why,omitempty"`
}

// Unconfirmed returns what is set and not confirmed, if anything is.
func (j *Journal) Unconfirmed() (Unconfirmed, bool) {
	if j.doc.Unconfirmed == nil {
		return Unconfirmed{}, false
	}
	u := *j.doc.Unconfirmed
	u.Settings = maps.Clone(u.Settings)
	if text, noted := j.BootFact(u.BootID, factDeadline); noted {
		// A deadline that cannot be read counts as over.
		u.DeadlineSinceBoot, _ = time.ParseDuration(text)
	}
	return u, true
}

// SetUnconfirmed makes it durable that settings are about to be set without being kept, before it returns; without any
// settings, that none is. In a journal of a newer agent they can only become fewer, or have been put back.
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

// Confirm takes the unconfirmed settings over among the entries. In a journal of a newer agent they stay unconfirmed.
func (j *Journal) Confirm() error {
	if err := j.MayChange(); err != nil {
		return err
	}
	return j.updateDocument(func(doc *document) {
		if doc.Unconfirmed == nil {
			return
		}
		if doc.Entries == nil {
			doc.Entries = map[string]Entry{}
		}
		for key, setting := range doc.Unconfirmed.Settings {
			entry := setting.Entry
			if held, ok := doc.Entries[key]; ok {
				entry.Original = held.Original
			}
			doc.Entries[key] = entry
		}
		doc.endUnconfirmed()
		doc.Attempts = nil
	})
}

// Abandon ends the unconfirmed settings, which are back as they were. Nothing was learnt of them.
func (j *Journal) Abandon() error {
	return j.updateDocument((*document).endUnconfirmed)
}

// Refuse ends the unconfirmed settings, which are back as they were: their values are not to be tried again.
func (j *Journal) Refuse(why string) error {
	return j.updateDocument(func(doc *document) {
		if doc.Unconfirmed != nil {
			doc.Attempts = doc.Unconfirmed.refusal(why)
		}
		doc.endUnconfirmed()
	})
}

// Interrupt ends the unconfirmed settings, which are back as they were, and counts an attempt that was cut short. Of too many in a
// row it is said why they are not tried again.
func (j *Journal) Interrupt(why string) error {
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
			next = u.refusal(why)
		}
		doc.Attempts = next
	})
}

func (doc *document) endUnconfirmed() {
	doc.Unconfirmed = nil
	doc.removeBootFact(factDeadline)
}

func (u Unconfirmed) refusal(why string) *attempts {
	refused := map[string]string{}
	for key, setting := range u.Settings {
		refused[key] = setting.Entry.Applied
	}
	return &attempts{Hash: u.Hash, Refused: refused, Why: why}
}

// Refused returns by key the values that are not to be tried again with the settings of that hash, and why.
func (j *Journal) Refused(hash string) (values map[string]string, why string) {
	if j.doc.Attempts == nil || j.doc.Attempts.Hash != hash {
		return nil, ""
	}
	return maps.Clone(j.doc.Attempts.Refused), j.doc.Attempts.Why
}

// Keys are the settings' keys, sorted.
func (u Unconfirmed) Keys() []string { return slices.Sorted(maps.Keys(u.Settings)) }
