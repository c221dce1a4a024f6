package metrics

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
)

const (
	// reviewPath is the API path to review one's own permissions. Every authenticated user may use it (system:basic-user).
	reviewPath = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
	// reviewTimeout is the timeout of one access review.
	reviewTimeout = 10 * time.Second
	// A decision is cached for this time. Scrapes then rarely query the API server, and a revoked permission takes effect soon.
	believed = time.Minute
	// Limits of cached callers, and of access reviews in each questionSpan. Otherwise, a client with invalid tokens could make all agents
	// send reviews to the API server.
	maxCallers    = 32
	maxQuestions  = 10
	questionSpan  = 10 * time.Second
	maxTokenBytes = 16 << 10
)

var errTooMany = errors.New("too many recent callers; try again later")

// Authorizer allows a caller to read metrics if the API server allows it to read /metrics. It uses the caller's token for the request, so
// the agent needs no permission for token or access reviews of others. The token is not sent anywhere else; only its hash is stored.
type Authorizer struct {
	client rest.Interface
	clock  clock.PassiveClock

	mu           sync.Mutex
	verdicts     map[[sha256.Size]byte]verdict
	reviews      int
	reviewsSince time.Time
}

type verdict struct {
	status int
	expiry time.Time
}

// NewAuthorizer returns an Authorizer for the API server of a client configuration. It does not use the credentials in the configuration.
func NewAuthorizer(config *rest.Config, c clock.PassiveClock) (*Authorizer, error) {
	config = rest.AnonymousClientConfig(config)
	config.Timeout, config.QPS, config.ContentType = reviewTimeout, -1, runtime.ContentTypeJSON
	config.NegotiatedSerializer = serializer.NewCodecFactory(runtime.NewScheme()).WithoutConversion()
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("build client for access reviews: %w", err)
	}
	return &Authorizer{client: client, clock: c, verdicts: map[[sha256.Size]byte]verdict{}}, nil
}

// Guard serves behind to callers who may read /metrics. It returns 401 if the API server cannot authenticate the caller, and 403
// otherwise.
func (a *Authorizer) Guard(behind http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if !ok || token == "" || len(token) > maxTokenBytes {
			reject(w, "send a bearer token that may get /metrics", http.StatusUnauthorized)
			return
		}
		status, err := a.authorize(r.Context(), token)
		switch {
		case errors.Is(err, errTooMany):
			reject(w, err.Error(), http.StatusTooManyRequests)
		case err != nil:
			logr.FromContextOrDiscard(r.Context()).Error(err, "Cannot review access to metrics")
			reject(w, "cannot check the token: the API server is unavailable", http.StatusServiceUnavailable)
		case status != http.StatusOK:
			reject(w, http.StatusText(status), status)
		default:
			behind.ServeHTTP(w, r)
		}
	})
}

// reject also closes the connection, because their number is limited.
func reject(w http.ResponseWriter, reason string, status int) {
	w.Header().Set("Connection", "close")
	http.Error(w, reason, status)
}

// authorize returns OK, Unauthorized, or Forbidden. It runs one access review at a time.
func (a *Authorizer) authorize(ctx context.Context, token string) (int, error) {
	key := sha256.Sum256([]byte(token))
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.clock.Now()
	if known, ok := a.verdicts[key]; ok && now.Before(known.expiry) {
		return known.status, nil
	}
	if now.Sub(a.reviewsSince) >= questionSpan {
		a.reviews, a.reviewsSince = 0, now
	}
	if a.reviews >= maxQuestions {
		return 0, errTooMany
	}
	a.reviews++
	status, err := a.reviewAccess(ctx, token)
	if err != nil {
		return 0, err
	}
	if len(a.verdicts) >= maxCallers {
		clear(a.verdicts)
	}
	a.verdicts[key] = verdict{status: status, expiry: now.Add(believed)}
	return status, nil
}

func (a *Authorizer) reviewAccess(ctx context.Context, token string) (int, error) {
	const review = `{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview",` +
		`"spec":{"nonResourceAttributes":{"path":"/metrics","verb":"get"}}}`
	var status int
	answer, err := a.client.Post().AbsPath(reviewPath).SetHeader("Authorization", "Bearer "+token).
		SetHeader("Content-Type", runtime.ContentTypeJSON).MaxRetries(0).Body([]byte(review)).Do(ctx).StatusCode(&status).Raw()
	if status == http.StatusUnauthorized || status == http.StatusForbidden {
		return status, nil
	}
	if err != nil {
		return 0, fmt.Errorf("review access: %w", err)
	}
	var reviewed struct{ Status struct{ Allowed bool } }
	if err := json.Unmarshal(answer, &reviewed); err != nil {
		return 0, fmt.Errorf("decode access review: %w", err)
	}
	if !reviewed.Status.Allowed {
		return http.StatusForbidden, nil
	}
	return http.StatusOK, nil
}
