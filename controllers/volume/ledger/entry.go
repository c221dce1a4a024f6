package ledger

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// maxLists is how many lists an entry holds that may stand on its volume: those of writes of which nobody knows what became of them.
const maxLists = 4

// Lists are a volume's own list, and the one that we wrote for it.
type Lists struct {
	Original, Applied []string
}

func (l Lists) isSame(other Lists) bool {
	return slices.Equal(l.Original, other.Original) && slices.Equal(l.Applied, other.Applied)
}

// Entry is what the ledger holds of a volume. It is never changed.
type Entry struct {
	// Volume is its name, for people.
	Volume string
	// Written are the lists of which one may stand on the volume, the newest last.
	Written []Lists
	// Profiles are those whose options the volume carries, or is about to get.
	Profiles []string
	// PutBack is true once annotations were put back that somebody had removed.
	PutBack bool
	// Pending is true where the volume has not been seen with any of the lists: its first write is under way.
	Pending bool
	// Ending is true where the volume's own list is about to be put back, or its list to be let go.
	Ending bool
	// Set is what package optionset keeps of a set of options. Empty if the entry is for a volume.
	Set string
	// Broken says why the entry cannot be relied on, and names it; empty: it can.
	Broken string

	// text is the entry as it was read.
	text string
}

// Recall tells the lists that the volume remembers by the list that it has now, where its annotations do not tell. None: it was never
// written, or is restored.
func (e *Entry) Recall(current []string) (Lists, bool) {
	if len(e.Written) == 0 {
		return Lists{}, false
	}
	for _, lists := range slices.Backward(e.Written) {
		if slices.Equal(lists.Applied, current) {
			return lists, true
		}
	}
	restored := func(l Lists) bool { return slices.Equal(l.Original, current) }
	if e.Pending || e.Ending && slices.ContainsFunc(e.Written, restored) {
		return Lists{}, false
	}
	return e.Written[len(e.Written)-1], true
}

// IsSettled says whether the entry tells of one write and no other.
func (e *Entry) IsSettled(lists Lists, profiles []string) bool {
	return e != nil && e.Broken == "" && !e.Pending && !e.Ending && len(e.Written) == 1 && e.Written[0].isSame(lists) && slices.Equal(e.Profiles, profiles)
}

// IsSame says whether two entries hold the same; nil is none.
func (e *Entry) IsSame(other *Entry) bool {
	if e == nil || other == nil {
		return e == other
	}
	return e.Volume == other.Volume && slices.EqualFunc(e.Written, other.Written, Lists.isSame) && slices.Equal(e.Profiles, other.Profiles) &&
		e.Set == other.Set && e.PutBack == other.PutBack && e.Pending == other.Pending && e.Ending == other.Ending && e.Broken == other.Broken
}

// with adds lists that may stand on the volume from now on.
func (e *Entry) with(lists Lists) *Entry {
	out := *e
	out.Written = append(slices.DeleteFunc(slices.Clone(e.Written), lists.isSame), lists)
	out.Written = out.Written[max(0, len(out.Written)-maxLists):]
	return &out
}

// unite makes one entry of two for the same volume, which two managers may have left.
func (e *Entry) unite(other *Entry) *Entry {
	if e.Broken != "" {
		return other
	}
	out := e
	for _, lists := range other.Written {
		out = out.with(lists)
	}
	united := *out
	united.Profiles = union(e.Profiles, other.Profiles)
	united.PutBack, united.Pending, united.Ending = e.PutBack || other.PutBack, e.Pending && other.Pending, e.Ending || other.Ending
	return &united
}

func union(a, b []string) []string {
	out := append(slices.Clone(a), b...)
	slices.Sort(out)
	return slices.Compact(out)
}

// encoded is an entry as a page holds it. Clusters hold those of former releases.
type encoded struct {
	Volume string `json:"volume"`
	// Written are the keys of the lists.
	Written  [][2]string `json:"written"`
	Profiles []string    `json:"profiles,omitempty"`
	PutBack  bool        `json:"putBack,omitempty"`
	Pending  bool        `json:"pending,omitempty"`
	Ending   bool        `json:"ending,omitempty"`
	Set      string      `json:"failed,omitempty"`
}

// encode returns the text of an entry, and the lists that it names, by key.
func (e *Entry) encode() (text string, lists map[string]string) {
	if e.Broken != "" {
		return e.text, nil
	}
	out := encoded{Volume: e.Volume, Profiles: e.Profiles, PutBack: e.PutBack, Pending: e.Pending, Ending: e.Ending, Set: e.Set}
	lists = map[string]string{}
	for _, written := range e.Written {
		var keys [2]string
		for i, list := range [][]string{written.Original, written.Applied} {
			value := jsonOf(append([]string{}, list...))
			keys[i] = keyOf(value)
			lists[keys[i]] = value
		}
		out.Written = append(out.Written, keys)
	}
	return jsonOf(out), lists
}

// decodeEntry reads an entry. Fields of later releases are passed over.
func decodeEntry(text string, lists map[string][]string) (*Entry, error) {
	var in encoded
	if err := json.Unmarshal([]byte(text), &in); err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	if len(in.Written) == 0 && in.Set == "" {
		return nil, errors.New("no lists are named")
	}
	e := &Entry{Volume: in.Volume, Profiles: in.Profiles, PutBack: in.PutBack, Pending: in.Pending, Ending: in.Ending, Set: in.Set, text: text}
	for _, keys := range in.Written {
		original, known := lists[keys[0]]
		applied, alsoKnown := lists[keys[1]]
		if !known || !alsoKnown {
			return nil, errors.New("a list is missing, or was edited")
		}
		e.Written = append(e.Written, Lists{original, applied})
	}
	return e, nil
}

// listPrefix starts the keys of lists. No UID starts so, nor with the prefixes of sets of options.
const listPrefix = "list."

// keyOf names a list by what it says, so that one that was edited is found out.
func keyOf(value string) string {
	sum := sha256.Sum256([]byte(value))
	return listPrefix + hex.EncodeToString(sum[:8])
}

func jsonOf(value any) string {
	data, err := json.Marshal(value)
	if err != nil {
		panic(err) // strings and booleans
	}
	return string(data)
}
