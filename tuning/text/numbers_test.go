package text

import "testing"

func TestLarger(t *testing.T) {
	for name, test := range map[string]struct{ a, b, want string }{
		"one number":                {"212992", "16777216", "16777216"},
		"the first is larger":       {"33554432", "16777216", "33554432"},
		"each place by itself":      {"4096 131072 33554432", "4096 1048576 16777216", "4096 1048576 33554432"},
		"more digits are not less":  {"9", "10", "10"},
		"tabs, as a kernel has it":  {"4096\t131072\t6291456\n", "1 1 16777216", "4096 131072 16777216"},
		"nothing is known of one":   {"", "16777216", "16777216"},
		"one is no number":          {"bbr", "16777216", "16777216"},
		"one has fewer numbers":     {"5", "4 6", "5 6"},
		"both are empty":            {"", "", ""},
		"beyond what a kernel uses": {"99999999999999999999", "1", "1"},
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
