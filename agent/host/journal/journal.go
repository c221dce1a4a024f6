// Package journal keeps, on the host, what was in force before the first change of a setting, which reboot
// permits are used up, and what is known of the running boot. It is what makes an agent able to put back what it
// found, whatever happened to it or to the cluster in between.
package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/storageclient/operator/agent/host"
)

const (
	// Dir holds the journal. Only root may read it.
	Dir = "/var/lib/storage-client/journal"
	// File is the journal, one JSON document.
	File = Dir + "/journal.json"

	// parent is ours as well, and goes with the journal where nothing else is in it.
	parent = "/var/lib/storage-client"
	// version is that of the document's form. A build changes nothing on a host whose journal it does not know.
	version = 1
	// maxPermits bounds the used permits that are remembered. An older one names a boot that is long over and is
	// refused for that.
	maxPermits = 256
	// maxFiles bounds the bytes of files that are kept, together. Fifty boot entries have about 50 KiB.
	maxFiles = 256 << 10
)

// ErrUnreadable means that the journal cannot be relied on. Nothing may be changed on the host: what was in force
// before our first change is not known.
var ErrUnreadable = errors.New("journal unreadable")

// Entry is what is known of one setting from before its first change until it is back.
type Entry struct {
	// Original is what was in force before the first change.
	Original host.Original `json:"original"`
	// Profile is where the value came from last.
	Profile string `json:"profile,omitempty"`
	// Retain is true where the setting stays when it is no longer declared.
	Retain bool `json:"retain,omitempty"`
	// Applied is the value that was asked of the host last.
	Applied string `json:"applied"`
	// Retained is true once the setting is no longer declared and stays for that.
	Retained bool `json:"retained,omitempty"`
}

// Permit is a used reboot permit.
type Permit struct {
	// ID is the permit's name.
	ID string `json:"id"`
	// BootID is the boot in which it was used.
	BootID string `json:"bootID"`
}

type document struct {
	Version int              `json:"version"`
	Entries map[string]Entry `json:"entries,omitempty"`
	Permits []Permit         `json:"permits,omitempty"`
	Boot    *boot            `json:"boot,omitempty"`
	// Files holds by name what files were before a program of the host changed them for us.
	Files map[string]host.KeptFile `json:"files,omitempty"`
	// Unconfirmed are the settings that are being proven, Attempts what became of earlier ones.
	Unconfirmed *Unconfirmed `json:"unconfirmed,omitempty"`
	Attempts    *attempts    `json:"attempts,omitempty"`
}

// boot is what is known of one boot. The kernel log rolls over, so it is kept from when it was read first.
type boot struct {
	ID    string            `json:"id"`
	Facts map[string]string `json:"facts,omitempty"`
}

// Journal is the journal of one host. It is to be loaded before anything else; until that has gone well it
// refuses every change. On a read-only file system its changes last as long as it does. It is not safe for
// concurrent use.
type Journal struct {
	fs     host.FS
	traces []string
	doc    document
	// unknown names the fields of the journal that the document does not have. If there are any, tree is all of the journal.
	unknown []string
	tree    any
	err     error
}

// New returns the journal of a host. Traces are the files that only the agent writes, with wildcards where there may
// be several: where one of them stands and there is no journal, the journal was lost.
func New(files host.FS, traces ...string) *Journal {
	return &Journal{fs: files, traces: traces, err: fmt.Errorf("%w: not loaded", ErrUnreadable)}
}

// Load reads the journal, again if need be. A journal that is missing is an empty one, unless files of ours show
// that there was one. Every other error is ErrUnreadable and stays until a Load goes well.
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
		return document{Version: version}, j.neverWritten()
	}
	if err != nil {
		return document{}, err
	}
	doc, err := parseDocument(data)
	if err != nil {
		return document{}, err
	}
	return doc, j.noteUnknown(data)
}

func (j *Journal) neverWritten() error {
	for _, trace := range j.traces {
		found, err := j.findTrace(trace)
		if err != nil {
			return err
		}
		if found != "" {
			return fmt.Errorf("%s is missing, but %s exists, so the original values are unknown: "+
				"put the journal back, or remove that file once its values are right", File, found)
		}
	}
	return nil
}

// findTrace returns the first file that a trace stands for, "" where there is none. What cannot be looked at is there.
func (j *Journal) findTrace(trace string) (string, error) {
	if strings.Contains(trace, "*") {
		found, err := j.fs.Glob("/", strings.TrimPrefix(trace, "/"))
		return strings.Join(found[:min(len(found), 1)], ""), err
	}
	if _, err := j.fs.Lstat(trace); errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return trace, nil
}

func parseDocument(data []byte) (document, error) {
	var head struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return document{}, fmt.Errorf("parse %s: %w", File, err)
	}
	if head.Version != version {
		return document{}, fmt.Errorf("parse %s: version %d, this build knows version %d", File, head.Version, version)
	}
	var doc document
	decoder := json.NewDecoder(bytes.NewReader(data))
	if err := decoder.Decode(&doc); err != nil {
		return document{}, fmt.Errorf("parse %s: %w", File, err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return document{}, fmt.Errorf("parse %s: more than one document", File)
	}
	return doc, nil
}

// Entries returns a copy of all entries by the settings' keys.
func (j *Journal) Entries() map[string]Entry { return maps.Clone(j.doc.Entries) }

// Record makes the entries durable before it returns. The original value of an entry that exists is never
// changed. Nothing is written where nothing differs. In a journal of a newer agent no setting may be new or get another value.
func (j *Journal) Record(entries map[string]Entry) error {
	for key, entry := range entries {
		if held, ok := j.doc.Entries[key]; ok && held.Applied == entry.Applied {
			continue
		}
		if err := j.MayChange(); err != nil {
			return err
		}
	}
	return j.updateDocument(func(doc *document) {
		if doc.Entries == nil {
			doc.Entries = map[string]Entry{}
		}
		for key, entry := range entries {
			if held, ok := doc.Entries[key]; ok {
				entry.Original = held.Original
			}
			doc.Entries[key] = entry
		}
	})
}

// Forget removes the entries of settings that are back as they were.
func (j *Journal) Forget(keys ...string) error {
	return j.updateDocument(func(doc *document) {
		for _, key := range keys {
			delete(doc.Entries, key)
		}
	})
}

// UsedPermit tells in which boot a permit was used, if it was.
func (j *Journal) UsedPermit(id string) (bootID string, used bool) {
	for _, permit := range j.doc.Permits {
		if permit.ID == id {
			return permit.BootID, true
		}
	}
	return "", false
}

// UsePermit makes it durable that a permit is used up, before it returns. A permit that is used up already is an
// error. When writing fails, the permit counts as used all the same: it may be on the disk.
func (j *Journal) UsePermit(id, bootID string) error {
	if err := j.MayChange(); err != nil {
		return err
	}
	if in, used := j.UsedPermit(id); used {
		return fmt.Errorf("permit %s was used in boot %s", id, in)
	}
	permits := append(slices.Clone(j.doc.Permits), Permit{ID: id, BootID: bootID})
	err := j.updateDocument(func(doc *document) { doc.Permits = permits[max(0, len(permits)-maxPermits):] })
	j.doc.Permits = permits
	return err
}

// BootFact returns what was noted under a name in that boot.
func (j *Journal) BootFact(bootID, name string) (value string, ok bool) {
	if j.doc.Boot == nil || j.doc.Boot.ID != bootID {
		return "", false
	}
	value, ok = j.doc.Boot.Facts[name]
	return value, ok
}

// SetBootFact notes something of a boot. Those of other boots are let go.
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

// KeptFiles returns what files were before a program of the host changed them for us, by their names.
func (j *Journal) KeptFiles() map[string]host.KeptFile { return maps.Clone(j.doc.Files) }

// KeepFiles makes durable what those files were, before it returns, and lets go of all others. More than 256 KiB together
// are refused.
func (j *Journal) KeepFiles(files map[string]host.KeptFile) error {
	size := 0
	for _, file := range files {
		size += len(file.Original.Data)
	}
	if size > maxFiles {
		return fmt.Errorf("%d files have %d KiB: more than %d KiB are not kept for putting them back", len(files), size>>10, maxFiles>>10)
	}
	return j.updateDocument(func(doc *document) { doc.Files = maps.Clone(files) })
}

// Remove removes the journal where it holds nothing that is still needed: no entry, no file, nothing unconfirmed, no permit
// used in the running boot, and nothing of a newer agent's. It tells whether the host is without a journal now.
func (j *Journal) Remove(bootID string) (bool, error) {
	if j.err != nil {
		return false, j.err
	}
	inThisBoot := func(p Permit) bool { return p.BootID == bootID }
	if len(j.doc.Entries) > 0 || len(j.doc.Files) > 0 || j.doc.Unconfirmed != nil || len(j.unknown) > 0 || slices.ContainsFunc(j.doc.Permits, inThisBoot) {
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

// updateDocument changes a copy of the document, writes it, and takes it over when it is durable.
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
	// Whoever only looks may note what it sees, for itself.
	if !j.fs.IsReadOnly() {
		if err := j.fs.MkdirAll(Dir, 0o700); err != nil {
			return fmt.Errorf("write journal: %w", err)
		}
		if err := j.fs.WriteFileAtomic(File, after, 0o600); err != nil {
			return fmt.Errorf("write journal: %w", err)
		}
	}
	j.doc = next
	return j.noteUnknown(after)
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
