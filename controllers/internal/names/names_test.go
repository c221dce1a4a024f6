package names

import "testing"

func TestList(t *testing.T) {
	for name, test := range map[string]struct {
		in   []string
		want string
	}{
		"nothing":                       {nil, ""},
		"three are named, in order":     {[]string{"c", "a", "b"}, "a, b, c"},
		"of more, the rest are counted": {[]string{"d", "c", "a", "e", "b"}, "a, b, c and 2 more"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := List(test.in); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
