package journal

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageclient/operator/agent/host/hosttest"
	"github.com/storageclient/operator/test/check"
)

// The agents of the releases before and after read the journal. A field that goes, or changes its type, loses their records. With a new field, the
// release before only restores: boot facts are the place for a new record.
func TestTheFieldsOfTheJournalAreAContract(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("testdata", "fields.golden"))
	check.NoError(t, err)
	got := hosttest.JSONFields(reflect.TypeFor[document]())
	if diff := cmp.Diff(strings.Split(strings.TrimSpace(string(data)), "\n"), got); diff != "" {
		t.Errorf("fields of the journal (-contract +got):\n%s", diff)
	}
}
