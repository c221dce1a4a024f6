package metrics

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/storageclient/operator/test/check"
)

// apiServer responds to access reviews like an API server, and records the tokens of the requests.
type apiServer struct {
	t      *testing.T
	tokens []string
	// broken makes it return an error. revoked withdraws the permission.
	broken, revoked bool
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var review struct {
		APIVersion, Kind string
		Spec             struct{ NonResourceAttributes struct{ Path, Verb string } }
		Status           struct {
			Allowed bool `json:"allowed"`
		} `json:"status"`
	}
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil || r.Method != http.MethodPost || r.URL.Path != reviewPath {
		s.t.Errorf("%s %s, %v", r.Method, r.URL, err)
	}
	if a := review.Spec.NonResourceAttributes; review.APIVersion != "authorization.k8s.io/v1" || review.Kind != "SelfSubjectAccessReview" ||
		a.Path != "/metrics" || a.Verb != "get" {
		s.t.Errorf("got unexpected review %+v", review)
	}
	token := r.Header.Get("Authorization")
	s.tokens = append(s.tokens, token)
	switch {
	case s.broken:
		w.WriteHeader(http.StatusInternalServerError)
		return
	case token == "Bearer may-not-ask":
		w.WriteHeader(http.StatusForbidden)
		return
	case token != "Bearer prometheus" && token != "Bearer somebody":
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	review.Status.Allowed = token == "Bearer prometheus" && !s.revoked
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(review)
}

// guarded returns an authorizer in front of a page. The token of the agent must never be used.
func guarded(t *testing.T) (*apiServer, *clocktesting.FakeClock, func(authorization string) int) {
	t.Helper()
	api := &apiServer{t: t}
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	c := clocktesting.NewFakeClock(time.Date(2026, 9, 1, 0, 0, 0, 0, time.UTC))
	a, err := NewAuthorizer(&rest.Config{Host: server.URL, BearerToken: "the-agents-own"}, c)
	check.NoError(t, err)
	page := a.Guard(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "metrics") }))
	return api, c, func(authorization string) int {
		request := httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody)
		if authorization != "" {
			request.Header.Set("Authorization", authorization)
		}
		recorder := httptest.NewRecorder()
		page.ServeHTTP(recorder, request)
		if served := recorder.Body.String() == "metrics"; served != (recorder.Code == http.StatusOK) {
			t.Errorf("%q: got status %d with %q", authorization, recorder.Code, recorder.Body)
		}
		return recorder.Code
	}
}

func TestMetricsRequirePermission(t *testing.T) {
	for name, c := range map[string]struct {
		authorization  string
		want, requests int
	}{
		"a permitted caller":                      {"Bearer prometheus", http.StatusOK, 1},
		"a caller without permission":             {"Bearer somebody", http.StatusForbidden, 1},
		"an unknown token":                        {"Bearer made-up", http.StatusUnauthorized, 1},
		"a caller that may not review its access": {"Bearer may-not-ask", http.StatusForbidden, 1},
		"no token":       {"", http.StatusUnauthorized, 0},
		"an empty token": {"Bearer ", http.StatusUnauthorized, 0},
		"another scheme": {"Basic cHJvbWV0aGV1cw==", http.StatusUnauthorized, 0},
	} {
		t.Run(name, func(t *testing.T) {
			api, _, get := guarded(t)
			check.Equal(t, "status", c.want, get(c.authorization))
			if len(api.tokens) != c.requests || slices.Contains(api.tokens, "Bearer the-agents-own") {
				t.Errorf("tokens: got %q", api.tokens)
			}
		})
	}
}

func TestADecisionIsCachedForAMinute(t *testing.T) {
	api, c, get := guarded(t)
	for range 3 {
		if got := get("Bearer prometheus"); got != http.StatusOK {
			t.Fatalf("status: got %d", got)
		}
	}
	check.Equal(t, "requests", 1, len(api.tokens))
	api.revoked = true
	c.Step(believed)
	if got := get("Bearer prometheus"); got != http.StatusForbidden || len(api.tokens) != 2 {
		t.Errorf("revoked permission: got status %d after %d requests", got, len(api.tokens))
	}
}

func TestInvalidTokensSoonStopReachingTheAPIServer(t *testing.T) {
	api, c, get := guarded(t)
	answers := map[int]int{}
	for i := range 3 * maxQuestions {
		answers[get(fmt.Sprint("Bearer made-up-", i))]++
	}
	if len(api.tokens) != maxQuestions || answers[http.StatusUnauthorized] != maxQuestions || answers[http.StatusTooManyRequests] != 2*maxQuestions {
		t.Errorf("got %d requests, statuses %v", len(api.tokens), answers)
	}
	c.Step(questionSpan)
	check.Equal(t, "status after the pause", http.StatusOK, get("Bearer prometheus"))
	for i := range maxCallers + 1 {
		c.Step(questionSpan)
		get(fmt.Sprint("Bearer more-", i))
	}
	check.Equal(t, "status after many others", http.StatusOK, get("Bearer prometheus"))
}

func TestAFailingAPIServerGrantsNoAccess(t *testing.T) {
	api, _, get := guarded(t)
	api.broken = true
	check.Equal(t, "status", http.StatusServiceUnavailable, get("Bearer prometheus"))
	api.broken = false
	check.Equal(t, "status after the API server recovered", http.StatusOK, get("Bearer prometheus"))
}
