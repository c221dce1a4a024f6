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

// write carries changes out as the API server would.
func write(t *testing.T, l *Ledger, changes Changes) *Ledger {
	t.Helper()
	l, unkept := tryWrite(t, l, changes)
	if len(unkept) > 0 {
		t.Fatalf("not kept: %v", unkept)
	}
	return l
}

func tryWrite(t *testing.T, l *Ledger, changes Changes) (*Ledger, map[types.UID]string) {
	t.Helper()
	writes, unkept := l.Apply(changes)
	for _, w := range writes {
		w.Page.ResourceVersion += "1"
		l = l.With(w.Page)
		size := 0
		for key, value := range w.Page.Data {
			size += len(key) + len(value)
		}
		if volumes := len(readPage(w.Page).entries); volumes > maxVolumes || size > maxBytes {
			t.Errorf("%s has %d volumes and %d bytes", w.Page.Name, volumes, size)
		}
	}
	return l, unkept
}

func TestAnEntryRecallsTheOptionsOfItsVolume(t *testing.T) {
	settled := &Entry{Written: []Lists{written}}
	for name, test := range map[string]struct {
		entry   *Entry
		current []string
		want    *Lists
	}{
		"the list that was written":                   {settled, fast, &written},
		"the original options, which a user restored": {settled, own, &written},
		"another": {settled, []string{"soft"}, &written},
		"one that was about to be written, and was":       {&Entry{Written: []Lists{written, next}}, faster, &next},
		"one that was about to be written, and was not":   {&Entry{Written: []Lists{written, next}}, fast, &written},
		"a first one, and was":                            {&Entry{Written: []Lists{written}, Pending: true}, fast, &written},
		"a first one, and was not":                        {&Entry{Written: []Lists{written}, Pending: true}, own, nil},
		"the own one was about to come back, and did":     {&Entry{Written: []Lists{written}, Ending: true}, own, nil},
		"the own one was about to come back, and did not": {&Entry{Written: []Lists{written}, Ending: true}, fast, &written},
		"nor did it, and somebody wrote another":          {&Entry{Written: []Lists{written}, Ending: true}, []string{"soft"}, &written},
	} {
		got, found := test.entry.Recall(test.current)
		if found != (test.want != nil) || found && !got.isSame(*test.want) {
			t.Errorf("%s: got %v, %t", name, got, found)
		}
	}
}

func TestAWriteIsRecordedBeforeAndAfter(t *testing.T) {
	for name, test := range map[string]struct {
		changes []Change
		want    *Entry
	}{
		"a first write starts":           {[]Change{Begin("pv", nil, false, written, []string{"p"})}, &Entry{Volume: "pv", Written: []Lists{written}, Profiles: []string{"p"}, Pending: true}},
		"it is done":                     {[]Change{Begin("pv", nil, false, written, []string{"p"}), Settle("pv", written, []string{"p"})}, &Entry{Volume: "pv", Written: []Lists{written}, Profiles: []string{"p"}}},
		"it starts again with others":    {[]Change{Begin("pv", nil, false, written, nil), Begin("pv", nil, false, next, nil)}, &Entry{Volume: "pv", Written: []Lists{written, next}, Pending: true}},
		"a second one starts":            {[]Change{Settle("pv", written, []string{"p"}), Begin("pv", &written, false, next, []string{"q"})}, &Entry{Volume: "pv", Written: []Lists{written, next}, Profiles: []string{"p", "q"}}},
		"of an unknown volume":           {[]Change{Begin("pv", &written, false, next, []string{"q"})}, &Entry{Volume: "pv", Written: []Lists{written, next}, Profiles: []string{"q"}}},
		"annotations are restored":       {[]Change{Settle("pv", written, nil), Begin("pv", nil, true, written, nil)}, &Entry{Volume: "pv", Written: []Lists{written}, AnnotationsRestored: true}},
		"which stays recorded":           {[]Change{Settle("pv", written, nil), Begin("pv", nil, true, written, nil), Settle("pv", written, nil), Begin("pv", &written, false, next, nil), Settle("pv", next, nil)}, &Entry{Volume: "pv", Written: []Lists{next}, AnnotationsRestored: true}},
		"until the record is removed":    {[]Change{Settle("pv", written, nil), Forget}, nil},
		"an end starts":                  {[]Change{Settle("pv", written, nil), End("pv", &written, nil)}, &Entry{Volume: "pv", Written: []Lists{written}, Ending: true}},
		"an end of an unknown volume":    {[]Change{End("pv", &written, []string{"p"})}, &Entry{Volume: "pv", Written: []Lists{written}, Profiles: []string{"p"}, Ending: true}},
		"an end of nothing":              {[]Change{End("pv", nil, nil)}, nil},
		"a write after an end":           {[]Change{Settle("pv", written, nil), End("pv", &written, nil), Begin("pv", nil, false, next, nil)}, &Entry{Volume: "pv", Written: []Lists{next}, Pending: true}},
		"one that the end did not reach": {[]Change{Settle("pv", written, nil), End("pv", &written, nil), Begin("pv", &written, false, next, nil)}, &Entry{Volume: "pv", Written: []Lists{written, next}}},
	} {
		l := Read(nil)
		for _, change := range test.changes {
			l = write(t, l, Changes{uid(1): change})
		}
		if diff := cmp.Diff(test.want, l.EntryOf(uid(1)), cmpopts.IgnoreUnexported(Entry{}), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestPagesGrowWithTheVolumes(t *testing.T) {
	l, all := Read(nil), Changes{}
	for i := range 20_000 {
		all[uid(i)] = Settle(fmt.Sprintf("pv%d", i), Lists{own, []string{"hard", fmt.Sprintf("nconnect=%d", i%16)}}, []string{"p"})
	}
	few := Changes{}
	for i := range 60 {
		few[uid(i)] = all[uid(i)]
	}
	if l = write(t, l, few); len(l.pages) != 1 {
		t.Errorf("%d pages for 60 volumes, want 1", len(l.pages))
	}
	before := l.pages[0].object.Data
	l = write(t, l, all)
	if pages := len(l.pages); pages < 200 || pages > maxPages || len(l.at) != 20_000 {
		t.Errorf("%d volumes on %d pages, want 20000 on 200 to %d", len(l.at), pages, maxPages)
	}
	for key := range before {
		if _, stays := l.pages[0].object.Data[key]; !stays {
			t.Fatalf("%s moved to another page", key)
		}
	}
	for i := range 20_000 {
		if e := l.EntryOf(uid(i)); e == nil || e.Volume != fmt.Sprintf("pv%d", i) || !slices.Equal(e.Written[0].Original, own) {
			t.Fatalf("of pv%d the ledger says %+v", i, e)
		}
	}
	if lists := strings.Count(strings.Join(slices.Collect(maps.Keys(l.pages[3].object.Data)), " "), listPrefix); lists != 17 {
		t.Errorf("a page has %d lists, want each of the 17 once", lists)
	}
	writes, _ := l.Apply(all)
	if len(writes) > 0 {
		t.Errorf("%d pages are written in vain", len(writes))
	}
	for i := range 20_000 {
		all[uid(i)] = Forget
	}
	if l = write(t, l, all); len(l.at) > 0 {
		t.Errorf("%d volumes are not forgotten", len(l.at))
	}
}

func TestEntriesWithoutSpaceAreReported(t *testing.T) {
	l, all := Read(nil), Changes{}
	for i := range maxPages*maxVolumes + 5 {
		all[uid(i)] = Settle("pv", written, nil)
	}
	l, unkept := tryWrite(t, l, all)
	if len(unkept) != 5 || len(l.at) != maxPages*maxVolumes {
		t.Errorf("%d volumes are kept and %d are not, want %d and 5", len(l.at), len(unkept), maxPages*maxVolumes)
	}
	for _, why := range unkept {
		if !strings.Contains(why, "no space left") || !strings.Contains(why, "30000 volumes") && !strings.Contains(why, "0 volumes") {
			t.Errorf("it says %q", why)
		}
	}
	long := []string{strings.Repeat("x", maxBytes)}
	l = write(t, Read(nil), Changes{uid(1): Settle("pv", written, nil)})
	l, unkept = tryWrite(t, l, Changes{uid(1): Settle("pv", Lists{long, long}, nil), uid(2): Settle("pv", Lists{long, long}, nil)})
	if len(unkept) != 2 || !l.EntryOf(uid(1)).IsSettled(written, nil) {
		t.Errorf("not kept: %v; kept: %+v, want neither of the long ones, and what there was before", unkept, l.EntryOf(uid(1)))
	}
}

func TestADamagedPageIsReported(t *testing.T) {
	whole := write(t, Read(nil), Changes{uid(1): Settle("pv1", written, nil), uid(2): Settle("pv2", Lists{nil, faster}, nil)}).pages[0].object
	edit := func(change func(*corev1.ConfigMap)) *Ledger {
		edited := whole.DeepCopy()
		edited.Namespace = "storage-client-system"
		change(edited)
		return Read([]corev1.ConfigMap{*edited, {}})
	}
	key := keyOf(`["hard"]`)
	for name, change := range map[string]func(*corev1.ConfigMap){
		"an entry that is no JSON":   func(c *corev1.ConfigMap) { c.Data[string(uid(1))] = "{" },
		"an entry that says nothing": func(c *corev1.ConfigMap) { c.Data[string(uid(1))] = "{}" },
		"a list that was edited":     func(c *corev1.ConfigMap) { c.Data[key] = `["soft"]` },
		"a list that is gone":        func(c *corev1.ConfigMap) { delete(c.Data, key) },
	} {
		l := edit(change)
		if e := l.EntryOf(uid(1)); e == nil || !strings.Contains(e.Broken, "key "+string(uid(1))+" of ConfigMap storage-client-system/storage-client-volumes-0 cannot be read") {
			t.Errorf("%s: %+v", name, e)
		}
		if e := l.EntryOf(uid(2)); e == nil || e.Broken != "" {
			t.Errorf("%s: the other volume's entry is %+v", name, e)
		}
		before := l.pages[0].object.Data
		l = write(t, l, Changes{uid(2): Settle("pv2", Lists{nil, fast}, nil)})
		if after := l.pages[0].object.Data; after[string(uid(1))] != before[string(uid(1))] || name == "a list that was edited" && after[key] != before[key] || l.EntryOf(uid(1)).Broken == "" {
			t.Errorf("%s: what cannot be read does not stay for whoever can", name)
		}
		if l = write(t, l, Changes{uid(1): Settle("pv1", written, nil)}); !l.EntryOf(uid(1)).IsSettled(written, nil) {
			t.Errorf("%s: the volume does not mend it: %+v", name, l.EntryOf(uid(1)))
		}
	}
	l := edit(func(c *corev1.ConfigMap) { c.Immutable = ptr.To(true) })
	l, unkept := tryWrite(t, l, Changes{uid(1): Settle("pv1", next, nil), uid(3): Settle("pv3", written, nil)})
	if !strings.Contains(unkept[uid(1)], "ConfigMap storage-client-system/storage-client-volumes-0 is immutable; delete it") || len(unkept) != 1 {
		t.Errorf("an immutable page: %v", unkept)
	}
	if !l.EntryOf(uid(1)).IsSettled(written, nil) || l.EntryOf(uid(3)) == nil {
		t.Errorf("an immutable page is written, or keeps new volumes from the next: %+v", l.EntryOf(uid(3)))
	}
}

func TestTwoEntriesOfAVolumeBecomeOne(t *testing.T) {
	first := write(t, Read(nil), Changes{uid(1): Settle("pv", written, []string{"p"})}).pages[0].object
	second := write(t, Read(nil), Changes{uid(1): Begin("pv", nil, true, next, []string{"q"})}).pages[0].object
	second.Name = "storage-client-volumes-1"
	l := Read([]corev1.ConfigMap{*first, *second})
	want := &Entry{Volume: "pv", Written: []Lists{written, next}, Profiles: []string{"p", "q"}, AnnotationsRestored: true}
	if diff := cmp.Diff(want, l.EntryOf(uid(1)), cmpopts.IgnoreUnexported(Entry{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	l = write(t, l, Changes{uid(1): Settle("pv", next, nil)})
	if at := l.at[uid(1)]; len(at) != 1 || !l.EntryOf(uid(1)).IsSettled(next, nil) {
		t.Errorf("it stands on the pages %v: %+v", at, l.EntryOf(uid(1)))
	}
}

func TestOnlyPagesAreRead(t *testing.T) {
	var objects []corev1.ConfigMap
	for _, name := range []string{"storage-client-volumes-", "storage-client-volumes-01", "storage-client-volumes--1", "storage-client-volumes-1.crt", "storage-client-failures"} {
		object := corev1.ConfigMap{Data: map[string]string{string(uid(1)): "{}"}}
		object.Name = name
		objects = append(objects, object)
	}
	if l := Read(objects); len(l.pages) > 0 {
		t.Errorf("read %v", l.pages)
	}
}

func TestAPageIsReadAgainOnlyAfterAChange(t *testing.T) {
	page := write(t, Read(nil), Changes{uid(1): Settle("pv", written, nil)}).pages[0].object
	var r Reader
	first := r.Read([]corev1.ConfigMap{*page}).EntryOf(uid(1))
	if r.Read([]corev1.ConfigMap{*page}).EntryOf(uid(1)) != first {
		t.Error("the same version is read twice")
	}
	changed := page.DeepCopy()
	changed.ResourceVersion, changed.Data[string(uid(1))] = "another", "{"
	if r.Read([]corev1.ConfigMap{*changed}).EntryOf(uid(1)).Broken == "" {
		t.Error("another version is not read")
	}
}
