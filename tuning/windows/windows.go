// Package windows computes the times at which a rollout's windows are open. It does not access the clock.
//
// A window starts at a local time in its time zone and lasts a number of real seconds. If the local time skips the start (daylight
// saving time starts), the window starts at the change. If the start occurs twice (daylight saving time ends), only the first one
// counts. Hourly schedules (hour field *) follow real hours.
package windows

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // The manager's image does not contain a time zone database.

	"github.com/robfig/cron/v3"

	"github.com/storageclient/operator/api/v1alpha1"
)

// parser accepts the five fields of cron. It rejects other forms, such as @daily or seconds.
var parser = cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)

// everyValue is the bit that the parser sets for a field with *.
const everyValue = 1 << 63

// Window is a parsed window.
type Window struct {
	schedule *cron.SpecSchedule
	zone     *time.Location
	length   time.Duration
}

// Set is the union of windows. An empty set is always open.
type Set []Window

// FieldError is an error in a field of a window.
type FieldError struct {
	// Field is schedule or timeZone.
	Field string
	// Value is the value of the field.
	Value string
	// Reason describes the correct form.
	Reason string
}

func (e *FieldError) Error() string { return fmt.Sprintf("%s %q: %s", e.Field, e.Value, e.Reason) }

// ParseSet parses all windows of a profile. The error names the first invalid window.
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

// Parse parses a window. The error is a *FieldError.
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

// zoneOf rejects Local because readers of a profile do not know the location of the manager.
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
	// Any leap year works: the search covers five years, which include a leap year.
	if schedule.Next(time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return nil, refuse("never opens: there is no such day in the calendar")
	}
	return schedule, nil
}

// EitherDay describes the days of a window whose schedule sets both the day of the month and the day of the week. Cron then opens it on each day that
// matches either field. It is empty if at most one field is set.
func (w Window) EitherDay() string {
	if (w.schedule.Dom|w.schedule.Dow)&everyValue != 0 {
		return ""
	}
	var days, weekdays []string
	for day := 1; day <= 31; day++ {
		if w.schedule.Dom&(1<<day) != 0 {
			days = append(days, strconv.Itoa(day))
		}
	}
	for day := time.Sunday; day <= time.Saturday; day++ {
		if w.schedule.Dow&(1<<day) != 0 {
			weekdays = append(weekdays, day.String())
		}
	}
	return fmt.Sprintf("on each of the days %s of a month, and on every %s", strings.Join(days, ", "), strings.Join(weekdays, ", "))
}

// At reports whether a window is open, and the time of the next check. While a window is open, this is the earliest possible end,
// otherwise the next opening. Zero if there is none.
func (s Set) At(now time.Time) (open bool, nextCheck time.Time) {
	if len(s) == 0 {
		return true, time.Time{}
	}
	for _, w := range s {
		start := w.nextOpening(now.Add(-w.length))
		switch {
		case start.IsZero():
		case !start.After(now):
			if end := start.Add(w.length); !open || end.After(nextCheck) {
				open, nextCheck = true, end
			}
		case !open && (nextCheck.IsZero() || start.Before(nextCheck)):
			nextCheck = start
		}
	}
	return open, nextCheck
}

// nextOpening returns the first opening after a time. Zero if there is none.
func (w Window) nextOpening(t time.Time) time.Time {
	if w.schedule.Hour&everyValue != 0 {
		return w.nextRealHour(t)
	}
	// After a change back, local times occur a second time: skip openings in the past.
	for wall := w.schedule.Next(wallClock(t.In(w.zone))); !wall.IsZero(); wall = w.schedule.Next(wall) {
		if start := w.timeOf(wall); start.After(t) {
			return start
		}
	}
	return time.Time{}
}

// nextRealHour returns the first opening of an hourly schedule after a time. Between two changes of the clock, local time and real time advance
// equally. cron's own search in a zone misses the rest of a day whose midnight the clock skips.
func (w Window) nextRealHour(t time.Time) time.Time {
	at, after := t, wallClock(t.In(w.zone))
	for {
		next := w.schedule.Next(after)
		if next.IsZero() {
			return next
		}
		local := at.In(w.zone)
		start := at.Add(next.Sub(wallClock(local)))
		_, change := local.ZoneBounds()
		if change.IsZero() || start.Before(change) {
			return start
		}
		// An opening at the change itself counts.
		at, after = change, wallClock(change.In(w.zone)).Add(-time.Nanosecond)
	}
}

// wallClock returns the local time as if it were UTC.
func wallClock(t time.Time) time.Time {
	return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), time.UTC)
}

// timeOf returns the first time at which the local time is wall or later.
func (w Window) timeOf(wall time.Time) time.Time {
	// The offsets of the previous and the next day are the offsets before and after a change.
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
	// The local time skips wall: with the old offset, it is after the change.
	change, _ := first.ZoneBounds()
	return change
}

// maxMeetings limits the search for a time at which several sets are open.
const maxMeetings = 1000

// Meet reports whether all sets are open, and the time of the next check. While they are open, this is the earliest possible end,
// otherwise the next time at which all are open. Zero if there is none within the next thousand openings.
func Meet(sets []Set, now time.Time) (open bool, nextCheck time.Time) {
	open, nextCheck = areAllOpen(sets, now)
	if open {
		return true, nextCheck
	}
	for range maxMeetings {
		if nextCheck.IsZero() {
			return false, nextCheck
		}
		at := nextCheck
		if open, nextCheck = areAllOpen(sets, at); open {
			return false, at
		}
	}
	return false, time.Time{}
}

// areAllOpen returns the earliest end if all sets are open, otherwise the latest next opening of the closed sets.
func areAllOpen(sets []Set, now time.Time) (open bool, nextCheck time.Time) {
	open = true
	for _, s := range sets {
		o, at := s.At(now)
		switch {
		case !o && at.IsZero():
			return false, at
		case !o && (open || at.After(nextCheck)):
			open, nextCheck = false, at
		case o && open && !at.IsZero() && (nextCheck.IsZero() || at.Before(nextCheck)):
			nextCheck = at
		}
	}
	return open, nextCheck
}
