// Package patience stretches the bounds of waits in tests on slow or busy machines. A test waits for a condition; the bound of the
// wait only decides when the test gives up, and must not depend on the machine.
package patience

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"
)

// Variable is the environment variable that replaces the measurement, e.g. SCO_SLOWNESS=3.
const Variable = "SCO_SLOWNESS"

const (
	// most is the largest factor: a test that hangs must still end.
	most = 8
	// rounds is the number of sorts that each processor does.
	rounds = 12
	// numbers is the length of the list that a round sorts.
	numbers = 1 << 16
	// reference is the time of a round on an idle processor of the machine that the bounds were chosen on.
	reference = 7 * time.Millisecond
)

// Of returns the bound of a wait on this machine: d or more.
func Of(d time.Duration) time.Duration {
	return time.Duration(Slowness() * float64(d))
}

// Slowness returns how much longer this machine takes than the reference, from 1 to 8. The first call measures it and prints it.
var Slowness = sync.OnceValue(func() float64 {
	factor, err := choose(os.Getenv(Variable), measure)
	if err != nil {
		panic(err)
	}
	fmt.Fprintf(os.Stderr, "Bounds of waits are multiplied by %.1f (from 1 to %d by the speed of this machine; %s=NUMBER overrides it)\n", factor, most, Variable)
	return factor
})

// choose returns the factor that the user has set, or the measured one within its limits.
func choose(set string, measure func() float64) (float64, error) {
	if set == "" {
		return min(max(measure(), 1), most), nil
	}
	factor, err := strconv.ParseFloat(set, 64)
	if err != nil || !(factor >= 1 && factor <= 100) {
		return 0, fmt.Errorf("%s=%q must be a number from 1 to 100: set it to how many times longer waits may take, or unset it", Variable, set)
	}
	return factor, nil
}

// measure keeps all processors busy: on a machine with other work, a single one may still be free.
func measure() float64 {
	var all sync.WaitGroup
	began := time.Now()
	for range runtime.GOMAXPROCS(0) {
		all.Go(work)
	}
	all.Wait()
	return float64(time.Since(began)) / float64(rounds*reference)
}

// work does the same each time, without instructions that only some processors have.
func work() {
	chance := rand.New(rand.NewPCG(1, 2))
	list := make([]uint64, numbers)
	for range rounds {
		for i := range list {
			list[i] = chance.Uint64()
		}
		slices.Sort(list)
	}
}
