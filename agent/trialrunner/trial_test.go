package trialrunner

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/storageclient/operator/agent/host/probe"
	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/test/shortdir"
)

// order is a valid order.
var order = probe.Order{
	ID: "a", Server: "filer", Path: "/e", FSType: "nfs", Options: []string{"vers=4.1"}, OwnOptions: []string{}, User: 65534,
	Timeout: time.Minute, HostNetwork: "net:[1]",
}

// serve runs a runner and returns its socket. It ends with the test.
func serve(t *testing.T, runner *Runner) string {
	t.Helper()
	dir := filepath.Join(shortdir.New(t), "run")
	ctx, cancel := context.WithCancel(context.Background())
	listener, err := Listen(ctx, dir)
	check.NoError(t, err)
	done := make(chan error)
	go func() { done <- runner.Serve(ctx, listener) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return filepath.Join(dir, Socket)
}

func me() uint32 { return uint32(os.Getuid()) }

func TestAnOrderRunsAndReturnsItsResult(t *testing.T) {
	want := probe.Result{
		Tried: true, Mount: probe.Mount{Message: "mount(2): invalid argument"}, Transports: 4, Identifier: "x",
		Proofs: []probe.Proof{{Type: probe.OwnNetwork, Holds: true, Message: "net:[2]"}}, Own: &probe.Mount{Succeeded: true},
	}
	var got probe.Order
	socket := serve(t, &Runner{uid: me(), Work: func(_ context.Context, o probe.Order) (probe.Result, error) {
		got = o
		return want, nil
	}})
	result, err := ask(context.Background(), socket, order, me())
	check.NoError(t, err)
	check.Equal(t, "result", want, result)
	check.Equal(t, "order", order, got)
}

func TestAnOrderThatFailsReturnsTheReason(t *testing.T) {
	socket := serve(t, &Runner{uid: me(), Work: func(context.Context, probe.Order) (probe.Result, error) {
		return probe.Result{}, errors.New("timed out: no result after 1m0s")
	}})
	if _, err := ask(context.Background(), socket, order, me()); err == nil || err.Error() != "timed out: no result after 1m0s" || IsTemporary(err) {
		t.Errorf("error: got %v", err)
	}
}

func TestOneOrderAtATime(t *testing.T) {
	started, end := make(chan bool), make(chan bool)
	socket := serve(t, &Runner{uid: me(), Work: func(context.Context, probe.Order) (probe.Result, error) {
		started <- true
		<-end
		return probe.Result{Tried: true}, nil
	}})
	first := make(chan error)
	go func() {
		_, err := ask(context.Background(), socket, order, me())
		first <- err
	}()
	<-started
	if _, err := ask(context.Background(), socket, order, me()); !IsTemporary(err) {
		t.Errorf("second order: got error %v", err)
	}
	end <- true
	if err := <-first; err != nil {
		t.Errorf("first order: got error %v", err)
	}
}

func TestAnOrderStopsWithItsCaller(t *testing.T) {
	started, stopped := make(chan bool), make(chan bool)
	socket := serve(t, &Runner{uid: me(), Work: func(ctx context.Context, _ probe.Order) (probe.Result, error) {
		started <- true
		<-ctx.Done()
		stopped <- true
		return probe.Result{}, ctx.Err()
	}})
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error)
	go func() {
		_, err := ask(ctx, socket, order, me())
		result <- err
	}()
	<-started
	cancel()
	<-stopped
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Errorf("error: got %v", err)
	}
}

func TestOnlyTheSameUserIsTrusted(t *testing.T) {
	worked := false
	work := func(context.Context, probe.Order) (probe.Result, error) {
		worked = true
		return probe.Result{}, nil
	}
	t.Run("the runner rejects another caller", func(t *testing.T) {
		socket := serve(t, &Runner{uid: me() + 1, Work: work})
		if _, err := ask(context.Background(), socket, order, me()); err == nil || worked {
			t.Errorf("error: got %v", err)
		}
	})
	t.Run("the agent rejects another runner", func(t *testing.T) {
		socket := serve(t, &Runner{uid: me(), Work: work})
		if _, err := ask(context.Background(), socket, order, me()+1); err == nil || !strings.Contains(err.Error(), "the peer belongs to user") || worked {
			t.Errorf("error: got %v", err)
		}
	})
}

func TestAMissingRunnerIsATemporaryError(t *testing.T) {
	dir := shortdir.New(t)
	if _, err := ask(context.Background(), filepath.Join(dir, Socket), order, me()); !IsTemporary(err) {
		t.Errorf("without a socket: %v", err)
	}
	listener, err := Listen(context.Background(), dir)
	check.NoError(t, err)
	unix, ok := listener.(*net.UnixListener)
	if !ok {
		t.Fatal("not a Unix socket")
	}
	unix.SetUnlinkOnClose(false)
	check.NoError(t, listener.Close())
	if _, err := ask(context.Background(), filepath.Join(dir, Socket), order, me()); !IsTemporary(err) {
		t.Errorf("with the socket of an earlier runner: %v", err)
	}
	second, err := Listen(context.Background(), dir)
	if err != nil {
		t.Fatalf("the next runner: %v", err)
	}
	defer second.Close()
	for name, want := range map[string]os.FileMode{dir: 0o700, filepath.Join(dir, Socket): 0o600} {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: mode: got %v, want %v", name, info.Mode().Perm(), want)
		}
	}
}

func TestMessagesAreBounded(t *testing.T) {
	long := order
	long.Path = "/" + strings.Repeat("a", maxMessage)
	var out bytes.Buffer
	if err := writeMessage(&out, long); err == nil || out.Len() > 0 {
		t.Errorf("wrote %d bytes, error is %v", out.Len(), err)
	}
	var read probe.Order
	if err := readMessage(strings.NewReader(`{"id":"`+strings.Repeat("a", maxMessage)+`"}`), &read); err == nil {
		t.Error("read a message that is too long")
	}
	if err := readMessage(strings.NewReader(`{"id":"a","command":"reboot"}`), &read); err == nil {
		t.Error("read an order with more in it than is known")
	}
	b := &bounded{limit: 4}
	if _, err := b.Write([]byte("abcd")); err != nil {
		t.Error(err)
	}
	if _, err := b.Write([]byte("e")); !errors.Is(err, errTooLong) {
		t.Errorf("error: got %v", err)
	}
}

func TestTheMountProcessRequiresASeparateMountNamespace(t *testing.T) {
	var out bytes.Buffer
	err := Mount(context.Background(), strings.NewReader(`{"id":"a"}`), &out)
	if err == nil || !strings.Contains(err.Error(), "not in a separate mount namespace") || out.Len() > 0 {
		t.Errorf("error: got %v, output %q", err, out.String())
	}
}
