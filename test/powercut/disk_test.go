package main

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

func TestACutLosesOnlyWhatWasNotFlushed(t *testing.T) {
	kept, lost := 0, 0
	for seed := range uint64(100) {
		d := newDisk(make([]byte, 16*block))
		d.write(3*block+100, []byte("flushed"))
		d.flush()
		// Over the edge of two blocks.
		d.write(6*block-2, []byte("cached"))
		d.write(3*block+100, []byte("newer.."))
		seen := make([]byte, 6)
		if d.read(6*block-2, seen); string(seen) != "cached" {
			t.Fatalf("before the cut: got %q", seen)
		}
		d.cut(rand.New(rand.NewPCG(seed, 0)))
		old := make([]byte, 7)
		if d.read(3*block+100, old); string(old) != "flushed" && string(old) != "newer.." {
			t.Fatalf("after the cut: got %q", old)
		}
		d.read(6*block-2, seen)
		switch {
		case string(seen) == "cached":
			kept++
		case bytes.ContainsRune(seen, 0):
			lost++
		}
	}
	if kept == 0 || lost == 0 || kept+lost != 100 {
		t.Errorf("100 cuts: got %d with an unflushed write, %d without it or a part", kept, lost)
	}
}
