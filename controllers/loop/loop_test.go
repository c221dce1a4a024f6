package loop

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/storageclient/operator/controllers/store"
	"github.com/storageclient/operator/test/check"
)

func TestAPass(t *testing.T) {
	broken := errors.New("broken")
	for name, test := range map[string]struct {
		readErr, refreshErr error
		newer               bool
		want                []string
	}{
		"nothing is newer":         {want: []string{"read", "plan cached", "refresh", "apply plan of cached"}},
		"a live read is newer":     {newer: true, want: []string{"read", "plan cached", "refresh", "plan live", "apply plan of live"}},
		"the cache cannot be read": {readErr: broken, want: []string{"read"}},
		"the API server is down":   {refreshErr: broken, want: []string{"read", "plan cached", "refresh"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			log := func(what string) { got = append(got, what) }
			arm := Arm[string, string]{
				Read: func(context.Context) (string, error) { log("read"); return "cached", test.readErr },
				Plan: func(s string) string { log("plan " + s); return "plan of " + s },
				Refresh: func(context.Context, string, string) (string, bool, error) {
					log("refresh")
					return "live", test.newer, test.refreshErr
				},
				Apply: func(_ context.Context, _, planned string, _ *Outcome) { log("apply " + planned) },
			}
			clock, pace := testingclock.NewFakeClock(time.Unix(1e9, 0)), &store.Pace{}
			if _, err := arm.Run(t.Context(), pace, time.Minute, clock); (err != nil) != (test.readErr != nil || test.refreshErr != nil) {
				t.Errorf("got error %v", err)
			}
			clock.Step(20 * time.Second)
			if result, err := arm.Run(t.Context(), pace, time.Minute, clock); err != nil || result.RequeueAfter != 40*time.Second {
				t.Errorf("in the same minute: got another pass after %s, error %v; want 40s", result.RequeueAfter, err)
			}
			check.Equal(t, "result", test.want, got)
		})
	}
}

func TestOutcomes(t *testing.T) {
	const pause = 3 * time.Second
	now, a := time.Unix(1e9, 0), corev1.Resource("things")
	for name, test := range map[string]struct {
		do   func(*Outcome)
		wait time.Duration
		err  string
	}{
		"a pass that did everything waits for events": {do: func(o *Outcome) { o.Finish("a", nil); o.Wake(time.Time{}); o.WakeAfter(0) }},
		"the earliest wake-up counts": {func(o *Outcome) {
			o.Wake(now.Add(time.Hour))
			o.WakeAfter(time.Minute)
			o.Wake(now.Add(2 * time.Minute))
		}, time.Minute, ""},
		"a wake-up in the past waits for the pause": {func(o *Outcome) { o.Wake(now.Add(-time.Hour)) }, pause, ""},
		"other clients were faster": {func(o *Outcome) {
			o.Finish("a", apierrors.NewConflict(a, "a", nil))
			o.WakeAfter(time.Hour)
		}, pause, ""},
		"an error is more important than a conflict": {func(o *Outcome) {
			o.Finish("a", apierrors.NewNotFound(a, "a"))
			o.Finish("b", errors.New("broken"))
		}, 0, "broken"},
		"the API server does not serve the kind": {func(o *Outcome) { o.Finish("a", apierrors.NewNotFound(a, "")) }, 0, `things "" not found`},
		"an error that was reported before":      {func(o *Outcome) { o.Finish("b", errors.New("broken")); o.Forget("b"); o.WakeAfter(time.Minute) }, time.Minute, ""},
		"each error is named once, at most three": {func(o *Outcome) {
			for _, target := range []string{"5", "4", "3", "2", "1"} {
				o.Finish(target, errors.New("broken "+target))
			}
			o.Finish("6", errors.New("broken 2"))
		}, 0, "broken 1\nbroken 2\nbroken 3\nand 2 more errors"},
	} {
		t.Run(name, func(t *testing.T) {
			out := &Outcome{Pause: pause, Clock: testingclock.NewFakeClock(now)}
			test.do(out)
			message := ""
			result, err := out.Result()
			if err != nil {
				message = err.Error()
			}
			if result.RequeueAfter != test.wait || message != test.err {
				t.Errorf("got the next pass after %s, error %q; want %s, %q", result.RequeueAfter, message, test.wait, test.err)
			}
		})
	}
}
