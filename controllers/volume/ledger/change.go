package ledger

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/lists"
)

// Change returns the new entry for the previous one, which may be nil. A nil result removes the entry.
type Change func(before *Entry) *Entry

// Changes are the changes of entries, by the volume's UID.
type Changes map[types.UID]Change

// Begin prepares an entry for a volume that is about to get mount options. known are the lists in its annotations. Nil if they are missing or
// unreadable. recalled is true if the entry provided the lists instead.
func Begin(volume string, known *Lists, recalled bool, next Lists, profiles []string) Change {
	return func(before *Entry) *Entry {
		out := &Entry{Volume: volume, Pending: true}
		if before != nil && before.Broken == "" && (recalled || known != nil || !before.Ending) {
			out = before
		}
		if known != nil {
			out = out.with(*known)
		}
		entry := *out.with(next)
		entry.Profiles, entry.Ending = lists.Distinct(out.Profiles, profiles), false
		entry.AnnotationsRestored, entry.Pending = out.AnnotationsRestored || recalled, out.Pending && known == nil && !recalled
		return &entry
	}
}

// End prepares an entry for a volume that is about to be restored or released.
func End(volume string, known *Lists, profiles []string) Change {
	return func(before *Entry) *Entry {
		if before == nil || before.Broken != "" {
			if known == nil {
				return before
			}
			before = &Entry{Volume: volume, Written: []Lists{*known}, Profiles: profiles}
		}
		out := *before
		out.Ending = true
		return &out
	}
}

// Settle completes the entry of a volume that has its mount options and matching annotations.
func Settle(volume string, lists Lists, profiles []string) Change {
	return func(before *Entry) *Entry {
		return &Entry{Volume: volume, Written: []Lists{lists}, Profiles: profiles, AnnotationsRestored: before != nil && before.AnnotationsRestored}
	}
}

// Forget removes the entry of a volume that carries no options of the operator any longer, or is deleted.
func Forget(*Entry) *Entry { return nil }

// KeepSet stores an entry of an option set under its key, as an entry of a volume is stored under its UID.
func KeepSet(text string) Change { return func(*Entry) *Entry { return &Entry{Set: text} } }

// Write is a page to write. A page without a resource version must be created.
type Write struct {
	Page *corev1.ConfigMap
	// Volumes are the UIDs of the volumes that the write concerns.
	Volumes []types.UID
}

// draft is a page with pending changes.
type draft struct {
	*page
	entries map[types.UID]*Entry
	// bytes is the size of the page. lists is the number of entries that name each list.
	bytes int
	lists map[string]int
	// changed are the UIDs of the volumes with changed entries.
	changed []types.UID
}

// writer applies changes to pages.
type writer struct {
	ledger   *Ledger
	drafts   map[int]*draft
	rejected map[types.UID]string
	// pages is the number of pages that volumes are spread over.
	pages int
}

// Apply returns the pages to write for changes, by number. unkept are the volumes that have no space, with the reason. A change without an
// effect causes no write.
func (l *Ledger) Apply(changes Changes) (writes []Write, rejected map[types.UID]string) {
	w := &writer{ledger: l, drafts: map[int]*draft{}, rejected: map[types.UID]string{}}
	count := len(l.at)
	for uid := range changes {
		if len(l.at[uid]) == 0 {
			count++
		}
	}
	w.pages = min(max((count+spread-1)/spread, 1), maxPages)
	for _, uid := range slices.Sorted(maps.Keys(changes)) {
		w.change(uid, changes[uid])
	}
	for _, number := range slices.Sorted(maps.Keys(w.drafts)) {
		if d := w.drafts[number]; len(d.changed) > 0 {
			writes = append(writes, Write{Page: d.encode(number), Volumes: d.changed})
		}
	}
	return writes, w.rejected
}

func (w *writer) change(uid types.UID, change Change) {
	before := w.ledger.EntryOf(uid)
	after, numbers := change(before), w.ledger.at[uid]
	if after.IsSame(before) && len(numbers) < 2 {
		return
	}
	for _, number := range numbers {
		if object := w.ledger.pages[number].object; object.Immutable != nil && *object.Immutable {
			w.rejected[uid] = fmt.Sprintf("ConfigMap %s/%s is immutable; delete it: the manager creates it again from the annotations of the volumes",
				object.Namespace, object.Name)
			return
		}
	}
	for i, number := range numbers {
		if d := w.draft(number); after != nil && i == 0 && d.put(uid, after) {
			after = nil
		} else {
			d.remove(uid)
		}
		w.touch(number, uid)
	}
	if after != nil && !w.place(uid, after) {
		if len(numbers) > 0 {
			w.draft(numbers[0]).add(uid, before)
		}
		w.rejected[uid] = fmt.Sprintf("no space left in ConfigMaps %sN: they contain %d volumes on %d of %d pages",
			v1alpha1.VolumesConfigMapPrefix, len(w.ledger.at), len(w.ledger.pages), maxPages)
	}
}

// place puts an entry on the page of its UID's hash, or on the next page with space.
func (w *writer) place(uid types.UID, e *Entry) bool {
	hash := fnv.New32a()
	hash.Write([]byte(uid))
	home := int(hash.Sum32() % uint32(w.pages))
	for i := range maxPages {
		// It tries the used pages first, starting at home, then the unused ones.
		number := i
		if i < w.pages {
			number = (home + i) % w.pages
		}
		if d := w.draft(number); d.isWritable() && d.put(uid, e) {
			w.touch(number, uid)
			return true
		}
	}
	return false
}

func (w *writer) touch(number int, uid types.UID) {
	w.drafts[number].changed = append(w.drafts[number].changed, uid)
}

func (w *writer) draft(number int) *draft {
	if d := w.drafts[number]; d != nil {
		return d
	}
	p := cmp.Or(w.ledger.pages[number], &page{object: &corev1.ConfigMap{}})
	d := &draft{page: p, entries: map[types.UID]*Entry{}, lists: map[string]int{}}
	for key, value := range d.damaged {
		d.bytes += len(key) + len(value)
	}
	for uid, e := range d.page.entries {
		d.add(uid, e)
	}
	w.drafts[number] = d
	return d
}

func (d *draft) isWritable() bool { return d.object.Immutable == nil || !*d.object.Immutable }

func (d *draft) add(uid types.UID, e *Entry) {
	text, lists := e.encode()
	d.entries[uid] = e
	d.bytes += len(uid) + len(text)
	for key, value := range lists {
		if d.lists[key]++; d.lists[key] == 1 {
			d.bytes += len(key) + len(value)
		}
	}
}

func (d *draft) remove(uid types.UID) {
	e, found := d.entries[uid]
	if !found {
		return
	}
	text, lists := e.encode()
	delete(d.entries, uid)
	d.bytes -= len(uid) + len(text)
	for key, value := range lists {
		if d.lists[key]--; d.lists[key] == 0 {
			d.bytes -= len(key) + len(value)
		}
	}
}

// put adds or replaces an entry if there is space.
func (d *draft) put(uid types.UID, e *Entry) bool {
	if d.remove(uid); len(d.entries) >= maxVolumes {
		return false
	}
	d.add(uid, e)
	if d.bytes <= maxBytes {
		return true
	}
	d.remove(uid)
	return false
}

// encode returns the page to write. It keeps damaged lists as long as an unreadable entry may refer to them.
func (d *draft) encode(number int) *corev1.ConfigMap {
	object := d.object.DeepCopy()
	object.Name = fmt.Sprintf("%s%d", v1alpha1.VolumesConfigMapPrefix, number)
	object.Data = make(map[string]string, len(d.entries)+len(d.lists))
	for uid, e := range d.entries {
		text, lists := e.encode()
		object.Data[string(uid)] = text
		maps.Copy(object.Data, lists)
		if e.Broken != "" {
			maps.Copy(object.Data, d.damaged)
		}
	}
	return object
}
