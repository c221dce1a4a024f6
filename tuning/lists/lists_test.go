package lists

import (
	"strconv"
	"testing"

	"github.com/storageclient/operator/test/check"
)

func TestLists(t *testing.T) {
	isEven := func(n int) bool { return n%2 == 0 }
	squareOf := func(n int) (int, string) { return n * n, strconv.Itoa(n) }
	parse := func(s string) (int, bool) { n, err := strconv.Atoi(s); return n, err == nil }
	for name, test := range map[string]struct{ got, want any }{
		"each item is converted, in order":         {Each([]int{3, 1, 2}, strconv.Itoa), []string{"3", "1", "2"}},
		"no item is converted to nil":              {Each([]int{}, strconv.Itoa), []string(nil)},
		"the items that match stay in order":       {Filter([]int{4, 3, 2}, isEven), []int{4, 2}},
		"without a match, the result is nil":       {Filter([]int{1, 3}, isEven), []int(nil)},
		"the later of two equal keys wins":         {Map([]int{-2, 3, 2}, squareOf), map[int]string{4: "2", 9: "3"}},
		"without items, the map is empty, not nil": {Map(nil, squareOf), map[int]string{}},
		"without items, there are no pointers":     {len(Pointers([]int{})), 0},
		"the picked items are converted, in order": {Pick([]string{"3", "x", "1"}, parse), []int{3, 1}},
		"without a picked item, the result is nil": {Pick([]string{"x"}, parse), []int(nil)},
		"equal items of all lists remain once":     {Distinct([]string{"b", "a"}, nil, []string{"c", "a"}), []string{"a", "b", "c"}},
		"groups are in the order of first items":   {Group([]int{3, 2, 1, 4}, isEven), [][]int{{3, 1}, {2, 4}}},
		"without items, there are no groups":       {Group(nil, isEven), [][]int(nil)},
		"only missing items are added, each once":  {AddMissing([]int{2, 1}, 3, 1, 3), []int{2, 1, 3}},
		"without items, a nil list stays nil":      {AddMissing[int](nil), []int(nil)},
		"without lists, there is no distinct item": {Distinct[int](), []int(nil)},
	} {
		t.Run(name, func(t *testing.T) {
			check.Equal(t, "result", test.want, test.got)
		})
	}
}

func TestPointersPointToTheItems(t *testing.T) {
	items := []int{1, 2}
	*Pointers(items)[1] = 3
	check.Equal(t, "items", []int{1, 3}, items)
}

func TestFindOrAdd(t *testing.T) {
	items := []int{1, 2, 4}
	isEven := func(n int) bool { return n%2 == 0 }
	*FindOrAdd(&items, isEven, 6) = 8
	*FindOrAdd(&items, func(n int) bool { return n > 8 }, 9) += 100
	check.Equal(t, "items", []int{1, 8, 4, 109}, items)
}

func TestFilterLeavesTheListUnchanged(t *testing.T) {
	items := []int{1, 2, 3, 4}
	Filter(items, func(n int) bool { return n > 2 })
	check.Equal(t, "items", []int{1, 2, 3, 4}, items)
}

func TestDistinctLeavesTheListUnchanged(t *testing.T) {
	items := []int{2, 1, 2}
	Distinct(items)
	check.Equal(t, "items", []int{2, 1, 2}, items)
}
