package metrics

import (
	"errors"
	"net"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/storageclient/operator/test/check"
)

func TestCertificatesAreRenewedBeforeTheyExpire(t *testing.T) {
	c := clocktesting.NewFakeClock(time.Date(2026, 9, 1, 0, 0, 0, 0, time.UTC))
	config := TLSConfig("n1", "[10.0.0.1]:9810", c)
	first, err := config.GetCertificate(nil)
	check.NoError(t, err)
	if err := first.Leaf.VerifyHostname("10.0.0.1"); err != nil {
		t.Error(err)
	}
	if err := first.Leaf.VerifyHostname("n1"); err != nil {
		t.Error(err)
	}
	if second, err := config.GetCertificate(nil); err != nil || second != first {
		t.Errorf("error %v, or a new certificate too early", err)
	}
	c.Step(certificateLife - renewBefore)
	later, err := config.GetCertificate(nil)
	if err != nil || later == first || later.Leaf.NotAfter.Before(c.Now().Add(renewBefore)) {
		t.Errorf("%v, certificate until %v at %v", err, later.Leaf.NotAfter, c.Now())
	}
}

func TestACertificateIsValidAfterTheClockWasSet(t *testing.T) {
	for _, jump := range []time.Duration{-24 * time.Hour, 24 * time.Hour, -time.Minute, certificateLife} {
		c := clocktesting.NewFakeClock(time.Date(2026, 9, 1, 0, 0, 0, 0, time.UTC))
		config := TLSConfig("n1", "[10.0.0.1]:9810", c)
		if _, err := config.GetCertificate(nil); err != nil {
			t.Fatal(err)
		}
		c.SetTime(c.Now().Add(jump))
		cert, err := config.GetCertificate(nil)
		if err != nil || c.Now().Before(cert.Leaf.NotBefore) || c.Now().After(cert.Leaf.NotAfter) {
			t.Errorf("after a jump of %s: %v, certificate from %v to %v at %v", jump, err, cert.Leaf.NotBefore, cert.Leaf.NotAfter, c.Now())
		}
	}
}

// pipes is a listener that returns connections from a channel.
type pipes struct{ conns chan net.Conn }

func (p pipes) Accept() (net.Conn, error) {
	conn, ok := <-p.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return conn, nil
}
func (p pipes) Close() error { close(p.conns); return nil }
func (pipes) Addr() net.Addr { return nil }

func TestTheNumberOfConnectionsIsLimited(t *testing.T) {
	inner := pipes{make(chan net.Conn, maxConnections+2)}
	for range maxConnections + 2 {
		conn, other := net.Pipe()
		t.Cleanup(func() { _ = other.Close() })
		inner.conns <- conn
	}
	listener := Limited(inner)
	var open []net.Conn
	for range maxConnections {
		conn, err := listener.Accept()
		check.NoError(t, err)
		open = append(open, conn)
	}
	accepted := make(chan error)
	accept := func() { _, err := listener.Accept(); accepted <- err }
	go accept()
	select {
	case err := <-accepted:
		t.Fatalf("a connection above the limit was accepted: %v", err)
	default:
	}
	// A connection that is closed twice frees one place.
	_, _ = open[0].Close(), open[0].Close()
	check.NoError(t, <-accepted)
	go accept()
	check.NoError(t, listener.Close())
	if err := <-accepted; !errors.Is(err, net.ErrClosed) {
		t.Errorf("after the listener was closed: got %v", err)
	}
}
