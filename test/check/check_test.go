package check

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"
)

// recorder is a test that records its messages.
type recorder struct {
	failed  []string
	stopped []string
}

func (*recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) {
	r.failed = append(r.failed, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatal(args ...any) { r.stopped = append(r.stopped, fmt.Sprint(args...)) }

func TestNoError(t *testing.T) {
	var r recorder
	NoError(&r, nil)
	if len(r.stopped) > 0 {
		t.Errorf("stopped without an error: %q", r.stopped)
	}
	NoError(&r, errors.New("broken"))
	if len(r.stopped) != 1 || r.stopped[0] != "broken" {
		t.Errorf("got %q, want the error", r.stopped)
	}
}

func TestEqual(t *testing.T) {
	var r recorder
	Equal(&r, "options", []string{"hard"}, []string{"hard"})
	Equal(&r, "options", nil, []string{}, cmpopts.EquateEmpty())
	if len(r.failed) > 0 {
		t.Errorf("equal results fail: %q", r.failed)
	}
	Equal(&r, "options", []string{"hard"}, []string{"soft"})
	if len(r.failed) != 1 || !strings.HasPrefix(r.failed[0], "options (-want +got):\n") || !strings.Contains(r.failed[0], `"soft"`) {
		t.Errorf("got %q, want the name and the difference", r.failed)
	}
	if len(r.stopped) > 0 {
		t.Errorf("a difference stops the test: %q", r.stopped)
	}
}
