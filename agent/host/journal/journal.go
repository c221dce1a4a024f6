// Package journal keeps records on the host: the original values of settings, the used reboot permits, and facts about the running boot. They let an
// agent restore the original state, whatever has happened to it or to the cluster in the meantime.
package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/storageclient/operator/agent/host"
)

const (
	// Dir contains the journal. Only root may read it.
	Dir = "/var/lib/storage-client/journal"
	// File is the journal: one JSON document.
	File = Dir + "/journal.json"

	// parent is removed with the journal if it contains no other file.
	parent = "/var/lib/storage-client"
	// version is the version of the document's format. A build only restores a host whose journal has a newer version.
	version = 1
	// maxPermits limits the used permits that are recorded. An older permit names a boot that is long over, and is rejected for that.
	maxPermits = 256
	// maxFiles limits the bytes of saved files, in total. Fifty boot entries have about 50 KiB.
	maxFiles = 256 << 10
)

// ErrUnreadable means that the journal is unreliable. The agent must not change the host, because the original values are unknown.
var ErrUnreadable = errors.New("journal unreadable")

// Entry is the record of one setting, from before its first change until it is restored.
type Entry struct {
	// Original is the effective value before the first change.
	Original host.Original `json:"original"`
	// Profile is the last profile that set the value.
	Profile string `json:"profile,omitempty"`
	// Retain is true if the setting stays when it is no longer declared.
	Retain bool `json:"retain,omitempty"`
	// Applied is the value that was requested last.
	Applied string `json:"applied"`
	// Retained is true once the setting is no longer declared and stays because of Retain.
	Retained bool `json:"retained,omitempty"`
}

// Permit is a used reboot permit.
type Permit struct {
	ID string `json:"id"`
	// BootID is the boot in which the permit was used.
	BootID string `json:"bootID"`
}

type document struct {
	Version int              `json:"version"`
	Entries map[string]Entry `json:"entries,omitempty"`
	Permits []Permit         `json:"permits,omitempty"`
	Boot    *boot            `json:"boot,omitempty"`
	// Files contains the saved files by name. A program of the host has changed them for the agent since.
	Files map[string]host.FileRecord `json:"files,omitempty"`
	// Unconfirmed are the settings that are being verified. Attempts is the result of earlier attempts.
	Unconfirmed *Unconfirmed `json:"unconfirmed,omitempty"`
	Attempts    *attempts    `json:"attempts,omitempty"`
}

// boot contains the facts about one boot. They are stored when they are first read, because the kernel log rolls over.
type boot struct {
	ID    string            `json:"id"`
	Facts map[string]string `json:"facts,omitempty"`
}

// Journal is the journal of one host. It must be loaded before any other use. It rejects every change until Load succeeds. On a read-only file
// system, its changes stay in memory. It is not safe for concurrent use.
type Journal struct {
	fs     host.FS
	traces []string
	doc    document
	// unknown are the names of journal fields that the document does not have. If there are any, tree contains the whole journal.
	unknown []string
	tree    any
	err     error
}

// New returns the journal of a host. Traces are the files that only the agent writes, with wildcards if there may be several. If one of them exists
// without a journal, the journal was lost.
func New(files host.FS, traces ...string) *Journal {
	return &Journal{fs: files, traces: traces, err: fmt.Errorf("%w: not loaded", ErrUnreadable)}
}

// Load reads the journal. It can be called again. A missing journal is empty, unless files of the agent show that there was one. Every error is
// ErrUnreadable, and stays until a Load succeeds.
func (j *Journal) Load() error {
	j.unknown, j.tree = nil, nil
	doc, err := j.readDocument()
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	j.doc, j.err = doc, err
	return err
}

func (j *Journal) readDocument() (document, error) {
	data, err := j.fs.ReadFile(File)
	if errors.Is(err, fs.ErrNotExist) {
		return document{Version: version}, j.checkTraces()
	}
	if err != nil {
		return document{}, err
	}
	doc, err := parseDocument(data)
	if err != nil {
		return document{}, err
	}
	return doc, j.recordUnknown(data)
}

// checkTraces returns an error if a trace shows that a missing journal was lost.
func (j *Journal) checkTraces() error {
	for _, trace := range j.traces {
		found, err := j.findTrace(trace)
		if err != nil {
			return err
		}
		if found != "" {
			return fmt.Errorf("%s is missing, but %s exists, so the original values are unknown: "+
				"restore the journal, or remove that file when its values are correct", File, found)
		}
	}
	return nil
}

// findTrace returns the first file that matches a trace. Empty if there is none. A file that cannot be checked counts as present.
func (j *Journal) findTrace(trace string) (string, error) {
	if strings.Contains(trace, "*") {
		found, err := j.fs.Glob("/", strings.TrimPrefix(trace, "/"))
		if len(found) == 0 {
			return "", err
		}
		return found[0], err
	}
	if _, err := j.fs.Lstat(trace); errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return trace, nil
}

// parseDocument parses the part of a journal that this build understands. A newer version can contain other fields, and fields of another form.
func parseDocument(data []byte) (doc document, err error) {
	var tree any
	if err := json.Unmarshal(data, &tree); err != nil {
		return document{}, fmt.Errorf("parse %s: %w", File, err)
	}
	known, _, _ := split(tree, reflect.TypeFor[document](), "")
	if data, err = json.Marshal(known); err == nil {
		err = json.Unmarshal(data, &doc)
	}
	if err != nil || doc.Version < version {
		return document{}, fmt.Errorf("parse %s: version %d, this build supports version %d: %w", File, doc.Version, version, err)
	}
	return doc, nil
}

// Entries returns a copy of all entries by the keys of the settings.
func (j *Journal) Entries() map[string]Entry { return maps.Clone(j.doc.Entries) }

// Record makes the entries durable before it returns. It never changes the original value of an existing entry. It does not write if no entry
// differs. In a journal of a newer agent, it rejects new settings and new values.
func (j *Journal) Record(entries map[string]Entry) error {
	for key, entry := range entries {
		if existing, ok := j.doc.Entries[key]; ok && existing.Applied == entry.Applied {
			continue
		}
		if err := j.MayChange(); err != nil {
			return err
		}
	}
	return j.updateDocument(func(doc *document) {
		for key, entry := range entries {
			doc.setEntry(key, entry)
		}
	})
}

// setEntry adds or replaces an entry. The original value of an existing entry stays.
func (doc *document) setEntry(key string, entry Entry) {
	if doc.Entries == nil {
		doc.Entries = map[string]Entry{}
	}
	if existing, ok := doc.Entries[key]; ok {
		entry.Original = existing.Original
	}
	doc.Entries[key] = entry
}

// Forget removes the entries of restored settings.
func (j *Journal) Forget(keys ...string) error {
	return j.updateDocument(func(doc *document) {
		for _, key := range keys {
			delete(doc.Entries, key)
		}
	})
}

// UsedPermit returns the boot in which a permit was used, and reports whether it was used.
func (j *Journal) UsedPermit(id string) (bootID string, used bool) {
	for _, permit := range j.doc.Permits {
		if permit.ID == id {
			return permit.BootID, true
		}
	}
	return "", false
}

// UsePermit records durably that a permit is used, before it returns. It returns an error if the permit is already used. If the write fails, the
// permit still counts as used, because the record may be on the disk.
func (j *Journal) UsePermit(id, bootID string) error {
	if err := j.MayChange(); err != nil {
		return err
	}
	if in, used := j.UsedPermit(id); used {
		return fmt.Errorf("permit %s was already used in boot %s", id, in)
	}
	permits := append(slices.Clone(j.doc.Permits), Permit{ID: id, BootID: bootID})
	err := j.updateDocument(func(doc *document) { doc.Permits = permits[max(0, len(permits)-maxPermits):] })
	j.doc.Permits = permits
	return err
}

// BootFact returns the fact with that name about that boot.
func (j *Journal) BootFact(bootID, name string) (value string, ok bool) {
	if j.doc.Boot == nil || j.doc.Boot.ID != bootID {
		return "", false
	}
	value, ok = j.doc.Boot.Facts[name]
	return value, ok
}

// SetBootFact records a fact about a boot. It drops the facts about other boots.
func (j *Journal) SetBootFact(bootID, name, value string) error {
	return j.updateDocument(func(doc *document) { doc.setBootFact(bootID, name, value) })
}

func (doc *document) setBootFact(bootID, name, value string) {
	next := &boot{ID: bootID, Facts: map[string]string{}}
	if doc.Boot != nil && doc.Boot.ID == bootID {
		maps.Copy(next.Facts, doc.Boot.Facts)
	}
	next.Facts[name] = value
	doc.Boot = next
}

func (doc *document) removeBootFact(name string) {
	if doc.Boot == nil {
		return
	}
	next := &boot{ID: doc.Boot.ID, Facts: maps.Clone(doc.Boot.Facts)}
	delete(next.Facts, name)
	doc.Boot = next
}

// KeptFiles returns the saved files by name. A program of the host has changed them for the agent since.
func (j *Journal) KeptFiles() map[string]host.FileRecord { return maps.Clone(j.doc.Files) }

// KeepFiles saves these files durably before it returns, and drops all others. It rejects files of more than 256 KiB in total.
func (j *Journal) KeepFiles(files map[string]host.FileRecord) error {
	size := 0
	for _, file := range files {
		size += len(file.Original.Data)
	}
	if size > maxFiles {
		return fmt.Errorf("%d files are too large to save: %d KiB, limit %d KiB", len(files), size>>10, maxFiles>>10)
	}
	return j.updateDocument(func(doc *document) { doc.Files = maps.Clone(files) })
}

// Remove removes the journal if its content is no longer needed: no entry, no file, no unconfirmed setting, no permit used in the running boot, and
// no field of a newer agent. It reports whether the host has no journal now.
func (j *Journal) Remove(bootID string) (bool, error) {
	if j.err != nil {
		return false, j.err
	}
	if len(j.doc.Entries) > 0 || len(j.doc.Files) > 0 || j.doc.Unconfirmed != nil || len(j.unknown) > 0 ||
		slices.ContainsFunc(j.doc.Permits, func(p Permit) bool { return p.BootID == bootID }) {
		return false, nil
	}
	if err := j.fs.Remove(File); err != nil {
		return false, fmt.Errorf("remove journal: %w", err)
	}
	j.doc = document{Version: version}
	for _, dir := range []string{Dir, parent} {
		if err := j.fs.RemoveEmpty(dir); err != nil {
			return true, fmt.Errorf("remove journal: %w", err)
		}
	}
	return true, nil
}

// updateDocument changes a copy of the document, writes it, and uses it once it is durable.
func (j *Journal) updateDocument(change func(*document)) error {
	if j.err != nil {
		return j.err
	}
	before, err := encodeDocument(j.doc, j.tree)
	if err != nil {
		return err
	}
	next := j.doc
	next.Entries = maps.Clone(j.doc.Entries)
	change(&next)
	after, err := encodeDocument(next, j.tree)
	if err != nil {
		return err
	}
	if bytes.Equal(before, after) {
		return nil
	}
	// A read-only agent records its observations in memory only.
	if !j.fs.IsReadOnly() {
		if err := j.fs.MkdirAll(Dir, 0o700); err != nil {
			return fmt.Errorf("write journal: %w", err)
		}
		if err := j.fs.WriteFileAtomic(File, after, 0o600); err != nil {
			return fmt.Errorf("write journal: %w", err)
		}
	}
	j.doc = next
	return j.recordUnknown(after)
}

// encodeDocument encodes a document, with the fields of a journal's tree that it does not have.
func encodeDocument(doc document, tree any) ([]byte, error) {
	data, err := json.MarshalIndent(doc, "", "  ")
	if err == nil && tree != nil {
		data, err = addUnknown(data, tree)
	}
	if err != nil {
		return nil, fmt.Errorf("encode journal: %w", err)
	}
	return append(data, '\n'), nil
}
