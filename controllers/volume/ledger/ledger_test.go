package ledger

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

var (
	own, fast, faster = []string{"hard"}, []string{"hard", "nocto"}, []string{"hard", "nconnect=4"}
	written           = Lists{Original: own, Applied: fast}
	next              = Lists{Original: own, Applied: faster}
)

func uid(i int) types.UID { return types.UID(fmt.Sprintf("0a1b2c3d-0000-4000-8000-%012d", i)) }

// write applies changes as the API server does.
func write(t *testing.T, l *Ledger, changes Changes) *Ledger {
	t.Helper()
	l, unsaved := tryWrite(t, l, changes)
	if len(unsaved) > 0 {
		t.Fatalf("got unsaved changes %v, want none", unsaved)
	}
	return l
}

func tryWrite(t *testing.T, l *Ledger, changes Changes) (*Ledger, map[types.UID]string) {
	t.Helper()
	writes, unsaved := l.Apply(changes)
	for _, w := range writes {
		w.Page.ResourceVersion += "1"
		l = l.With(w.Page)
		size := 0
		for key, value := range w.Page.Data {
			size += len(key) + len(value)
		}
		if volumes := len(readPage(w.Page).entries); volumes > maxVolumes || size > maxBytes {
			t.Errorf("page %s: got %d volumes, %d bytes; want at most %d and %d", w.Page.Name, volumes, size, maxVolumes, maxBytes)
		}
	}
	return l, unsaved
}

func TestAnEntryRecallsTheOptionsOfItsVolume(t *testing.T) {
	settled := &Entry{Written: []Lists{written}}
	for name, test := range map[string]struct {
		entry   *Entry
		current []string
		want    *Lists
	}{
		"the list that was written":                     {settled, fast, &written},
		"the original options, which a user restored":   {settled, own, &written},
		"other options":                                 {settled, []string{"soft"}, &written},
		"pending options that were written":             {&Entry{Written: []Lists{written, next}}, faster, &next},
		"pending options that were not written":         {&Entry{Written: []Lists{written, next}}, fast, &written},
		"a pending first write that happened":           {&Entry{Written: []Lists{written}, Pending: true}, fast, &written},
		"a pending first write that did not happen":     {&Entry{Written: []Lists{written}, Pending: true}, own, nil},
		"a pending restore that happened":               {&Entry{Written: []Lists{written}, Ending: true}, own, nil},
		"a pending restore that did not happen":         {&Entry{Written: []Lists{written}, Ending: true}, fast, &written},
		"a pending restore and other options of a user": {&Entry{Written: []Lists{written}, Ending: true}, []string{"soft"}, &written},
	} {
		got, found := test.entry.Recall(test.current)
		if found != (test.want != nil) || found && !got.isSame(*test.want) {
			t.Errorf("%s: got %v, %t, want %v", name, got, found, test.want)
		}
	}
}

func TestAWriteIsRecordedBeforeAndAfter(t *testing.T) {
	for name, test := range map[string]struct {
		changes []Change
		want    *Entry
	}{
		"a first write starts":                     {[]Change{Begin("pv", nil, false, written, []string{"p"})}, &Entry{Volume: "pv", Written: []Lists{written}, Profiles: []string{"p"}, Pending: true}},
		"it is done":                               {[]Change{Begin("pv", nil, false, written, []string{"p"}), Settle("pv", written, []string{"p"})}, &Entry{Volume: "pv", Written: []Lists{written}, Profiles: []string{"p"}}},
		"it starts again with others":              {[]Change{Begin("pv", nil, false, written, nil), Begin("pv", nil, false, next, nil)}, &Entry{Volume: "pv", Written: []Lists{written, next}, Pending: true}},
		"a second one starts":                      {[]Change{Settle("pv", written, []string{"p"}), Begin("pv", &written, false, next, []string{"q"})}, &Entry{Volume: "pv", Written: []Lists{written, next}, Profiles: []string{"p", "q"}}},
		"of an unknown volume":                     {[]Change{Begin("pv", &written, false, next, []string{"q"})}, &Entry{Volume: "pv", Written: []Lists{written, next}, Profiles: []string{"q"}}},
		"annotations are restored":                 {[]Change{Settle("pv", written, nil), Begin("pv", nil, true, written, nil)}, &Entry{Volume: "pv", Written: []Lists{written}, AnnotationsRestored: true}},
		"which stays recorded":                     {[]Change{Settle("pv", written, nil), Begin("pv", nil, true, written, nil), Settle("pv", written, nil), Begin("pv", &written, false, next, nil), Settle("pv", next, nil)}, &Entry{Volume: "pv", Written: []Lists{next}, AnnotationsRestored: true}},
		"until the record is removed":              {[]Change{Settle("pv", written, nil), Forget}, nil},
		"an end starts":                            {[]Change{Settle("pv", written, nil), End("pv", &written, nil)}, &Entry{Volume: "pv", Written: []Lists{written}, Ending: true}},
		"an end of an unknown volume":              {[]Change{End("pv", &written, []string{"p"})}, &Entry{Volume: "pv", Written: []Lists{written}, Profiles: []string{"p"}, Ending: true}},
		"an end of nothing":                        {[]Change{End("pv", nil, nil)}, nil},
		"a write after an end":                     {[]Change{Settle("pv", written, nil), End("pv", &written, nil), Begin("pv", nil, false, next, nil)}, &Entry{Volume: "pv", Written: []Lists{next}, Pending: true}},
		"a write after an end that did not happen": {[]Change{Settle("pv", written, nil), End("pv", &written, nil), Begin("pv", &written, false, next, nil)}, &Entry{Volume: "pv", Written: []Lists{written, next}}},
	} {
		l := new(Reader).Read(nil)
		for _, change := range test.changes {
			l = write(t, l, Changes{uid(1): change})
		}
		if diff := cmp.Diff(test.want, l.EntryOf(uid(1)), cmpopts.IgnoreUnexported(Entry{}), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestPagesGrowWithTheVolumes(t *testing.T) {
	l, all := new(Reader).Read(nil), Changes{}
	for i := range 20_000 {
		all[uid(i)] = Settle(fmt.Sprintf("pv%d", i), Lists{own, []string{"hard", fmt.Sprintf("nconnect=%d", i%16)}}, []string{"p"})
	}
	few := Changes{}
	for i := range 60 {
		few[uid(i)] = all[uid(i)]
	}
	if l = write(t, l, few); len(l.pages) != 1 {
		t.Errorf("got %d pages for 60 volumes, want 1", len(l.pages))
	}
	before := l.pages[0].object.Data
	l = write(t, l, all)
	if pages := len(l.pages); pages < 200 || pages > maxPages || len(l.at) != 20_000 {
		t.Errorf("got %d volumes on %d pages, want 20000 on 200 to %d", len(l.at), pages, maxPages)
	}
	for key := range before {
		if _, stays := l.pages[0].object.Data[key]; !stays {
			t.Fatalf("%s moved to another page", key)
		}
	}
	for i := range 20_000 {
		if e := l.EntryOf(uid(i)); e == nil || e.Volume != fmt.Sprintf("pv%d", i) || !slices.Equal(e.Written[0].Original, own) {
			t.Fatalf("got entry %+v of pv%d, want its name and original options", e, i)
		}
	}
	if lists := strings.Count(strings.Join(slices.Collect(maps.Keys(l.pages[3].object.Data)), " "), listPrefix); lists != 17 {
		t.Errorf("got %d lists on a page, want each of the 17 once", lists)
	}
	writes, _ := l.Apply(all)
	if len(writes) > 0 {
		t.Errorf("got %d page writes without a change, want none", len(writes))
	}
	for i := range 20_000 {
		all[uid(i)] = Forget
	}
	if l = write(t, l, all); len(l.at) > 0 {
		t.Errorf("got %d entries after the removal of all volumes, want none", len(l.at))
	}
}

func TestEntriesWithoutSpaceAreReported(t *testing.T) {
	l, all := new(Reader).Read(nil), Changes{}
	for i := range maxPages*maxVolumes + 5 {
		all[uid(i)] = Settle("pv", written, nil)
	}
	l, unsaved := tryWrite(t, l, all)
	if len(unsaved) != 5 || len(l.at) != maxPages*maxVolumes {
		t.Errorf("got %d saved and %d unsaved volumes, want %d and 5", len(l.at), len(unsaved), maxPages*maxVolumes)
	}
	for _, reason := range unsaved {
		if !strings.Contains(reason, "no space left") || !strings.Contains(reason, "30000 volumes") && !strings.Contains(reason, "0 volumes") {
			t.Errorf("got reason %q, want the missing space and the number of volumes", reason)
		}
	}
	long := []string{strings.Repeat("x", maxBytes)}
	l = write(t, new(Reader).Read(nil), Changes{uid(1): Settle("pv", written, nil)})
	l, unsaved = tryWrite(t, l, Changes{uid(1): Settle("pv", Lists{long, long}, nil), uid(2): Settle("pv", Lists{long, long}, nil)})
	if len(unsaved) != 2 || !l.EntryOf(uid(1)).IsSettled(written, nil) {
		t.Errorf("got unsaved volumes %v, entry %+v; want both long entries unsaved and the previous entry unchanged", unsaved, l.EntryOf(uid(1)))
	}
}

func TestADamagedPageIsReported(t *testing.T) {
	whole := write(t, new(Reader).Read(nil), Changes{uid(1): Settle("pv1", written, nil), uid(2): Settle("pv2", Lists{nil, faster}, nil)}).pages[0].object
	edit := func(change func(*corev1.ConfigMap)) *Ledger {
		edited := whole.DeepCopy()
		edited.Namespace = "storage-client-system"
		change(edited)
		return new(Reader).Read([]corev1.ConfigMap{*edited, {}})
	}
	key := keyOf(`["hard"]`)
	for name, change := range map[string]func(*corev1.ConfigMap){
		"an entry that is no JSON": func(c *corev1.ConfigMap) { c.Data[string(uid(1))] = "{" },
		"an empty entry":           func(c *corev1.ConfigMap) { c.Data[string(uid(1))] = "{}" },
		"a list that was edited":   func(c *corev1.ConfigMap) { c.Data[key] = `["soft"]` },
		"a list that is gone":      func(c *corev1.ConfigMap) { delete(c.Data, key) },
	} {
		l := edit(change)
		if e := l.EntryOf(uid(1)); e == nil || !strings.Contains(e.Broken, "key "+string(uid(1))+" of ConfigMap storage-client-system/storage-client-volumes-0 cannot be read") {
			t.Errorf("%s: got entry %+v, want an error that names the unreadable key", name, e)
		}
		if e := l.EntryOf(uid(2)); e == nil || e.Broken != "" {
			t.Errorf("%s: got entry %+v of the other volume, want it readable", name, e)
		}
		before := l.pages[0].object.Data
		l = write(t, l, Changes{uid(2): Settle("pv2", Lists{nil, fast}, nil)})
		if after := l.pages[0].object.Data; after[string(uid(1))] != before[string(uid(1))] || name == "a list that was edited" && after[key] != before[key] || l.EntryOf(uid(1)).Broken == "" {
			t.Errorf("%s: got a changed or removed unreadable key, want it unchanged", name)
		}
		if l = write(t, l, Changes{uid(1): Settle("pv1", written, nil)}); !l.EntryOf(uid(1)).IsSettled(written, nil) {
			t.Errorf("%s: after a write of the volume: got entry %+v, want a settled one", name, l.EntryOf(uid(1)))
		}
	}
	l := edit(func(c *corev1.ConfigMap) { c.Immutable = ptr.To(true) })
	l, unsaved := tryWrite(t, l, Changes{uid(1): Settle("pv1", next, nil), uid(3): Settle("pv3", written, nil)})
	if !strings.Contains(unsaved[uid(1)], "ConfigMap storage-client-system/storage-client-volumes-0 is immutable; delete it") || len(unsaved) != 1 {
		t.Errorf("an immutable page: got unsaved volumes %v, want only the first, with the name of the page", unsaved)
	}
	if !l.EntryOf(uid(1)).IsSettled(written, nil) || l.EntryOf(uid(3)) == nil {
		t.Errorf("an immutable page: got entries %+v and %+v, want the first unchanged and the new one on the next page",
			l.EntryOf(uid(1)), l.EntryOf(uid(3)))
	}
}

func TestTwoEntriesOfAVolumeBecomeOne(t *testing.T) {
	first := write(t, new(Reader).Read(nil), Changes{uid(1): Settle("pv", written, []string{"p"})}).pages[0].object
	second := write(t, new(Reader).Read(nil), Changes{uid(1): Begin("pv", nil, true, next, []string{"q"})}).pages[0].object
	second.Name = "storage-client-volumes-1"
	l := new(Reader).Read([]corev1.ConfigMap{*first, *second})
	want := &Entry{Volume: "pv", Written: []Lists{written, next}, Profiles: []string{"p", "q"}, AnnotationsRestored: true}
	if diff := cmp.Diff(want, l.EntryOf(uid(1)), cmpopts.IgnoreUnexported(Entry{})); diff != "" {
		t.Errorf("entry (-want +got):\n%s", diff)
	}
	l = write(t, l, Changes{uid(1): Settle("pv", next, nil)})
	if at := l.at[uid(1)]; len(at) != 1 || !l.EntryOf(uid(1)).IsSettled(next, nil) {
		t.Errorf("got entry %+v on pages %v, want a settled one on one page", l.EntryOf(uid(1)), at)
	}
}

func TestOnlyPagesAreRead(t *testing.T) {
	var objects []corev1.ConfigMap
	for _, name := range []string{"storage-client-volumes-", "storage-client-volumes-01", "storage-client-volumes--1", "storage-client-volumes-1.crt", "storage-client-failures"} {
		object := corev1.ConfigMap{Data: map[string]string{string(uid(1)): "{}"}}
		object.Name = name
		objects = append(objects, object)
	}
	if l := new(Reader).Read(objects); len(l.pages) > 0 {
		t.Errorf("got pages %v, want none", l.pages)
	}
}

func TestAPageIsReadAgainOnlyAfterAChange(t *testing.T) {
	page := write(t, new(Reader).Read(nil), Changes{uid(1): Settle("pv", written, nil)}).pages[0].object
	var r Reader
	first := r.Read([]corev1.ConfigMap{*page}).EntryOf(uid(1))
	if r.Read([]corev1.ConfigMap{*page}).EntryOf(uid(1)) != first {
		t.Error("got a second read of the same version, want the cached entry")
	}
	changed := page.DeepCopy()
	changed.ResourceVersion, changed.Data[string(uid(1))] = "another", "{"
	if r.Read([]corev1.ConfigMap{*changed}).EntryOf(uid(1)).Broken == "" {
		t.Error("got the cached entry for a new version, want a new read")
	}
}
