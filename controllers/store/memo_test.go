package store

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// parity is a number that equals every number with the same parity.
type parity int

func (p parity) IsSame(newer parity) bool { return p%2 == newer%2 }

func TestMemoRecomputesAfterAChange(t *testing.T) {
	var memo Memo[parity, string]
	made := 0
	get := func(key string, from parity) string {
		return memo.Get(key, from, func() string { made++; return fmt.Sprintf("%s of %d", key, from) })
	}
	var got []string
	for _, ask := range []struct {
		key  string
		from parity
	}{{"a", 1}, {"a", 3}, {"b", 2}, {"a", 5}, {"a", 2}, {"a", 1}} {
		got = append(got, get(ask.key, ask.from))
	}
	if diff := cmp.Diff([]string{"a of 1", "a of 1", "b of 2", "a of 1", "a of 2", "a of 1"}, got); diff != "" || made != 4 {
		t.Errorf("got %d values made (-want +got):\n%s", made, diff)
	}
}

func TestMemoRemovesKeysBeyondItsLimit(t *testing.T) {
	var memo Memo[parity, int]
	memo.Limit(2)
	made := 0
	for round := range 10 {
		for _, key := range []string{"a", fmt.Sprint(round)} {
			memo.Get(key, 1, func() int { made++; return made })
		}
	}
	if stored := len(memo.pool.young) + len(memo.pool.old); made != 11 || stored > 4 {
		t.Errorf("got %d values made and %d stored, for one frequent and ten other values", made, stored)
	}
}

// near is a number that equals the next number.
type near int

func (n near) IsSame(newer near) bool { return newer-n <= 1 }

func TestMemoComparesWithTheBasisOfItsValue(t *testing.T) {
	var memo Memo[near, near]
	for from, want := range []near{0, 0, 2, 2, 4} {
		if got := memo.Get("a", near(from), func() near { return near(from) }); got != want {
			t.Errorf("%d: got the value of %d, want %d", from, got, want)
		}
	}
}

func TestALimitOfZeroKeys(t *testing.T) {
	var memo Memo[near, int]
	memo.Limit(0)
	for i := range 10 {
		memo.Get(fmt.Sprint(i), 0, func() int { return i })
	}
	if stored := len(memo.pool.young) + len(memo.pool.old); stored > 2 {
		t.Errorf("got %d values stored", stored)
	}
}
