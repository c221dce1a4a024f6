// Package apiclock provides the API server's clock. All replicas of the manager use it. Their times are therefore comparable with each other, and
// with times that the API server sets.
package apiclock

import (
	"net/http"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// maxJump is the largest change of the estimate that one response may cause. Clocks of several API servers differ by less.
	maxJump = 30 * time.Second
	// agreeing is the number of consecutive responses that a larger change needs.
	agreeing = 3
)

// Clock is the clock of the API server, derived from the dates of its responses. It is the local clock until the first response. Between
// responses it follows the monotonic local clock, so that a step of the local clock has no effect. It is safe for concurrent use.
type Clock struct {
	Local clock.PassiveClock

	mutex sync.Mutex
	// server is the API server's time at the local time. Both are zero before the first response.
	server, local time.Time
	// doubts is the number of consecutive responses that differ by more than maxJump.
	doubts int
}

// Now implements clock.PassiveClock.
func (c *Clock) Now() time.Time {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.at(c.Local.Now())
}

func (c *Clock) at(local time.Time) time.Time {
	if c.server.IsZero() {
		return local
	}
	return c.server.Add(local.Sub(c.local))
}

// Since implements clock.PassiveClock.
func (c *Clock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// Wrap returns a transport that reads the date of each response.
func (c *Clock) Wrap(next http.RoundTripper) http.RoundTripper {
	return transport(func(request *http.Request) (*http.Response, error) {
		sent := c.Local.Now()
		response, err := next.RoundTrip(request)
		if err == nil {
			c.adjust(response.Header.Get("Date"), sent, c.Local.Now())
		}
		return response, err
	})
}

type transport func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(request *http.Request) (*http.Response, error) { return t(request) }

// adjust changes the API server's time if a response contradicts it. The response was written between two local times, and its date is rounded
// down to a second. The new time is the smallest possible one, so that the clock is behind rather than ahead.
func (c *Clock) adjust(date string, sent, received time.Time) {
	written, err := http.ParseTime(date)
	if err != nil {
		return
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	now := c.at(received)
	if !now.Before(written) && !now.After(written.Add(time.Second+received.Sub(sent))) {
		// The first response may confirm the local clock.
		c.server, c.local, c.doubts = now.Round(0), received, 0
		return
	}
	if c.doubts++; !c.server.IsZero() && now.Sub(written).Abs() > maxJump && c.doubts < agreeing {
		return
	}
	c.server, c.local, c.doubts = written, received, 0
}
