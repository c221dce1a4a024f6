package parallel

import (
	"errors"
	"runtime"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageclient/operator/test/check"
)

// TestRequestsDuringACallJoinTheNextCall blocks the first call until all other requests wait. The second call starts after all requests
// arrived.
func TestRequestsDuringACallJoinTheNextCall(t *testing.T) {
	failure := errors.New("refused")
	var j Joint[int, int]
	started, proceed := make(chan struct{}), make(chan struct{})
	var calls [][]int
	call := func(numbers []int) (int, error) {
		slices.Sort(numbers)
		calls = append(calls, numbers)
		if len(calls) == 1 {
			close(started)
			<-proceed
			return 1, nil
		}
		return 2, failure
	}
	type answer struct {
		number  int
		refused bool
	}
	answers := make(chan answer, 4)
	ask := func(number int) {
		got, err := j.Do(number, call)
		answers <- answer{got, errors.Is(err, failure)}
	}
	go ask(1)
	<-started
	for _, number := range []int{2, 3, 4} {
		go ask(number)
	}
	for j.Waiting() < 3 {
		runtime.Gosched()
	}
	close(proceed)
	var got []answer
	for range 4 {
		got = append(got, <-answers)
	}
	slices.SortFunc(got, func(a, b answer) int { return a.number - b.number })
	check.Equal(t, "results", []answer{{1, false}, {2, true}, {2, true}, {2, true}}, got, cmp.AllowUnexported(answer{}))
	check.Equal(t, "calls", [][]int{{1}, {2, 3, 4}}, calls)
}

// No caller receives the result of a call that panicked as a success.
func TestASharedCallThatPanicsReturnsAnError(t *testing.T) {
	var j Joint[int, int]
	j.calling.Lock()
	first := make(chan any)
	go func() {
		defer func() { first <- recover() }()
		_, _ = j.Do(1, func([]int) (int, error) { panic("broken") })
	}()
	for j.Waiting() < 1 {
		runtime.Gosched()
	}
	second := make(chan error)
	go func() {
		_, err := j.Do(2, func([]int) (int, error) { return 0, nil })
		second <- err
	}()
	for j.Waiting() < 2 {
		runtime.Gosched()
	}
	j.calling.Unlock()
	check.Equal(t, "recovered value", "broken", <-first)
	if err := <-second; !errors.Is(err, errBrokenOff) {
		t.Errorf("got %v", err)
	}
	if got, err := j.Do(3, func(numbers []int) (int, error) { return numbers[0], nil }); got != 3 || err != nil {
		t.Errorf("got %d, %v", got, err)
	}
}
