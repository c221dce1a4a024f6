package parallel

import (
	"errors"
	"sync"
)

// errBrokenOff is what those get that share a call which never returned.
var errBrokenOff = errors.New("the call that was shared with others broke off")

// Joint has callers share calls: what is asked for while a call is under way goes into the next one, together. So each call begins after
// all that it answers was asked for.
type Joint[Ask, Answer any] struct {
	// calling is held while a call is under way.
	calling sync.Mutex
	// mutex guards next.
	mutex sync.Mutex
	next  *jointCall[Ask, Answer]
}

type jointCall[Ask, Answer any] struct {
	asks   []Ask
	answer Answer
	err    error
	// done is closed once answer and err stand.
	done chan struct{}
}

// Do asks for something, and returns what became of the call that it went into, which all callers get alike.
func (j *Joint[Ask, Answer]) Do(ask Ask, call func([]Ask) (Answer, error)) (Answer, error) {
	shared, first := j.join(ask)
	if !first {
		<-shared.done
		return shared.answer, shared.err
	}
	j.calling.Lock()
	defer j.calling.Unlock()
	j.mutex.Lock()
	j.next = nil
	j.mutex.Unlock()
	defer close(shared.done)
	shared.err = errBrokenOff
	shared.answer, shared.err = call(shared.asks)
	return shared.answer, shared.err
}

func (j *Joint[Ask, Answer]) join(ask Ask) (call *jointCall[Ask, Answer], first bool) {
	j.mutex.Lock()
	defer j.mutex.Unlock()
	if first = j.next == nil; first {
		j.next = &jointCall[Ask, Answer]{done: make(chan struct{})}
	}
	j.next.asks = append(j.next.asks, ask)
	return j.next, first
}

// Waiting is how many have asked for a call that has not begun.
func (j *Joint[Ask, Answer]) Waiting() int {
	j.mutex.Lock()
	defer j.mutex.Unlock()
	if j.next == nil {
		return 0
	}
	return len(j.next.asks)
}
