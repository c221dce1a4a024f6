package workload

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/storageclient/operator/test/check"
)

// A pass ends at its limit, and the next one ends at the same place. Passes with different work are not comparable.
func TestAPassEndsAtItsBoundsAtTheSamePlaceEachTime(t *testing.T) {
	dir := directory(t, 5, 3<<20)
	check.NoError(t, os.Mkdir(filepath.Join(dir, "below"), 0o700))
	check.NoError(t, os.WriteFile(filepath.Join(dir, "below", "x"), nil, 0o600))
	for name, test := range map[string]struct {
		work    Options
		minimum Pass
		maximum Pass
	}{
		"entries of a directory": {Options{Name: ListDirectory, MaxEntries: 3}, Pass{Units: 3}, Pass{Units: 3}},
		"entries of a tree":      {Options{Name: WalkTree, MaxEntries: 4}, Pass{Units: 4}, Pass{Units: 4}},
		"all that there is":      {Options{Name: ListDirectory, MaxEntries: 20}, Pass{Units: 6}, Pass{Units: 6}},
		"files of few entries":   {Options{Name: ReadSequential, MaxEntries: 2}, Pass{Bytes: 3 << 20}, Pass{Units: 2, Bytes: 6 << 20}},
		"bytes in sequence":      {Options{Name: ReadSequential, MaxBytes: 4 << 20}, Pass{Units: 1, Bytes: 4 << 20}, Pass{Units: 2, Bytes: 5 << 20}},
		"bytes at random":        {Options{Name: ReadRandom, MaxBytes: 1 << 20}, Pass{Units: 16, Bytes: 1 << 20}, Pass{Units: 16, Bytes: 1 << 20}},
		"bytes that are written": {Options{Name: WriteSequential, MaxBytes: 1 << 20}, Pass{Units: 16, Bytes: 1 << 20}, Pass{Units: 16, Bytes: 1 << 20}},
		"bytes of half a block":  {Options{Name: WriteSequential, MaxBytes: 32 << 10}, Pass{Units: 1, Bytes: 32 << 10}, Pass{Units: 1, Bytes: 32 << 10}},
	} {
		t.Run(name, func(t *testing.T) {
			o := test.work
			o.Path, o.BlockKiB, o.AllowWrites, o.ID = dir, 64, true, "1"
			var first Pass
			for i := range 3 {
				r, err := Run(t.Context(), o)
				if err != nil || len(r.Passes) != 1 {
					t.Fatalf("%+v, %v", r, err)
				}
				p := r.Passes[0]
				p.Seconds = 0
				if i == 0 {
					first = p
				}
				if p != first {
					t.Errorf("pass %d: got %+v, want %+v as in the first pass", i, p, first)
				}
			}
			if first.Units < test.minimum.Units || first.Bytes < test.minimum.Bytes || first.Units > test.maximum.Units || first.Bytes > test.maximum.Bytes {
				t.Errorf("pass: got %+v, want %+v to %+v", first, test.minimum, test.maximum)
			}
		})
	}
}

// The server determines the order of the entries, but all passes of a run read the same ones.
func TestThePassesOfARunDoTheSame(t *testing.T) {
	dir := directory(t, 5, 1<<20)
	r, err := Run(t.Context(), Options{Name: ReadSequential, Path: dir, MaxEntries: 3, MaxBytes: 2 << 20, For: 50 * time.Millisecond})
	if err != nil || len(r.Passes) < 2 {
		t.Fatalf("got %d passes, error %v", len(r.Passes), err)
	}
	for _, p := range r.Passes {
		if p.Units != r.Passes[0].Units || p.Bytes != 2<<20 {
			t.Errorf("pass: got %+v, want %+v as in the first pass", p, r.Passes[0])
		}
	}
}
