package catalogue

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/storageclient/operator/test/check"
)

const (
	mib = 1 << 20
	gib = 1 << 30
	tib = 1 << 40
)

func TestHashSize(t *testing.T) {
	for name, test := range map[string]struct {
		argument         string
		requested        int64
		memory, pageSize int64
		want             HashGrant
	}{
		"the Azure Files guide's value with 4 GiB is granted": {"ihash_entries", 16777216, 4*gib - 180*mib, 4096,
			HashGrant{Granted: 16777216, Default: 262144, Largest: 16777216}},
		"the Azure Files guide's value with 2.5 GiB is granted": {"ihash_entries", 16777216, 2560*mib - 130*mib, 4096,
			HashGrant{Granted: 16777216, Default: 262144, Largest: 16777216}},
		"the Azure Files guide's value with 1.5 GB is halved": {"ihash_entries", 16777216, 1400 * mib, 4096,
			HashGrant{Granted: 8388608, Default: 131072, Largest: 8388608, Clamped: true}},
		"the Azure Files guide's value with 2 GiB is too close to the edge": {"ihash_entries", 16777216, 2 * gib, 4096,
			HashGrant{Granted: 8388608, Default: 131072, Largest: 8388608, Clamped: true}},
		"a value between powers is rounded up": {"ihash_entries", 1000000, 4 * gib, 4096,
			HashGrant{Granted: 1048576, Default: 262144, Largest: 16777216}},
		"one more than a power doubles": {"ihash_entries", 1048577, 4 * gib, 4096,
			HashGrant{Granted: 2097152, Default: 262144, Largest: 16777216}},
		"a power of two stays": {"ihash_entries", 1048576, 4 * gib, 4096,
			HashGrant{Granted: 1048576, Default: 262144, Largest: 16777216}},
		"rounding up counts before the limit": {"ihash_entries", 16777217, 4 * gib, 4096,
			HashGrant{Granted: 16777216, Default: 262144, Largest: 16777216, Clamped: true}},
		"the directory cache has twice the buckets": {"dhash_entries", 16777216, 4 * gib, 4096,
			HashGrant{Granted: 16777216, Default: 524288, Largest: 16777216}},
		"an unset size is the default": {"ihash_entries", 0, 4 * gib, 4096,
			HashGrant{Granted: 262144, Default: 262144, Largest: 16777216}},
		"a 64 KiB page changes nothing": {"ihash_entries", 16777216, 4 * gib, 65536,
			HashGrant{Granted: 16777216, Default: 262144, Largest: 16777216}},
		"more than any kernel makes": {"ihash_entries", 1 << 40, 1024 * tib, 4096,
			HashGrant{Granted: 1 << 31, Default: 536870912, Largest: 1 << 31, Clamped: true}},
		"a very small machine": {"ihash_entries", 1024, mib, 4096,
			HashGrant{Granted: 1024, Default: 512, Largest: 4096}},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := HashSize(test.argument, test.requested, test.memory, test.pageSize)
			if !ok {
				t.Fatal("got no result")
			}
			check.Equal(t, "result", test.want, got)
		})
	}
}

func TestHashSizeDefaults(t *testing.T) {
	for memory, want := range map[int64]int64{
		1536 * mib: 131072, 4 * gib: 262144, 16 * gib: 1048576, 24 * gib: 2097152, 64 * gib: 4194304, 128 * gib: 4194304,
		256 * gib: 8388608, 512 * gib: 8388608, tib: 16777216, 2 * tib: 16777216, 4 * tib: 33554432,
	} {
		if got, _ := HashSize("ihash_entries", 0, memory, 4096); got.Default != want {
			t.Errorf("with %d MiB: got default %d, want %d", memory/mib, got.Default, want)
		}
	}
}

func TestHashSizeKnowsItsLimits(t *testing.T) {
	for name, args := range map[string][3]int64{
		"no memory": {1024, 0, 4096}, "no page size": {1024, gib, 0}, "a negative request": {-1, gib, 4096},
	} {
		if got, ok := HashSize("ihash_entries", args[0], args[1], args[2]); ok {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if got, ok := HashSize("quiet", 1024, gib, 4096); ok {
		t.Errorf("got %+v for an argument that does not set the size of a table", got)
	}
}

func TestHashSizeProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		memory := rapid.Int64Range(64*mib, 16*tib).Draw(t, "memory")
		requested := rapid.Int64Range(1, 1<<40).Draw(t, "requested")
		got, ok := HashSize("ihash_entries", requested, memory, 4096)
		if !ok {
			t.Fatal("got no result")
		}
		if got.Granted&(got.Granted-1) != 0 || got.Default&(got.Default-1) != 0 || got.Largest&(got.Largest-1) != 0 {
			t.Fatalf("got sizes that are not powers of two: %+v", got)
		}
		if got.Clamped == (got.Granted >= requested) {
			t.Fatalf("got a contradiction of Clamped and Granted: %+v", got)
		}
		if got.Granted*8 > memory/16 {
			t.Fatalf("got %d buckets, which use more than 1/16 of %d bytes", got.Granted, memory)
		}
		again, _ := HashSize("ihash_entries", got.Largest, memory, 4096)
		if again.Clamped || again.Granted != got.Largest {
			t.Fatalf("got the largest possible value clamped: %+v", again)
		}
	})
}
