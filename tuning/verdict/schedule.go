package verdict

import "math"

// Schedule returns the passes to run in order: round by round, on the nodes in turn. The seed determines the order of the arms. On
// each node, each arm is first, second or last at most once more often than another arm, and follows the candidate equally often. A longer schedule starts with the shorter
// schedule of the same nodes and seed. Without nodes, the node name is empty.
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

// orderer draws the order of the arms in each round. Three rounds form a Latin square: each arm has each position once. The next three
// are its mirror image.
//
// A pass can change the server's caches, which changes the time of the pass after it. So each arm follows the candidate equally often:
// after a round whose last pass is the candidate, the next round starts with it.
type orderer struct {
	draw     random
	square   [][3]Arm
	mirrored bool
	// first is the position of the candidate in the first round of the next square.
	first   int
	started bool
}

func (o *orderer) next() [3]Arm {
	if !o.started {
		o.mirrored, o.first, o.started = o.draw.below(2) == 1, o.draw.below(3), true
	}
	if len(o.square) == 0 {
		// The candidate's positions are 2, 0 and 1. A trial that starts with the candidate ends each square with it.
		last, start, middle := latinSquare(o.mirrored)
		switch {
		case o.first == 0:
			o.square = [][3]Arm{start, middle, last}
		case o.first == 1:
			o.square = [][3]Arm{middle, last, start}
		default:
			o.square = [][3]Arm{last, start, middle}
		}
		if o.first != 0 {
			o.first = 1 + o.draw.below(2)
		}
		o.mirrored = !o.mirrored
	}
	order := o.square[0]
	o.square = o.square[1:]
	return order
}

// latinSquare returns the three orders of a Latin square, by the position of the candidate.
func latinSquare(mirrored bool) (last, start, middle [3]Arm) {
	one, other := Before, Again
	if mirrored {
		one, other = Again, Before
	}
	return [3]Arm{one, other, After}, [3]Arm{After, one, other}, [3]Arm{other, After, one}
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
