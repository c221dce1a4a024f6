package plan

import (
	"testing"
	"time"

	"github.com/storageclient/operator/controllers/internal/fleet"
	"github.com/storageclient/operator/controllers/internal/livegate"
	"github.com/storageclient/operator/tuning/catalogue"
)

func TestVerdictDenies(t *testing.T) {
	said := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	waiting, admitted := livegate.Node{Name: "waiting", Wanted: "new"}, livegate.Node{Name: "admitted", Wanted: "new"}
	decision := livegate.Decision{Admitted: map[string]bool{"admitted": true}, Notes: map[string]string{"waiting": "waits for its turn"}}
	v1, v2 := fleet.NewProfileSet(nil, catalogue.AllowList{}), fleet.NewProfileSet(nil, catalogue.AllowList{})
	soaking := decision
	soaking.Next = 300 * time.Millisecond
	changed := waiting
	changed.Alive = true
	for name, c := range map[string]struct {
		decision livegate.Decision
		node     livegate.Node
		profiles *fleet.ProfileSet
		after    time.Duration
		want     bool
	}{
		"a node that had to wait a moment ago still has to": {decision, waiting, v1, 900 * time.Millisecond, true},
		"after a second it is looked at again":              {decision, waiting, v1, time.Second, false},
		"a clock that went back proves nothing":             {decision, waiting, v1, -time.Second, false},
		"until a soak ends":                                 {soaking, waiting, v1, 299 * time.Millisecond, true},
		"and not after":                                     {soaking, waiting, v1, 300 * time.Millisecond, false},
		"a node that may go is looked at again":             {decision, admitted, v1, 0, false},
		"so is one that has changed":                        {decision, changed, v1, 0, false},
		"one that was not there":                            {decision, livegate.Node{Name: "new"}, v1, 0, false},
		"and everybody once a profile has changed":          {decision, waiting, v2, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			v := newVerdict(c.decision, v1, []livegate.Node{waiting, admitted}, said)
			if got := v.denies(c.node, c.profiles, said.Add(c.after)); got != c.want {
				t.Errorf("got %t, want %t", got, c.want)
			}
		})
	}
}
