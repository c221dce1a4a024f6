package apiclient

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"time"

	"k8s.io/client-go/rest"
)

const requestTimeout = 30 * time.Second

// freshClient returns a client that opens a new connection for every request. It disables keep-alive and HTTP/2, because HTTP/2 requests
// share a connection.
func freshClient(config *rest.Config) (rest.Interface, error) {
	tlsConfig, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, fmt.Errorf("load TLS configuration: %w", err)
	}
	transport := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{}).DialContext,
		TLSClientConfig:     tlsConfig,
		TLSHandshakeTimeout: requestTimeout,
		TLSNextProto:        map[string]func(string, *tls.Conn) http.RoundTripper{},
		DisableKeepAlives:   true,
		DisableCompression:  true,
	}
	if config.Proxy != nil {
		transport.Proxy = config.Proxy
	}
	if config.Dial != nil {
		transport.DialContext = config.Dial
	}
	wrapped, err := rest.HTTPWrappersForConfig(config, transport)
	if err != nil {
		return nil, fmt.Errorf("build transport: %w", err)
	}
	client, err := rest.RESTClientForConfigAndClient(config, &http.Client{Transport: wrapped, Timeout: requestTimeout})
	if err != nil {
		return nil, fmt.Errorf("build API client: %w", err)
	}
	return client, nil
}
