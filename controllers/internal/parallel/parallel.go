// Package parallel runs a function for many items, several at a time. Most of the time is spent on responses of the API server.
package parallel

import (
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// ForEach calls do for every item, several concurrently, and returns when all calls have returned. A panic stops it early and is raised again in
// the caller, which may recover it.
func ForEach[T any](workers int, items []T, do func(T)) {
	if workers == 1 {
		for _, item := range items {
			do(item)
		}
		return
	}
	var (
		next  atomic.Int64
		cause atomic.Pointer[error]
		wait  sync.WaitGroup
	)
	workers = min(workers, len(items))
	next.Store(int64(workers))
	// Each worker starts with a different item. The counter orders the later items: if it also ordered the first items, the race detector would
	// only find shared data if two workers happened to overlap.
	for first := range workers {
		wait.Go(func() {
			defer func() {
				if recovered := recover(); recovered != nil {
					err := errorOf(recovered)
					cause.CompareAndSwap(nil, &err)
				}
			}()
			for i := int64(first); i < int64(len(items)) && cause.Load() == nil; i = next.Add(1) - 1 {
				do(items[i])
			}
		})
	}
	wait.Wait()
	if err := cause.Load(); err != nil {
		panic(*err)
	}
}

// errorOf adds the stack trace of a panic, which would be lost with its goroutine.
func errorOf(recovered any) error {
	if err, ok := recovered.(error); ok {
		return fmt.Errorf("%w\n%s", err, debug.Stack())
	}
	return fmt.Errorf("%v\n%s", recovered, debug.Stack())
}

// TryEach calls do for every item as ForEach does, and skips the remaining items after an error.
func TryEach[T any](workers int, items []T, do func(T) error) error {
	var first atomic.Pointer[error]
	ForEach(workers, items, func(item T) {
		if first.Load() != nil {
			return
		}
		if err := do(item); err != nil {
			first.CompareAndSwap(nil, &err)
		}
	})
	if err := first.Load(); err != nil {
		return *err
	}
	return nil
}

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
