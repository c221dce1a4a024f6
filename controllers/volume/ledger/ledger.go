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
	"github.com/storageclient/operator/controllers/store"
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

// Reader reads ledgers, and each version of a page once. The zero value is ready.
type Reader struct{ pages store.Memo[version, *page] }

// version is a ConfigMap as it was at one time; none has an empty resource version.
type version struct {
	uid             types.UID
	resourceVersion string
}

// IsSame implements the comparison of store.Memo.
func (v version) IsSame(newer version) bool { return v == newer && v.resourceVersion != "" }

// Read reads the pages among the ConfigMaps of the manager's namespace, which must not change any more.
func (r *Reader) Read(objects []corev1.ConfigMap) *Ledger {
	r.pages.Limit(len(objects))
	pages := map[int]*page{}
	for i := range objects {
		object := &objects[i]
		if number, isPage := NumberOf(object.Name); isPage {
			pages[number] = r.pages.Get(object.Name, version{object.UID, object.ResourceVersion}, func() *page { return readPage(object) })
		}
	}
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
