package ledger

import (
	"fmt"
	"hash/fnv"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/storageclient/operator/api/v1alpha1"
)

// Change makes an entry out of the one before, nil for none; nil forgets the volume.
type Change func(before *Entry) *Entry

// Changes are what is to become of entries, by the volume's UID.
type Changes map[types.UID]Change

// Begin is for a volume that is about to get a list. known are the lists that its annotations tell, nil where they do not; recalled is
// true where the entry told them instead.
func Begin(volume string, known *Lists, recalled bool, next Lists, profiles []string) Change {
	return func(before *Entry) *Entry {
		out := &Entry{Volume: volume, Pending: true}
		if before != nil && before.Broken == "" && (recalled || known != nil || !before.Ending) {
			out = before
		}
		if known != nil {
			out = out.with(*known)
		}
		begun := *out.with(next)
		begun.Profiles, begun.Ending = union(out.Profiles, profiles), false
		begun.PutBack, begun.Pending = out.PutBack || recalled, out.Pending && known == nil && !recalled
		return &begun
	}
}

// End is for a volume whose own list is about to be put back, or whose list is to be let go.
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

// Settle is for a volume that has its list, and annotations that tell so.
func Settle(volume string, lists Lists, profiles []string) Change {
	return func(before *Entry) *Entry {
		return &Entry{Volume: volume, Written: []Lists{lists}, Profiles: profiles, PutBack: before != nil && before.PutBack}
	}
}

// Forget is for a volume that carries nothing of ours any more, or is gone.
func Forget(*Entry) *Entry { return nil }

// KeepSet keeps an entry of a set of options, which stands under its key as a volume under its UID.
func KeepSet(text string) Change {
	return func(*Entry) *Entry { return &Entry{Set: text} }
}

// Write is a page to be written: created, where it has no resource version.
type Write struct {
	Page *corev1.ConfigMap
	// Volumes are the UIDs of those that the write is about.
	Volumes []types.UID
}

// draft is a page that changes.
type draft struct {
	*page
	entries map[types.UID]*Entry
	// bytes is how much the page takes, lists how many entries name each list.
	bytes int
	lists map[string]int
	// changed are the volumes whose entries change.
	changed []types.UID
}

// writer carries changes out.
type writer struct {
	ledger *Ledger
	drafts map[int]*draft
	unkept map[types.UID]string
	// pages is over how many pages volumes are spread.
	pages int
}

// Apply says which pages are to be written for changes, by number, and which volumes cannot be kept, and why. What would change nothing
// writes nothing.
func (l *Ledger) Apply(changes Changes) (writes []Write, unkept map[types.UID]string) {
	w := &writer{ledger: l, drafts: map[int]*draft{}, unkept: map[types.UID]string{}}
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
	return writes, w.unkept
}

func (w *writer) change(uid types.UID, change Change) {
	before := w.ledger.EntryOf(uid)
	after, numbers := change(before), w.ledger.at[uid]
	if after.IsSame(before) && len(numbers) < 2 {
		return
	}
	for _, number := range numbers {
		if object := w.ledger.pages[number].object; object.Immutable != nil && *object.Immutable {
			w.unkept[uid] = fmt.Sprintf("ConfigMap %s/%s is immutable: delete it, and it is written again from the volumes' annotations", object.Namespace, object.Name)
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
		w.unkept[uid] = fmt.Sprintf("the ConfigMaps %sN have no room for it: %d volumes are remembered, on %d of %d pages", v1alpha1.VolumesConfigMapPrefix, len(w.ledger.at), len(w.ledger.pages), maxPages)
	}
}

// place puts an entry on the page that its UID's hash tells, or the next with room.
func (w *writer) place(uid types.UID, e *Entry) bool {
	hash := fnv.New32a()
	hash.Write([]byte(uid))
	home := int(hash.Sum32() % uint32(w.pages))
	for i := range maxPages {
		// First among the pages that are in use, from home on, and around; then those that are not.
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
	d := &draft{page: w.ledger.pages[number], entries: map[types.UID]*Entry{}, lists: map[string]int{}}
	if d.page == nil {
		d.page = &page{object: &corev1.ConfigMap{}}
	}
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
	e, there := d.entries[uid]
	if !there {
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

// put adds an entry, or takes another one's place, if there is room.
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

// encode is the page as it is to be written. Lists that are damaged stay as long as an entry that cannot be read may mean them.
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
