package catalogue

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/storageclient/operator/test/check"
)

// Values that the kernel accepts but that break a node are rejected with a valid value. Values that are only unwise are not.
func TestFloors(t *testing.T) {
	for name, test := range map[string]struct {
		key, value, want string // want is a part of the rejection; empty: applied
	}{
		"receive buffers of a byte":            {"sysctl/net.ipv4.tcp_rmem", "1 1 1", "number 2 must be at least 2304 bytes: new connections carry no data"},
		"receive buffers under one packet":     {"sysctl/net.ipv4.tcp_rmem", "1000 1000 1000", "the kernel's default is 4096 131072 6291456"},
		"a maximum under one packet":           {"sysctl/net.ipv4.tcp_rmem", "1 2304 2303", "may be smaller"},
		"receive buffers of one packet":        {"sysctl/net.ipv4.tcp_rmem", "1 2304 2304", ""},
		"send buffers of a byte":               {"sysctl/net.ipv4.tcp_wmem", "1 1 1", "number 2 must be at least 4608 bytes"},
		"send buffers that the kernel gives":   {"sysctl/net.ipv4.tcp_wmem", "1 4608 4608", ""},
		"no memory for TCP":                    {"sysctl/net.ipv4.tcp_mem", "0 0 0", "number 1 must be at least 3072 pages"},
		"little memory for TCP in the end":     {"sysctl/net.ipv4.tcp_mem", "3072 4096 6143", "number 3 must be at least 6144 pages"},
		"the memory that a guide has":          {"sysctl/net.ipv4.tcp_mem", "4096 89600 4194304", ""},
		"one port":                             {"sysctl/net.ipv4.ip_local_port_range", "1024 1024", "must be a range of at least 256"},
		"a range of 255 ports":                 {"sysctl/net.ipv4.ip_local_port_range", "61000 61254", "the kernel's default is 32768 60999"},
		"a range of 256 ports":                 {"sysctl/net.ipv4.ip_local_port_range", "61000 61255", ""},
		"a queue of one packet":                {"sysctl/net.core.netdev_max_backlog", "1", "must be at least 64 packets: the kernel processes 64 packets at a time"},
		"a queue of one round":                 {"sysctl/net.core.netdev_max_backlog", "64", ""},
		"no memory for what is to be written":  {"sysctl/vm.dirty_ratio", "0", "must be at least 1 percent of available memory: with 0 every write waits"},
		"a percent for what is to be written":  {"sysctl/vm.dirty_ratio", "1", ""},
		"writing back at once":                 {"sysctl/vm.dirty_background_ratio", "0", ""},
		"no write-back by time":                {"sysctl/vm.dirty_writeback_centisecs", "0", ""},
		"an inode hash of 1024 buckets":        {"kernelArgument/ihash_entries", "1024", "must be at least 16384 buckets of 8 bytes: this is the kernel's default"},
		"an inode hash of a very small node":   {"kernelArgument/ihash_entries", "16384", ""},
		"a name hash under a small node's":     {"kernelArgument/dhash_entries", "32767", "must be at least 32768"},
		"a receive buffer that no kernel sets": {"sysctl/net.core.rmem_max", "2303", "2304 to"},
		"the least that a kernel sets":         {"sysctl/net.core.rmem_max", "2304", ""},
		"two slots":                            {"module/sunrpc/tcp_max_slot_table_entries", "2", ""},
		"read-ahead of a page":                 {"readAhead/nfs4", "4", ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := AllowList{}.Check(test.key, test.value)
			switch {
			case test.want == "" && err != nil:
				t.Errorf("got a rejection: %v", err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("got %v, want %q in it", err, test.want)
			}
		})
	}
}

// An allow-list lifts a floor only if its pattern matches the value, not only the key.
func TestOnlyAnAllowedValuePassesTheFloor(t *testing.T) {
	const key, value = "sysctl/net.ipv4.tcp_rmem", "1 1 1"
	for pattern, admitted := range map[string]bool{
		"sysctl/net[.]ipv4[.]tcp_rmem=1 1 1":    true,
		"sysctl/net[.]ipv4[.]tcp_rmem=.*":       true,
		"sysctl/net[.]ipv4[.]tcp_rmem":          false,
		".*":                                    false,
		"sysctl/[^=]+":                          false,
		"sysctl/net[.]ipv4[.]tcp_wmem=1 1 1":    false,
		"sysctl/net[.]ipv4[.]tcp_rmem=1 1":      false,
		"sysctl/net[.]ipv4[.]tcp_rmem=1 1 1 1?": false,
	} {
		allow, err := NewAllowList([]string{pattern})
		check.NoError(t, err)
		if err := allow.Check(key, value); (err == nil) != admitted {
			t.Errorf("%s: got %v, want it accepted: %v", pattern, err, admitted)
		}
	}
	allow, err := NewAllowList([]string{"sysctl/net[.]ipv4[.]tcp_rmem=.*"})
	check.NoError(t, err)
	for _, never := range []string{"0 0 0", "1 1", "3 2 1", "1 1 1;reboot"} {
		if allow.Check(key, never) == nil {
			t.Errorf("got %q accepted, which the kernel rejects", never)
		}
	}
}

// A value that an earlier release applied stays even if this release rejects it.
func TestAnEffectiveValueMayBeBelowTheFloor(t *testing.T) {
	if err := (AllowList{}).CheckApplied("sysctl/net.ipv4.tcp_rmem", "1 1 1"); err != nil {
		t.Error(err)
	}
	if (AllowList{}).CheckApplied("sysctl/net.ipv4.tcp_rmem", "1 1") == nil || (AllowList{}).CheckApplied("sysctl/kernel.core_pattern", "x") == nil {
		t.Error("got a value accepted that no release applied")
	}
}

// An earlier release applied hugepagesz if the administrator permits it.
func TestAnAppliedHugepageszStays(t *testing.T) {
	allow, err := NewAllowList([]string{"kernelArgument/hugepagesz"})
	check.NoError(t, err)
	check.NoError(t, allow.CheckApplied("kernelArgument/hugepagesz", "1G"))
	if allow.Check("kernelArgument/hugepagesz", "1G") == nil || (AllowList{}).CheckApplied("kernelArgument/hugepagesz", "1G") == nil {
		t.Error("got hugepagesz accepted in a new declaration, or without permission")
	}
}

// All accepted values of a bounded parameter are within its bounds.
func TestNothingBelowAFloorIsAccepted(t *testing.T) {
	var bounded []Parameter
	for _, p := range All() {
		if len(p.Least) > 0 || p.LeastSpan > 0 {
			bounded = append(bounded, p)
		}
		if (len(p.Least) > 0 || p.LeastSpan > 0) != (p.LeastReason != "") || (len(p.Low) > 0) != (p.LowHazard != "") {
			t.Errorf("%s: got a bound without a reason, or a reason without a bound", p.Key)
		}
		if len(p.Least) > max(1, p.Fields) || len(p.Low) > max(1, p.Fields) {
			t.Errorf("%s: got more bounds than numbers", p.Key)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.SampledFrom(bounded).Draw(t, "parameter")
		numbers := rapid.SliceOfN(rapid.OneOf(rapid.Int64Range(0, 8192), rapid.Int64Range(0, 1<<31)), max(1, p.Fields), max(1, p.Fields)).Draw(t, "numbers")
		if (AllowList{}).Check(p.Key, join(numbers)) != nil {
			return
		}
		for i, minimum := range p.Least {
			if numbers[i] < minimum {
				t.Fatalf("got %s=%s accepted", p.Key, join(numbers))
			}
		}
		if p.LeastSpan > 0 && numbers[1]-numbers[0] < p.LeastSpan-1 {
			t.Fatalf("got %s=%s accepted", p.Key, join(numbers))
		}
	})
}
