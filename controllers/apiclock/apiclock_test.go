package apiclock

import (
	"errors"
	"net/http"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"
)

var noon = time.Date(2026, 11, 26, 12, 0, 0, 300_000_000, time.UTC)

// server is an API server whose clock leads the local one. Its response takes time in both directions.
type server struct {
	local       *testclock.FakeClock
	lead, delay time.Duration
	silent      bool
}

func (s server) RoundTrip(*http.Request) (*http.Response, error) {
	s.local.Step(s.delay)
	defer s.local.Step(s.delay)
	if s.silent {
		return nil, errors.New("connection refused")
	}
	date := s.local.Now().Add(s.lead).UTC().Format(http.TimeFormat)
	return &http.Response{Header: http.Header{"Date": {date}}, Body: http.NoBody}, nil
}

// send sends one request.
func send(through http.RoundTripper) {
	if response, err := through.RoundTrip(nil); err == nil {
		_ = response.Body.Close()
	}
}

func TestTheClockFollowsTheAPIServer(t *testing.T) {
	for _, lead := range []time.Duration{-10 * time.Minute, -time.Second, 0, time.Second, 10 * time.Minute} {
		for _, delay := range []time.Duration{0, 700 * time.Millisecond, 20 * time.Second} {
			local := testclock.NewFakeClock(noon)
			c := &Clock{Local: local}
			for range 100 {
				send(c.Wrap(server{local: local, lead: lead, delay: delay}))
				local.Step(130 * time.Millisecond)
			}
			if deviation := c.Now().Sub(local.Now().Add(lead)).Abs(); deviation > time.Second+delay {
				t.Errorf("lead %s, delay %s: got a deviation of %s", lead, delay, deviation)
			}
		}
	}
}

func TestAResponseThatSaysNothingNewChangesNothing(t *testing.T) {
	local := testclock.NewFakeClock(noon)
	c := &Clock{Local: local}
	for range 100 {
		send(c.Wrap(server{local: local, delay: 20 * time.Millisecond}))
		local.Step(330 * time.Millisecond)
	}
	if !c.Now().Equal(local.Now()) {
		t.Errorf("equal clocks: got a deviation of %s", c.Now().Sub(local.Now()))
	}
	send(c.Wrap(server{local: local, lead: 10 * time.Minute}))
	want := c.Now().Sub(local.Now())
	send(c.Wrap(server{local: local, silent: true}))
	c.adjust("", noon, noon)
	if got := c.Now().Sub(local.Now()); got != want || c.Since(c.Now()) > 0 {
		t.Errorf("without a response: got a lead of %s, want %s", got, want)
	}
}

// The local clock is set during operation.
func TestTheClockSurvivesAJumpOfTheLocalClock(t *testing.T) {
	local := testclock.NewFakeClock(noon)
	c := &Clock{Local: local}
	send(c.Wrap(server{local: local}))
	local.SetTime(noon.Add(-time.Hour))
	for range agreeing {
		send(c.Wrap(server{local: local, lead: time.Hour}))
	}
	if deviation := c.Now().Sub(noon).Abs(); deviation > time.Second {
		t.Errorf("got a deviation of %s", deviation)
	}
}

// One API server of several, or a proxy, has a wrong clock.
func TestOneResponseMovesTheClockByLittle(t *testing.T) {
	local := testclock.NewFakeClock(noon)
	c := &Clock{Local: local}
	send(c.Wrap(server{local: local}))
	for range 20 {
		for range agreeing - 1 {
			send(c.Wrap(server{local: local, lead: 20 * time.Minute}))
			if deviation := c.Now().Sub(local.Now()).Abs(); deviation > time.Second {
				t.Fatalf("after a wrong response: got a deviation of %s", deviation)
			}
		}
		send(c.Wrap(server{local: local}))
		if deviation := c.Now().Sub(local.Now()).Abs(); deviation > time.Second {
			t.Fatalf("got a deviation of %s", deviation)
		}
		local.Step(time.Second)
	}
}

// The first response is the only source, and a small change is a normal one: both count at once. A large change needs the agreement of others.
func TestHowManyResponsesAChangeNeeds(t *testing.T) {
	for name, test := range map[string]struct {
		known     bool
		lead      time.Duration
		responses int
	}{
		"the first response":  {false, 10 * time.Minute, 1},
		"a small lead":        {true, 20 * time.Second, 1},
		"a small lag":         {true, -20 * time.Second, 1},
		"a larger lead":       {true, maxJump + 2*time.Second, agreeing},
		"a larger lag":        {true, -maxJump - 2*time.Second, agreeing},
		"a clock in the past": {true, -10 * time.Minute, agreeing},
		"a clock far ahead":   {true, 10 * time.Minute, agreeing},
	} {
		local := testclock.NewFakeClock(noon)
		c := &Clock{Local: local}
		if test.known {
			send(c.Wrap(server{local: local}))
		}
		for i := 1; i <= test.responses; i++ {
			send(c.Wrap(server{local: local, lead: test.lead}))
			if moved := c.Now().Sub(local.Now().Add(test.lead)).Abs() <= time.Second; moved != (i == test.responses) {
				t.Errorf("%s: after response %d the clock has the new time: %t", name, i, moved)
			}
		}
	}
}

// A proxy may respond without a date. Such responses are no doubt about the clock, however many there are.
func TestResponsesWithoutADateChangeNothing(t *testing.T) {
	local := testclock.NewFakeClock(noon)
	c := &Clock{Local: local}
	const lead = 10 * time.Minute
	send(c.Wrap(server{local: local, lead: lead}))
	for range agreeing + 1 {
		c.adjust("yesterday", local.Now(), local.Now())
	}
	if deviation := c.Now().Sub(local.Now().Add(lead)).Abs(); deviation > time.Second {
		t.Errorf("got a deviation of %s", deviation)
	}
}
