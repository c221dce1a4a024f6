package ledger

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/text"
)

// maxLists is the maximum number of lists in an entry that the volume may have: lists of writes with an unknown result.
const maxLists = 4

// Lists are a volume's original mount options and the options that the operator wrote for it.
type Lists struct {
	Original, Applied []string
}

func (l Lists) isSame(other Lists) bool {
	return slices.Equal(l.Original, other.Original) && slices.Equal(l.Applied, other.Applied)
}

// Entry is the entry of a volume or of an option set. It is immutable.
type Entry struct {
	// Volume is the name of the volume, for readers.
	Volume string
	// Written are the lists of which the volume may have one, newest last.
	Written []Lists
	// Profiles are the profiles whose options the volume carries or is about to get.
	Profiles []string
	// AnnotationsRestored is true if the operator restored annotations that another user or controller had removed.
	AnnotationsRestored bool
	// Pending is true if the volume has not been seen with any of the lists: its first write is in progress.
	Pending bool
	// Ending is true if the volume is about to be restored or released.
	Ending bool
	// Set is the entry of an option set, from package optionset. Empty if the entry is for a volume.
	Set string
	// Broken explains why the entry is unreliable, and names it. Empty if it is reliable.
	Broken string

	// text is the original text of the entry.
	text string
}

// Recall returns the recorded lists that match the current mount options of the volume, for a volume with unreadable annotations. It returns
// false if the volume was never written, or is restored.
func (e *Entry) Recall(current []string) (Lists, bool) {
	if len(e.Written) == 0 {
		return Lists{}, false
	}
	for _, written := range slices.Backward(e.Written) {
		if slices.Equal(written.Applied, current) {
			return written, true
		}
	}
	restored := func(l Lists) bool { return slices.Equal(l.Original, current) }
	if e.Pending || e.Ending && slices.ContainsFunc(e.Written, restored) {
		return Lists{}, false
	}
	return e.Written[len(e.Written)-1], true
}

// IsSettled reports whether the entry contains exactly this one write.
func (e *Entry) IsSettled(lists Lists, profiles []string) bool {
	return e != nil && e.Broken == "" && !e.Pending && !e.Ending && len(e.Written) == 1 && e.Written[0].isSame(lists) &&
		slices.Equal(e.Profiles, profiles)
}

// IsSame reports whether two entries are equal. Nil means no entry.
func (e *Entry) IsSame(other *Entry) bool {
	if e == nil || other == nil {
		return e == other
	}
	return e.Volume == other.Volume && slices.EqualFunc(e.Written, other.Written, Lists.isSame) && slices.Equal(e.Profiles, other.Profiles) &&
		e.Set == other.Set && e.AnnotationsRestored == other.AnnotationsRestored && e.Pending == other.Pending && e.Ending == other.Ending &&
		e.Broken == other.Broken
}

// with adds lists that the volume may have from now on.
func (e *Entry) with(lists Lists) *Entry {
	out := *e
	out.Written = append(slices.DeleteFunc(slices.Clone(e.Written), lists.isSame), lists)
	out.Written = out.Written[max(0, len(out.Written)-maxLists):]
	return &out
}

// unite merges two entries for the same volume, which two managers may have left.
func (e *Entry) unite(other *Entry) *Entry {
	if e.Broken != "" {
		return other
	}
	out := e
	for _, written := range other.Written {
		out = out.with(written)
	}
	united := *out
	united.Profiles = lists.Distinct(e.Profiles, other.Profiles)
	united.AnnotationsRestored = e.AnnotationsRestored || other.AnnotationsRestored
	united.Pending, united.Ending = e.Pending && other.Pending, e.Ending || other.Ending
	return &united
}

// encoded is the JSON of an entry on a page. Clusters contain entries of earlier releases.
type encoded struct {
	Volume string `json:"volume"`
	// Written are the keys of the lists.
	Written             [][2]string `json:"written"`
	Profiles            []string    `json:"profiles,omitempty"`
	AnnotationsRestored bool        `json:"putBack,omitempty"`
	Pending             bool        `json:"pending,omitempty"`
	Ending              bool        `json:"ending,omitempty"`
	Set                 string      `json:"failed,omitempty"`
}

// encode returns the text of an entry, and the lists that it refers to, by key.
func (e *Entry) encode() (entry string, lists map[string]string) {
	if e.Broken != "" {
		return e.text, nil
	}
	out := encoded{Volume: e.Volume, Profiles: e.Profiles, AnnotationsRestored: e.AnnotationsRestored, Pending: e.Pending, Ending: e.Ending, Set: e.Set}
	lists = map[string]string{}
	for _, written := range e.Written {
		var keys [2]string
		for i, list := range [][]string{written.Original, written.Applied} {
			value := text.JSON(append([]string{}, list...))
			keys[i] = keyOf(value)
			lists[keys[i]] = value
		}
		out.Written = append(out.Written, keys)
	}
	return text.JSON(out), lists
}

// decodeEntry reads an entry. It ignores fields of later releases.
func decodeEntry(entry string, lists map[string][]string) (*Entry, error) {
	var in encoded
	if err := json.Unmarshal([]byte(entry), &in); err != nil {
		return nil, fmt.Errorf("decode entry: %w", err)
	}
	if len(in.Written) == 0 && in.Set == "" {
		return nil, errors.New("entry without lists")
	}
	e := &Entry{
		Volume: in.Volume, Profiles: in.Profiles, AnnotationsRestored: in.AnnotationsRestored, Pending: in.Pending, Ending: in.Ending,
		Set: in.Set, text: entry,
	}
	for _, keys := range in.Written {
		original, known := lists[keys[0]]
		applied, alsoKnown := lists[keys[1]]
		if !known || !alsoKnown {
			return nil, errors.New("a list is missing or was edited")
		}
		e.Written = append(e.Written, Lists{original, applied})
	}
	return e, nil
}

// listPrefix starts the keys of lists. No UID and no key of an option set starts with it.
const listPrefix = "list."

// keyOf returns the key of a list, a hash of its content. Thus an edited list is detected.
func keyOf(value string) string { return listPrefix + text.Hash(value, 8) }
