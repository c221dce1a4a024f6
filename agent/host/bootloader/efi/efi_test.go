package efi_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/storageclient/operator/agent/host/bootloader/bls"
	"github.com/storageclient/operator/agent/host/bootloader/efi"
	"github.com/storageclient/operator/agent/host/bootloader/loader"
	"github.com/storageclient/operator/agent/host/hosttest"
	"github.com/storageclient/operator/agent/host/hosttest/rig"
)

// The real order is in systemd-boot's source. Versions are compared with the real systemd-analyze.
func TestOrderOfSystemdBoot(t *testing.T) {
	m := rig.NewSystemdBoot(t)
	run := hosttest.Tool(t, m.Dir, "systemd-analyze")
	versions := []string{"6.12.9", "6.12.10", "6.12.9-1", "6.12.9~rc1", "6.12.9+1", "6.12.9^1", "6.12.9.1", "6.12.9a", "6.12.9_a", "7", "", "a", "B", "06.12", "6.012",
		rig.SystemdToken, bls.OnceID, "debian-6.1", "0-rescue"}
	for _, a := range versions {
		for _, b := range versions {
			if a == "" || b == "" {
				continue
			}
			out := run("compare-versions", a, b)
			signs := map[string]int{"<": -1, "==": 0, ">": 1}
			words := strings.Fields(out)
			if len(words) != 3 {
				t.Fatalf("systemd-analyze: %q", out)
			}
			want := signs[words[1]]
			if got := strings.Compare(efi.SystemdVersion(a), efi.SystemdVersion(b)); got != want {
				t.Errorf("%s and %s: got %d, systemd-analyze has %q", a, b, got, out)
			}
		}
	}
	entry := func(id, text string) *loader.Entry { return &loader.Entry{ID: id, File: id + ".conf", Text: text} }
	order := []*loader.Entry{
		entry("z", "sort-key arch\nversion 1\n"), entry("m-6.12.10", "sort-key debian\nmachine-id 1\nversion 6.12.10\n"),
		entry("m-6.12.9", "sort-key debian\nmachine-id 1\nversion 6.12.9\n"), entry("n-7", "sort-key debian\nmachine-id 2\nversion 7\n"),
		entry("0-rescue", ""), entry("zz", ""), entry(bls.OnceID, "version 0\n"),
	}
	shuffled := slices.Clone(order)
	slices.Reverse(shuffled)
	slices.SortStableFunc(shuffled, efi.Tool{}.Compare)
	for i := range order {
		if shuffled[i] != order[i] {
			t.Errorf("place %d: got %s, want %s", i, shuffled[i].ID, order[i].ID)
		}
	}
}
