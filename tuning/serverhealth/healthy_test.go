package serverhealth

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/counters"
)

// healthy simulates a client of a healthy server with usual fluctuations, request by request.
type healthy struct {
	random    *rand.Rand
	reading   Reading
	inFlight  []flight
	load      int
	nextID    int
	slow      time.Duration
	outageEnd time.Time
}

type flight struct {
	request    counters.Request
	connection int
	ends       time.Time
	// killed is a request of a killed process: it is not listed, but its response still counts.
	killed bool
}

func newHealthy(seed uint64, key Key, lists, queues bool) *healthy {
	h := &healthy{random: rand.New(rand.NewPCG(seed, 1)), reading: Reading{Key: key, Activity: counters.Activity{RequestsKnown: lists}}}
	for i := range 1 + h.random.IntN(4) {
		h.reading.Connections = append(h.reading.Connections, counters.Connection{ID: strconv.Itoa(i), Connects: 1})
		if queues {
			h.reading.Queues = append(h.reading.Queues, counters.Queue{ID: strconv.Itoa(i)})
		}
	}
	return h
}

// second simulates one second: load changes, a server restarts for less than a minute, connections are closed and opened again.
func (h *healthy) second(now time.Time) {
	if h.random.IntN(300) == 0 {
		h.load = []int{0, 0, 1, 5, 60}[h.random.IntN(5)]
		h.slow = []time.Duration{10 * time.Millisecond, time.Second, 20 * time.Second, 45 * time.Second}[h.random.IntN(4)]
	}
	if h.random.IntN(7200) == 0 {
		h.outageEnd = now.Add(time.Duration(5+h.random.IntN(40)) * time.Second)
		h.reading.Identified++
	}
	out := now.Before(h.outageEnd)
	for range h.load {
		c := h.random.IntN(len(h.reading.Connections))
		ends := now.Add(time.Duration(h.random.Int64N(int64(h.slow) + 1)))
		if out && ends.Before(h.outageEnd) {
			ends = h.outageEnd
		}
		h.nextID++
		if len(h.inFlight) > 400 {
			break
		}
		h.reading.Connections[c].Sends++
		operation := []string{"READ", "GETATTR", "WRITE"}[h.random.IntN(3)]
		h.inFlight = append(h.inFlight, flight{counters.Request{ID: strconv.Itoa(h.nextID), Operation: operation}, c, ends, h.random.IntN(500) == 0})
	}
	if c := h.random.IntN(len(h.reading.Connections)); h.random.IntN(600) == 0 && h.load > 0 {
		h.reading.Connections[c].Connects++
	}
	h.inFlight = slices.DeleteFunc(h.inFlight, func(f flight) bool {
		if f.ends.After(now) {
			return false
		}
		h.reading.Connections[f.connection].Responses++
		if len(h.reading.Queues) > 0 {
			h.reading.Queues[f.connection].LastUsed++
		}
		return true
	})
}

func (h *healthy) read() Reading {
	r := h.reading
	r.Connections, r.Queues, r.Requests = slices.Clone(r.Connections), slices.Clone(r.Queues), nil
	for i := range r.Queues {
		r.Queues[i].Pending = 0
	}
	for _, f := range h.inFlight {
		if f.killed {
			continue
		}
		if r.RequestsKnown {
			r.Requests = append(r.Requests, f.request)
		}
		if len(r.Queues) > 0 {
			r.Queues[f.connection].Pending++
		}
	}
	return r
}

// These minutes are synthetic. They contain the events of a healthy client: changing load, idle phases, and responses after up to 45 s.
// They also contain new connections, killed processes, and servers that restart within 45 s.
func TestAThousandHealthyMinutesRaiseNoAlarm(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: a thousand minutes of eight clients are NOT played")
	}
	var clients []*healthy
	for i := range 8 {
		clients = append(clients, newHealthy(uint64(i), Key{Server: "filer" + strconv.Itoa(i), Protocol: v1alpha1.ServerNFS}, i%2 == 0, i%4 < 2))
	}
	var w Watch
	states := map[v1alpha1.ServerState]int{}
	for second := range 1000 * 60 {
		now := start.Add(time.Duration(second) * time.Second)
		var batch Batch
		for _, c := range clients {
			c.second(now)
			if second%10 == 0 {
				batch.Readings = append(batch.Readings, c.read())
			}
		}
		if second%10 != 0 {
			continue
		}
		for _, v := range w.Note(now, batch) {
			states[v.State]++
			if v.State != v1alpha1.ServerAnswering && v.State != v1alpha1.ServerIdle || v.Flapping {
				t.Fatalf("after %d s, %s: got %s, %s: %s (flapping: %v)", second, v.Server, v.State, v.Reason, v.Message, v.Flapping)
			}
		}
	}
	if states[v1alpha1.ServerAnswering] < 10000 || states[v1alpha1.ServerIdle] < 500 {
		t.Errorf("got too few different events in the minutes: %v", states)
	}
}
