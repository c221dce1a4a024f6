package text

import "testing"

func TestLarger(t *testing.T) {
	for name, test := range map[string]struct{ a, b, want string }{
		"one number":               {"212992", "16777216", "16777216"},
		"the first is larger":      {"33554432", "16777216", "33554432"},
		"each place by itself":     {"4096 131072 33554432", "4096 1048576 16777216", "4096 1048576 33554432"},
		"more digits are not less": {"9", "10", "10"},
		"tabs, as a kernel has it": {"4096\t131072\t6291456\n", "1 1 16777216", "4096 131072 16777216"},
		"nothing is known of one":  {"", "16777216", "16777216"},
		"one is no number":         {"bbr", "16777216", "16777216"},
		"one has fewer numbers":    {"5", "4 6", "5 6"},
		"both are empty":           {"", "", ""},
		"kernel.shmmax":            {"18446744073692774399", "68719476736", "18446744073692774399"},
		"more than 64 bits":        {"99999999999999999999", "1", "99999999999999999999"},
		"negative":                 {"-2", "-1", "-1"},
		"octal":                    {"010", "9", "9"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Larger(test.a, test.b); got != test.want {
				t.Errorf("Larger(%q, %q): got %q, want %q", test.a, test.b, got, test.want)
			}
			if got := Larger(test.b, test.a); got != test.want {
				t.Errorf("Larger(%q, %q): got %q, want %q", test.b, test.a, got, test.want)
			}
		})
	}
}

func TestCovers(t *testing.T) {
	for name, test := range map[string]struct {
		list, least string
		want        bool
	}{
		"equal":                   {"4096 131072", "4096\t131072\n", true},
		"more in one place":       {"4096 131073", "4096 131072", true},
		"less in one place":       {"4095 131073", "4096 131072", false},
		"fewer numbers":           {"4096", "4096 131072", false},
		"more numbers":            {"4096 131072 1", "4096 131072", false},
		"more digits are more":    {"10", "9", true},
		"kernel.shmmax":           {"18446744073692774399", "68719476736", true},
		"less than kernel.shmmax": {"68719476736", "18446744073692774399", false},
		"text":                    {"bbr", "1", false},
		"two texts":               {"bbr", "bbr", false},
		"octal":                   {"010", "8", false},
		"both are empty":          {"", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Covers(test.list, test.least); got != test.want {
				t.Errorf("Covers(%q, %q): got %t, want %t", test.list, test.least, got, test.want)
			}
		})
	}
}
