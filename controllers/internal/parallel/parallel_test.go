package parallel

import (
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestForEachDoesEverythingOnce(t *testing.T) {
	for _, workers := range []int{1, 3, 100} {
		var mutex sync.Mutex
		var got []int
		ForEach(workers, []int{1, 2, 3, 4, 5, 6, 7}, func(item int) {
			mutex.Lock()
			defer mutex.Unlock()
			got = append(got, item)
		})
		slices.Sort(got)
		if diff := cmp.Diff([]int{1, 2, 3, 4, 5, 6, 7}, got); diff != "" {
			t.Errorf("%d workers (-want +got):\n%s", workers, diff)
		}
	}
}

// Each worker starts with its own item, even if the items are fast. The race detector can then find data that the workers share.
func TestWorkersStartWithDifferentItems(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const workers = 4
	items, goroutines := []int{0, 1, 2, 3, 4, 5}, [6]string{}
	ForEach(workers, items, func(item int) {
		stack := make([]byte, 64)
		goroutines[item], _, _ = strings.Cut(string(stack[:runtime.Stack(stack, false)]), " [")
	})
	first := slices.Sorted(slices.Values(goroutines[:workers]))
	if got := slices.Compact(first); len(got) != workers {
		t.Errorf("first %d items: got goroutines %q, want one for each", workers, goroutines[:workers])
	}
}

func TestAPanicOfAWorkerReachesTheCaller(t *testing.T) {
	broken := errors.New("broken")
	defer func() {
		err, ok := recover().(error)
		if !ok || !errors.Is(err, broken) || !strings.Contains(err.Error(), "parallel_test.go") {
			t.Errorf("recovered %v, want the worker's error and its stack", err)
		}
	}()
	ForEach(4, []int{1, 2, 3, 4, 5}, func(item int) {
		if item == 3 {
			panic(broken)
		}
	})
	t.Error("got no panic in the caller")
}

func TestTryEachReturnsTheError(t *testing.T) {
	broken := errors.New("broken")
	if err := TryEach(3, []int{1, 2, 3, 4}, func(item int) error {
		if item == 2 {
			return broken
		}
		return nil
	}); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}
