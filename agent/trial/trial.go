// Package trial hands the orders of a node's agent to the trial runner on the same node, and carries them out there: one at a time,
// each in a process of its own, whose mounts die with it. Agent and runner are two pods of one node, the one in its network and the
// other not, and share a directory of the host with a socket in it. The runner has no token and asks no API server.
package trial

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/storageclient/operator/agent/host/probe"
)

const (
	// Dir is the directory of the socket on the host.
	Dir = "/run/storage-client"
	// Socket is the socket's name in it.
	Socket = "trial.sock"

	// maxMessage bounds an order and an answer, in bytes.
	maxMessage = 16 << 10
	// maxTimeout is the longest that an order may take, as the API has it.
	maxTimeout = 10 * time.Minute
	// orderTimeout is how long a caller may take to say what it wants.
	orderTimeout = 10 * time.Second
	// answerGrace is how much longer than its timeout an order may take until its answer is here.
	answerGrace = 15 * time.Second
)

// errBusy is the answer to an order while another one is being carried out.
var errBusy = errors.New("the trial runner is busy with another order")

// answer is what goes back over the socket.
type answer struct {
	Result probe.Result `json:"result"`
	// Refused says why nothing was done with the order; empty where something was. Busy is true if that is because of another order.
	Refused string `json:"refused"`
	Busy    bool   `json:"busy,omitempty"`
}

// NetworkNamespace names the network namespace of this process, as a link in /proc/PID/ns reads.
func NetworkNamespace() (string, error) { return os.Readlink("/proc/self/ns/net") }

// Ask hands an order to the runner that listens on a socket, and waits for the result. It is an error where there is no runner, or
// it could not carry the order out. The end of the context ends the order too.
func Ask(ctx context.Context, socket string, order probe.Order) (probe.Result, error) {
	return ask(ctx, socket, order, 0)
}

// ask is Ask of a runner that is to be owned by a user.
func ask(ctx context.Context, socket string, order probe.Order, uid uint32) (probe.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, order.Timeout+answerGrace)
	defer cancel()
	connection, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return probe.Result{}, fmt.Errorf("call the trial runner: %w", err)
	}
	defer connection.Close()
	if err := checkPeer(connection, uid); err != nil {
		return probe.Result{}, fmt.Errorf("call the trial runner: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = connection.Close() })
	defer stop()
	var got answer
	err = writeMessage(connection, order)
	if err == nil {
		err = readMessage(connection, &got)
	}
	switch {
	case ctx.Err() != nil:
		return probe.Result{}, fmt.Errorf("call the trial runner: %w", ctx.Err())
	case err != nil:
		return probe.Result{}, fmt.Errorf("call the trial runner: %w", err)
	case got.Busy:
		return probe.Result{}, errBusy
	case got.Refused != "":
		return probe.Result{}, errors.New(got.Refused)
	}
	return got.Result, nil
}

// IsTemporary tells whether an order may be taken later: there is no runner yet, or it is busy.
func IsTemporary(err error) bool {
	return errors.Is(err, errBusy) || errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)
}

// checkPeer makes sure that the other end belongs to a user, by what the kernel says of it.
func checkPeer(connection net.Conn, uid uint32) error {
	socket, ok := connection.(*net.UnixConn)
	if !ok {
		return errors.New("not a Unix socket")
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	var peer *syscall.Ucred
	var readErr error
	err = raw.Control(func(fd uintptr) {
		peer, readErr = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	})
	switch {
	case err != nil:
		return err
	case readErr != nil:
		return fmt.Errorf("read the peer's credentials: %w", readErr)
	case peer.Uid != uid:
		return fmt.Errorf("the other end belongs to user %d, not to %d", peer.Uid, uid)
	}
	return nil
}

// writeMessage writes one message, and refuses one that is too long to be read.
func writeMessage(w io.Writer, message any) error {
	data, err := json.Marshal(message)
	if err != nil {
		return err
	}
	if len(data) >= maxMessage {
		return fmt.Errorf("a message of %d bytes, at most %d are read", len(data), maxMessage)
	}
	_, err = w.Write(append(data, '\n'))
	return err
}

// readMessage reads one message, and nothing behind it.
func readMessage(r io.Reader, message any) error {
	decoder := json.NewDecoder(io.LimitReader(r, maxMessage))
	decoder.DisallowUnknownFields()
	return decoder.Decode(message)
}
