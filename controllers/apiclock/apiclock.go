// Package apiclock provides the API server's clock. All replicas of the manager use it. Their times are therefore comparable with each other, and
// with times that the API server sets.
package apiclock

import (
	"net/http"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Clock is the clock of the API server, derived from the dates of its responses. It is the local clock until the first response. It is safe for
// concurrent use.
type Clock struct {
	Local clock.PassiveClock

	mutex sync.Mutex
	lead  time.Duration
}

// Now implements clock.PassiveClock.
func (c *Clock) Now() time.Time {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.Local.Now().Add(c.lead)
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

// adjust changes the lead of the API server's clock if a response contradicts it. The response was written between two local times, and its date is
// rounded down to a second. The new lead is the smallest possible one, so that the clock is behind rather than ahead.
func (c *Clock) adjust(date string, sent, received time.Time) {
	written, err := http.ParseTime(date)
	if err != nil {
		return
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if lowest := written.Sub(received); c.lead < lowest || c.lead > written.Add(time.Second).Sub(sent) {
		c.lead = lowest
	}
}
