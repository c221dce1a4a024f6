package plan

import (
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/storageclient/operator/controllers/volume/internal/builders"
	"github.com/storageclient/operator/controllers/volume/judge"
	"github.com/storageclient/operator/controllers/volume/ledger"
	"github.com/storageclient/operator/tuning/catalogue"
)

// A cache may not have heard of a volume yet, or of what became of it: what the ledger missed is written by what the API server has.
func TestTheLedgerIsKeptByLiveVolumesOnly(t *testing.T) {
	page := corev1.ConfigMap{Data: map[string]string{"uid-of-gone": "{}"}}
	page.Name = "storage-client-volumes-0"
	s := Snapshot{Profiles: judge.Compile(nil, catalogue.AllowList{}, true), Ledger: ledger.Read([]corev1.ConfigMap{page}),
		Volumes: []*corev1.PersistentVolume{builders.NFSVolume([]string{"hard", "nocto"}, builders.Carrying([]string{"hard"}, []string{"hard", "nocto"}, "p"))}}
	cached := For(s)
	if !cached.LedgerDue || len(cached.Ledger) > 0 || cached.Next.IsZero() {
		t.Errorf("by the cache: due %t, changes %v, next %s", cached.LedgerDue, cached.Ledger, cached.Next)
	}
	s.Live = true
	changed := slices.Sorted(maps.Keys(For(s).Ledger))
	if !slices.Equal(changed, []types.UID{"uid-of-gone", "uid-of-pv1"}) {
		t.Errorf("live: the ledger changes for %q", changed)
	}
}
