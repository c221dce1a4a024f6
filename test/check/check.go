// Package check has the two checks that most tests make.
package check

import "github.com/google/go-cmp/cmp"

// T is a test: a T, B or F of package testing, or a T of package rapid.
type T interface {
	Helper()
	Errorf(format string, args ...any)
	Fatal(args ...any)
}

// NoError stops the test if there is an error.
func NoError(t T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Equal fails the test, and continues it, if a result differs from the expected one. The message names the result and shows the difference.
func Equal[V any](t T, name string, want, got V, options ...cmp.Option) {
	t.Helper()
	if diff := cmp.Diff(want, got, options...); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}
