// Package parallel does one thing for many items, several at a time. The answers of the API server are what takes time.
package parallel

import (
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// ForEach does something for every item, for several at a time, and returns when all of it is over. A panic ends it
// early and is the caller's, who may be one that recovers.
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
	// Each worker starts with an item of its own. The counter orders what comes after it: if it also ordered the first items, the race
	// detector would only find what they share if two workers happened to overlap.
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

// errorOf keeps where a panic came from, which ends with its goroutine.
func errorOf(recovered any) error {
	if err, ok := recovered.(error); ok {
		return fmt.Errorf("%w\n%s", err, debug.Stack())
	}
	return fmt.Errorf("%v\n%s", recovered, debug.Stack())
}

// TryEach does something for every item as ForEach does, and leaves the rest out once something has met an error.
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
