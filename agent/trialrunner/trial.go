// Package trialrunner sends the orders of a node agent to the trial runner on the same node, which runs one order at a time. Each order runs in
// a separate process, and its mounts disappear with the process. Agent and runner are two pods. They share a host directory that contains
// a socket. Only the agent uses the host network. The runner has no token and does not connect to the API server.
package trialrunner

import (
	"cmp"
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
	// Dir is the host directory of the socket.
	Dir = "/run/storage-client"
	// Socket is the file name of the socket.
	Socket = "trial.sock"

	// maxMessage is the size limit of an order and of a response, in bytes.
	maxMessage = 16 << 10
	// maxTimeout is the maximum timeout of an order, as in the API.
	maxTimeout   = 10 * time.Minute
	orderTimeout = 10 * time.Second
	// answerGrace is the additional time to wait for the response after the timeout of the order.
	answerGrace = 15 * time.Second
)

var errBusy = errors.New("the trial runner is busy with another order")

// The agent ignores unknown fields in a response, because the runner may have the next release.
type answer struct {
	Result probe.Result `json:"result"`
	// Refused is the reason why the order did not run. Empty if it ran. Busy is true if the reason is another order.
	Refused string `json:"refused"`
	Busy    bool   `json:"busy,omitempty"`
}

// NetworkNamespace returns the network namespace of this process, in the form of the link in /proc/PID/ns.
func NetworkNamespace() (string, error) { return os.Readlink("/proc/self/ns/net") }

// Ask sends an order to the runner on a socket and waits for the result. It returns an error if there is no runner, or if the runner
// cannot run the order. Canceling the context stops the order.
func Ask(ctx context.Context, socket string, order probe.Order) (probe.Result, error) {
	return ask(ctx, socket, order, 0)
}

// ask is Ask for a runner that runs as the given user.
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
	var response answer
	err = writeMessage(connection, order)
	if err == nil {
		err = json.NewDecoder(io.LimitReader(connection, maxMessage)).Decode(&response)
	}
	switch err = cmp.Or(ctx.Err(), err); {
	case err != nil:
		return probe.Result{}, fmt.Errorf("call the trial runner: %w", err)
	case response.Busy:
		return probe.Result{}, errBusy
	case response.Refused != "":
		return probe.Result{}, errors.New(response.Refused)
	}
	return response.Result, nil
}

// IsTemporary reports whether another attempt may succeed: there is no runner yet, or it is busy.
func IsTemporary(err error) bool {
	return errors.Is(err, errBusy) || errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)
}

// checkPeer verifies the user ID of the other end, which the kernel provides.
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
		return fmt.Errorf("the peer belongs to user %d, not to user %d", peer.Uid, uid)
	}
	return nil
}

// writeMessage writes one message. It returns an error if the message exceeds the limit for reading.
func writeMessage(w io.Writer, message any) error {
	data, err := json.Marshal(message)
	if err != nil {
		return err
	}
	if len(data) >= maxMessage {
		return fmt.Errorf("message of %d bytes exceeds the limit of %d bytes", len(data), maxMessage)
	}
	_, err = w.Write(append(data, '\n'))
	return err
}

// readMessage reads one message and ignores the data after it. It rejects unknown fields: one may forbid something.
func readMessage(r io.Reader, message any) error {
	decoder := json.NewDecoder(io.LimitReader(r, maxMessage))
	decoder.DisallowUnknownFields()
	return decoder.Decode(message)
}
