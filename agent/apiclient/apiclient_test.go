package apiclient

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

const path = "/apis/tuning.storageclient.dev/v1alpha1/storageclientnodes"

func clientNodeJSON(generation int64) string {
	return fmt.Sprintf(`{"apiVersion":"tuning.storageclient.dev/v1alpha1","kind":"StorageClientNode",`+
		`"metadata":{"name":"n1","uid":"u1","resourceVersion":"7","generation":%d},"spec":{"hash":"h"}}`, generation)
}

func list(items string) string {
	return `{"apiVersion":"tuning.storageclient.dev/v1alpha1","kind":"StorageClientNodeList",` +
		`"metadata":{"resourceVersion":"41"},"items":[` + items + `]}`
}

func failure(code int, reason string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"Status","status":"Failure","message":"no","reason":%q,"code":%d}`, reason, code)
}

// instant is a clock whose waits end at once and are recorded.
type instant struct {
	clock.RealClock
	waits []time.Duration
}

func (i *instant) Now() time.Time { return time.Time{} }

func (i *instant) Since(time.Time) time.Duration { return 0 }

func (i *instant) After(d time.Duration) <-chan time.Time {
	i.waits = append(i.waits, d)
	over := make(chan time.Time, 1)
	over <- time.Time{}
	return over
}

func client(t *testing.T, handler http.HandlerFunc) (*Client, *instant) {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	waits := &instant{}
	c, err := New(&rest.Config{Host: server.URL}, "n1", waits)
	check.NoError(t, err)
	return c, waits
}

func answer(w http.ResponseWriter, code int, body string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = io.WriteString(w, body)
}

func TestGet(t *testing.T) {
	c, _ := client(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || r.URL.Path != path+"/n1" || r.URL.RawQuery != "" {
			t.Errorf("%s %s", r.Method, r.URL)
		}
		answer(w, http.StatusOK, clientNodeJSON(3))
	})
	node, _, err := c.Get(t.Context())
	check.NoError(t, err)
	if node.Generation != 3 || node.Spec.Hash != "h" {
		t.Errorf("got %+v", node)
	}
}

// The date of a read is the date in its response, and never the date of another response or of the local clock.
func TestGetReturnsTheDateOfTheResponse(t *testing.T) {
	at := time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		dates []string
		want  time.Time
	}{
		"with a date":               {[]string{at.Format(http.TimeFormat)}, at},
		"without a date":            {nil, time.Time{}},
		"with an unreadable date":   {[]string{"yesterday"}, time.Time{}},
		"the last of two responses": {[]string{at.Add(-time.Hour).Format(http.TimeFormat), at.Format(http.TimeFormat)}, at},
		"the last one has none":     {[]string{at.Format(http.TimeFormat), ""}, time.Time{}},
	} {
		t.Run(name, func(t *testing.T) {
			left := test.dates
			c, _ := client(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header()["Date"] = nil
				if len(left) > 0 && left[0] != "" {
					w.Header().Set("Date", left[0])
				}
				if len(left) > 1 {
					left = left[1:]
					w.Header().Set("Retry-After", "0")
					answer(w, http.StatusTooManyRequests, failure(http.StatusTooManyRequests, "TooManyRequests"))
					return
				}
				answer(w, http.StatusOK, clientNodeJSON(3))
			})
			if _, got, err := c.Get(t.Context()); err != nil || !got.Equal(test.want) {
				t.Errorf("got %s and error %v, want %s", got, err, test.want)
			}
		})
	}
}

func TestGetOfAMissingObject(t *testing.T) {
	c, _ := client(t, func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusNotFound, failure(http.StatusNotFound, "NotFound"))
	})
	if _, _, err := c.Get(t.Context()); !apierrors.IsNotFound(err) {
		t.Errorf("got %v, want NotFound", err)
	}
}

func TestApplyStatus(t *testing.T) {
	status := v1alpha1.StorageClientNodeStatus{ObservedGeneration: 3, BootID: "b"}
	tests := map[string]struct {
		version  string
		metadata map[string]any
	}{
		"forced":              {"", map[string]any{"name": "n1"}},
		"with a precondition": {"7", map[string]any{"name": "n1", "resourceVersion": "7"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var got map[string]any
			c, _ := client(t, func(w http.ResponseWriter, r *http.Request) {
				if err := json.NewDecoder(r.Body).Decode(&got); err != nil {
					t.Error(err)
				}
				if r.Method != http.MethodPatch || r.URL.Path != path+"/n1/status" {
					t.Errorf("%s %s", r.Method, r.URL)
				}
				check.Equal(t, "content type", "application/apply-patch+yaml", r.Header.Get("Content-Type"))
				want := map[string][]string{"fieldManager": {"storage-client-node-agent"}, "force": {"true"}}
				check.Equal(t, "query", want, map[string][]string(r.URL.Query()))
				answer(w, http.StatusOK, clientNodeJSON(3))
			})
			check.NoError(t, c.ApplyStatus(t.Context(), status, test.version))
			want := map[string]any{
				"apiVersion": "tuning.storageclient.dev/v1alpha1", "kind": "StorageClientNode", "metadata": test.metadata,
				"status": map[string]any{"observedGeneration": 3.0, "bootID": "b", "rebootRequired": false},
			}
			check.Equal(t, "body", want, got)
		})
	}
}

func TestApplyStatusReportsAConflict(t *testing.T) {
	c, _ := client(t, func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusConflict, failure(http.StatusConflict, "Conflict"))
	})
	err := c.ApplyStatus(t.Context(), v1alpha1.StorageClientNodeStatus{}, "7")
	if !apierrors.IsConflict(err) {
		t.Errorf("got %v, want a conflict", err)
	}
}

// server responds to lists and watches with its next response each, and repeats the last one forever.
type server struct {
	t              *testing.T
	lists, watches []string

	mu       sync.Mutex
	requests []string
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	query := r.URL.Query()
	if r.URL.Path != path || query.Get("fieldSelector") != "metadata.name=n1" {
		s.t.Errorf("got unexpected request for %s", r.URL)
	}
	if query.Get("watch") == "" {
		s.requests = append(s.requests, "list")
		body := next(&s.lists)
		if body == "" {
			answer(w, http.StatusInternalServerError, failure(http.StatusInternalServerError, "InternalError"))
			return
		}
		answer(w, http.StatusOK, body)
		return
	}
	s.requests = append(s.requests, "watch from "+query.Get("resourceVersion"))
	answer(w, http.StatusOK, next(&s.watches))
}

func next(answers *[]string) string {
	first := (*answers)[0]
	if len(*answers) > 1 {
		*answers = (*answers)[1:]
	}
	return first
}

func TestFollow(t *testing.T) {
	event := func(kind, body string) string { return fmt.Sprintf(`{"type":%q,"object":%s}`+"\n", kind, body) }
	tests := map[string]struct {
		lists, watches []string
		want           []int64 // generations, 0 for no object
		requests       []string
	}{
		"the existing object, and every change": {
			lists: []string{list(clientNodeJSON(1))}, watches: []string{event("MODIFIED", clientNodeJSON(2)) + event("MODIFIED", clientNodeJSON(3))},
			want: []int64{1, 2, 3}, requests: []string{"list", "watch from 41"},
		},
		"creation and deletion": {
			lists: []string{list("")}, watches: []string{event("ADDED", clientNodeJSON(1)) + event("DELETED", clientNodeJSON(1))},
			want: []int64{0, 1, 0}, requests: []string{"list", "watch from 41"},
		},
		"again after the end of the watch": {
			lists: []string{list(clientNodeJSON(1)), list(clientNodeJSON(2))}, watches: []string{"", event("MODIFIED", clientNodeJSON(3))},
			want: []int64{1, 2, 3}, requests: []string{"list", "watch from 41", "list", "watch from 41"},
		},
		"again when the version is too old": {
			lists:   []string{list(clientNodeJSON(1)), list(clientNodeJSON(5))},
			watches: []string{event("ERROR", failure(http.StatusGone, "Expired")), event("MODIFIED", clientNodeJSON(6))},
			want:    []int64{1, 5, 6}, requests: []string{"list", "watch from 41", "list", "watch from 41"},
		},
		"on after an error": {
			lists: []string{"", "", list(clientNodeJSON(1))}, watches: []string{""},
			want: []int64{1}, requests: []string{"list", "list", "list"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := &server{t: t, lists: test.lists, watches: test.watches}
			c, _ := client(t, s.ServeHTTP)
			got := follow(t, c, len(test.want))
			check.Equal(t, "generations", test.want, got)
			s.mu.Lock()
			defer s.mu.Unlock()
			if requests := s.requests[:min(len(s.requests), len(test.requests))]; !slices.Equal(requests, test.requests) {
				t.Errorf("requests: got %v, want %v", s.requests, test.requests)
			}
		})
	}
}

// follow returns the generations of the first n objects that are shown, 0 for none.
func follow(t *testing.T, c *Client, n int) []int64 {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var got []int64
	c.Follow(ctx, func(node *v1alpha1.StorageClientNode) {
		generation := int64(0)
		if node != nil {
			generation = node.Generation
		}
		if got = append(got, generation); len(got) >= n {
			cancel()
		}
	})
	return got
}

func TestFollowWaitsLongerEachTime(t *testing.T) {
	failures := make([]string, 12)
	s := &server{t: t, lists: append(failures, list(clientNodeJSON(1))), watches: []string{""}}
	c, over := client(t, s.ServeHTTP)
	follow(t, c, 1)
	if len(over.waits) < len(failures) {
		t.Fatalf("got %d waits, want %d", len(over.waits), len(failures))
	}
	minimum := minDelay
	for i, wait := range over.waits[:len(failures)] {
		if wait < minimum || wait >= 2*minimum {
			t.Errorf("wait %d is %v, want %v to %v", i, wait, minimum, 2*minimum)
		}
		minimum = min(2*minimum, maxDelay)
	}
}
