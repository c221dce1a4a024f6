package match

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

var noon = time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)

func TestInTurn(t *testing.T) {
	first := v1alpha1.Canary{Nodes: ptr.To[int32](1)}
	chosen := v1alpha1.Canary{NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"canary": "yes"}}}
	at := func(hours int) time.Time { return noon.Add(time.Duration(hours) * time.Hour) }
	isCanary := map[string]string{"canary": "yes"}
	for name, c := range map[string]struct {
		rule  v1alpha1.Canary
		nodes []Turn
		want  string
	}{
		"zone by zone, those without one last": {
			first, []Turn{{Name: "none"}, {Name: "y", Zone: "y"}, {Name: "x", Zone: "x"}}, "x y none",
		},
		"in a zone the oldest first, then by name": {
			first, []Turn{{Name: "b", Created: at(2)}, {Name: "a", Created: at(2)}, {Name: "old", Created: at(1)}}, "old a b",
		},
		"the manager's own node after all others, whatever its zone": {
			first, []Turn{{Name: "m", Zone: "a", Manager: true}, {Name: "x", Zone: "x"}, {Name: "none"}}, "x none m",
		},
		"each group has a canary": {
			first,
			[]Turn{{Name: "a", BootHash: "1"}, {Name: "b", BootHash: "1"}, {Name: "c", BootHash: "2"}, {Name: "d", BootHash: "2"}},
			"a c b d",
		},
		"a chosen canary is first, even the manager's node": {
			chosen,
			[]Turn{{Name: "a"}, {Name: "m", Manager: true, Labels: isCanary}, {Name: "z", Labels: isCanary}}, "z m a",
		},
		"a blocked node is no canary and comes last": {
			first, []Turn{{Name: "a", Blocked: true}, {Name: "b", BootHash: "1"}, {Name: "c", BootHash: "2"}, {Name: "d", BootHash: "1"}}, "b c d a",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, turn := range InTurn(c.nodes, c.rule) {
				got = append(got, turn.Name)
			}
			check.Equal(t, "result", c.want, strings.Join(got, " "))
		})
	}
}
