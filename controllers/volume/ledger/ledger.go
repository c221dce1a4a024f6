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
	"github.com/storageclient/operator/tuning/lists"
)

const (
	// maxVolumes and maxBytes are the limits of a page, maxPages is the maximum number of pages. A ConfigMap may have 1 MiB.
	maxVolumes = 100
	maxBytes   = 64 << 10
	maxPages   = 300
	// spread is the average number of volumes on a page before another page starts.
	spread = 75
)

// Ledger is the content of the pages. It is immutable.
type Ledger struct {
	pages map[int]*page
	// at are the pages with an entry of a volume: one page, or more after a conflict between two managers.
	at map[types.UID][]int
	// Reservations are the reservations of canaries, by name. They are not on pages.
	Reservations []*corev1.ConfigMap
}

// page is one ConfigMap of the ledger. It is immutable.
type page struct {
	object  *corev1.ConfigMap
	entries map[types.UID]*Entry
	// damaged are lists whose content does not match their keys.
	damaged map[string]string
}

// NumberOf returns the number of a page from the name of its ConfigMap.
func NumberOf(name string) (number int, isPage bool) {
	text, isPage := strings.CutPrefix(name, v1alpha1.VolumesConfigMapPrefix)
	number, err := strconv.Atoi(text)
	return number, isPage && err == nil && number >= 0 && strconv.Itoa(number) == text
}

// Reader reads ledgers, and each version of a page once. The zero value is ready for use.
type Reader struct{ pages store.Memo[version, *page] }

// version identifies one version of a ConfigMap. A missing one has an empty resource version.
type version struct {
	uid             types.UID
	resourceVersion string
}

// IsSame implements the comparison of store.Memo.
func (v version) IsSame(newer version) bool { return v == newer && v.resourceVersion != "" }

// Read reads the pages among the ConfigMaps of the manager's namespace. Callers must not change them afterwards.
func (r *Reader) Read(objects []corev1.ConfigMap) *Ledger {
	r.pages.Limit(len(objects))
	pages := map[int]*page{}
	for i := range objects {
		object := &objects[i]
		if number, isPage := NumberOf(object.Name); isPage {
			pages[number] = r.pages.Get(object.Name, version{object.UID, object.ResourceVersion}, func() *page { return readPage(object) })
		}
	}
	return index(pages, ReservationsIn(objects))
}

// ReservationsIn returns the reservations of canaries among the ConfigMaps of the manager's namespace, by name.
func ReservationsIn(objects []corev1.ConfigMap) []*corev1.ConfigMap {
	out := lists.Filter(lists.Pointers(objects), func(o *corev1.ConfigMap) bool { return strings.HasPrefix(o.Name, v1alpha1.CanaryConfigMapPrefix) })
	slices.SortFunc(out, func(a, b *corev1.ConfigMap) int { return strings.Compare(a.Name, b.Name) })
	return out
}

func index(pages map[int]*page, reservations []*corev1.ConfigMap) *Ledger {
	l := &Ledger{pages: pages, at: map[types.UID][]int{}, Reservations: reservations}
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
		var list []string
		switch {
		case !strings.HasPrefix(key, listPrefix):
		case keyOf(value) != key || json.Unmarshal([]byte(value), &list) != nil:
			p.damaged[key] = value
		default:
			lists[key] = list
		}
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

// EntryOf returns the entry of a volume. Nil if there is none. A nil Ledger has no entries.
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

// Volumes returns the UIDs of the volumes in the ledger, in no particular order.
func (l *Ledger) Volumes() iter.Seq[types.UID] {
	return func(yield func(types.UID) bool) {
		for uid := range l.at {
			if !optionset.IsKey(string(uid)) && !yield(uid) {
				return
			}
		}
	}
}

// Sets returns the entries of option sets, by key, in the form of package optionset. An unreadable entry is empty. A nil Ledger has none.
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

// FindSets returns the entries of these keys without decoding whole pages.
func FindSets(objects []corev1.ConfigMap, keys []string) map[string]string {
	out := map[string]string{}
	for i := range objects {
		if _, isPage := NumberOf(objects[i].Name); !isPage {
			continue
		}
		for _, key := range keys {
			if text, found := objects[i].Data[key]; found {
				if e, err := decodeEntry(text, nil); err == nil {
					out[key] = e.Set
				}
			}
		}
	}
	return out
}

// IsSame reports whether two ledgers have the same versions of the same pages, and the same reservations.
func (l *Ledger) IsSame(other *Ledger) bool {
	isSame := func(a, b *corev1.ConfigMap) bool { return a.UID == b.UID }
	return slices.EqualFunc(l.Reservations, other.Reservations, isSame) && maps.EqualFunc(l.pages, other.pages, func(a, b *page) bool {
		return a.object.UID == b.object.UID && a.object.ResourceVersion == b.object.ResourceVersion
	})
}

// With returns the ledger with newly written pages.
func (l *Ledger) With(written ...*corev1.ConfigMap) *Ledger {
	pages := maps.Clone(l.pages)
	for _, object := range written {
		if number, isPage := NumberOf(object.Name); isPage {
			pages[number] = readPage(object)
		}
	}
	return index(pages, l.Reservations)
}
