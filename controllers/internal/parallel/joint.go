package parallel

import (
	"errors"
	"sync"
)

// errBrokenOff is the result for callers that share a call which never returned.
var errBrokenOff = errors.New("the shared call was aborted")

// Joint lets callers share calls. Requests that arrive during a call are combined into the next one. So each call starts after all the requests
// that it serves.
type Joint[Ask, Answer any] struct {
	// calling is held during a call.
	calling sync.Mutex
	// mutex guards next.
	mutex sync.Mutex
	next  *jointCall[Ask, Answer]
}

type jointCall[Ask, Answer any] struct {
	asks   []Ask
	answer Answer
	err    error
	// done is closed once the result is set.
	done chan struct{}
}

// Do makes a request, and returns the result of the shared call. All callers of that call get the same result.
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

// Waiting returns the number of requests for a call that has not started.
func (j *Joint[Ask, Answer]) Waiting() int {
	j.mutex.Lock()
	defer j.mutex.Unlock()
	if j.next == nil {
		return 0
	}
	return len(j.next.asks)
}
