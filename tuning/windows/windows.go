// Package windows knows when a rollout's windows are open. It has no clock.
//
// A window begins by the clock on the wall of its time zone and lasts a number of real seconds. Where the clock is put
// forward, a beginning that it skips is the moment that it skips to; where it is put back, a beginning that comes twice
// counts once, the first time. A schedule of every hour (hour field *) follows real hours.
package windows

import (
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // The manager's image holds no time zone database.

	"github.com/robfig/cron/v3"

	"github.com/storageclient/operator/api/v1alpha1"
)

// parser takes the five fields of cron. Forms beyond them, @daily or seconds, are refused.
var parser = cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)

// everyHour is the bit that the parser sets in a field that is *.
const everyHour = 1 << 63

// Window is a window that can be asked.
type Window struct {
	schedule *cron.SpecSchedule
	zone     *time.Location
	length   time.Duration
}

// Set is the union of windows. An empty one is open at all times.
type Set []Window

// FieldError is what is wrong with a field of a window.
type FieldError struct {
	// Field is schedule or timeZone.
	Field string
	// Value is what the window says.
	Value string
	// Reason says what would be right.
	Reason string
}

func (e *FieldError) Error() string { return fmt.Sprintf("%s %q: %s", e.Field, e.Value, e.Reason) }

// ParseSet reads all windows of a profile; the error names the first that cannot be read.
func ParseSet(list []v1alpha1.Window) (Set, error) {
	var out Set
	for i, item := range list {
		window, err := Parse(item)
		if err != nil {
			return nil, fmt.Errorf("windows[%d].%w", i, err)
		}
		out = append(out, window)
	}
	return out, nil
}

// Parse reads a window. The error is a *FieldError.
func Parse(in v1alpha1.Window) (Window, error) {
	zone, err := zoneOf(in.TimeZone)
	if err != nil {
		return Window{}, err
	}
	schedule, err := scheduleOf(in.Schedule)
	if err != nil {
		return Window{}, err
	}
	return Window{schedule: schedule, zone: zone, length: time.Duration(in.DurationSeconds) * time.Second}, nil
}

// zoneOf refuses Local: nobody who reads a profile knows where the manager runs.
func zoneOf(name string) (*time.Location, error) {
	zone, err := time.LoadLocation(name)
	if err != nil || name == "Local" {
		return nil, &FieldError{"timeZone", name, "is not in the IANA time zone database: use a name such as Europe/Berlin, or leave it out for UTC"}
	}
	return zone, nil
}

func scheduleOf(spec string) (*cron.SpecSchedule, error) {
	refuse := func(reason string) error { return &FieldError{"schedule", spec, reason} }
	if strings.Contains(spec, "TZ=") {
		return nil, refuse("set the time zone in the field timeZone")
	}
	parsed, err := parser.Parse(spec)
	if err != nil {
		return nil, refuse(fmt.Sprintf("must be five cron fields (minute 0-59, hour 0-23, day of month 1-31, month 1-12, "+
			`day of week 0-6, 0 is Sunday), such as "0 2 * * 6": %v`, err))
	}
	schedule, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return nil, refuse("must be five cron fields")
	}
	schedule.Location = time.UTC
	// Any leap year will do: within five years there is one.
	if schedule.Next(time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return nil, refuse("never opens: there is no such day in the calendar")
	}
	return schedule, nil
}

// At reports whether a window is open, and when to ask again: while one is open, when that may end; otherwise when the
// nextOpening one opens. Zero: never.
func (s Set) At(now time.Time) (open bool, again time.Time) {
	if len(s) == 0 {
		return true, time.Time{}
	}
	for _, w := range s {
		start := w.nextOpening(now.Add(-w.length))
		switch {
		case start.IsZero():
		case !start.After(now):
			if end := start.Add(w.length); !open || end.After(again) {
				open, again = true, end
			}
		case !open && (again.IsZero() || start.Before(again)):
			again = start
		}
	}
	return open, again
}

// nextOpening is the first beginning after a time; zero: none.
func (w Window) nextOpening(t time.Time) time.Time {
	if w.schedule.Hour&everyHour != 0 {
		schedule := *w.schedule
		schedule.Location = w.zone
		return schedule.Next(t)
	}
	// Where the clock has been put back, what it shows comes a second time: beginnings that are over are passed over.
	for wall := w.schedule.Next(wallClock(t.In(w.zone))); !wall.IsZero(); wall = w.schedule.Next(wall) {
		if start := w.timeOf(wall); start.After(t) {
			return start
		}
	}
	return time.Time{}
}

// wallClock is what the clock shows, as if it were UTC.
func wallClock(t time.Time) time.Time {
	return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), time.UTC)
}

// timeOf is when the clock first shows a time, or shows a later one.
func (w Window) timeOf(wall time.Time) time.Time {
	// The offsets of the day before and of the day after are those on either side of a change.
	_, before := wall.AddDate(0, 0, -1).In(w.zone).Zone()
	_, after := wall.AddDate(0, 0, 1).In(w.zone).Zone()
	first := wall.Add(-time.Duration(before) * time.Second).In(w.zone)
	second := wall.Add(-time.Duration(after) * time.Second).In(w.zone)
	switch {
	case wallClock(first).Equal(wall):
		return first
	case wallClock(second).Equal(wall):
		return second
	}
	// The clock skips it: read by the old offset it lies behind the change.
	change, _ := first.ZoneBounds()
	return change
}

// maxMeetings bounds the search for a time at which several sets are open.
const maxMeetings = 1000

// Meet reports whether all sets are open, and when to ask again: while they are, when that may end; otherwise when they
// nextOpening are. Zero: never, as far as the next thousand openings tell.
func Meet(sets []Set, now time.Time) (open bool, again time.Time) {
	open, again = areAllOpen(sets, now)
	if open {
		return true, again
	}
	for range maxMeetings {
		if again.IsZero() {
			return false, again
		}
		at := again
		if open, again = areAllOpen(sets, at); open {
			return false, at
		}
	}
	return false, time.Time{}
}

// areAllOpen is the earliest end where all sets are open, else the latest of the next openings of those that are not.
func areAllOpen(sets []Set, now time.Time) (open bool, again time.Time) {
	open = true
	for _, s := range sets {
		o, at := s.At(now)
		switch {
		case !o && at.IsZero():
			return false, at
		case !o && (open || at.After(again)):
			open, again = false, at
		case o && open && !at.IsZero() && (again.IsZero() || at.Before(again)):
			again = at
		}
	}
	return open, again
}
