package suggest

import "testing"

func TestClosest(t *testing.T) {
	names := []string{
		"sunrpc.tcp_max_slot_table_entries", "sunrpc.tcp_slot_table_entries", "net.core.rmem_max", "net.ipv4.tcp_rmem",
		"ihash_entries", "dhash_entries", "nconnect", "nocto", "cto",
	}
	for name, test := range map[string]struct{ word, want string }{
		"two letters swapped":                     {"sunrpc.tpc_max_slot_table_entries", "sunrpc.tcp_max_slot_table_entries"},
		"the same parts in another order":         {"sunrpc.max_tcp_slot_table_entries", "sunrpc.tcp_max_slot_table_entries"},
		"the wrong part of the tree":              {"net.core.tcp_rmem", "net.ipv4.tcp_rmem"},
		"the singular":                            {"ihash_entry", "ihash_entries"},
		"a letter missing":                        {"nconect", "nconnect"},
		"nothing near":                            {"kernel.sysrq", ""},
		"a known name needs no suggestion":        {"nocto", ""},
		"an empty word is near nothing long":      {"", ""},
		"an overlong word is near nothing either": {"net.core.rmem_max.and.then.some.more.of.it", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := Closest(test.word, names)
			if got != test.want || ok != (test.want != "") {
				t.Errorf("Closest(%q): got %q, %v; want %q", test.word, got, ok, test.want)
			}
		})
	}
}
