package ledger

import (
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume/optionset"
)

const (
	// maxVolumes and maxBytes are what a page holds at most; maxPages is how many there are. A ConfigMap may have 1 MiB.
	maxVolumes = 100
	maxBytes   = 64 << 10
	maxPages   = 300
	// spread is how many volumes a page has on average before another one is begun.
	spread = 75
)

// Ledger is what the pages hold. It is never changed.
type Ledger struct {
	pages map[int]*page
	// at are the pages on which a volume stands: one, but where two managers met.
	at map[types.UID][]int
}

// page is one ConfigMap of the ledger. It is never changed.
type page struct {
	object  *corev1.ConfigMap
	entries map[types.UID]*Entry
	// damaged are lists that do not say what their keys name.
	damaged map[string]string
}

// NumberOf is the number of a page by the name of its ConfigMap.
func NumberOf(name string) (number int, isPage bool) {
	text, isPage := strings.CutPrefix(name, v1alpha1.VolumesConfigMapPrefix)
	number, err := strconv.Atoi(text)
	return number, isPage && err == nil && number >= 0 && strconv.Itoa(number) == text
}

// Reader reads ledgers, and each version of a page once. The zero value is ready, for one goroutine.
type Reader struct {
	known map[int]*page
	// ahead are pages that were written, by number, of which a cache may still have a version from before.
	ahead map[int]*ahead
}

// ahead is a page as it was written last.
type ahead struct {
	object *corev1.ConfigMap
	// before are the versions that it has replaced; an empty one stands for none.
	before map[string]bool
}

// KeepWritten has the reader take a page as it was written for any version that it has replaced: a cache learns of a write later than
// of the volumes that were written after it.
func (r *Reader) KeepWritten(replaced string, written *corev1.ConfigMap) {
	number, isPage := NumberOf(written.Name)
	if !isPage {
		return
	}
	if r.ahead == nil {
		r.ahead = map[int]*ahead{}
	}
	if r.ahead[number] == nil {
		r.ahead[number] = &ahead{before: map[string]bool{}}
	}
	r.ahead[number].object = written
	r.ahead[number].before[replaced] = true
}

// ForgetWritten is called before a read of what the API server has.
func (r *Reader) ForgetWritten() { r.ahead = nil }

// addWritten puts pages in the place of older versions of them.
func (r *Reader) addWritten(objects []corev1.ConfigMap) []corev1.ConfigMap {
	if len(r.ahead) == 0 {
		return objects
	}
	out, listed := make([]corev1.ConfigMap, 0, len(objects)+len(r.ahead)), map[int]bool{}
	for i := range objects {
		object := &objects[i]
		number, isPage := NumberOf(object.Name)
		if isPage {
			listed[number] = true
			if ahead := r.ahead[number]; ahead != nil && ahead.before[object.ResourceVersion] {
				object = ahead.object
			} else {
				delete(r.ahead, number)
			}
		}
		out = append(out, *object)
	}
	for number, ahead := range r.ahead {
		if !listed[number] && ahead.before[""] {
			out = append(out, *ahead.object)
		}
	}
	return out
}

// Read reads the pages among the ConfigMaps of the manager's namespace, which must not change any more.
func (r *Reader) Read(objects []corev1.ConfigMap) *Ledger {
	pages := map[int]*page{}
	objects = r.addWritten(objects)
	for i := range objects {
		object := &objects[i]
		number, isPage := NumberOf(object.Name)
		if !isPage {
			continue
		}
		pages[number] = r.known[number]
		if known := pages[number]; known == nil || object.ResourceVersion == "" || known.object.ResourceVersion != object.ResourceVersion || known.object.UID != object.UID {
			pages[number] = readPage(object)
		}
	}
	r.known = pages
	return index(pages)
}

// Read is the method of a Reader that knows nothing yet.
func Read(objects []corev1.ConfigMap) *Ledger {
	return new(Reader).Read(objects)
}

func index(pages map[int]*page) *Ledger {
	l := &Ledger{pages: pages, at: map[types.UID][]int{}}
	for _, number := range slices.Sorted(maps.Keys(pages)) {
		for uid := range pages[number].entries {
			l.at[uid] = append(l.at[uid], number)
		}
	}
	return l
}

func readPage(object *corev1.ConfigMap) *page {
	p := &page{object: object, entries: map[types.UID]*Entry{}, damaged: map[string]string{}}
	lists := map[string][]string{}
	for key, value := range object.Data {
		if !strings.HasPrefix(key, listPrefix) {
			continue
		}
		var list []string
		if keyOf(value) != key || json.Unmarshal([]byte(value), &list) != nil {
			p.damaged[key] = value
			continue
		}
		lists[key] = list
	}
	for key, value := range object.Data {
		if strings.HasPrefix(key, listPrefix) {
			continue
		}
		e, err := decodeEntry(value, lists)
		if err != nil {
			e = &Entry{Broken: fmt.Sprintf("key %s of ConfigMap %s/%s cannot be read: %s", key, object.Namespace, object.Name, err), text: value}
		}
		p.entries[types.UID(key)] = e
	}
	return p
}

// EntryOf is what the ledger holds of a volume, nil for nothing. A ledger that is nil holds nothing.
func (l *Ledger) EntryOf(uid types.UID) *Entry {
	if l == nil {
		return nil
	}
	var out *Entry
	for _, number := range l.at[uid] {
		switch e := l.pages[number].entries[uid]; {
		case out == nil:
			out = e
		case e.Broken == "":
			out = out.unite(e)
		}
	}
	return out
}

// Volumes are the UIDs of those in the ledger, in no order.
func (l *Ledger) Volumes() iter.Seq[types.UID] {
	return func(yield func(types.UID) bool) {
		for uid := range l.at {
			if !optionset.IsKey(string(uid)) && !yield(uid) {
				return
			}
		}
	}
}

// Sets returns the entries of sets of options, by key, as package optionset reads them. An entry that cannot be read is empty. A ledger
// that is nil has none.
func (l *Ledger) Sets() map[string]string {
	out := map[string]string{}
	if l == nil {
		return out
	}
	for uid := range l.at {
		if optionset.IsKey(string(uid)) {
			out[string(uid)] = l.EntryOf(uid).Set
		}
	}
	return out
}

// FindSets returns the entries of these keys that pages hold, without reading all that is on them.
func FindSets(objects []corev1.ConfigMap, keys []string) map[string]string {
	out := map[string]string{}
	for i := range objects {
		if _, isPage := NumberOf(objects[i].Name); !isPage {
			continue
		}
		for _, key := range keys {
			if text, there := objects[i].Data[key]; there {
				if e, err := decodeEntry(text, nil); err == nil {
					out[key] = e.Set
				}
			}
		}
	}
	return out
}

// IsSame reports whether two ledgers are of the same versions of the same pages.
func (l *Ledger) IsSame(other *Ledger) bool {
	return maps.EqualFunc(l.pages, other.pages, func(a, b *page) bool {
		return a.object.UID == b.object.UID && a.object.ResourceVersion == b.object.ResourceVersion
	})
}

// With is the ledger with a page as it was written.
func (l *Ledger) With(written ...*corev1.ConfigMap) *Ledger {
	pages := maps.Clone(l.pages)
	for _, object := range written {
		if number, isPage := NumberOf(object.Name); isPage {
			pages[number] = readPage(object)
		}
	}
	return index(pages)
}
