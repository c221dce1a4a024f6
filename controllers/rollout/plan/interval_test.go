package plan

import (
	"testing"
	"time"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

func TestDrainInterval(t *testing.T) {
	terminating := &DrainProgress{Reason: v1alpha1.RolloutReasonDraining}
	blocked := &DrainProgress{Reason: v1alpha1.RolloutReasonDrainBlocked}
	gone := &DrainProgress{Gone: true, Reason: v1alpha1.RolloutReasonDraining}
	for name, c := range map[string]struct {
		nodes int
		first *DrainProgress
		rest  *DrainProgress
		want  time.Duration
	}{
		"a few nodes are inspected every second":                             {3, blocked, blocked, time.Second},
		"many nodes are inspected in turn":                                   {150, blocked, blocked, 3 * time.Second},
		"very many nodes are inspected at least every five seconds":          {1000, blocked, blocked, 5 * time.Second},
		"nodes with only terminating pods are inspected sooner":              {150, terminating, terminating, 1500 * time.Millisecond},
		"a blocked pod means the normal interval":                            {150, blocked, terminating, 3 * time.Second},
		"empty nodes that wait for their mounts do not shorten the interval": {150, gone, gone, 3 * time.Second},
		"empty nodes do not slow those down whose pods terminate":            {150, terminating, gone, 1500 * time.Millisecond},
		"a node without an inspection has the normal interval":               {150, nil, nil, 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			p := &planner{}
			for i := range c.nodes {
				v := &nodeState{Node: &Node{Drain: c.rest}}
				if i == 0 {
					v.Drain = c.first
				}
				p.countDrain(v)
			}
			check.Equal(t, "result", c.want, p.drainInterval())
		})
	}
}
