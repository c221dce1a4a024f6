package apiclient

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/storageclient/operator/agent/reporter"
	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

// provingServer is an API server that counts connections and the bytes read of its largest document.
type provingServer struct {
	*httptest.Server
	size int
	// stopAfter is the number of bytes after which it stops sending. Never if zero.
	stopAfter int

	mu          sync.Mutex
	connections int
	requests    []string
}

func newProvingServer(t *testing.T, size int) *provingServer {
	t.Helper()
	s := &provingServer{size: size}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(s.answer))
	s.EnableHTTP2 = true
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if state == http.StateNew {
			s.connections++
		}
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func (s *provingServer) answer(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.requests = append(s.requests, strings.Join([]string{r.Method, r.URL.Path, r.Proto, r.Header.Get("Accept-Encoding"), r.Header.Get("Authorization")}, " "))
	s.mu.Unlock()
	if r.Method == http.MethodPatch {
		answer(w, http.StatusOK, clientNodeJSON(3))
		return
	}
	data := bytes.Repeat([]byte{'x'}, s.size)
	if s.stopAfter > 0 {
		data = data[:s.stopAfter]
		w.Header().Set("Content-Length", "10000000")
	}
	_, _ = io.Copy(w, bytes.NewReader(data))
	if f, ok := w.(http.Flusher); ok && s.stopAfter > 0 {
		f.Flush()
		<-r.Context().Done()
	}
}

func (s *provingServer) client(t *testing.T) *Client {
	t.Helper()
	c, err := New(&rest.Config{Host: s.URL, BearerToken: "token", TLSClientConfig: rest.TLSClientConfig{Insecure: true}}, "n1", clock.RealClock{})
	check.NoError(t, err)
	return c
}

func TestProveMakesAConnectionForEachHalf(t *testing.T) {
	s := newProvingServer(t, 4<<20)
	c := s.client(t)
	for range 2 {
		check.NoError(t, c.Prove(t.Context(), 1<<20, v1alpha1.StorageClientNodeStatus{BootID: "b"}))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.connections != 4 {
		t.Errorf("got %d connections for two proofs, want one for each half", s.connections)
	}
	if want := "GET /openapi/v2 HTTP/1.1 identity Bearer token"; s.requests[0] != want {
		t.Errorf("first request: got %q, want %q", s.requests[0], want)
	}
	if want := "PATCH " + path + "/n1/status HTTP/1.1"; !strings.HasPrefix(s.requests[1], want) {
		t.Errorf("second request: got %q, want %q", s.requests[1], want)
	}
}

func TestASmallerDocumentIsReadCompletely(t *testing.T) {
	s := newProvingServer(t, 100)
	if err := s.client(t).Prove(t.Context(), 64<<10, v1alpha1.StorageClientNodeStatus{}); err != nil {
		t.Error(err)
	}
}

// A connection on which only the handshake and the first bytes arrive does not work.
func TestAConnectionThatStopsIsNoProof(t *testing.T) {
	s := newProvingServer(t, 4<<20)
	s.stopAfter = 2000
	c := s.client(t)
	// A slow machine gets more time for the first bytes.
	for bound := 100 * time.Millisecond; ; bound *= 2 {
		ctx, cancel := context.WithTimeout(t.Context(), bound)
		err := c.Prove(ctx, 64<<10, v1alpha1.StorageClientNodeStatus{})
		cancel()
		if err == nil {
			t.Fatal("the connection counts as a proof")
		}
		if strings.Contains(err.Error(), "read /openapi/v2: 2000 of 65536 bytes in ") {
			break
		}
		if bound > time.Minute {
			t.Fatalf("got %v", err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.ContainsFunc(s.requests, func(r string) bool { return strings.HasPrefix(r, http.MethodPatch) }) {
		t.Errorf("the status was written without a proof: %v", s.requests)
	}
}

func TestARefusalIsNoProof(t *testing.T) {
	for name, rejectedMethod := range map[string]string{"of the document": http.MethodGet, "of the status": http.MethodPatch} {
		t.Run(name, func(t *testing.T) {
			c, _ := client(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Method == rejectedMethod {
					answer(w, http.StatusForbidden, failure(http.StatusForbidden, "Forbidden"))
					return
				}
				answer(w, http.StatusOK, clientNodeJSON(3))
			})
			if err := c.Prove(t.Context(), 64<<10, v1alpha1.StorageClientNodeStatus{}); err == nil {
				t.Error("the connection counts as a proof")
			}
		})
	}
}

// A busy API server that rejects requests has been reached over new connections. Only a complete read proves them. A repetition would only cost
// time.
func TestABusyServerHasBeenReached(t *testing.T) {
	isBusy := func(err error) bool { return errors.Is(err, reporter.ErrBusy) && !apierrors.IsTooManyRequests(err) }
	for name, test := range map[string]struct {
		read, write int
		want        func(error) bool
		requests    []string
	}{
		"it rejects the read":                      {http.StatusTooManyRequests, http.StatusOK, isBusy, []string{"GET"}},
		"it rejects the status":                    {http.StatusOK, http.StatusTooManyRequests, apierrors.IsTooManyRequests, []string{"GET", "PATCH"}},
		"it rejects both":                          {http.StatusTooManyRequests, http.StatusTooManyRequests, isBusy, []string{"GET"}},
		"it is not available, which is no contact": {http.StatusServiceUnavailable, http.StatusOK, func(err error) bool { return err != nil && !apierrors.IsTooManyRequests(err) && !isBusy(err) }, []string{"GET"}},
	} {
		t.Run(name, func(t *testing.T) {
			var requests []string
			c, _ := client(t, func(w http.ResponseWriter, r *http.Request) {
				requests = append(requests, r.Method)
				if got := r.URL.Query().Get("timeout"); got != "10s" {
					t.Errorf("%s: got timeout %q, want 10s: it limits the time in a queue", r.Method, got)
				}
				code, body := test.read, clientNodeJSON(3)
				if r.Method == http.MethodPatch {
					code = test.write
				}
				if code != http.StatusOK {
					w.Header().Set("Retry-After", "1")
					http.Error(w, "Too many requests, please try again later.", code)
					return
				}
				answer(w, code, body)
			})
			if err := c.Prove(t.Context(), 64<<10, v1alpha1.StorageClientNodeStatus{}); !test.want(err) {
				t.Errorf("got error %v", err)
			}
			if !slices.Equal(requests, test.requests) {
				t.Errorf("got requests %v, want %v", requests, test.requests)
			}
		})
	}
}
