package modprobe

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageclient/operator/agent/host/hosttest"
)

// The releases before and after read the fact in the journal. They ignore a field that they do not know.
func TestTheFieldsOfTheSessionFactAreAContract(t *testing.T) {
	if diff := cmp.Diff([]string{"old?[*][] int", "setAt int"}, hosttest.JSONFields(reflect.TypeFor[sessionFact]())); diff != "" {
		t.Errorf("fields (-contract +got):\n%s", diff)
	}
	var fact sessionFact
	want := sessionFact{SetAt: 7, Old: map[string][]int{"c": {700}}}
	if err := json.Unmarshal([]byte(`{"setAt":7,"old":{"c":[700]},"later":{"a":1}}`), &fact); err != nil || !cmp.Equal(want, fact) {
		t.Errorf("got %+v, error %v", fact, err)
	}
}
