package integration

import (
	"errors"
	"net/http"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// errDead is the API server's error after the process has died.
var errDead = errors.New("the process has died")

// mortal is the API access of a process that dies before its nth write. That request and all later requests, including reads, fail with
// errDead and never reach the server. Reads do not count as writes.
type mortal struct {
	// Config and Client share one count.
	Config *rest.Config
	Client client.WithWatch

	writes atomic.Int64
	limit  int64
}

// newMortal returns API access that lasts for the given number of writes.
func newMortal(writes int) *mortal {
	GinkgoHelper()
	m := &mortal{Config: rest.CopyConfig(restConfig), limit: int64(writes)}
	m.Config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			if m.isDead(request.Method) {
				return nil, errDead
			}
			return next.RoundTrip(request)
		})
	})
	var err error
	m.Client, err = client.NewWithWatch(m.Config, client.Options{Scheme: scheme, Mapper: k8s.RESTMapper()})
	Expect(err).NotTo(HaveOccurred())
	return m
}

// Died reports whether the process has died. If a story ends without a death, it has run with every possible death.
func (m *mortal) Died() bool { return m.writes.Load() > m.limit }

func (m *mortal) isDead(method string) bool {
	if method == http.MethodGet {
		return m.Died()
	}
	return m.writes.Add(1) > m.limit
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }
