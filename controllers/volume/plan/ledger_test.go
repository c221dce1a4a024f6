package plan

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/storageclient/operator/controllers/volume/judge"
	"github.com/storageclient/operator/controllers/volume/ledger"
	"github.com/storageclient/operator/controllers/volume/optionset"
	"github.com/storageclient/operator/test/builders"
	"github.com/storageclient/operator/tuning/catalogue"
)

// A cache may lack a new volume or a change. Missing entries of the ledger are written only from live reads of the API server.
func TestTheLedgerIsUpdatedFromLiveVolumesOnly(t *testing.T) {
	page := corev1.ConfigMap{Data: map[string]string{"uid-of-gone": "{}"}}
	page.Name = "storage-client-volumes-0"
	s := Snapshot{Profiles: new(judge.Compiler).Compile(nil, catalogue.AllowList{}, true, nil), Ledger: new(ledger.Reader).Read([]corev1.ConfigMap{page}),
		Volumes: []*corev1.PersistentVolume{builders.NFSVolume([]string{"hard", "nocto"}, builders.Carrying([]string{"hard"}, []string{"hard", "nocto"}, "p"))}}
	next := For(s)
	if cached := next.WithoutFresh(); !cached.LedgerDue || len(cached.Ledger) > 0 || cached.Next.IsZero() {
		t.Errorf("from the cache: got due %t, changes %v, next plan %s; want a due ledger, no changes and a next plan", cached.LedgerDue,
			cached.Ledger, cached.Next)
	}
	changed := slices.Sorted(maps.Keys(next.Ledger))
	if !slices.Equal(changed, []types.UID{"uid-of-gone", "uid-of-pv1"}) {
		t.Errorf("from live reads: got changes for %q, want both volumes", changed)
	}
}

// Evidence of many sets does not fill the ledger. Recorded sets stay, and all failures are recorded.
func TestTheLedgerLimitsSetsWithEvidence(t *testing.T) {
	s := snapshotOf(nil)
	s.Ledger = new(ledger.Reader).Read(nil)
	p := newPlanner(s)
	for i := range maxSets + 50 {
		r := &optionset.Record{Identity: optionset.Identity{Set: fmt.Sprintf("s%04d", i), RuleSet: fmt.Sprintf("r%d", i%10)}, Evidence: &optionset.Evidence{Text: "seen"}}
		if i > maxSets {
			r.Next(optionset.Event{Kind: optionset.MountFailed, Blame: optionset.Blame{Volume: "a", Failure: "denied"}})
		}
		p.sets[r.Set] = r
	}
	missed := ledger.Changes{}
	p.keepSets(missed)
	var evidence, failures int
	for key := range missed {
		if optionset.IsEvidenceKey(string(key)) {
			evidence++
		} else {
			failures++
		}
	}
	const copies = 10 // for the previous release, one for each rule set
	if evidence != maxSets+copies || failures != 49+copies {
		t.Errorf("got %d sets with evidence and %d failures, want %d and 49, and %d copies each", evidence, failures, maxSets, copies)
	}
	if _, first := missed["set.s0000"]; !first || missed["set.s1000"] != nil {
		t.Error("got no record of the first set, want the sets recorded in order")
	}
	// Two managers together may exceed the limit.
	missed["set.s1049"] = ledger.KeepSet(p.sets["s1049"].Encode()["set.s1049"])
	writes, _ := p.Ledger.Apply(missed)
	var pages []corev1.ConfigMap
	for _, w := range writes {
		pages = append(pages, *w.Page)
	}
	p.Ledger, missed = new(ledger.Reader).Read(pages), ledger.Changes{}
	if p.keepSets(missed); len(missed) > 0 {
		t.Errorf("got %d more recorded sets, want none", len(missed))
	}
}
