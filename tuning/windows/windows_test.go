package windows

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

func window(schedule string, length time.Duration, zone string) v1alpha1.Window {
	return v1alpha1.Window{Schedule: schedule, DurationSeconds: int32(length / time.Second), TimeZone: zone}
}

func set(t *testing.T, list ...v1alpha1.Window) Set {
	t.Helper()
	out, err := ParseSet(list)
	check.NoError(t, err)
	return out
}

func timeOf(t *testing.T, text string) time.Time {
	t.Helper()
	if text == "" {
		return time.Time{}
	}
	at, err := time.Parse(time.RFC3339, text)
	check.NoError(t, err)
	return at
}

func TestAt(t *testing.T) {
	const berlin = "Europe/Berlin"
	saturday := window("0 2 * * 6", 4*time.Hour, berlin)
	night := window("0 22 * * *", 4*time.Hour, "")
	for name, test := range map[string]struct {
		windows []v1alpha1.Window
		now     string
		open    bool
		again   string
	}{
		"no windows are open at all times":           {nil, "2026-09-01T12:00:00Z", true, ""},
		"the next opening is returned, in real time": {[]v1alpha1.Window{saturday}, "2026-09-01T12:00:00Z", false, "2026-09-05T00:00:00Z"},
		"in winter it is an hour later":              {[]v1alpha1.Window{saturday}, "2026-12-01T12:00:00Z", false, "2026-12-05T01:00:00Z"},
		"it opens on the second":                     {[]v1alpha1.Window{saturday}, "2026-09-05T00:00:00Z", true, "2026-09-05T04:00:00Z"},
		"and not before":                             {[]v1alpha1.Window{saturday}, "2026-09-04T23:59:59Z", false, "2026-09-05T00:00:00Z"},
		"it closes on the second":                    {[]v1alpha1.Window{saturday}, "2026-09-05T04:00:00Z", false, "2026-09-12T00:00:00Z"},
		"and not before that either":                 {[]v1alpha1.Window{saturday}, "2026-09-05T03:59:59Z", true, "2026-09-05T04:00:00Z"},
		"a window continues after midnight":          {[]v1alpha1.Window{night}, "2026-09-02T01:00:00Z", true, "2026-09-02T02:00:00Z"},
		"several are a union":                        {[]v1alpha1.Window{saturday, night}, "2026-09-05T00:30:00Z", true, "2026-09-05T04:00:00Z"},
		"of several the next opening is the first":   {[]v1alpha1.Window{saturday, night}, "2026-09-01T12:00:00Z", false, "2026-09-01T22:00:00Z"},
		"29 February comes in a leap year":           {[]v1alpha1.Window{window("0 0 29 2 *", time.Hour, "")}, "2026-09-01T12:00:00Z", false, "2028-02-29T00:00:00Z"},
		"names of days and months":                   {[]v1alpha1.Window{window("0 0 * oct sun", time.Hour, "")}, "2026-09-01T12:00:00Z", false, "2026-10-04T00:00:00Z"},
		"week-long windows":                          {[]v1alpha1.Window{window("0 0 1 * *", 168*time.Hour, "")}, "2026-09-07T23:00:00Z", true, "2026-09-08T00:00:00Z"},
		"a window of every minute":                   {[]v1alpha1.Window{window("* * * * *", time.Minute, berlin)}, "2026-10-25T01:30:30Z", true, "2026-10-25T01:31:00Z"},
		"a skipped beginning is when the clock has":  {[]v1alpha1.Window{window("30 2 * * *", time.Hour, berlin)}, "2026-03-28T12:00:00Z", false, "2026-03-29T01:00:00Z"},
		"and lasts as long as ever":                  {[]v1alpha1.Window{window("30 2 * * *", time.Hour, berlin)}, "2026-03-29T01:59:59Z", true, "2026-03-29T02:00:00Z"},
		"a beginning that comes twice: the first":    {[]v1alpha1.Window{window("30 2 * * *", time.Hour, berlin)}, "2026-10-24T12:00:00Z", false, "2026-10-25T00:30:00Z"},
		"and not the second":                         {[]v1alpha1.Window{window("30 2 * * *", 10*time.Minute, berlin)}, "2026-10-25T00:45:00Z", false, "2026-10-26T01:30:00Z"},
		"nor during it":                              {[]v1alpha1.Window{window("30 2 * * *", 10*time.Minute, berlin)}, "2026-10-25T01:35:00Z", false, "2026-10-26T01:30:00Z"},
		"a window over a change lasts real seconds":  {[]v1alpha1.Window{window("0 1 * * *", 4*time.Hour, berlin)}, "2026-03-29T03:59:59Z", true, "2026-03-29T04:00:00Z"},
		"where midnight is skipped":                  {[]v1alpha1.Window{window("0 0 * * *", time.Hour, "America/Santiago")}, "2026-09-05T12:00:00Z", false, "2026-09-06T04:00:00Z"},
		"a change of half an hour":                   {[]v1alpha1.Window{window("15 2 * * *", time.Hour, "Australia/Lord_Howe")}, "2026-10-03T14:00:00Z", false, "2026-10-03T15:30:00Z"},
	} {
		t.Run(name, func(t *testing.T) {
			open, again := set(t, test.windows...).At(timeOf(t, test.now))
			if open != test.open || !again.Equal(timeOf(t, test.again)) {
				t.Errorf("got open %t, next check %s; want %t, %s", open, again.UTC().Format(time.RFC3339), test.open, test.again)
			}
		})
	}
}

// TestAtAgreesWithItsNextCheck walks through the changes of a year: the result does not change before the next check.
func TestAtAgreesWithItsNextCheck(t *testing.T) {
	for _, zone := range []string{"", "Europe/Berlin", "America/Sao_Paulo", "Australia/Lord_Howe", "America/Santiago"} {
		s := set(t, window("30 2 * * 0", 3*time.Hour, zone), window("0 23 * * 6", 5*time.Hour, zone), window("45 * 1 * *", 20*time.Minute, zone))
		now := timeOf(t, "2026-01-01T00:00:00Z")
		for end := now.AddDate(1, 0, 0); now.Before(end); {
			open, again := s.At(now)
			if !again.After(now) {
				t.Fatalf("%s: at %s: got the next check at %s", zone, now, again)
			}
			if still, _ := s.At(again.Add(-time.Second)); still != open {
				t.Fatalf("%s: got open %t at %s, and not one second before %s", zone, open, now, again)
			}
			if next, _ := s.At(again); !open && !next {
				t.Fatalf("%s: got closed at %s, want open as reported at %s", zone, again, now)
			}
			now = again
		}
	}
}

// The clock skips midnight of the day, or an hour of it. An hourly window opens at every real hour of the day, as a walk over all minutes shows.
func TestHourlyWindowsOpenOnADayWithAChange(t *testing.T) {
	for zone, test := range map[string]struct{ schedule, day string }{
		"Africa/Cairo":        {"0 * * * 5", "2026-04-24T00:00:00Z"},
		"Asia/Beirut":         {"0 * * * 0", "2026-03-29T00:00:00Z"},
		"America/Santiago":    {"0 * * * 0", "2026-09-06T00:00:00Z"},
		"Atlantic/Azores":     {"*/20 * * * 0", "2026-03-29T00:00:00Z"},
		"America/Havana":      {"0 * * * 0", "2026-11-01T00:00:00Z"},
		"Australia/Lord_Howe": {"15,45 * * * 0", "2026-10-04T00:00:00Z"},
		"Asia/Kathmandu":      {"0 * 1-7 * *", "2026-03-01T00:00:00Z"},
		"Pacific/Chatham":     {"0 * * * 1-5", "2026-04-06T00:00:00Z"},
	} {
		t.Run(zone, func(t *testing.T) {
			w, err := Parse(window(test.schedule, 10*time.Minute, zone))
			if err != nil {
				t.Fatal(err)
			}
			var want, got []time.Time
			from := timeOf(t, test.day).AddDate(0, 0, -3)
			until := from.AddDate(0, 0, 10)
			for at := from.Add(time.Minute); at.Before(until); at = at.Add(time.Minute) {
				if wall := wallClock(at.In(w.zone)); w.schedule.Next(wall.Add(-time.Second)).Equal(wall) {
					want = append(want, at)
				}
			}
			for at := w.nextOpening(from); at.Before(until); at = w.nextOpening(at) {
				got = append(got, at.UTC())
			}
			if !slices.EqualFunc(got, want, time.Time.Equal) || len(want) == 0 {
				t.Errorf("got openings %v, want %v", got, want)
			}
		})
	}
}

func TestMeet(t *testing.T) {
	weekend := window("0 0 * * 6", 48*time.Hour, "")
	night := window("0 22 * * *", 4*time.Hour, "")
	monday := window("0 0 * * 1", 24*time.Hour, "")
	for name, test := range map[string]struct {
		sets  [][]v1alpha1.Window
		now   string
		open  bool
		again string
	}{
		"no sets":                              {nil, "2026-09-01T12:00:00Z", true, ""},
		"one without windows minds nothing":    {[][]v1alpha1.Window{{}, {night}}, "2026-09-01T12:00:00Z", false, "2026-09-01T22:00:00Z"},
		"the next time at which both are open": {[][]v1alpha1.Window{{weekend}, {night}}, "2026-09-01T12:00:00Z", false, "2026-09-05T00:00:00Z"},
		"the first end counts":                 {[][]v1alpha1.Window{{weekend}, {night}}, "2026-09-05T00:30:00Z", true, "2026-09-05T02:00:00Z"},
		"one that is open waits for the other": {[][]v1alpha1.Window{{weekend}, {night}}, "2026-09-05T03:00:00Z", false, "2026-09-05T22:00:00Z"},
		"some never meet":                      {[][]v1alpha1.Window{{weekend}, {monday}}, "2026-09-01T12:00:00Z", false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var sets []Set
			for _, list := range test.sets {
				sets = append(sets, set(t, list...))
			}
			open, again := Meet(sets, timeOf(t, test.now))
			if open != test.open || !again.Equal(timeOf(t, test.again)) {
				t.Errorf("got open %t, next check %s; want %t, %s", open, again.UTC().Format(time.RFC3339), test.open, test.again)
			}
		})
	}
}

func TestParseRejects(t *testing.T) {
	for name, test := range map[string]struct {
		window v1alpha1.Window
		field  string
		reason string
	}{
		"a day that never comes":     {window("0 2 30 2 *", time.Hour, ""), "schedule", "never opens"},
		"31 days where there are 30": {window("0 2 31 4,6,9,11 *", time.Hour, ""), "schedule", "never opens"},
		"seconds":                    {window("0 0 2 * * 6", time.Hour, ""), "schedule", "five cron fields"},
		"four fields":                {window("0 2 * *", time.Hour, ""), "schedule", "five cron fields"},
		"a word":                     {window("@weekly", time.Hour, ""), "schedule", "five cron fields"},
		"an hour that is not":        {window("0 24 * * *", time.Hour, ""), "schedule", "hour 0-23"},
		"Sunday as 7":                {window("0 2 * * 7", time.Hour, ""), "schedule", "0 is Sunday"},
		"nothing":                    {window("", time.Hour, ""), "schedule", "five cron fields"},
		"a time zone in it":          {window("CRON_TZ=Europe/Berlin 0 2 * * *", time.Hour, ""), "schedule", "timeZone"},
		"half a time zone in it":     {window("TZ=x", time.Hour, ""), "schedule", "timeZone"},
		"a time zone that is not":    {window("0 2 * * *", time.Hour, "Europe/Bonn"), "timeZone", "Europe/Berlin"},
		"where the manager runs":     {window("0 2 * * *", time.Hour, "Local"), "timeZone", "Europe/Berlin"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse(test.window)
			var field *FieldError
			if !errors.As(err, &field) || field.Field != test.field || !strings.Contains(field.Reason, test.reason) {
				t.Errorf("got %v, want the field %s and %q in the reason", err, test.field, test.reason)
			}
		})
	}
}
