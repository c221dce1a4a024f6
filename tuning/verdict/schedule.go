package verdict

import "math"

// Schedule is the passes to run, in this order: round by round, over the nodes in turn. Which arm comes first is drawn from the seed,
// such that on each node no arm is first, second or last more than once more often than another. A longer schedule begins with the
// shorter one of the same nodes and seed. Without nodes the node's name is empty.
func Schedule(rounds int, nodes []string, seed uint64) []Slot {
	if len(nodes) == 0 {
		nodes = []string{""}
	}
	draw := random{state: seed}
	orders := make([]orderer, len(nodes))
	for i := range orders {
		orders[i] = orderer{draw: random{state: draw.next()}}
	}
	slots := make([]Slot, 0, 3*max(0, rounds))
	for round := range rounds {
		turn := round % len(nodes)
		for _, arm := range orders[turn].next() {
			slots = append(slots, Slot{Round: round, Node: nodes[turn], Arm: arm})
		}
	}
	return slots
}

// orderer draws the order of the arms in each round. Three rounds are a Latin square, in which each arm has each place once; the next
// three are the mirror image, so that each arm also follows each other one as often.
type orderer struct {
	draw     random
	square   [][3]Arm
	mirrored bool
	begun    bool
}

func (o *orderer) next() [3]Arm {
	if len(o.square) == 0 {
		if !o.begun {
			o.mirrored, o.begun = o.draw.below(2) == 1, true
		}
		o.square = latinSquare(o.mirrored)
		o.mirrored = !o.mirrored
	}
	i := o.draw.below(len(o.square))
	order := o.square[i]
	o.square = append(o.square[:i], o.square[i+1:]...)
	return order
}

func latinSquare(mirrored bool) [][3]Arm {
	if mirrored {
		return [][3]Arm{{Before, After, Again}, {After, Again, Before}, {Again, Before, After}}
	}
	return [][3]Arm{{Before, Again, After}, {Again, After, Before}, {After, Before, Again}}
}

// random is SplitMix64: the same numbers from the same seed in every release.
type random struct{ state uint64 }

func (r *random) next() uint64 {
	r.state += 0x9e3779b97f4a7c15
	z := r.state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

func (r *random) below(n int) int { return int(r.next() % uint64(n)) }

// uniform is above 0 and below 1.
func (r *random) uniform() float64 { return (float64(r.next()>>11) + 0.5) / (1 << 53) }

func (r *random) normal() float64 {
	return math.Sqrt(-2*math.Log(r.uniform())) * math.Cos(2*math.Pi*r.uniform())
}
