package webhook

import (
	"context"
	"crypto/tls"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// serving provides the certificate in the Secret from the manager's cache: a new one is served immediately after its write. The kubelet would
// take a minute or more to mount it.
type serving struct {
	reader client.Reader
	key    client.ObjectKey

	mu      sync.Mutex
	version string // of the Secret that pair was read from
	pair    *tls.Certificate
}

// newServing adds the Secret to the cache of every replica, with or without leadership.
func newServing(c cache.Cache, namespace string) (*serving, error) {
	// The cache has not started, so this call does not block.
	if _, err := c.GetInformer(context.Background(), &corev1.Secret{}, cache.BlockUntilSynced(false)); err != nil {
		return nil, fmt.Errorf("watch the Secret of the webhooks: %w", err)
	}
	return &serving{reader: c, key: client.ObjectKey{Namespace: namespace, Name: Name}}, nil
}

func (s *serving) currentCertificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	var secret corev1.Secret
	if err := s.reader.Get(hello.Context(), s.key, &secret); err != nil {
		return nil, fmt.Errorf("get Secret %s: %w", s.key, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pair != nil && s.version == secret.ResourceVersion {
		return s.pair, nil
	}
	pair, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return nil, fmt.Errorf("read the certificate of Secret %s: %w", s.key, err)
	}
	s.version, s.pair = secret.ResourceVersion, &pair
	return s.pair, nil
}
