package metrics

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/net/netutil"
	"k8s.io/utils/clock"
)

const (
	// A certificate is renewed renewBefore its expiry, without a restart.
	certificateLife = 365 * 24 * time.Hour
	renewBefore     = 30 * 24 * time.Hour
	maxConnections  = 16
)

// TLSConfig returns a server configuration for HTTP/1.1 with a self-signed certificate. It encrypts the data but does not prove the
// identity of the agent. The private key is never written to a file.
func TLSConfig(nodeName, address string, c clock.PassiveClock) *tls.Config {
	maker := &certificates{nodeName: nodeName, address: address, clock: c}
	return &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, GetCertificate: maker.current}
}

type certificates struct {
	nodeName, address string
	clock             clock.PassiveClock

	mu   sync.Mutex
	cert *tls.Certificate
}

func (c *certificates) current(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock.Now()
	// A clock that is set back makes the certificate one of the future.
	if c.cert != nil && now.After(c.cert.Leaf.NotBefore) && now.Before(c.cert.Leaf.NotAfter.Add(-renewBefore)) {
		return c.cert, nil
	}
	cert, err := c.sign(now)
	if err != nil {
		return nil, err
	}
	c.cert = cert
	return cert, nil
}

func (c *certificates) sign(now time.Time) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate the key for metrics: %w", err)
	}
	const serialBits = 120
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), serialBits))
	if err != nil {
		return nil, fmt.Errorf("create the certificate for metrics: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "storage-client-node-agent"}, DNSNames: []string{c.nodeName},
		// A node's clock may be slow.
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(certificateLife),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if host, _, err := net.SplitHostPort(c.address); err == nil {
		if ip, err := netip.ParseAddr(host); err == nil && !ip.IsUnspecified() {
			template.IPAddresses = []net.IP{ip.AsSlice()}
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("sign the certificate for metrics: %w", err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("read the certificate for metrics: %w", err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, nil
}

// Limited accepts at most maxConnections connections at a time. Other connections wait in the kernel's queue.
func Limited(listener net.Listener) net.Listener {
	return netutil.LimitListener(listener, maxConnections)
}
