package verdict

import (
	"math"
	"slices"

	"github.com/storageclient/operator/api/v1alpha1"
)

// Schedule returns the passes to run in order, round by round from 1. The seed determines the order of the arms. Each arm is first, second or last
// at most once more often than another arm, and follows the candidate equally often. A longer schedule starts with the shorter schedule of the
// same seed.
func Schedule(rounds int32, seed uint64) []v1alpha1.NodeTrialPass {
	draw := random{state: seed}
	order := orderer{draw: random{state: draw.next()}}
	passes := make([]v1alpha1.NodeTrialPass, 0, len(arms)*int(max(0, rounds)))
	for round := range rounds {
		for _, arm := range order.next() {
			passes = append(passes, v1alpha1.NodeTrialPass{Round: round + 1, Arm: arm})
		}
	}
	return passes
}

// orderer draws the order of the arms in each round. Three rounds form a Latin square: each arm has each position once. The next three
// are its mirror image.
//
// A pass can change the server's caches, which changes the time of the pass after it. So each arm follows the candidate equally often:
// after a round whose last pass is the candidate, the next round starts with it.
type orderer struct {
	draw     random
	square   [][3]v1alpha1.TrialArm
	mirrored bool
	// rotation is the number of orders by which the next square is rotated.
	rotation int
	started  bool
}

func (o *orderer) next() [3]v1alpha1.TrialArm {
	if !o.started {
		o.mirrored, o.rotation, o.started = o.draw.below(2) == 1, (1+o.draw.below(3))%3, true
	}
	if len(o.square) == 0 {
		square := latinSquare(o.mirrored)
		o.square, o.mirrored = slices.Concat(square[o.rotation:], square[:o.rotation]), !o.mirrored
		// A trial that starts with the candidate ends each square with it. In all others, the two orders stay together.
		if o.rotation != 1 {
			o.rotation = (2 + o.draw.below(2)) % 3
		}
	}
	order := o.square[0]
	o.square = o.square[1:]
	return order
}

// latinSquare returns the three orders of a Latin square. The candidate's positions are last, first and second.
func latinSquare(mirrored bool) [][3]v1alpha1.TrialArm {
	const before, again, after = v1alpha1.ArmBefore, v1alpha1.ArmAgain, v1alpha1.ArmAfter
	if mirrored {
		return [][3]v1alpha1.TrialArm{{again, before, after}, {after, again, before}, {before, after, again}}
	}
	return [][3]v1alpha1.TrialArm{{before, again, after}, {after, before, again}, {again, after, before}}
}

// random is SplitMix64: the same seed gives the same numbers in every release.
type random struct{ state uint64 }

func (r *random) next() uint64 {
	r.state += 0x9e3779b97f4a7c15
	z := r.state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

func (r *random) below(n int) int { return int(r.next() % uint64(n)) }

// uniform returns a number above 0 and below 1.
func (r *random) uniform() float64 { return (float64(r.next()>>11) + 0.5) / (1 << 53) }

func (r *random) normal() float64 {
	return math.Sqrt(-2*math.Log(r.uniform())) * math.Cos(2*math.Pi*r.uniform())
}
